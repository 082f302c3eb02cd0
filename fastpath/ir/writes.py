"""Writes to some elements of what lies in memory: where an integer tensor says, or to a slice.

What is written to is copied, or made, by a kernel of its own, in whose memory the writes go: see
:class:`fastpath.ir.program.Scatter`. Where it is an input that has the new values afterwards, or
made for this alone, even that copy is not.

On the CPU writes that may meet are made one after the other, as eager makes them. On a device each
is a thread's: sums are in any order then, as eager's are there, and of several writes to one place
any may be the last. So none of this is for deterministic mode there, nor for sums of 16-bit
numbers, each of which would be rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fastpath.ir import expr as E
from fastpath.ir.elementwise import NotLowered
from fastpath.ir.expr import Expr, inside
from fastpath.ir.index import Index, axes_for, linear, variable
from fastpath.ir.program import (
    Call,
    Computed,
    Node,
    Pointwise,
    Position,
    Scatter,
    Tensor,
    tensors_in,
)
from fastpath.ir.size import Number, known
from fastpath.ir.types import name_of
from specs.dtypes import PART_OF

ADDED = ("float32", "float64", "int32", "int64")  # what a device adds to memory at once


def refused(lowering: Any, dtype: str, adds: bool) -> str:
    """Why elements of ``dtype`` cannot be written to, or added to, so; nothing if they can."""
    if dtype in PART_OF:
        return "writes of complex numbers"
    if lowering.target.scatters and torch.are_deterministic_algorithms_enabled():
        return "deterministic mode, in which writes are in order"
    if adds and dtype not in ADDED:
        return f"sums of {dtype}, which eager rounds each, in any order"
    return ""


def written(
    lowering: Any,
    val: Any,
    under: Tensor,
    space: Sequence[Number],
    place: Callable[[Position], Position],
    value: Callable[[Position], Expr],
    adds: bool,
) -> Tensor:
    """What lies as ``val``: ``under``, and ``value`` written for each position of ``space`` to
    ``place`` of it, or added to what is there.

    Raises ``NotLowered`` where the device has no such writes, or ``dtype`` none.
    """
    dtype = name_of(val.dtype)
    reason = refused(lowering, dtype, adds)
    if reason:
        raise NotLowered(reason)
    if not known(*val.shape) or not _some(space):
        raise NotLowered("writes to what each call chooses the size of, or none")
    base = lowering.output(val, under.read, "base").node
    of = under.node if _whole(under) and under.dtype == dtype else None
    axes = axes_for(space)
    found = place(tuple(variable(a) for a in axes))
    meeting = set().union(*(e.axes() for index in found for e in index.lookups()))
    in_order = [d for d, a in enumerate(axes) if a in meeting and not lowering.target.scatters]

    def element(index: Position) -> Expr:
        return E.cast(value(index), dtype)

    name, kind = lowering.fresh("scatter"), "sum" if adds else "put"
    made: Tensor = lowering.add(Scatter(name, base, kind, space, place, element, of, in_order))
    return made


@dataclass(frozen=True)
class Patch:
    """What a tensor is: ``under`` but at ``place(index)``, where it is ``value(index)``, for each
    ``index`` of ``space``. Where data gives a place twice, one of the values stays, as with
    :class:`fastpath.ir.program.Scatter`."""

    under: Tensor
    space: tuple[Number, ...]
    place: Callable[[Position], Position]
    value: Callable[[Position], Expr]


def patched(
    lowering: Any, val: Any, patch: Patch, piece: Tensor, otherwise: Callable[[], Tensor]
) -> Tensor:
    """The same in the memory of what is written to, where that lasts, or what ``otherwise`` makes.

    ``piece``: what is written, all of it. If that is itself what is there but for some elements, as
    a row of a layer of a cache is, only these are written.
    """
    inner = lowering.patches.get(piece.node) if _whole(piece) else None
    if inner is not None:
        patch = _composed(patch, inner) or patch
    under = patch.under
    there = lasting(lowering, under) and not refused(lowering, under.dtype, False)
    if there and known(*val.shape) and _some(patch.space) and _apart(patch):
        made = written(lowering, val, patch.under, patch.space, patch.place, patch.value, False)
    else:
        made = otherwise()
    lowering.patches[made.node] = patch
    return made


def _apart(patch: Patch) -> bool:
    """Whether what is written needs no other element of what it is written to."""
    index, node = tuple(variable(a) for a in axes_for(patch.space)), patch.under.node
    own = linear(patch.place(index), node.strides)
    return reads_only_at(patch.value(index), node, own, lambda source: True)


def keep_patch(lowering: Any, source: Tensor, made: Tensor) -> None:
    """What is known of ``source`` is so of its copy."""
    patch = lowering.patches.get(source.node) if _whole(source) else None
    if patch is not None and (source.shape, source.dtype) == (made.shape, made.dtype):
        lowering.patches[made.node] = patch


def _composed(outer: Patch, inner: Patch) -> Patch | None:
    """A patch within a patch, where what surrounds it is there already."""

    def place(index: Position) -> Position:
        return outer.place(inner.place(index))

    index = tuple(variable(a) for a in axes_for(inner.space))
    if inner.under.read(inner.place(index)) != outer.under.read(place(index)):
        return None
    return Patch(outer.under, inner.space, place, inner.value)


def reads_only_at(
    value: Expr, node: Node, place: Index, inlined: Callable[[Pointwise], bool]
) -> bool:
    """Whether all that ``value`` reads of ``node``, also by way of nodes that are ``inlined``, is
    the element that lies at ``place``, and not on a condition."""
    stack, seen = [value], set[Expr]()
    while stack:
        e = stack.pop()
        if e in seen:
            continue
        seen.add(e)
        if e.op == "read":
            source, position, *guard = e.args
            if source is node and (guard or linear(position, node.strides) != place):
                return False
            if isinstance(source, Pointwise) and inlined(source):
                stack.append(source.at(position))
        stack.extend(e.operands())
    return True


def _some(space: Sequence[Number]) -> bool:
    """Whether there are positions, as far as is known before the call."""
    return not any(known(n) and n == 0 for n in space)


def _whole(t: Tensor) -> bool:
    return t.index is None and t.seen is None and t.shape == t.node.shape


def lasting(lowering: Any, under: Tensor) -> bool:
    """Whether ``under`` is an input that keeps what is written to it, or such a one so written."""
    node = under.node
    while isinstance(node, Scatter) and node.of is not None:
        node = node.of
    return _whole(under) and node in lowering.overwritten


def without_copies(steps: Sequence[Computed | Call], outputs: Sequence[Any]) -> None:
    """Write into what kernels have made, rather than into a copy, where nobody else reads it."""
    scatters = [step for step in steps if isinstance(step, Scatter)]
    if not scatters:
        return
    readers: dict[Node, set[object]] = {}
    returned = {t.node for t in tensors_in(outputs)}
    wanted = set(returned)
    for step in reversed(steps):
        if isinstance(step, Call):
            read = [t.node for t in tensors_in((step.arguments, step.keywords))]
        elif step in wanted:
            read = [e.args[0] for e in inside([step.value]) if e.op == "read"]
            read += [step.base] if isinstance(step, Scatter) else []
        else:
            continue
        wanted.update(read)
        for node in read:
            readers.setdefault(node, set()).add(step)
    for step in scatters:
        made, base = step.of, step.base
        if not isinstance(made, Computed) or made in returned or made.strides != base.strides:
            continue
        found = readers.get(made, set()) - {base}
        if not found or _for(step, found, readers) and _reads_its_own(step, made):
            step.base, step.of = made, None


def _for(step: Scatter, found: set[object], readers: dict[Node, set[object]]) -> bool:
    """Whether what ``found`` compute is for ``step`` alone."""
    stack, seen = list(found), set[object]()
    while stack:
        each = stack.pop()
        if each is step or each in seen:
            continue
        seen.add(each)
        if not isinstance(each, Pointwise) or not readers.get(each):
            return False
        stack += readers[each]
    return True


def _reads_its_own(step: Scatter, made: Node) -> bool:
    value, place = step.value.args
    own = linear(place, made.strides)
    return not own.lookups() and reads_only_at(value, made, own, lambda source: True)
