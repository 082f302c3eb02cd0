"""Forward-mode differentiation in the frame: a level that it opens and closes, dual tensors in it.

The level is open for real while capturing, so that fakes carry tangents as the tensors will, and
each step is a node. Source of the rules: the documentation of ``torch.autograd.forward_ad``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch.autograd import forward_ad

from refcompiler.capture.calls import Calls
from refcompiler.capture.models.registry import model
from refcompiler.capture.signals import Break


def current_level() -> int:
    """-1 outside of all levels."""
    return forward_ad._current_level


@model(forward_ad.enter_dual_level)
def _enter(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> int:
    if current_level() >= 0 or m.recorder.scope.outer is not None:
        raise Break("ambient-state", "a level of forward differentiation inside another")
    m.guard("STATE", None, (current_level, (), -1))
    m.open_levels.append(m.steps)
    m.recorder.scope.graph.call_function(forward_ad.enter_dual_level)
    return forward_ad.enter_dual_level()


@model(forward_ad.exit_dual_level)
def _exit(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> None:
    given = {name: m.force(value) for name, value in kwargs.items()}
    if not m.open_levels or given.get("level", current_level()) != current_level():
        raise Break("ambient-state", "a level of forward differentiation is left")
    m.open_levels.pop()
    m.recorder.scope.graph.call_function(forward_ad.exit_dual_level)
    forward_ad.exit_dual_level()


def _operation(function: Any) -> None:
    def run(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
        if not m.open_levels:
            return m.call_function(frame, function, args, kwargs)
        if m.recorder.scope.outer is not None:
            raise Break("higher-order", f"{function.__name__} inside a region")
        given = tuple([m.pass_operand(value) for value in args])
        named = {name: m.pass_operand(value) for name, value in kwargs.items()}
        with m.recorder.suspension():
            found = function(*given, **named)
        m.recorder.check(function.__name__, found)
        m.recorder.record(function, given, named, found)
        return found

    model(function)(run)


_operation(forward_ad.make_dual)
_operation(forward_ad.unpack_dual)
