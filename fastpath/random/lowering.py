"""Rules for operators that draw: which kernel draws the same, and what is computed from it.

A draw on the CPU is a step of its own, since a generator's words come one after the other: it
keeps its place among the program's draws and leaves numbers in memory, a mask as one byte each.
What is made of them is elementwise work, and fuses with all the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fastpath.ir import expr as E
from fastpath.ir.elementwise import NotLowered, apply
from fastpath.ir.program import Call, Result, Tensor, whole
from fastpath.ir.types import name_of
from fastpath.random import kernels as K
from fastpath.random.cpu import drawing, drawing_each, matches
from specs.dtypes import compute_dtype, int_range, is_float, is_int

LEAST = 1024  # elements; below, ATen's call costs less than reading and writing a state
_EXACT = {"float16": 1 << 11, "bfloat16": 1 << 8, "float32": 1 << 24, "float64": 1 << 53}


@dataclass(frozen=True)
class Drawer:
    """What a rule draws with. ``state``: the kept state of the generator that it starts from,
    whose own state then stays as it is; ``generator``: one that is not the default."""

    lowering: Any
    state: Any = None
    generator: Any = None

    def draw(self, val: torch.Tensor, d: K.Distribution, p: Any = 0.0, q: Any = 0.0) -> Tensor:
        """The step that draws ``val``'s elements, in the order of its memory."""
        shape, strides = tuple(val.shape), tuple(val.stride())
        if not all(isinstance(n, int) for n in shape):
            raise NotLowered("a draw of a size that is a symbol")
        if math.prod(shape) < LEAST:
            raise NotLowered(f"a draw of fewer than {LEAST} elements, which takes ATen no longer")
        if not _dense(shape, strides):
            raise NotLowered("a draw into memory with gaps")
        if not matches(d):
            raise NotLowered("eager draws otherwise on this machine")
        draw = drawing_each(d) if d.given else drawing(d)
        arguments = (p,) if d.given else (shape, strides, p, q)
        call = Call(draw, arguments, {}, "", impure=self.state is None, kernel=True)
        for name in ("state", "generator"):
            if getattr(self, name) is not None:
                call.keywords[name] = getattr(self, name)
        result = Result(self.lowering.fresh("drawn"), call, shape, d.dtype, strides)
        call.outputs.append(result)
        call.places.append(0)
        self.lowering.steps.append(call)
        return whole(result)


def _dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the elements fill their memory, each a place of its own."""
    expected = 1
    for stride, n in sorted((s, n) for s, n in zip(strides, shape) if n != 1):
        if stride != expected:
            return False
        expected *= n
    return True


Rule = Callable[[Drawer, Any, dict[str, Any]], Any]


def _uniform(drawer: Drawer, val: Any, bound: dict[str, Any]) -> Tensor:
    low, high = float(bound.get("from", 0.0)), float(bound.get("to", 1.0))
    dtype = _floating(val)
    if not (low <= high and high - low <= torch.finfo(val.dtype).max):
        raise NotLowered("bounds that eager refuses")
    return drawer.draw(val, K.uniform(dtype), low, high)


def _normal(drawer: Drawer, val: Any, bound: dict[str, Any]) -> Tensor:
    mean, std = float(bound.get("mean", 0.0)), float(bound.get("std", 1.0))
    dtype = _floating(val)
    if not val.is_contiguous():
        raise NotLowered("a normal distribution that is not contiguous, drawn one by one")
    if not std >= 0:
        raise NotLowered("a standard deviation that eager refuses")
    return drawer.draw(val, K.normal(dtype), mean, std)


def _exponential(drawer: Drawer, val: Any, bound: dict[str, Any]) -> Tensor:
    rate, dtype = float(bound.get("lambd", 1.0)), _floating(val)
    if not 0 < rate < math.inf:
        raise NotLowered("a rate that eager refuses or treats on its own")
    return drawer.draw(val, K.exponential(dtype), rate)


def _floating(val: torch.Tensor) -> str:
    dtype = name_of(val.dtype)
    if not is_float(dtype):
        raise NotLowered(f"a distribution of real numbers in {dtype}")
    return dtype


def _bernoulli(drawer: Drawer, val: Any, bound: dict[str, Any]) -> Tensor:
    p = float(bound["p"])
    if not 0 <= p <= 1:
        raise NotLowered("a probability that eager refuses")
    drawn = drawer.draw(val, K.below("bool"), p)
    return drawer.lowering.output(val, drawn.read, "bernoulli")


def _bernoulli_each(drawer: Drawer, val: Any, bound: dict[str, Any]) -> Tensor:
    chances, dtype = bound["self"], _floating(val)
    if chances.is_view or chances.strides != tuple(val.stride()):
        raise NotLowered("probabilities that lie otherwise than the result")
    drawn = drawer.draw(val, K.below_each(dtype), chances)
    return drawer.lowering.output(val, drawn.read, "bernoulli")


def _integers(drawer: Drawer, val: Any, bound: dict[str, Any]) -> Tensor:
    low = bound.get("low", bound.get("from", 0))
    high, dtype = bound.get("high", bound.get("to")), name_of(val.dtype)
    if not isinstance(low, int) or not isinstance(high, int) or low >= high:
        raise NotLowered("bounds that eager refuses, or no upper bound")
    if is_int(dtype):
        least, most = int_range(dtype)
    elif is_float(dtype):
        most = _EXACT[dtype]
        least = -most
    else:
        raise NotLowered(f"integers in {dtype}")
    if low < least or high - 1 > most or high - low >= 1 << 63:
        raise NotLowered("bounds that the dtype does not hold")
    return drawer.draw(val, K.integers(dtype, high - low), high - low, low)


def _permutation(drawer: Drawer, val: Any, bound: dict[str, Any]) -> Tensor:
    if name_of(val.dtype) != "int64" or val.numel() >= (1 << 32) // 20:
        raise NotLowered("a permutation in another dtype than int64, or a very long one")
    return drawer.draw(val, K.PERMUTATION, 0, 0)


def _dropout(drawer: Drawer, vals: Any, bound: dict[str, Any]) -> tuple[Tensor, Tensor]:
    given, p = bound["input"], float(bound["p"])
    if bound.get("train") is False or not is_float(given.dtype) or not 0 <= p <= 1:
        raise NotLowered("a dropout that drops nothing, or that eager refuses")
    kept = compute_dtype(given.dtype)
    mask = drawer.draw(vals[1], K.below("bool"), 1.0 - p)
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
    rule = _CPU.get(str(target).removeprefix("aten."))
    if rule is None or lowering.device.type != "cpu":
        raise NotLowered("no kernel draws it")
    return rule(Drawer(lowering, state, bound.get("generator")), val, bound)
