"""What a caller can see of a graph besides values, found by running it on fakes as eager would.

Aliasing of outputs with inputs and with each other, identity, mutated inputs, gradient flags.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from refcompiler.aot.inputs import Runner, Unsupported


@dataclass(frozen=True)
class Same:
    """The output is the very object that input ``place`` is."""

    place: int


@dataclass(frozen=True)
class ViewOf:
    """The output is a view of input ``place``: strides and the offset relative to the input's.

    ``detached``: the input requires a gradient and the output does not.
    """

    place: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    detached: bool = False


@dataclass(frozen=True)
class Again:
    """The output is the very object that an earlier output is."""

    output: int


@dataclass(frozen=True)
class Value:
    """A tensor of its own; ``group`` numbers the storages, so equal groups alias each other."""

    group: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Plain:
    """Not a tensor."""

    value: Any


@dataclass
class Observation:
    outputs: list[Same | ViewOf | Again | Value | Plain] = field(default_factory=list)
    spec: Any = None  # the nesting of the outputs
    mutated: set[int] = field(default_factory=set)  # inputs written to
    requires_grad: bool = False  # whether any output or mutated input takes part in autograd


def observe(
    gm: torch.fx.GraphModule,
    fakes: Sequence[torch.Tensor],
    replaced: dict[int, torch.Tensor],
    given: int,
) -> Observation:
    """Run ``gm`` on ``fakes`` (the first ``given`` are its own inputs, the rest are lifted).

    Raises :class:`Unsupported` for what the epilogue cannot restore: changed metadata of an
    input, outputs that are views in another dtype, an ambient grad mode left changed.
    """
    versions = [t._version for t in fakes]
    metadata = [_metadata(t) for t in fakes]
    storages = {t.untyped_storage()._cdata: n for n, t in reversed(list(enumerate(fakes)))}
    grad_mode = torch.is_grad_enabled()
    try:
        outputs = Runner(gm, replaced).run(*fakes[:given])
        changed = torch.is_grad_enabled() != grad_mode
    finally:
        torch._C._set_grad_enabled(grad_mode)
    if changed:
        raise Unsupported("the graph leaves the gradient mode changed")
    seen = Observation()
    for n, t in enumerate(fakes):
        if _metadata(t) != metadata[n]:
            raise Unsupported("the graph changes the metadata of an input")
        if t._version != versions[n]:
            seen.mutated.add(n)
            seen.requires_grad |= t.requires_grad
    flat, seen.spec = pytree.tree_flatten(outputs)
    identity = {id(t): n for n, t in reversed(list(enumerate(fakes)))}
    earlier: dict[int, int] = {}
    groups: dict[int, int] = {}
    for n, t in enumerate(flat):
        if not isinstance(t, torch.Tensor):
            if isinstance(t, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                raise Unsupported("an output is a symbolic number")
            seen.outputs.append(Plain(t))
            continue
        if t.layout is not torch.strided or t.is_conj() or t.is_neg():
            raise Unsupported("an output is sparse or has a conjugate or negative bit")
        if t.device.type != "cpu":
            raise Unsupported(f"an output is on {t.device.type}")
        if id(t) in identity:
            seen.outputs.append(Same(identity[id(t)]))
            continue
        seen.requires_grad |= t.requires_grad
        if id(t) in earlier:
            seen.outputs.append(Again(earlier[id(t)]))
            continue
        earlier[id(t)] = n
        place = storages.get(t.untyped_storage()._cdata)
        size, stride, offset = tuple(t.shape), tuple(t.stride()), t.storage_offset()
        if place is None:
            group = groups.setdefault(t.untyped_storage()._cdata, len(groups))
            seen.outputs.append(Value(group, size, stride, offset))
            continue
        base = fakes[place]
        if base.dtype != t.dtype:
            raise Unsupported("an output is a view of an input in another dtype")
        detached = base.requires_grad and not t.requires_grad
        offset -= base.storage_offset()
        seen.outputs.append(ViewOf(place, size, stride, offset, detached))
    return seen


def _metadata(t: torch.Tensor) -> tuple[Any, ...]:
    return (
        tuple(t.shape),
        tuple(t.stride()),
        t.storage_offset(),
        t.requires_grad,
        t.untyped_storage()._cdata,
    )
