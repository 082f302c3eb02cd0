"""Global switches of torch that a program sets: the kernels of attention, determinism, dtype.

As with the modes, a switch is set for real while capturing, so
that the fakes behave as the tensors will, and by a node of the graph, which leaves every switch
as it found it; the plan then sets those with which the program goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from refcompiler.capture.calls import Calls
from refcompiler.capture.models.registry import model
from refcompiler.capture.signals import Break


class Switch(NamedTuple):
    """``set(*values)`` where ``values`` are what the ``reads`` answer."""

    set: Callable[..., Any]
    reads: tuple[Callable[[], Any], ...]

    def now(self) -> tuple[Any, ...]:
        return tuple([read() for read in self.reads])


class Setting(NamedTuple):
    """What a switch was before the frame set it, and what it is set to at its end."""

    switch: Switch
    before: tuple[Any, ...]
    after: tuple[Any, ...]


def sdp_priority() -> tuple[int, ...]:
    """The order in which torch tries the kernels of attention."""
    return tuple(torch._C._get_sdp_priority_order())


def set_sdp_priority(order: Sequence[int]) -> None:
    torch._C._set_sdp_priority_order(list(order))


def set_deterministic(mode: bool, warn_only: bool) -> None:
    torch._C._set_deterministic_algorithms(mode, warn_only=warn_only)


def saving_refused() -> str | None:
    """What is said to who wants hooks on saved tensors; None where they may be had."""
    return torch._C._autograd._saved_tensors_hooks_get_disabled_error_message()


def refuse_saving(message: str | None) -> None:
    if message is None:
        torch._C._autograd._saved_tensors_hooks_enable()
    else:
        torch._C._autograd._saved_tensors_hooks_disable(message)


def _set(m: Calls, switch: Switch, values: tuple) -> None:
    if m.recorder.scope.outer is not None:
        raise Break("ambient-state", f"{switch.set.__name__} inside a region")
    if switch not in m.switches:
        before = switch.now()
        for read, value in zip(switch.reads, before, strict=True):
            m.guard("STATE", None, (read, (), value))
        m.switches[switch] = before
    switch.set(*values)
    m.recorder.scope.graph.call_function(switch.set, values)


def _switch(setter: Callable, switch: Switch, arguments: Callable[..., tuple]) -> None:
    """The model of ``setter``, whose arguments ``arguments`` turns into the switch's values."""

    def run(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> None:
        given = [m.force(a) for a in args]
        _set(m, switch, arguments(*given, **{k: m.force(v) for k, v in kwargs.items()}))

    model(setter)(run)
    for read in switch.reads:
        model(read)(_reader(switch, read))


def _reader(switch: Switch, read: Callable[[], Any]) -> Callable:
    def run(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
        found = read()
        if switch not in m.switches:
            m.guard("STATE", None, (read, (), found))
        return found

    return run


_C: Any = torch._C
for _name in ("cudnn", "flash", "math", "mem_efficient", "overrideable"):
    _setter = getattr(_C, f"_set_sdp_use_{_name}", None)
    _getter = getattr(_C, f"_get_{_name}_sdp_enabled", None)
    if _setter is not None and _getter is not None:
        _switch(_setter, Switch(_setter, (_getter,)), lambda on: (on,))
_PRIORITY = Switch(set_sdp_priority, (sdp_priority,))
_switch(_C._set_sdp_priority_order, _PRIORITY, lambda order: (tuple(order),))


@model(_C._get_sdp_priority_order)
def _priority(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> list[int]:
    return list(_reader(_PRIORITY, sdp_priority)(m, frame, args, kwargs))


_switch(
    _C._set_deterministic_algorithms,
    Switch(
        set_deterministic,
        (_C._get_deterministic_algorithms, _C._get_deterministic_algorithms_warn_only),
    ),
    lambda mode, *, warn_only=False: (mode, warn_only),
)
_switch(
    _C._set_default_dtype,
    Switch(_C._set_default_dtype, (torch.get_default_dtype,)),
    lambda dtype: (dtype,),
)


_switch(
    torch.set_anomaly_enabled,
    Switch(
        torch.set_anomaly_enabled, (torch.is_anomaly_enabled, torch.is_anomaly_check_nan_enabled)
    ),
    lambda mode, check_nan=True: (mode, check_nan),
)
_SAVING = Switch(refuse_saving, (saving_refused,))
_saving: Any = torch._C._autograd
_switch(_saving._saved_tensors_hooks_disable, _SAVING, lambda message: (message,))
model(_saving._saved_tensors_hooks_enable)(lambda m, frame, args, kwargs: _set(m, _SAVING, (None,)))
model(_saving._saved_tensors_hooks_get_disabled_error_message)(_reader(_SAVING, saving_refused))


# ---- what a capture does at its end -----------------------------------------------------------


def settings(switches: Mapping[Switch, tuple]) -> list[Setting]:
    """Those of the switches that a capture has touched, at its end."""
    return [Setting(switch, before, switch.now()) for switch, before in switches.items()]


def restore(switches: Mapping[Switch, tuple]) -> None:
    for switch, before in switches.items():
        switch.set(*before)


def leave_switches(graph: torch.fx.Graph, found: Sequence[Setting]) -> None:
    """At the end of a graph: it leaves the switches as it found them."""
    for switch, before, after in found:
        if after != before:
            graph.call_function(switch.set, before)
