"""Rules for operators that write where an integer tensor says: scatter, index_add, index_put.

Each element of the result asks which writes are meant for it, in eager's order, so that nothing is
written twice and what is written to need not be copied first. That pays while there are few writes
along the dimension; more of them go to copies (:mod:`fastpath.ir.writes`), or are made by ATen.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from fastpath.ir import expr as E
from fastpath.ir.elementwise import NotLowered, apply, broadcast_read
from fastpath.ir.expr import Bounds, Expr
from fastpath.ir.gathers import integer, integers, out_of_bounds, placed_by
from fastpath.ir.index import ZERO, constant
from fastpath.ir.pieces import TRUE, both, within
from fastpath.ir.program import Pointwise, Position, Tensor
from fastpath.ir.size import known
from fastpath.ir.types import name_of
from fastpath.ir.writes import Patch, lasting, refused, written
from specs.dtypes import REDUCED, compute_dtype, fits

Rule = Callable[[Any, Any, dict[str, Any]], Any]
Adding = Callable[[Expr, Expr], Expr]  # what is there and what is added to it, both to compute with
Value = Callable[[Position], Expr]  # of a write: by its position among them

MOST = 4  # writes along the dimension
_MANY = f"more than {MOST} writes along a dimension, which ATen makes one after the other"


def _apart(lowering: Any, under: Tensor, count: Any, adds: bool) -> bool:
    """Whether each write is made for itself: there are many, which has to be possible, or what is
    written to is there, and most of it stays as it is."""
    reason = refused(lowering, under.dtype, adds)
    if not known(*under.shape):
        raise NotLowered(_MANY)
    if known(count) and count <= MOST:
        return not reason and lasting(lowering, under)
    if reason:
        raise NotLowered(reason)
    return True


def _leave_rows(lowering: Any, dim: int, count: Any, source: Tensor) -> None:
    """Refuse sums of whole rows of what is in memory anyway, which the CPU has a kernel for that
    takes them row by row (:mod:`fastpath.cpu.rowsums`)."""
    few = known(count) and count <= MOST
    if dim == 0 and not few and not lowering.target.scatters:
        if not isinstance(source.node, Pointwise):
            raise NotLowered(_MANY)


def _few(
    lowering: Any,
    val: Any,
    under: Tensor,
    dim: int,
    count: Any,
    where: Callable[[Position, int], tuple[Expr, Expr]],
    value: Value,
    add: Adding | None = None,
) -> Tensor:
    """``under`` with ``count`` writes along ``dim``, which ``add`` to what is there, if given;
    ``where`` says whether the write is there for a position of the result, and the place along
    ``dim`` that it is for."""
    dtype = name_of(val.dtype)
    kept = compute_dtype(dtype)
    if add and count > 1 and dtype in REDUCED and lowering.target.name != "cpu":
        raise NotLowered("sums of 16-bit numbers, which eager rounds each, in any order")
    if dtype != under.dtype or add and dtype == "bool":
        raise NotLowered("a sum of bools, or a result in another dtype")

    def body(index: Position) -> Expr:
        total = E.cast(under.read(index), kept)
        for k in range(count):
            there, place = where(index, k)
            meant = apply("eq", E.position(index[dim]), E.guarded(place, there))
            hit = both(there, meant)
            at = (*index[:dim], constant(k), *index[dim + 1 :])
            one = E.guarded(E.cast(value(at), kept), hit)
            total = apply("where", hit, add(total, one) if add else one, total)
        return total

    return lowering.output(val, body, "scatter")


def _sum(total: Expr, one: Expr) -> Expr:
    return apply("add", total, one)


def _rounded_sum(dtype: str) -> Adding:
    """The sum where each write rounds it to ``dtype``, rather than all of them at their end."""
    return lambda total, one: E.cast(E.cast(_sum(total, one), dtype), total.dtype)


def _place(t: Tensor, index: Position, bounds: Bounds) -> Expr:
    return Expr("bounded", (integer(t, index), bounds), "int64")


def _scatter(add: bool, lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    under, indices = bound["self"], bound["index"]
    integers(indices)
    if not under.shape or not indices.shape:
        raise NotLowered("a scatter of a single number")
    dim, dtype = bound["dim"] % len(under.shape), name_of(val.dtype)
    bounds = Bounds(under.shape[dim], False, *out_of_bounds("RuntimeError", dim))
    source: Any = bound.get("src")
    number: Any = bound.get("value")
    if source is None and not (isinstance(number, (bool, int, float)) and fits(number, dtype)):
        raise NotLowered("a number that the dtype does not have")

    def at(index: Position, k: int) -> Position:
        return (*index[:dim], constant(k), *index[dim + 1 :])

    def where(index: Position, k: int) -> tuple[Expr, Expr]:
        there = TRUE
        for d, n in enumerate(indices.shape):
            if d != dim and n != under.shape[d]:
                there = both(there, within(index[d], 0, n))
        return there, _place(indices, at(index, k), bounds)

    def value(at: Position) -> Expr:
        if source is None:
            return E.cast(E.const(number, dtype), compute_dtype(dtype))
        return source.read(at)

    def to(at: Position) -> Position:
        return (*at[:dim], E.bounded(integer(indices, at), bounds), *at[dim + 1 :])

    patch = Patch(under, indices.shape, to, value)
    if _apart(lowering, under, indices.shape[dim], add):
        return _patched(lowering, val, patch, add)
    adding = _sum if add else None  # eager's kernel keeps float32 sums of 16-bit numbers
    made = _few(lowering, val, under, dim, indices.shape[dim], where, value, adding)
    return _noted(lowering, made, patch, add)


def _patched(lowering: Any, val: Any, patch: Patch, add: bool) -> Tensor:
    made = written(lowering, val, patch.under, patch.space, patch.place, patch.value, add)
    return _noted(lowering, made, patch, add)


def _noted(lowering: Any, made: Tensor, patch: Patch, add: bool) -> Tensor:
    if not add:
        lowering.patches[made.node] = patch
    return made


def _rows(
    lowering: Any,
    val: Any,
    bound: dict[str, Any],
    bounds: Bounds,
    dim: int,
    value: Value,
    add: Adding | None = None,
    added: Value | None = None,
) -> Tensor:
    """Writes of whole slices along ``dim``, one for each element of ``index``; ``added``: what
    ``add`` adds of ``value``, if that is not it."""
    under, indices = bound["self"], bound["index"]
    integers(indices)
    if len(indices.shape) > 1 or not under.shape:
        raise NotLowered("positions that are no list, or of a single number")

    def where(index: Position, k: int) -> tuple[Expr, Expr]:
        return TRUE, _place(indices, (constant(k),) if indices.shape else (), bounds)

    def to(at: Position) -> Position:
        return (*at[:dim], E.bounded(integer(indices, at[dim : dim + 1]), bounds), *at[dim + 1 :])

    count = indices.shape[0] if indices.shape else 1
    space = (*under.shape[:dim], count, *under.shape[dim + 1 :])
    patch, adds = Patch(under, space, to, added or value), add is not None
    if _apart(lowering, under, count, adds):
        return _patched(lowering, val, patch, adds)
    made = _few(lowering, val, under, dim, count, where, value, add)
    return _noted(lowering, made, patch, adds)


def _index_add(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    under, source, alpha = bound["self"], bound["source"], bound.get("alpha", 1)
    dtype = under.dtype
    if not isinstance(alpha, (bool, int, float)) or not fits(alpha, dtype):
        raise NotLowered("a factor that the dtype does not have")
    if not under.shape or len(source.shape) != len(under.shape):
        raise NotLowered("a sum into a single number")
    if source.dtype != dtype:
        raise NotLowered("a source of another dtype, which eager refuses")
    dim = bound["dim"] % len(under.shape)
    bounds = Bounds(under.shape[dim], False, *out_of_bounds("RuntimeError", dim))

    if alpha == 1 and bound["index"].shape:
        _leave_rows(lowering, dim, bound["index"].shape[0], source)

    def scaled(at: Position) -> Expr:
        one = E.cast(source.read(at), compute_dtype(dtype))
        return one if alpha == 1 else apply("mul", one, E.cast(E.const(alpha, dtype), one.dtype))

    adding = _rounded_sum(dtype)
    if alpha != 1:
        adding = _scaled_sum(alpha, dtype, len(under.shape) == 1)
    elif as_scatter(under, dim, bound["index"], alpha):
        adding = _sum
    return _rows(lowering, val, bound, bounds, dim, source.read, adding, scaled)


def as_scatter(under: Tensor, dim: int, places: Tensor, alpha: Any) -> bool:
    """Whether eager's ``index_add`` on the CPU is its ``scatter_add`` (``index_add_cpu_`` in ATen's
    ``TensorAdvancedIndexing.cpp``)."""
    ends = dim in (0, len(under.shape) - 1)
    return len(under.shape) > 1 and ends and places.dtype == "int64" and alpha == 1


def _scaled_sum(alpha: bool | int | float, dtype: str, alone: bool) -> Adding:
    """Of a write's multiple; ``alone``: of one number, rather than of a slice as ``add`` has it."""
    rounded = _rounded_sum(dtype)

    def added(total: Expr, one: Expr) -> Expr:
        product = apply("mul", one, E.cast(E.const(alpha, dtype), total.dtype))
        return rounded(total, E.cast(E.cast(product, dtype), total.dtype) if alone else product)

    return added


