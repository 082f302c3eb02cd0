"""Rules for operators that put a tensor together of pieces: cat, stack, pad, gradients of views.

Which piece an element comes from is decided at its position, and the others are read with a guard:
where it is false, no memory is touched. So pieces may be computed where they are read, and what is
put together need not be stored.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fastpath.ir import expr as E
from fastpath.ir.elementwise import NotLowered, apply, broadcast_read
from fastpath.ir.expr import FALSE, TRUE, Expr
from fastpath.ir.index import Index, constant
from fastpath.ir.program import Position, Tensor
from fastpath.ir.size import Number, Undecided, known, surely
from fastpath.ir.types import name_of
from fastpath.ir.views import first_of
from fastpath.ir.writes import Patch, keep_patch, patched
from specs.dtypes import compute_dtype, fits

Rule = Callable[[Any, Any, dict[str, Any]], Any]

MOST_PIECES = 8  # each element asks for all of them; more are copied by ATen one after the other
MOST_ALONG = 24  # of pieces that lie side by side in memory: a loop over them asks for none
ALONG = 64  # elements of such a row


def within(index: Index, low: Number, high: Number) -> Expr:
    """Whether ``low <= index < high``, by no more comparisons than its bounds leave open."""
    above = below = TRUE
    try:
        least, most = index.bounds()
    except Undecided:
        above = apply("ge", E.position(index), E.number(low, "int64"))
        below = apply("lt", E.position(index), E.number(high, "int64"))
        return both(above, below)
    if surely(most, low) or surely(high - 1, least):
        return FALSE
    if not surely(low - 1, least):
        above = apply("ge", E.position(index), E.number(low, "int64"))
    if not surely(most, high):
        below = apply("lt", E.position(index), E.number(high, "int64"))
    return both(above, below)


def both(a: Expr, b: Expr) -> Expr:
    if a is TRUE or b is FALSE:
        return b
    return a if b is TRUE or a is FALSE else apply("logical_and", a, b)


def where_true(condition: Expr, value: Callable[[], Expr], other: Expr) -> Expr:
    """``value()`` where the condition holds, and reads nothing elsewhere."""
    if condition is FALSE:
        return other
    if condition is TRUE:
        return value()
    return apply("where", condition, E.guarded(value(), condition), other)


def _replaced(index: Position, dim: int, value: Index) -> Position:
    return (*index[:dim], value, *index[dim + 1 :])


def _without(index: tuple[Any, ...], dim: int) -> tuple[Any, ...]:
    return (*index[:dim], *index[dim + 1 :])


def _cat(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    tensors = bound["tensors"]
    dim = bound.get("dim", 0) % max(len(val.shape), 1)
    along = lowering.target.unit and known(val.shape[dim]) and val.stride()[dim] == 1
    most = MOST_ALONG if along and val.shape[dim] >= ALONG else MOST_PIECES
    if len(tensors) > most:
        raise NotLowered(f"more than {most} pieces, which are copied one after the other")
    kept = compute_dtype(name_of(val.dtype))
    dtype = name_of(val.dtype)

    def body(index: Position) -> Expr:
        place, start = index[dim], 0
        pieces = []
        for t in tensors:
            at = _replaced(index, dim, place + -start)
            pieces.append((t, at, start, start + t.shape[dim]))
            start += t.shape[dim]
        value = E.const(0, kept)
        for t, at, first, end in reversed(pieces):
            read = functools.partial(_as, t, at, dtype, kept)
            value = where_true(within(place, first, end), read, value)
        return value

    return lowering.output(val, body, "cat")


def _as(t: Tensor, at: Position, dtype: str, kept: str) -> Expr:
    return E.cast(E.cast(t.read(at), dtype), kept)


def _stack(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    tensors = bound["tensors"]
    if len(tensors) > MOST_PIECES:
        raise NotLowered(f"more than {MOST_PIECES} pieces, which are copied one after the other")
    dim, dtype = bound.get("dim", 0) % len(val.shape), name_of(val.dtype)
    kept = compute_dtype(dtype)

    def body(index: Position) -> Expr:
        value, at = E.const(0, kept), _without(index, dim)
        for n, t in reversed(list(enumerate(tensors))):
            read = functools.partial(_as, t, at, dtype, kept)
            value = where_true(within(index[dim], n, n + 1), read, value)
        return value

    return lowering.output(val, body, "stack")


def _pad(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    t, pads, value = bound["self"], bound["pad"], bound.get("value", 0)
    dtype = name_of(val.dtype)
    if not isinstance(value, (bool, int, float, complex)) or not fits(value, dtype):
        raise NotLowered("a fill value that the dtype does not have")
    kept, rank = compute_dtype(dtype), len(t.shape)
    before = [0] * rank
    for n in range(len(pads) // 2):
        before[rank - 1 - n] = pads[2 * n]

    def body(index: Position) -> Expr:
        at = tuple(i + -skip for i, skip in zip(index, before))
        inside = TRUE
        for i, n in zip(at, t.shape):
            inside = both(inside, within(i, 0, n))
        fill = E.cast(E.const(value, dtype), kept)
        return where_true(inside, lambda: E.cast(t.read(at), kept), fill)

    return lowering.output(val, body, "pad")


def _in_slice(i: Index, start: int, end: int, step: int) -> tuple[Expr, Index]:
    """Whether a place is one of a slice's, and which."""
    inside, shifted = within(i, start, end), i + -start
    if step == 1:
        return inside, shifted
    exact = within(shifted.mod(step), 0, 1)
    return both(inside, exact), shifted.floordiv(step)


