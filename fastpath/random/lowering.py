"""Rules for operators that draw: which kernel draws the same, and what is computed from it.

A draw on the CPU is a step of its own, since a generator's words come one after the other: it
keeps its place among the program's draws and leaves numbers in memory, a mask as one byte each.
What is made of them is elementwise work, and fuses with all the rest.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from fastpath.ir import expr as E
from fastpath.ir.elementwise import NotLowered, apply
from fastpath.ir.program import Call, Result, Tensor, whole
from fastpath.ir.size import hint
from fastpath.ir.types import name_of
from fastpath.random import kernels as K
from fastpath.random.cpu import drawing, drawing_each, matches
from fastpath.random.cuda import RULES as CUDA
from fastpath.random.drawer import Drawer, Rule, bounds_of_integers, dense, floating
from specs.dtypes import compute_dtype, is_float

LEAST = 1024  # elements; below, ATen's call costs less than reading and writing a state


def _draw(drawer: Drawer, val: Any, d: K.Distribution, p: Any = 0.0, q: Any = 0.0) -> Tensor:
    """The step that draws ``val``'s elements, in the order of its memory."""
    lowering, shape, strides = drawer.lowering, tuple(val.shape), tuple(val.stride())
    if hint(math.prod(shape)) < LEAST:
        raise NotLowered(f"a draw of fewer than {LEAST} elements, which takes ATen no longer")
    if not dense(shape, strides):
        raise NotLowered("a draw into memory with gaps")
    if not matches(d):
        raise NotLowered("eager draws otherwise on this machine")
    draw = drawing_each(d) if d.given else drawing(d)
    arguments = (p,) if d.given else (shape, strides, p, q)
    call = Call(draw, arguments, {}, "", impure=drawer.state is None, kernel=True)
    for name in ("state", "generator"):
        if getattr(drawer, name) is not None:
            call.keywords[name] = getattr(drawer, name)
    result = Result(lowering.fresh("drawn"), call, shape, d.dtype, strides)
    call.outputs.append(result)
    call.places.append((0,))
    lowering.steps.append(call)
    return whole(result)


def _uniform(drawer: Drawer, val: Any, bound: dict[str, Any]) -> Tensor:
    low, high = float(bound.get("from", 0.0)), float(bound.get("to", 1.0))
    dtype = floating(val)
    if not (low <= high and high - low <= torch.finfo(val.dtype).max):
        raise NotLowered("bounds that eager refuses")
    return _draw(drawer, val, K.uniform(dtype), low, high)


def _normal(drawer: Drawer, val: Any, bound: dict[str, Any]) -> Tensor:
    mean, std = float(bound.get("mean", 0.0)), float(bound.get("std", 1.0))
    dtype = floating(val)
    if not val.is_contiguous():
        raise NotLowered("a normal distribution that is not contiguous, drawn one by one")
    if not std >= 0:
        raise NotLowered("a standard deviation that eager refuses")
    return _draw(drawer, val, K.normal(dtype), mean, std)


def _exponential(drawer: Drawer, val: Any, bound: dict[str, Any]) -> Tensor:
    rate, dtype = float(bound.get("lambd", 1.0)), floating(val)
    if not 0 < rate < math.inf:
        raise NotLowered("a rate that eager refuses or treats on its own")
    return _draw(drawer, val, K.exponential(dtype), rate)


def _bernoulli(drawer: Drawer, val: Any, bound: dict[str, Any]) -> Tensor:
    p = float(bound["p"])
    if not 0 <= p <= 1:
        raise NotLowered("a probability that eager refuses")
    drawn = _draw(drawer, val, K.below("bool"), p)
    return drawer.lowering.output(val, drawn.read, "bernoulli")


def _bernoulli_each(drawer: Drawer, val: Any, bound: dict[str, Any]) -> Tensor:
    chances, dtype = bound["self"], floating(val)
    if chances.is_view or chances.strides != tuple(val.stride()):
        raise NotLowered("probabilities that lie otherwise than the result")
    drawn = _draw(drawer, val, K.below_each(dtype), chances)
    return drawer.lowering.output(val, drawn.read, "bernoulli")


def _integers(drawer: Drawer, val: Any, bound: dict[str, Any]) -> Tensor:
    low, high = bounds_of_integers(val, bound)
    return _draw(drawer, val, K.integers(name_of(val.dtype), high - low), high - low, low)


def _permutation(drawer: Drawer, val: Any, bound: dict[str, Any]) -> Tensor:
    count = val.numel()
    if name_of(val.dtype) != "int64" or not isinstance(count, int) or count >= (1 << 32) // 20:
        raise NotLowered("a permutation in another dtype than int64, or a very long one")
    return _draw(drawer, val, K.PERMUTATION, 0, 0)


def _dropout(drawer: Drawer, vals: Any, bound: dict[str, Any]) -> tuple[Tensor, Tensor]:
    given, p = bound["input"], float(bound["p"])
    if bound.get("train") is False or not is_float(given.dtype) or not 0 <= p <= 1:
        raise NotLowered("a dropout that drops nothing, or that eager refuses")
    kept = compute_dtype(given.dtype)
    mask = _draw(drawer, vals[1], K.below("bool"), 1.0 - p)
    scale = E.const(0.0 if p == 1 else 1.0 / (1.0 - p), kept)

    def body(index: Any) -> E.Expr:
        left = apply("mul", E.cast(given.read(index), kept), E.cast(mask.read(index), kept))
        return apply("mul", E.cast(E.cast(left, given.dtype), kept), scale)

    return drawer.lowering.output(vals[0], body, "dropout"), mask


_CPU: dict[str, Rule] = {
    **dict.fromkeys(("rand.default", "rand.generator", "rand_like.default"), _uniform),
    "uniform.default": _uniform,
    **dict.fromkeys(("randn.default", "randn.generator", "randn_like.default"), _normal),
    "normal.float_float": _normal,
    "normal_functional.default": _normal,
    "exponential.default": _exponential,
    "bernoulli.p": _bernoulli,
    "bernoulli.default": _bernoulli_each,
    "randint.default": _integers,
    "randint.low": _integers,
    "randint.generator": _integers,
    "randint.low_generator": _integers,
    "randint_like.default": _integers,
    "randint_like.low_dtype": _integers,
    "random.from": _integers,
    "random.to": _integers,
    "randperm.default": _permutation,
    "randperm.generator": _permutation,
    "native_dropout.default": _dropout,
}


def drawn(lowering: Any, target: Any, val: Any, bound: dict[str, Any], state: Any) -> Any:
    """What a node that draws is lowered to. ``state``: of the generator, if it draws again.

    Raises :class:`NotLowered` for what eager's own call draws.
    """
    if lowering.options.fallback_random:
        raise NotLowered("fallback_random")
    rules = {"cpu": _CPU, "cuda": CUDA}[lowering.target.name]
    rule = rules.get(str(target).removeprefix("aten."))
    if rule is None:
        raise NotLowered("no kernel draws it")
    return rule(Drawer(lowering, state, bound.get("generator")), val, bound)
