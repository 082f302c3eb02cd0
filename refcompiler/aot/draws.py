"""Random numbers in compiled graphs: the order of draws is eager's, and a recompute draws again.

Every draw of the forward stays in the forward graph, in eager's order, also where its result is
not used, so that the generator ends in eager's state. A draw inside a checkpointed region happens
a second time in the backward: the forward keeps the generator's state from before the draw (5 KB
on the CPU, 16 bytes on a GPU, instead of a mask of the size of the activations), and the backward
draws from that state and puts the generator back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

#: Each is called for every draw of a compiled kernel, which no dispatch mode sees, with its name,
#: the result, the device's name, and the generator's state before and after, in any form.
#: ``kept``: whether it drew from a kept state, so that the generator itself stayed as it was.
WATCHERS: list[Callable[..., None]] = []

AGAIN = "draws_again"  # in a node's meta: the node with the state to draw from
TURN = "computed again"  # in a node's meta: in which run of a region, so as not to keep it
INSIDE = "draws_inside"  # in the meta of a node whose own graphs draw
_CPU_BYTES, _GPU_BYTES = 5056, 16

_LIBRARY = torch.library.Library("refcompiler", "FRAGMENT")
_SEEDED = (torch.Tag.nondeterministic_seeded,)
_LIBRARY.define("rng_state(Device device) -> Tensor", tags=_SEEDED)
_LIBRARY.define(
    "normal_strided(SymInt[] size, SymInt[] stride, float mean, float std, *, ScalarType dtype, "
    "Device device, Generator? generator=None) -> Tensor",
    tags=_SEEDED,
)


def _state(device: torch.device) -> torch.Tensor:
    """The state of ``device``'s default generator: uint8, on the CPU."""
    if device.type == "cpu":
        return torch.get_rng_state()
    return torch.get_device_module(device).get_rng_state(device)


def _fake_state(device: torch.device) -> torch.Tensor:
    return torch.empty(_CPU_BYTES if device.type == "cpu" else _GPU_BYTES, dtype=torch.uint8)


_LIBRARY.impl("rng_state", _state, "CompositeExplicitAutograd")
torch.library.register_fake("refcompiler::rng_state", _fake_state, lib=_LIBRARY)
_KEEPS = torch.ops.refcompiler.rng_state.default


def _normal_strided(
    size: Any,
    stride: Any,
    mean: float,
    std: float,
    *,
    dtype: Any,
    device: Any,
    generator: Any = None,
) -> torch.Tensor:
    made = torch.empty_strided(size, stride, dtype=dtype, device=device)
    return made.normal_(mean, std, generator=generator)


def _fake_normal(
    size: Any,
    stride: Any,
    mean: float,
    std: float,
    *,
    dtype: Any,
    device: Any,
    generator: Any = None,
) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device=device)


_LIBRARY.impl("normal_strided", _normal_strided, "CompositeExplicitAutograd")
torch.library.register_fake("refcompiler::normal_strided", _fake_normal, lib=_LIBRARY)


def normal_in_gaps(
    t: torch.Tensor, mean: float = 0, std: float = 1, *, generator: Any = None
) -> Any:
    """What ``t.normal_`` writes where ``t`` has gaps in its memory.

    The CPU draws for contiguous tensors of 16 elements or more in another way than for others, and
    the operator that stands for the write draws for a contiguous copy.
    """
    return torch.ops.refcompiler.normal_strided(
        t.size(), t.stride(), mean, std, dtype=t.dtype, device=t.device, generator=generator
    )


def draw_again(
    op: Any, device: torch.device, state: torch.Tensor, /, *args: Any, **kwargs: Any
) -> Any:
    """``op(*args, **kwargs)`` from ``state``; the generator is as before afterwards."""
    before = _state(device)
    _set_state(device, state)
    try:
        found = op(*args, **kwargs)
        for watch in list(WATCHERS):
            watch(str(op), found, str(device), state, _state(device), kept=True)
        return found
    finally:
        _set_state(device, before)


def _set_state(device: torch.device, state: torch.Tensor) -> None:
    if device.type == "cpu":
        torch.set_rng_state(state)
    else:
        torch.get_device_module(device).set_rng_state(state, device)


def draws(target: Any) -> bool:
    """Whether a node's target takes random numbers from a generator."""
    return torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()) and target is not _KEEPS


_ATTENTION = (
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
)
#: Where they have the probability that an element is dropped.
_DROPPED = {op: [a.name for a in op._schema.arguments].index("dropout_p") for op in _ATTENTION}


def takes_numbers(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether such a call takes random numbers: attention that drops nothing does not."""
    place = _DROPPED.get(target)
    if place is None:
        return draws(target)
    given = args[place] if place < len(args) else kwargs.get("dropout_p", 0.0)
    return not (isinstance(given, float) and given == 0)


def drawing(node: torch.fx.Node) -> bool:
    """Whether a node takes random numbers from a generator, itself or in a graph of its own."""
    if node.op != "call_function":
        return False
    return takes_numbers(node.target, node.args, node.kwargs) or INSIDE in node.meta


def draws_from_state(node: torch.fx.Node) -> bool:
    """Whether the state of the CPU's generator alone tells what a drawing node gives."""
    value = node.meta.get("val")
    values = value if isinstance(value, tuple | list) else [value]
    on_cpu = all(t.device.type == "cpu" for t in values if isinstance(t, torch.Tensor))
    return on_cpu and INSIDE not in node.meta and node.kwargs.get("generator") is None


def finish(graph: torch.fx.GraphModule) -> None:
    """Second draws of checkpointed regions become :func:`draw_again`, before it is recompiled."""
    for node in graph.graph.nodes:
        paired = node.meta.pop(AGAIN, None)
        if paired is None:
            continue
        state, device = paired
        node.args = (node.target, device, state, *node.args)
        node.target = draw_again
        node.meta.pop(INSIDE, None)  # the generator stays as it is
