"""Random numbers in compiled graphs: the order of draws is eager's, and a recompute draws again.

Every draw of the forward stays in the forward graph, in eager's order, also where its result is
not used, so that the generator ends in eager's state. A draw inside a checkpointed region happens
a second time in the backward: the forward keeps the generator's state from before the draw (5 KB
on the CPU, 16 bytes on a GPU, instead of a mask of the size of the activations), and the backward
draws from that state and puts the generator back.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from refcompiler.aot.inputs import Runner, Unsupported

_AGAIN = "draws_again"  # in a node's meta: the node with the state to draw from
_CPU_BYTES, _GPU_BYTES = 5056, 16

_LIBRARY = torch.library.Library("refcompiler", "FRAGMENT")
_LIBRARY.define("rng_state(Device device) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))


def _state(device: torch.device) -> torch.Tensor:
    """The state of ``device``'s default generator: uint8, on the CPU."""
    if device.type == "cpu":
        return torch.get_rng_state()
    return torch.get_device_module(device).get_rng_state(device)


def _fake_state(device: torch.device) -> torch.Tensor:
    return torch.empty(_CPU_BYTES if device.type == "cpu" else _GPU_BYTES, dtype=torch.uint8)


_LIBRARY.impl("rng_state", _state, "CompositeExplicitAutograd")
torch.library.register_fake("refcompiler::rng_state", _fake_state, lib=_LIBRARY)


def draw_again(
    op: Any, device: torch.device, state: torch.Tensor, /, *args: Any, **kwargs: Any
) -> Any:
    """``op(*args, **kwargs)`` from ``state``; the generator is as before afterwards."""
    before = _state(device)
    _set_state(device, state)
    try:
        return op(*args, **kwargs)
    finally:
        _set_state(device, before)


def _set_state(device: torch.device, state: torch.Tensor) -> None:
    if device.type == "cpu":
        torch.set_rng_state(state)
    else:
        torch.get_device_module(device).set_rng_state(state, device)


def draws(target: Any) -> bool:
    """Whether a node's target takes random numbers from a generator."""
    return torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())


class _Draws(TorchDispatchMode):
    """Sees the draws of a region while it is traced."""

    def __init__(self, states: list[Any]):
        super().__init__()
        self.states = states

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not draws(func):
            return func(*args, **(kwargs or {}))
        return self.draw(func, args, kwargs or {})

    def draw(self, func: Any, args: Any, kwargs: Any) -> Any:
        raise AssertionError


class _First(_Draws):
    def draw(self, func: Any, args: Any, kwargs: Any) -> Any:
        device = _device(args, kwargs)
        torch.ops.refcompiler.rng_state(device)
        self.states.append((next(_newest()), device))
        return func(*args, **kwargs)


class _Again(_Draws):
    def __init__(self, states: list[Any]):
        super().__init__(states)
        self.count = 0

    def draw(self, func: Any, args: Any, kwargs: Any) -> Any:
        last = next(_newest())
        found = func(*args, **kwargs)
        new = itertools.takewhile(lambda node: node is not last, _newest())
        made = [node for node in new if draws(node.target)]
        if len(made) != 1 or self.count >= len(self.states):
            raise Unsupported(f"a checkpointed region draws random numbers by {func}")
        made[0].meta[_AGAIN] = self.states[self.count]
        self.count += 1
        return found


def _device(args: Any, kwargs: Any) -> torch.device:
    if kwargs.get("generator") is not None:
        raise Unsupported("a checkpointed region draws from a generator of its own")
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            return value.device
    return torch.device(kwargs.get("device") or "cpu")


def _newest() -> Iterator[torch.fx.Node]:
    """The nodes of the graph that is being traced, the newest first."""
    mode = get_proxy_mode()
    assert mode is not None
    return reversed(mode.tracer.graph.nodes)


def _checkpoint(target: Any, graph: torch.fx.GraphModule, *tensors: torch.Tensor) -> Any:
    """A checkpointed region in a trace: what it keeps is recomputed in the backward phase."""
    options = dict(target.options)
    states: list[Any] = []
    given = options.pop("context_fn", None)
    options.update(preserve_rng_state=False, use_reentrant=False)

    def contexts() -> tuple[Any, Any]:
        first, again = _First(states), _Again(states)
        if given is None:
            return first, again
        ours, theirs = (first, again), given()
        return _Both(theirs[0], ours[0]), _Both(theirs[1], ours[1])

    def region(*inputs: torch.Tensor) -> Any:
        return Runner(graph, {}, REGIONS).run(*inputs)

    return tuple(checkpoint(region, *tensors, context_fn=contexts, **options))


class _Both:
    def __init__(self, outer: Any, inner: Any):
        self.outer, self.inner = outer, inner

    def __enter__(self) -> None:
        self.inner.__enter__()
        self.outer.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.outer.__exit__(*error)
        self.inner.__exit__(*error)


#: What stands for a region's target while a graph is traced, by ``target.region``.
REGIONS: dict[str, Callable[..., Any]] = {"checkpoint": _checkpoint}


def finish(graph: torch.fx.GraphModule) -> None:
    """Second draws of checkpointed regions become :func:`draw_again`."""
    for node in graph.graph.nodes:
        paired = node.meta.pop(_AGAIN, None)
        if paired is None:
            continue
        state, device = paired
        node.args = (node.target, device, state, *node.args)
        node.target = draw_again
    graph.recompile()
