"""Rules for where the extremum is, and for scans: argmax, max along a dimension, cumsum, cummax.

A position is found by another reduction: the least of those where the extremum is. Both walk over
data that is at hand, and as whole vectors, which pairs of a value and a position are not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fastpath.ir import expr as E
from fastpath.ir.elementwise import NotLowered, apply
from fastpath.ir.expr import Expr
from fastpath.ir.index import ZERO, contiguous_strides, linear
from fastpath.ir.program import Position, Tensor
from fastpath.ir.types import name_of
from specs.dtypes import compute_dtype, int_range, is_complex, is_float

Rule = Callable[[Any, Any, dict[str, Any]], Any]


def _is(x: Expr, extremum: Expr) -> Expr:
    """Whether ``x`` is the extremum of values that it is among. If one is nan, nans are."""
    equal = apply("eq", x, extremum)
    return apply("logical_or", equal, apply("isnan", x)) if is_float(x.dtype) else equal


def _extremum(
    kind: str, lowering: Any, bound: dict[str, Any]
) -> tuple[Callable[[Position], Expr], Callable[[Position], Expr]]:
    """The extremum and its first position, at a position of the output."""
    t: Tensor = bound["self"]
    rank, dim, keepdim = len(t.shape), bound.get("dim"), bool(bound.get("keepdim", False))
    dims = tuple(range(rank)) if dim is None else (dim % rank,) if rank else ()
    dtype = compute_dtype(t.dtype)
    sizes = [t.shape[d] for d in dims]
    count = 1
    for n in sizes:
        count *= n
    places = "int32" if lowering.sizes.at_most(count, int_range("int32")[1]) else "int64"
    beyond = E.const(int_range(places)[1], places)

    def x(index: Position) -> Expr:
        return E.cast(t.read(index), dtype)

    extremum = lowering.reduce(kind, t.shape, dims, dtype, x)

    def place(index: Position) -> Expr:
        at = tuple(ZERO if d in dims else i for d, i in enumerate(index))
        flat = linear([index[d] for d in dims], contiguous_strides(sizes))
        found = _is(x(index), extremum.read(at))
        return apply("where", found, E.cast(E.position(flat), places), beyond)

    first = lowering.reduce("min", t.shape, dims, places, place)

    def kept(index: Position) -> Position:
        if dim is not None and keepdim or len(index) == rank:
            return tuple(ZERO if d in dims else i for d, i in enumerate(index))
        rest = iter(index)
        return tuple(ZERO if d in dims else next(rest) for d in range(rank))

    return (
        lambda index: extremum.read(kept(index)),
        lambda index: E.cast(first.read(kept(index)), "int64"),
    )


def _arg(kind: str, lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    return lowering.output(val, _extremum(kind, lowering, bound)[1], f"arg{kind}")


def _with_arg(kind: str, lowering: Any, vals: Any, bound: dict[str, Any]) -> tuple[Tensor, Tensor]:
    extremum, place = _extremum(kind, lowering, bound)
    return (
        lowering.output(vals[0], extremum, kind),
        lowering.output(vals[1], place, f"arg{kind}"),
    )


def _both_extrema(lowering: Any, vals: Any, bound: dict[str, Any]) -> tuple[Tensor, Tensor]:
    low, high = (_extremum(kind, lowering, bound)[0] for kind in ("min", "max"))
    return lowering.output(vals[0], low, "min"), lowering.output(vals[1], high, "max")


# -- scans -----------------------------------------------------------------------------------------


def _along(bound: dict[str, Any]) -> tuple[Tensor, int]:
    t: Tensor = bound["self"]
    if not t.shape:
        raise NotLowered("a scan of a single number")
    return t, bound["dim"] % len(t.shape)


def _cumulative(kind: str, lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    t, dim = _along(bound)
    result = name_of(val.dtype)
    if result == "bool":
        raise NotLowered("a result that eager rejects")
    # Eager adds up floating numbers in float64, one after the other.
    wide = compute_dtype(result)
    if is_float(result) or is_complex(result):
        wide = "float64" if is_float(result) else "complex128"

    def body(index: Position) -> Expr:
        return E.cast(E.cast(t.read(index), result), wide)

    total = lowering.scan(kind, t.shape, dim, wide, body)
    return lowering.output(val, lambda i: E.cast(total.read(i), result), f"cum{kind}")


def _running_extremum(
    kind: str, lowering: Any, vals: Any, bound: dict[str, Any]
) -> tuple[Tensor, Tensor]:
    """Of equal extrema, and of nans, the last one's position."""
    t, dim = _along(bound)
    dtype = compute_dtype(t.dtype)

    def x(index: Position) -> Expr:
        return E.cast(t.read(index), dtype)

    extremum = lowering.scan(kind, t.shape, dim, dtype, x)

    def place(index: Position) -> Expr:
        found = _is(x(index), extremum.read(index))
        return apply("where", found, E.position(index[dim]), E.const(0, "int64"))

    last = lowering.scan("max", t.shape, dim, "int64", place)
    return (
        lowering.output(vals[0], extremum.read, f"cum{kind}"),
        lowering.output(vals[1], last.read, f"argcum{kind}"),
    )


RULES: dict[str, Rule] = {
    "reduce:argmax": functools.partial(_arg, "max"),
    "reduce:argmin": functools.partial(_arg, "min"),
    "reduce:amax+argmax": functools.partial(_with_arg, "max"),
    "reduce:amin+argmin": functools.partial(_with_arg, "min"),
    "reduce:aminmax": _both_extrema,
    "scan:add": functools.partial(_cumulative, "sum"),
    "scan:mul": functools.partial(_cumulative, "prod"),
    "scan:max+argmax": functools.partial(_running_extremum, "max"),
    "scan:min+argmin": functools.partial(_running_extremum, "min"),
}
