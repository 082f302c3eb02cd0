"""Rules for operators that draw on CUDA: numbers come of an element's place, in any kernel.

A draw is two steps: a call that reserves a piece of the generator's stream, in the program's order
of draws, and elementwise work that computes words of it, which fuses with all the rest.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from fastpath.ir import expr as E
from fastpath.ir.elementwise import NotLowered, apply
from fastpath.ir.index import contiguous_strides, linear
from fastpath.ir.program import Call, Computed, Node, Position, Result, Tensor
from fastpath.ir.types import name_of
from fastpath.random import philox
from fastpath.random.drawer import Drawer, Rule, bounds_of_integers, dense, floating
from specs.dtypes import compute_dtype

_WIDEST = 16  # bytes that a thread of eager's dropout takes at once
MOST = 2**31 - 1  # bytes that eager's kernels for random numbers write at once
_aten = torch.ops.aten
_FRESH = {_aten.mm.default, _aten.addmm.default, _aten.bmm.default, _aten.baddbmm.default}


def _reserve(
    drawer: Drawer, reserve: Callable[..., Any], arguments: tuple[Any, ...], names: tuple[str, ...]
) -> list[E.Expr]:
    """The step that calls ``reserve``, and expressions of the integers that it gives."""
    lowering = drawer.lowering
    call = Call(reserve, arguments, {}, "", impure=True, single=False, kernel=True)
    for place, name in enumerate(names):
        call.outputs.append(Result(lowering.fresh(name), call, (), "int64", (), number=True))
        call.places.append((place,))
    lowering.steps.append(call)
    return [E.read(node, ()) for node in call.outputs]


def _grid(drawer: Drawer, val: Any) -> philox.Grid:
    if drawer.state is not None or drawer.generator is not None:
        raise NotLowered("a draw from a kept state, or from a generator of its own")
    count = math.prod(val.shape)
    if not isinstance(count, int):
        raise NotLowered("a draw of a size that is a symbol")
    if not 0 < count < 1 << 31:
        raise NotLowered("a draw of no elements, or of 2 ** 31 and more")
    return philox.Grid(count, philox.resident(drawer.lowering.device))


def _stream(drawer: Drawer, val: Any) -> philox.Stream:
    grid = _grid(drawer, val)
    if not dense(val.shape, val.stride()):
        raise NotLowered("a draw into memory with gaps")
    if grid.count * val.dtype.itemsize > MOST:
        raise NotLowered("a draw that eager makes in several parts, each from its own place")
    reserve = philox.reserving(drawer.lowering.device)
    seed, counter = _reserve(drawer, reserve, (grid.advance,), ("seed", "counter"))
    return philox.Stream(seed, counter, grid)


def _each(
    drawer: Drawer,
    val: Any,
    stem: str,
    value: Callable[[E.Expr], E.Expr],
    what: philox.Drawn = philox.WORD,
) -> Tensor:
    """A tensor like ``val`` with ``value`` of what is drawn for each element."""
    stream, strides = _stream(drawer, val), val.stride()

    def body(index: Position) -> E.Expr:
        return value(stream.strided(linear(index, strides), what))

    return drawer.lowering.output(val, body, stem)


def _uniform(drawer: Drawer, val: Any, bound: dict[str, Any]) -> Tensor:
    low, high = float(bound.get("from", 0.0)), float(bound.get("to", 1.0))
    dtype = floating(val)
    if dtype == "float64" or not low <= high:
        raise NotLowered("a distribution of 53 bits, or bounds that eager refuses")
    return _each(drawer, val, "uniform", lambda word: philox.uniform(word, low, high, dtype))


def _normal(drawer: Drawer, val: Any, bound: dict[str, Any]) -> Tensor:
    mean, std = float(bound.get("mean", 0.0)), float(bound.get("std", 1.0))
    if floating(val) == "float64" or not std >= 0:
        raise NotLowered("a distribution of 53 bits, or a standard deviation that eager refuses")
    value = functools.partial(philox.normal, mean=mean, std=std)
    return _each(drawer, val, "normal", value, philox.NORMAL)


def _exponential(drawer: Drawer, val: Any, bound: dict[str, Any]) -> Tensor:
    rate = float(bound.get("lambd", 1.0))
    if floating(val) == "float64" or not 0 < rate < math.inf:
        raise NotLowered("a distribution of 53 bits, or a rate that eager refuses")
    value = functools.partial(philox.exponential, rate=rate)
    return _each(drawer, val, "exponential", value, philox.LOGARITHM)


def _bernoulli(drawer: Drawer, val: Any, bound: dict[str, Any]) -> Tensor:
    p, dtype = float(bound["p"]), name_of(val.dtype)
    if not 0 <= p <= 1 or dtype == "float64":
        raise NotLowered("a distribution of 53 bits, or a probability that eager refuses")
    return _each(drawer, val, "bernoulli", lambda word: E.cast(philox.below(word, p), dtype))


def _integers(drawer: Drawer, val: Any, bound: dict[str, Any]) -> Tensor:
    low, high = bounds_of_integers(val, bound)
    if high - low >= 1 << 28:
        raise NotLowered("integers of 64 bits")
    dtype = name_of(val.dtype)
    return _each(
        drawer, val, "integers", lambda word: E.cast(philox.within(word, high - low, low), dtype)
    )


def _dropout(drawer: Drawer, vals: Any, bound: dict[str, Any]) -> tuple[Tensor, Tensor]:
    given, p = bound["input"], float(bound["p"])
    dtype = floating(vals[0])
    if bound.get("train") is False or not 0 < p < 1 or dtype == "float64":
        raise NotLowered("a dropout without draws, or of 53 bits")
    if tuple(given.strides) != tuple(contiguous_strides(given.shape)):
        raise NotLowered("a dropout of what is not contiguous")
    grid, lowering = _grid(drawer, vals[0]), drawer.lowering
    size = vals[0].dtype.itemsize
    reserve = philox.reserving(lowering.device)
    alignment = _WIDEST
    fresh = _begins_with_a_block(given.node) and isinstance(given.offset, int)
    if fresh and given.offset:  # a view of what in eager is memory of its own
        alignment = min(_WIDEST, given.offset * size & -given.offset * size)
    width = philox.dropout_width(size, grid.count, alignment)
    if fresh or width == 1:
        seed, counter = _reserve(drawer, reserve, (grid.advance,), ("seed", "counter"))
        of = functools.partial(philox.Stream(seed, counter, grid).vectorised, width=width)
    else:
        asked = philox.reserving_for_dropout(lowering.device)
        seed, counter, shift = _reserve(
            drawer, asked, (grid.advance, grid.count, given), ("seed", "counter", "shift")
        )
        of = functools.partial(
            philox.Stream(seed, counter, grid).by_address, shift=shift, width=width
        )
    strides, kept = vals[1].stride(), compute_dtype(dtype)
    mask = lowering.output(
        vals[1], lambda index: philox.below(of(linear(index, strides)), 1.0 - p), "mask"
    )
    scale = E.const(philox.dropout_scale(p), "float32")

    def body(index: Position) -> E.Expr:
        left = apply("mul", E.cast(given.read(index), kept), E.cast(mask.read(index), kept))
        return apply("mul", left, scale)

    return lowering.output(vals[0], body, "dropout"), mask


def _begins_with_a_block(node: Node) -> bool:
    """Whether eager computes it into memory of its own, which begins as the allocator's blocks do;
    where an input begins is known when it comes."""
    if isinstance(node, Result):
        return node.call.single and node.call.target in _FRESH
    return isinstance(node, Computed)


RULES: dict[str, Rule] = {
    **dict.fromkeys(("rand.default", "rand_like.default", "uniform.default"), _uniform),
    **dict.fromkeys(("randn.default", "randn_like.default", "normal.float_float"), _normal),
    "normal_functional.default": _normal,
    "exponential.default": _exponential,
    "bernoulli.p": _bernoulli,
    **dict.fromkeys(("randint.default", "randint.low", "random.from", "random.to"), _integers),
    **dict.fromkeys(("randint_like.default", "randint_like.low_dtype"), _integers),
    "native_dropout.default": _dropout,
}
