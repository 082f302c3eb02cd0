"""Rules for images of another size, and for borders that repeat the image: interpolate, pad.

Where an element comes from is computed from its position, as eager computes it, in float32. Where
the sizes divide one another, it is arithmetic on indices. Products are fused with what is added to
them, as by the compilers that eager was built with: weights are differences of such places, and a
rounding of these is some in those.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fastpath.ir import expr as E
from fastpath.ir.elementwise import NotLowered, apply
from fastpath.ir.expr import Expr
from fastpath.ir.index import Axis, Index, Lookup, variable
from fastpath.ir.program import Position, Tensor
from fastpath.ir.size import known
from fastpath.ir.types import name_of
from specs.dtypes import compute_dtype, is_float

Rule = Callable[[Any, Any, dict[str, Any]], Any]

MOST = 32  # elements that one gradient adds up


def _fixed(*sizes: Any) -> None:
    if not known(*sizes):
        raise NotLowered("an image of a size that each call chooses")


def _single(value: float) -> float:
    return torch.tensor(value, dtype=torch.float32, device="cpu").item()


def _scales(bound: dict[str, Any], rank: int) -> list[float | None]:
    names = {1: ["scales"], 2: ["scales_h", "scales_w"], 3: ["scales_d", "scales_h", "scales_w"]}
    return [bound.get(name) for name in names[rank]]


def _step(old: int, new: int, scale: float | None, dtype: str = "float32") -> float:
    """How far apart in the image neighbours of the result lie."""
    step = 1.0 / scale if scale is not None and scale > 0 else old / new
    return _single(step) if dtype == "float32" else step


def _computed(place: Expr, extent: int) -> Index:
    """A position that is computed, and known to be one."""
    return Index({Lookup(E.cast(place, "int64"), extent): 1})


def _nearest(old: int, new: int, scale: float | None, middle: bool) -> Callable[[Index], Index]:
    """From a position of the result to the nearest of the image (eager's formula)."""
    step, shift = _step(old, new, scale), 0.5 if middle else 0.0
    every = torch.arange(new, device="cpu")  # whatever is the default
    numbers = (every.float() + shift) * step
    places = numbers.floor().long().clamp(max=old - 1)
    if not middle and new == old:
        places = every
    elif not middle and new == 2 * old:
        places = every // 2
    if new % old == 0 and torch.equal(places, every // (new // old)):
        return lambda i: i.floordiv(new // old)
    if old % new == 0:
        first, by = int(places[0]), old // new
        if torch.equal(places, every * by + first):
            return lambda i: i * by + first

    def computed(i: Index) -> Index:
        number = E.cast(E.position(i), "float32")
        if middle:
            number = apply("add", number, E.const(0.5, "float32"))
        floor = E.cast(apply("floor", apply("mul", number, E.const(step, "float32"))), "int64")
        return _computed(apply("minimum", floor, E.const(old - 1, "int64")), old)

    return computed


def _upsample_nearest(
    rank: int, middle: bool, lowering: Any, val: Any, bound: dict[str, Any]
) -> Tensor:
    t: Tensor = bound["self"]
    old, new = t.shape[-rank:], tuple(val.shape)[-rank:]
    _fixed(*old, *new)
    maps = [_nearest(a, b, scale, middle) for a, b, scale in zip(old, new, _scales(bound, rank))]

    def body(index: Position) -> Expr:
        moved = [m(i) for m, i in zip(maps, index[-rank:])]
        return t.read((*index[:-rank], *moved))

    return lowering.output(val, body, "nearest")


def _upsample_nearest_backward(
    rank: int, middle: bool, lowering: Any, val: Any, bound: dict[str, Any]
) -> Tensor:
    grad: Tensor = bound["grad_output"]
    old, new = tuple(val.shape)[-rank:], grad.shape[-rank:]
    _fixed(*old, *new)
    factors = []
    for a, b, scale in zip(old, new, _scales(bound, rank)):
        probe = variable(Axis(b))
        if b % a or _nearest(a, b, scale, middle)(probe) != probe.floordiv(b // a):
            raise NotLowered("gradients of sizes that do not divide one another")
        factors.append(b // a)
    if math.prod(factors) > MOST:
        raise NotLowered(f"more than {MOST} elements made of one")
    dtype = compute_dtype(name_of(val.dtype))

    def body(index: Position) -> Expr:
        total = E.const(0, dtype)
        before, at = index[:-rank], index[-rank:]
        for flat in range(math.prod(factors)):
            rest = flat
            place: list[Index] = []
            for i, factor in reversed(list(zip(at, factors))):
                place.insert(0, i * factor + rest % factor)
                rest //= factor
            total = apply("add", total, E.cast(grad.read((*before, *place)), dtype))
        return total

    return lowering.output(val, body, "nearest_backward")


def _linear(
    old: int, new: int, scale: float | None, aligned: bool, dtype: str
) -> Callable[[Index], list[tuple[Index, Expr]]]:
    """The two places of the image that a position of the result lies between, and their weights."""
    if aligned:
        step = (old - 1) / (new - 1) if new > 1 else 0.0
        step = _single(step) if dtype == "float32" else step
    else:
        step = _step(old, new, scale, dtype)

    def between(i: Index) -> list[tuple[Index, Expr]]:
        number, by = E.cast(E.position(i), dtype), E.const(step, dtype)
        if aligned:
            place = apply("mul", by, number)
        else:
            half = E.const(0.5, dtype)
            place = apply("fma", by, apply("add", number, half), E.const(-0.5, dtype))
            place = apply("maximum", place, E.const(0, dtype))
        last = E.const(old - 1, "int64")
        first = apply("minimum", E.cast(place, "int64"), last)
        weight = apply("sub", place, E.cast(first, dtype))
        weight = apply("minimum", weight, E.const(1, dtype))
        second = apply("minimum", apply("add", first, E.const(1, "int64")), last)
        rest = apply("sub", E.const(1, dtype), weight)
        return [(_computed(first, old), rest), (_computed(second, old), weight)]

    return between


def _upsample_linear(rank: int, lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    t: Tensor = bound["self"]
    old, new = t.shape[-rank:], tuple(val.shape)[-rank:]
    _fixed(*old, *new)
    dtype, aligned = compute_dtype(t.dtype), bound["align_corners"]
    if not is_float(dtype):
        raise NotLowered("weighted integers")
    sides = [
        _linear(a, b, scale, aligned, dtype) for a, b, scale in zip(old, new, _scales(bound, rank))
    ]

    def body(index: Position) -> Expr:
        places = [side(i) for side, i in zip(sides, index[-rank:])]

        def mixed(chosen: tuple[Index, ...]) -> Expr:
            if len(chosen) == rank:
                return E.cast(t.read((*index[:-rank], *chosen)), dtype)
            parts = [
                apply("mul", weight, mixed((*chosen, place)))
                for place, weight in places[len(chosen)]
            ]
            return apply("add", *parts)

        return mixed(())

    return lowering.output(val, body, "linear")


_SHARPNESS = -0.75  # of the cubic convolution, as in eager


def _cubic(
    old: int, new: int, scale: float | None, aligned: bool, dtype: str
) -> Callable[[Index], list[tuple[Index, Expr]]]:
    """The four places of the image about a position of the result, and their weights."""
    if aligned:
        step = (old - 1) / (new - 1) if new > 1 else 0.0
        step = _single(step) if dtype == "float32" else step
    else:
        step = _step(old, new, scale, dtype)

    def number(value: float) -> Expr:
        return E.const(value, dtype)

    def inner(x: Expr) -> Expr:
        """((A + 2) x - (A + 3)) x x + 1, up to 1 away."""
        value = apply("fma", number(_SHARPNESS + 2), x, number(-(_SHARPNESS + 3)))
        return apply("fma", apply("mul", value, x), x, number(1))

    def outer(x: Expr) -> Expr:
        """((A x - 5 A) x + 8 A) x - 4 A, from 1 to 2 away."""
        value = apply("fma", number(_SHARPNESS), x, number(-5 * _SHARPNESS))
        value = apply("fma", value, x, number(8 * _SHARPNESS))
        return apply("fma", value, x, number(-4 * _SHARPNESS))

    def about(i: Index) -> list[tuple[Index, Expr]]:
        place, by, half = E.cast(E.position(i), dtype), number(step), number(0.5)
        if aligned:
            place = apply("mul", by, place)
        else:
            place = apply("fma", by, apply("add", place, half), number(-0.5))
        floor = apply("floor", place)
        t = apply("sub", place, floor)
        rest = apply("sub", number(1), t)
        weights = [outer(apply("add", t, number(1))), inner(t), inner(rest)]
        weights.append(outer(apply("add", rest, number(1))))
        first, last = E.cast(floor, "int64"), E.const(old - 1, "int64")
        found = []
        for k, weight in enumerate(weights):
            at = apply("add", first, E.const(k - 1, "int64"))
            at = apply("minimum", apply("maximum", at, E.const(0, "int64")), last)
            found.append((_computed(at, old), weight))
        return found

    return about


def _upsample_cubic(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    t: Tensor = bound["self"]
    old, new = t.shape[-2:], tuple(val.shape)[-2:]
    _fixed(*old, *new)
    dtype, aligned = compute_dtype(t.dtype), bound["align_corners"]
    if not is_float(dtype):
        raise NotLowered("weighted integers")
    sides = [
        _cubic(a, b, scale, aligned, dtype) for a, b, scale in zip(old, new, _scales(bound, 2))
    ]

    def body(index: Position) -> Expr:
        rows, columns = (side(i) for side, i in zip(sides, index[-2:]))

        def across(row: Index) -> Expr:
            terms = [
                apply("mul", E.cast(t.read((*index[:-2], row, column)), dtype), weight)
                for column, weight in columns
            ]
            return functools.reduce(functools.partial(apply, "add"), terms)

        terms = [apply("mul", across(row), weight) for row, weight in rows]
        return functools.reduce(functools.partial(apply, "add"), terms)

    return lowering.output(val, body, "cubic")


# -- borders ---------------------------------------------------------------------------------------


def _mirrored(i: Index, before: int, n: int) -> Index:
    """``i - before`` with the border mirrored in the first and the last element."""
    low, high = (i + -before).bounds()
    if low >= 0 and high < n:
        return i + -before
    last = E.const(n - 1, "int64")
    folded = apply("abs", E.position(i + -before))
    return _computed(apply("sub", last, apply("abs", apply("sub", last, folded))), n)


def _clamped(i: Index, before: int, n: int) -> Index:
    """``i - before``, or the nearest element."""
    place = E.position(i + -before)
    place = apply("maximum", place, E.const(0, "int64"))
    return _computed(apply("minimum", place, E.const(n - 1, "int64")), n)


def _bordered(
    rank: int,
    moved: Callable[[Index, int, int], Index],
    lowering: Any,
    val: Any,
    bound: dict[str, Any],
) -> Tensor:
    t, pads = bound["self"], bound["padding"]
    before = [pads[2 * (rank - 1 - d)] for d in range(rank)]
    _fixed(*t.shape[-rank:], *before)

    def body(index: Position) -> Expr:
        sizes: Sequence[int] = t.shape[-rank:]
        places = [moved(i, b, n) for i, b, n in zip(index[-rank:], before, sizes)]
        return t.read((*index[:-rank], *places))

    return lowering.output(val, body, "border")


RULES: dict[str, Rule] = {
    "resize:linear1d": functools.partial(_upsample_linear, 1),
    "resize:linear2d": functools.partial(_upsample_linear, 2),
    "resize:linear3d": functools.partial(_upsample_linear, 3),
    "resize:cubic2d": _upsample_cubic,
}
for _rank in (1, 2, 3):
    for _name, _middle in (("nearest", False), ("nearest_exact", True)):
        RULES[f"resize:{_name}{_rank}d"] = functools.partial(_upsample_nearest, _rank, _middle)
        RULES[f"resize:{_name}{_rank}d_backward"] = functools.partial(
            _upsample_nearest_backward, _rank, _middle
        )
    RULES[f"border:reflect{_rank}d"] = functools.partial(_bordered, _rank, _mirrored)
    RULES[f"border:replicate{_rank}d"] = functools.partial(_bordered, _rank, _clamped)
