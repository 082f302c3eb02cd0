"""Rules for operators that write where an integer tensor says: scatter, index_add, index_put.

Each element of the result asks which writes are meant for it, in eager's order, so that nothing is
written twice and what is written to need not be copied first. That pays while there are few writes
along the dimension; more of them are made by ATen.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fastpath.ir import expr as E
from fastpath.ir.elementwise import NotLowered, apply, broadcast_read
from fastpath.ir.expr import Bounds, Expr
from fastpath.ir.gathers import integer, integers, out_of_bounds
from fastpath.ir.index import ZERO, Index, constant
from fastpath.ir.pieces import TRUE, both, within
from fastpath.ir.program import Position, Tensor
from fastpath.ir.size import known
from fastpath.ir.types import name_of
from specs.dtypes import REDUCED, compute_dtype, fits

Rule = Callable[[Any, Any, dict[str, Any]], Any]
Adding = Callable[[Expr, Expr], Expr]  # what is there and what is added to it, both to compute with
Value = Callable[[Position, int], Expr]  # of a write: the position of the result, and its number

MOST = 4  # writes along the dimension
_MANY = f"more than {MOST} writes along a dimension, which ATen makes one after the other"


def _written(
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
    if not known(count) or count > MOST:
        raise NotLowered(_MANY)
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
            one = E.guarded(E.cast(value(index, k), kept), hit)
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

    def value(index: Position, k: int) -> Expr:
        if source is None:
            return E.cast(E.const(number, dtype), compute_dtype(dtype))
        return source.read(at(index, k))

    adding = _sum if add else None  # eager's kernel keeps float32 sums of 16-bit numbers
    return _written(lowering, val, under, dim, indices.shape[dim], where, value, adding)


def _rows(
    lowering: Any,
    val: Any,
    bound: dict[str, Any],
    bounds: Bounds,
    dim: int,
    value: Value,
    add: Adding | None = None,
) -> Tensor:
    """Writes of whole slices along ``dim``, one for each element of ``index``."""
    under, indices = bound["self"], bound["index"]
    integers(indices)
    if len(indices.shape) > 1 or not under.shape:
        raise NotLowered("positions that are no list, or of a single number")

    def where(index: Position, k: int) -> tuple[Expr, Expr]:
        return TRUE, _place(indices, (constant(k),) if indices.shape else (), bounds)

    count = indices.shape[0] if indices.shape else 1
    return _written(lowering, val, under, dim, count, where, value, add)


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

    def value(index: Position, k: int) -> Expr:
        return source.read((*index[:dim], constant(k), *index[dim + 1 :]))

    adding = _rounded_sum(dtype)
    if alpha != 1:
        adding = _scaled_sum(alpha, dtype, len(under.shape) == 1)
    elif as_scatter(under, dim, bound["index"], alpha):
        adding = _sum
    return _rows(lowering, val, bound, bounds, dim, value, adding)


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


def _index_copy(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    under, source = bound["self"], bound["source"]
    if not under.shape or len(source.shape) != len(under.shape):
        raise NotLowered("a copy into a single number")
    dim = bound["dim"] % len(under.shape)
    error, message = out_of_bounds("IndexError", dim)
    bounds = Bounds(under.shape[dim], False, error, f"index_copy_(): {message}")

    def value(index: Position, k: int) -> Expr:
        return source.read((*index[:dim], constant(k), *index[dim + 1 :]))

    return _rows(lowering, val, bound, bounds, dim, value)


def _index_fill(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    under, number, dtype = bound["self"], bound["value"], name_of(val.dtype)
    if not under.shape:
        raise NotLowered("a single number")
    dim = bound["dim"] % len(under.shape)
    bounds = Bounds(under.shape[dim], True, *out_of_bounds("IndexError", dim))
    if not isinstance(number, Tensor):
        if not (isinstance(number, (bool, int, float)) and fits(number, dtype)):
            raise NotLowered("a number that the dtype does not have")
    elif number.dtype != dtype:
        raise NotLowered("a number of another dtype")

    def value(index: Position, k: int) -> Expr:
        if isinstance(number, Tensor):
            return number.read(())
        return E.cast(E.const(number, dtype), compute_dtype(dtype))

    return _rows(lowering, val, bound, bounds, dim, value)


def _index_put(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    under, values, add = bound["self"], bound["values"], bound.get("accumulate", False)
    given = [(d, i) for d, i in enumerate(bound["indices"]) if i is not None]
    if len(given) != 1 or values.dtype != under.dtype:
        raise NotLowered("writes by several positions, or of another dtype")
    ((dim, indices),) = given
    if indices.dtype == "bool":
        return _masked(lowering, val, under, dim, indices, values, add)
    bounds = Bounds(under.shape[dim], True, *out_of_bounds("IndexError", dim))
    shape = (*under.shape[:dim], *indices.shape, *under.shape[dim + 1 :])
    if len(values.shape) > len(shape):
        raise NotLowered("values of more dimensions than they are written to")

    def value(index: Position, k: int) -> Expr:
        at: tuple[Index, ...] = (constant(k),) if indices.shape else ()
        return broadcast_read(values, (*index[:dim], *at, *index[dim + 1 :]))

    adding = _rounded_sum(under.dtype) if add else None
    return _rows(lowering, val, {**bound, "index": indices}, bounds, dim, value, adding)


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
