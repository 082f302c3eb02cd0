"""Rules for operators that move or make elements: factories, flips, triangles, repeats."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from fastpath.ir import expr as E
from fastpath.ir.elementwise import NotLowered, apply
from fastpath.ir.expr import Expr
from fastpath.ir.index import Index, constant, contiguous_strides, delinearize, linear
from fastpath.ir.program import Position, Scalar, Tensor
from fastpath.ir.size import Size
from fastpath.ir.types import name_of
from specs.dtypes import REDUCED, fits, is_float

Rule = Callable[[Any, Any, dict[str, Any]], Any]


def _filled(argument: str | int, lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    value = bound[argument] if isinstance(argument, str) else argument
    if isinstance(value, Size) and name_of(val.dtype) in ("int64", "float32", "float64"):
        dtype = name_of(val.dtype)
        return lowering.output(val, lambda i: E.cast(E.position(constant(value)), dtype), "fill")
    if not isinstance(value, (bool, int, float, complex)):
        raise NotLowered("a fill value that is not a number")
    dtype = name_of(val.dtype)
    if not fits(value, dtype):
        raise NotLowered("a fill value that the dtype does not have")
    return lowering.output(val, lambda i: E.const(value, dtype), "fill")


def _scalar_tensor(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    value, dtype = bound["s"], name_of(val.dtype)
    if isinstance(value, float) and dtype in REDUCED:  # infinite where eager's others raise
        return lowering.output(val, lambda i: E.const(value, dtype), "fill")
    if not isinstance(value, Scalar):
        return _filled("s", lowering, val, bound)
    if value.bits is None or lowering.target.name != "cpu" or not is_float(dtype):
        raise NotLowered("a number that is another one in each call")
    number = E.given(value.bits if dtype in REDUCED else value.bits_within(dtype))
    return lowering.output(val, lambda i: E.cast(number, dtype), "fill")


def _arange(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    start, step, dtype = bound.get("start", 0), bound.get("step", 1), name_of(val.dtype)
    if not is_float(dtype):  # eager truncates both before it counts
        start, step = (n if isinstance(n, Size) else int(n) for n in (start, step))

    def body(index: Position) -> Expr:
        if is_float(dtype):
            place = E.cast(E.position(index[0]), "float64")
            scaled = apply("mul", place, E.number(step, "float64"))
            return apply("add", E.number(start, "float64"), scaled)
        return E.position(index[0] * step + start)

    return lowering.output(val, body, "arange")


def _eye(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    def body(index: Position) -> Expr:
        return apply("eq", E.position(index[0]), E.position(index[1]))

    return lowering.output(val, body, "eye")


def _triangle(upper: bool, lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    t, diagonal = bound["self"], bound.get("diagonal", 0)
    dtype = t.dtype

    def body(index: Position) -> Expr:
        row, column = E.position(index[-2] + diagonal), E.position(index[-1])
        inside = apply("ge" if upper else "le", column, row)
        value = E.cast(t.read(index), _register(dtype))
        return apply("where", inside, value, E.const(0, _register(dtype)))

    return lowering.output(val, body, "triangle")


def _register(dtype: str) -> str:
    from specs.dtypes import compute_dtype

    return compute_dtype(dtype)


def _flip(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    t = bound["self"]
    dims = {d % len(t.shape) for d in bound["dims"]} if t.shape else set()

    def body(index: Position) -> Expr:
        turned = tuple(
            constant(t.shape[d] - 1) + i * -1 if d in dims else i for d, i in enumerate(index)
        )
        return t.read(turned)

    return lowering.output(val, body, "flip")


def _repeat(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    t = bound["self"]
    skip = len(val.shape) - len(t.shape)

    def body(index: Position) -> Expr:
        return t.read(tuple(i.mod(n) for n, i in zip(t.shape, index[skip:])))

    return lowering.output(val, body, "repeat")


def _roll(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    t, dims = bound["self"], bound.get("dims") or ()
    if not dims:
        count = math.prod(t.shape)
        by = bound["shifts"][0] % count

        def rolled(index: Position) -> Expr:
            flat = linear(index, contiguous_strides(t.shape))
            return t.read(delinearize((flat + (count - by)).mod(count) if by else flat, t.shape))

        return lowering.output(val, rolled, "roll")
    shift = dict.fromkeys(range(len(t.shape)), 0)
    for d, by in zip(dims, bound["shifts"]):
        shift[d % len(t.shape)] += by

    def body(index: Position) -> Expr:
        def moved(d: int, i: Index) -> Index:
            by = shift[d] % t.shape[d]
            return (i + (t.shape[d] - by)).mod(t.shape[d]) if by else i

        return t.read(tuple(moved(d, i) for d, i in enumerate(index)))

    return lowering.output(val, body, "roll")


def _rot90(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    t: Tensor = bound["self"]
    a, b = (d % len(t.shape) for d in bound.get("dims", (0, 1)))
    turns = bound.get("k", 1) % 4

    def body(index: Position) -> Expr:
        at = list(index)
        i, j = at[a], at[b]
        if turns == 1:
            at[a], at[b] = j, constant(t.shape[b] - 1) + i * -1
        elif turns == 2:
            at[a] = constant(t.shape[a] - 1) + i * -1
            at[b] = constant(t.shape[b] - 1) + j * -1
        elif turns == 3:
            at[a], at[b] = constant(t.shape[a] - 1) + j * -1, i
        return t.read(tuple(at))

    return lowering.output(val, body, "rot90")


def _pixel_shuffle(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    t, r = bound["self"], bound["upscale_factor"]

    def body(index: Position) -> Expr:
        *before, c, h, w = index
        channel = c * (r * r) + h.mod(r) * r + w.mod(r)
        return t.read((*before, channel, h.floordiv(r), w.floordiv(r)))

    return lowering.output(val, body, "pixel_shuffle")


def _pixel_unshuffle(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    t, r = bound["self"], bound["downscale_factor"]

    def body(index: Position) -> Expr:
        *before, c, h, w = index
        row, column = h * r + c.mod(r * r).floordiv(r), w * r + c.mod(r)
        return t.read((*before, c.floordiv(r * r), row, column))

    return lowering.output(val, body, "pixel_unshuffle")


RULES: dict[str, Rule] = {
    "copy:rot90": _rot90,
    "copy:pixel_shuffle": _pixel_shuffle,
    "copy:pixel_unshuffle": _pixel_unshuffle,
    "factory:0": functools.partial(_filled, 0),
    "factory:1": functools.partial(_filled, 1),
    "factory:fill_value": functools.partial(_filled, "fill_value"),
    "factory:s": _scalar_tensor,
    "factory:arange": _arange,
    "factory:eye": _eye,
    "copy:tril": functools.partial(_triangle, False),
    "copy:triu": functools.partial(_triangle, True),
    "copy:flip": _flip,
    "copy:repeat": _repeat,
    "copy:roll": _roll,
}