def _long(places: Tensor) -> None:
    if places.dtype != "int64":
        raise NotLowered(f"positions of {places.dtype}, which eager refuses")


def _index_copy(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    under, source = bound["self"], bound["source"]
    if not under.shape or len(source.shape) != len(under.shape):
        raise NotLowered("a copy into a single number")
    _long(bound["index"])
    dim = bound["dim"] % len(under.shape)
    error, message = out_of_bounds("IndexError", dim)
    bounds = Bounds(under.shape[dim], False, error, f"index_copy_(): {message}")

    return _rows(lowering, val, bound, bounds, dim, source.read)


def _index_fill(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    under, number, dtype = bound["self"], bound["value"], name_of(val.dtype)
    if not under.shape:
        raise NotLowered("a single number")
    _long(bound["index"])
    dim = bound["dim"] % len(under.shape)
    bounds = Bounds(under.shape[dim], True, *out_of_bounds("IndexError", dim))
    if not isinstance(number, Tensor):
        if not (isinstance(number, (bool, int, float)) and fits(number, dtype)):
            raise NotLowered("a number that the dtype does not have")
    elif number.dtype != dtype:
        raise NotLowered("a number of another dtype")

    def value(at: Position) -> Expr:
        if isinstance(number, Tensor):
            return number.read(())
        return E.cast(E.const(number, dtype), compute_dtype(dtype))

    return _rows(lowering, val, bound, bounds, dim, value)


def _index_put(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    under, values, add = bound["self"], bound["values"], bound.get("accumulate", False)
    given = [(d, i) for d, i in enumerate(bound["indices"]) if i is not None]
    if not given or values.dtype != under.dtype:
        raise NotLowered("writes of another dtype, or by no positions")
    dim, indices = given[0]
    if len(given) == 1 and indices.dtype == "bool":
        return _masked(lowering, val, under, dim, indices, values, add)
    if add and len(given) == 1 and indices.shape:
        _leave_rows(lowering, dim, math.prod(indices.shape), values)
    if len(given) > 1 or len(indices.shape) > 1:
        return _put(lowering, val, under, bound["indices"], values, add)
    bounds = Bounds(under.shape[dim], True, *out_of_bounds("IndexError", dim))
    shape = (*under.shape[:dim], *indices.shape, *under.shape[dim + 1 :])
    if len(values.shape) > len(shape):
        raise NotLowered("values of more dimensions than they are written to")

    def value(at: Position) -> Expr:
        if not indices.shape:
            at = (*at[:dim], *at[dim + 1 :])
        return broadcast_read(values, at)

    adding = _rounded_sum(under.dtype) if add else None
    return _rows(lowering, val, {**bound, "index": indices}, bounds, dim, value, adding)


def _put(lowering: Any, val: Any, under: Tensor, indices: Any, values: Tensor, add: bool) -> Tensor:
    """Writes by several tensors of positions, or by one of more than one dimension."""
    reason = refused(lowering, under.dtype, add)
    if reason:
        raise NotLowered(f"{reason}, by several positions")
    space, moved = placed_by(under, indices)
    if len(values.shape) > len(space):
        raise NotLowered("values of more dimensions than they are written to")

    def value(at: Position) -> Expr:
        return broadcast_read(values, at)

    return _patched(lowering, val, Patch(under, space, moved, value), add)


def _masked(
    lowering: Any, val: Any, under: Tensor, dim: int, mask: Tensor, values: Tensor, add: bool
) -> Tensor:
    """One number where a mask over some dimensions holds."""
    if any(n != 1 for n in values.shape) or add and under.dtype == "bool":
        raise NotLowered("as many values as a mask has places")
    if mask.shape != under.shape[dim : dim + len(mask.shape)]:
        raise NotLowered("a mask of another shape")
    kept = compute_dtype(under.dtype)
    first = tuple(ZERO for _ in values.shape)

    def body(index: Position) -> Expr:
        old = E.cast(under.read(index), kept)
        one = E.cast(values.read(first), kept)
        new = apply("add", old, one) if add else one
        return apply("where", mask.read(index[dim : dim + len(mask.shape)]), new, old)

    return lowering.output(val, body, "index_put")


RULES: dict[str, Rule] = {
    "scatter:set": functools.partial(_scatter, False),
    "scatter:add": functools.partial(_scatter, True),
    "scatter:index_add": _index_add,
    "scatter:index_copy": _index_copy,
    "scatter:index_fill": _index_fill,
    "scatter:index_put": _index_put,
}