def _slice_into(
    lowering: Any, val: Any, piece: Tensor, under: Tensor | None, bound: dict[str, Any]
) -> Tensor:
    """``piece`` where the slice is, and elsewhere ``under``, or zeros."""
    shape, dtype = tuple(val.shape), name_of(val.dtype)
    dim, kept = bound.get("dim", 0) % len(shape), compute_dtype(dtype)
    step = bound.get("step", 1)
    start = first_of(bound.get("start"), shape[dim])
    end = start + (piece.shape[dim] - 1) * step + 1

    def body(index: Position) -> Expr:
        inside, place = _in_slice(index[dim], start, end, step)
        other = E.const(0, kept) if under is None else E.cast(under.read(index), kept)
        at = _replaced(index, dim, place)
        return where_true(inside, lambda: E.cast(broadcast_read(piece, at), kept), other)

    def place(index: Position) -> Position:
        return _replaced(index, dim, index[dim] * step + start)

    space = (*shape[:dim], piece.shape[dim], *shape[dim + 1 :])
    return _over(lowering, val, piece, under, space, place, body, "slice")


def _select_into(
    lowering: Any, val: Any, piece: Tensor, under: Tensor | None, bound: dict[str, Any]
) -> Tensor:
    """``piece`` at one place of a dimension, and elsewhere ``under``, or zeros."""
    shape, dtype = tuple(val.shape), name_of(val.dtype)
    dim, kept = bound["dim"] % len(shape), compute_dtype(dtype)
    place = bound["index"] % shape[dim]

    def body(index: Position) -> Expr:
        inside = within(index[dim], place, place + 1)
        other = E.const(0, kept) if under is None else E.cast(under.read(index), kept)
        at = _without(index, dim)
        return where_true(inside, lambda: E.cast(piece.read(at), kept), other)

    def to(index: Position) -> Position:
        return (*index[:dim], constant(place), *index[dim:])

    return _over(lowering, val, piece, under, _without(shape, dim), to, body, "select")


def _over(
    lowering: Any,
    val: Any,
    piece: Tensor,
    under: Tensor | None,
    space: tuple[Number, ...],
    place: Callable[[Position], Position],
    body: Callable[[Position], Expr],
    stem: str,
) -> Tensor:
    """``piece`` at ``place`` of ``under``, in its memory if that lasts, or else what ``body`` has
    at each position."""

    def otherwise() -> Tensor:
        made: Tensor = lowering.output(val, body, stem)
        return made

    if under is None or piece.shape != space:
        return otherwise()
    return patched(lowering, val, Patch(under, space, place, piece.read), piece, otherwise)


def _backward(
    into: Callable[..., Tensor], lowering: Any, val: Any, bound: dict[str, Any]
) -> Tensor:
    return into(lowering, val, bound["grad_output"], None, bound)


def _scatter(into: Callable[..., Tensor], lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    under = bound["self"]
    if name_of(val.dtype) != under.dtype:
        raise NotLowered("a result in another dtype")
    return into(lowering, val, bound["src"], under, bound)


def _diagonal_backward(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    grad, offset = bound["grad_output"], bound["offset"]
    rank, kept = len(val.shape), compute_dtype(name_of(val.dtype))
    row, column = bound["dim1"] % rank, bound["dim2"] % rank

    def body(index: Position) -> Expr:
        on = within(index[column] + index[row] * -1 + -offset, 0, 1)
        rest = tuple(i for d, i in enumerate(index) if d not in (row, column))
        along = index[row] if offset >= 0 else index[column]
        return where_true(on, lambda: E.cast(grad.read((*rest, along)), kept), E.const(0, kept))

    return lowering.output(val, body, "diagonal")


def _copy(lowering: Any, val: Any, bound: dict[str, Any], given: str = "src") -> Tensor:
    source: Tensor = bound.get(given, bound["self"])
    if not isinstance(source, Tensor):
        raise NotLowered("a number in the place of a tensor")
    dtype = name_of(val.dtype)
    made: Tensor = lowering.output(val, lambda i: E.cast(broadcast_read(source, i), dtype), "copy")
    keep_patch(lowering, source, made)
    return made


RULES: dict[str, Rule] = {
    "copy:cat": _cat,
    "copy:stack": _stack,
    "copy:pad": _pad,
    "copy:copy": _copy,
    "copy:fill": functools.partial(_copy, given="value"),
    "copy:slice_backward": functools.partial(_backward, _slice_into),
    "copy:select_backward": functools.partial(_backward, _select_into),
    "copy:slice_scatter": functools.partial(_scatter, _slice_into),
    "copy:select_scatter": functools.partial(_scatter, _select_into),
    "copy:diagonal_backward": _diagonal_backward,
}
