"""Rules of the loop IR for operators that are no single expression: reductions, normalisations.

A rule gets the lowering, the fake output(s) and the arguments by the schema's names.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fastpath.ir import (
    copies,
    extremes,
    gathers,
    pieces,
    resizing,
    sampling,
    scatters,
    searches,
    windows,
)
from fastpath.ir import expr as E
from fastpath.ir.building import Building
from fastpath.ir.elementwise import NotLowered, apply
from fastpath.ir.expr import Expr
from fastpath.ir.index import ZERO
from fastpath.ir.pieces import both
from fastpath.ir.program import Position, Tensor
from fastpath.ir.size import Number
from fastpath.ir.split import PART, moments
from fastpath.ir.types import name_of
from specs.dtypes import compute_dtype, is_complex, is_float

Rule = Callable[[Building, Any, dict[str, Any]], Any]
MOST_FACTORS = 8  # of a power that is a product


def dims_of(given: Any, rank: int) -> tuple[int, ...]:
    """The dimensions that a reduction's argument names, in order: all for None and for none."""
    if given is None or (isinstance(given, (list, tuple)) and not given):
        return tuple(range(rank))
    dims = [given] if isinstance(given, int) else list(given)
    return tuple(sorted({d + rank if d < 0 else d for d in dims})) if rank else ()


def _kept(index: Position, dims: Sequence[int], rank: int, keepdim: bool) -> Position:
    """The position in a ``keepdim`` reduction of a position of the output."""
    if keepdim:
        return tuple(ZERO if d in dims else i for d, i in enumerate(index))
    rest = iter(index)
    return tuple(ZERO if d in dims else next(rest) for d in range(rank))


def _reader(t: Tensor, dtype: str) -> Callable[[Position], Expr]:
    return lambda index: E.cast(t.read(index), dtype)


def _reduction(kind: str, lowering: Building, val: Any, bound: dict[str, Any]) -> Tensor:
    t: Tensor = bound["self"]
    rank = len(t.shape)
    dims = dims_of(bound.get("dim"), rank)
    keepdim = bool(bound.get("keepdim", False))
    result = name_of(val.dtype)
    if kind in ("any", "all"):
        common = "bool"
        compute, body = "bool", _truth(t)
        if bound.get("dim") in ([], ()):  # of all reductions, only these then reduce nothing
            dims = ()
    else:
        common = result if kind in ("sum", "mean", "prod") else t.dtype
        compute = compute_dtype(common)
        if kind == "prod" and compute == "float32" and lowering.target.name == "cpu":
            compute = "float64"  # one that overflows on its way to a zero would be NaN
        value = _reader(t, common)

        def body(index: Position) -> Expr:
            return E.cast(value(index), compute)

    if kind == "mean" and not (is_float(compute) or is_complex(compute)):
        raise NotLowered("a mean of integers")
    near = kind == "mean" and common == t.dtype and lowering.spread(t, dims)
    if near:  # a variance goes through the same terms, and gives the mean
        mean, _, count = _moments(lowering, t, dims, _spread_dtype(lowering, t))
        raw = _of_sum(lowering, mean, count, compute)
    else:
        raw = lowering.reduce("sum" if kind == "mean" else kind, t.shape, dims, compute, body)
        count = math.prod(t.shape[d] for d in dims)

    # CUDA's kernels take the count for a real number, the CPU's for a complex one.
    parts = is_complex(compute) and lowering.target.name == "cuda"
    divided = "shrink" if parts else "truediv"

    def finish(index: Position) -> Expr:
        value = raw.read(_kept(index, dims, rank, keepdim))
        if kind == "mean" and not near:
            value = apply(divided, value, E.number(count, compute))
        return value

    return lowering.output(val, finish, kind)


def _truth(t: Tensor) -> Callable[[Position], Expr]:
    zero = E.const(0, compute_dtype(t.dtype))

    def body(index: Position) -> Expr:
        value = t.read(index)
        if t.dtype == "bool":
            return value
        return apply("ne", E.cast(value, compute_dtype(t.dtype)), zero)

    return body


def _moments(
    lowering: Building, t: Tensor, dims: tuple[int, ...], dtype: str, part: float = PART
) -> tuple[Tensor, Tensor, Any]:
    """The mean, the sum of squared deviations over ``dims`` (both ``keepdim``), and the count."""
    if compute_dtype(t.dtype) != dtype:
        part = 1.0  # of a narrower dtype no sum overflows
    key = id(t), dims, dtype, part  # of a value of the graph, which lasts as long as the lowering
    if key not in lowering.moments:
        lowering.moments[key] = moments(lowering, t.shape, dims, dtype, _reader(t, dtype), part)
    return lowering.moments[key]


def _of_sum(lowering: Building, mean: Tensor, count: Number, dtype: str) -> Tensor:
    """The mean as a sum in ``dtype`` over the count has it: infinite where the sum is."""

    def value(index: Position) -> Expr:
        total = apply("mul", mean.read(index), E.number(count, mean.dtype))
        total = E.cast(total, dtype)
        return apply("where", apply("isinf", total), total, E.cast(mean.read(index), dtype))

    return lowering.pointwise(mean.shape, dtype, value, "mean")


def _seen_mean(mean: Tensor, squares: Tensor) -> Callable[[Position], Expr]:
    """The mean as eager's running update gives it: nan, not an infinity, if a term is infinite."""

    def value(index: Position) -> Expr:
        spread = squares.read(index)
        return apply("where", apply("isnan", spread), spread, mean.read(index))

    return value


def _spread_dtype(lowering: Building, t: Tensor) -> str:
    """Where the variance of ``t`` is computed, whose square root may be within a dtype that the
    squares are not: in float64 by the CPU's kernels of eager (``WelfordOps`` in ATen's
    ``ReduceOpsKernel.cpp``), by CUDA's in float32."""
    if not is_float(t.dtype):
        raise NotLowered("a variance of integers")
    return "float64" if lowering.target.wide else compute_dtype(t.dtype)


def _degrees(count: Any, correction: Any, dtype: str) -> Expr:
    """The count less the correction, at least 0."""
    if isinstance(correction, float) and correction.is_integer():
        correction = int(correction)
    if isinstance(count, int) or not isinstance(correction, float):
        return E.number(max(count - correction, 0), dtype)
    terms, less = E.number(count, dtype), E.const(correction, dtype)  # no size is a fraction
    found = apply("sub", terms, less)
    return apply("where", apply("gt", terms, less), found, E.const(0, dtype))


def _variance(lowering: Building, bound: dict[str, Any], joint: bool) -> Callable[[Position], Expr]:
    """The variance at a position of the output (with the arguments of ``aten.var.correction``).

    ``joint``: whether the operator gives the mean too.
    """
    t: Tensor = bound["self"]
    rank, dtype = len(t.shape), _spread_dtype(lowering, t)
    dims = dims_of(bound.get("dim"), rank)
    correction = bound.get("correction")
    correction = 1 if correction is None else correction
    mean, squares, count = _moments(lowering, t, dims, dtype)
    keepdim = bool(bound.get("keepdim", False))
    divisor = _degrees(count, correction, dtype)
    alone = (
        all(d in dims or n == 1 for d, n in enumerate(t.shape))
        and t.dtype == compute_dtype(t.dtype)
        and lowering.target.wide
    )

    def value(index: Position) -> Expr:
        at = _kept(index, dims, rank, keepdim)
        found = squares.read(at)
        if alone and not joint:  # eager's kernel for these begins with the sum in their dtype
            total = apply("mul", mean.read(at), E.number(count, dtype))
            total = E.cast(E.cast(total, t.dtype), dtype)
            beyond = both(apply("isinf", total), apply("isfinite", mean.read(at)))
            found = apply("where", beyond, apply("abs", total), found)
        return apply("truediv", found, divisor)

    return value


def _spread(
    root: bool, lowering: Building, val: Any, bound: dict[str, Any], joint: bool = False
) -> Tensor:
    variance = _variance(lowering, bound, joint)
    if not root:
        return lowering.output(val, variance, "var")
    return lowering.output(val, lambda i: apply("sqrt", variance(i)), "std")


def _softmax(log: bool, lowering: Building, val: Any, bound: dict[str, Any]) -> Tensor:
    t: Tensor = bound["self"]
    rank = len(t.shape)
    dims = dims_of(bound["dim"], rank)
    dtype = compute_dtype(t.dtype)
    if not is_float(dtype) or not rank:
        raise NotLowered("a softmax of integers or of a single number")
    x = _reader(t, dtype)

    def top(index: Position) -> Position:
        return tuple(ZERO if d in dims else i for d, i in enumerate(index))

    largest = lowering.reduce("max", t.shape, dims, dtype, x)

    def shifted(index: Position) -> Expr:
        return apply("sub", x(index), largest.read(top(index)))

    powers = lowering.pointwise(t.shape, dtype, lambda i: apply("exp", shifted(i)), "exp")
    total = lowering.reduce("sum", t.shape, dims, dtype, powers.read)
    if log:
        offset = lowering.pointwise(
            total.shape, dtype, lambda i: apply("log", total.read(i)), "log"
        )
        return lowering.output(
            val, lambda i: apply("sub", shifted(i), offset.read(top(i))), "log_softmax"
        )
    share = _quotients(lowering, powers, total, top, dtype)
    return lowering.output(val, share, "softmax")


def _quotients(
    lowering: Building, value: Tensor, divisor: Tensor, place: Callable, dtype: str
) -> Callable[[Position], Expr]:
    """``value`` over ``divisor``, which many elements share, at its ``place``.

    One quotient is the divisor's reciprocal; a product with it errs by what a fused multiplication
    and addition give exactly, and another one corrects: the quotient's own rounding (Markstein
    1990, "Computation of elementary functions on the IBM RISC System/6000").
    """
    if not lowering.target.fused or dtype != "float32":
        return lambda i: apply("truediv", value.read(i), divisor.read(place(i)))
    one = E.const(1.0, dtype)
    inverse = lowering.pointwise(
        divisor.shape, dtype, lambda i: apply("truediv", one, divisor.read(i)), "inverse"
    )

    def quotient(index: Position) -> Expr:
        x, at = value.read(index), place(index)
        near = apply("mul", x, inverse.read(at))
        rest = apply("fma", apply("neg", near), divisor.read(at), x)
        return apply("fma", rest, inverse.read(at), near)

    return quotient


def _scaled(
    value: Expr, weight: Tensor | None, bias: Tensor | None, place: Position, dtype: str
) -> Expr:
    if weight is not None:
        value = apply("mul", value, E.cast(weight.read(place), dtype))
    if bias is not None:
        value = apply("add", value, E.cast(bias.read(place), dtype))
    return value


def _reciprocal_deviation(
    lowering: Building, squares: Tensor, count: int, eps: float, dtype: str
) -> Tensor:
    def body(index: Position) -> Expr:
        variance = apply("truediv", squares.read(index), E.number(count, dtype))
        return apply("rsqrt", apply("add", variance, E.const(eps, dtype)))

    return lowering.pointwise(squares.shape, dtype, body, "rstd")


def _layer_norm(lowering: Building, vals: Any, bound: dict[str, Any]) -> tuple[Tensor, ...]:
    t: Tensor = bound["input"]
    shape = bound["normalized_shape"]
    rank = len(t.shape)
    dims = tuple(range(rank - len(shape), rank))
    dtype = compute_dtype(t.dtype)
    mean, squares, count = _moments(lowering, t, dims, dtype)
    rstd = _reciprocal_deviation(lowering, squares, count, bound["eps"], dtype)
    weight, bias = bound.get("weight"), bound.get("bias")

    def normalised(index: Position) -> Expr:
        at = tuple(ZERO if d in dims else i for d, i in enumerate(index))
        deviation = apply("sub", E.cast(t.read(index), dtype), mean.read(at))
        value = apply("mul", deviation, rstd.read(at))
        return _scaled(value, weight, bias, index[dims[0] :], dtype)

    return (
        lowering.output(vals[0], normalised, "layer_norm"),
        lowering.output(vals[1], _seen_mean(mean, squares), "mean"),
        lowering.output(vals[2], rstd.read, "rstd"),
    )


def _dense(val: Any) -> None:
    """Of other layouts, eager's batch norm makes another than its fake implementation says."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    last = formats.get(val.dim())
    if not val.is_contiguous() and not (last and val.is_contiguous(memory_format=last)):
        raise NotLowered("an image that is neither contiguous nor channels-last")


def _channels(index: Position) -> Position:
    return index[1:2]


def _batch_norm_inference(lowering: Building, vals: Any, bound: dict[str, Any]) -> Any:
    t: Tensor = bound["input"]
    dtype = compute_dtype(t.dtype)
    _dense(vals[0])
    mean, var = bound["running_mean"], bound["running_var"]
    weight, bias, eps = bound.get("weight"), bound.get("bias"), bound["eps"]

    def scale(index: Position) -> Expr:
        variance = E.cast(var.read(index), dtype)
        value = apply("rsqrt", apply("add", variance, E.const(eps, dtype)))
        return _scaled(value, weight, None, index, dtype)

    factor = lowering.pointwise(mean.shape, dtype, scale, "scale")

    def offset(index: Position) -> Expr:
        moved = apply("mul", E.cast(mean.read(index), dtype), factor.read(index))
        if bias is None:
            return apply("neg", moved)
        return apply("sub", E.cast(bias.read(index), dtype), moved)

    shift = lowering.pointwise(mean.shape, dtype, offset, "shift")

    def normalised(index: Position) -> Expr:  # eager's formula, with its rounding
        at = _channels(index)
        value = apply("mul", E.cast(t.read(index), dtype), factor.read(at))
        return apply("add", value, shift.read(at))

    out = lowering.output(vals[0], normalised, "batch_norm")
    empty = [lowering_empty(lowering, val) for val in vals[1:]]
    return out, *empty


def lowering_empty(lowering: Building, val: Any) -> Tensor:
    """Outputs that only exist for the gradient: here without elements, so never read."""
    if val.numel():
        raise NotLowered("saved statistics with elements")
    return lowering.pointwise(
        tuple(val.shape), name_of(val.dtype), lambda i: E.const(0, name_of(val.dtype)), "saved"
    )


def _batch_norm_training(lowering: Building, vals: Any, bound: dict[str, Any]) -> Any:
    _dense(vals[0])
    if not bound["training"]:
        raise NotLowered("batch norm with statistics but not training")
    t: Tensor = bound["input"]
    rank = len(t.shape)
    dims = tuple(d for d in range(rank) if d != 1)
    dtype = compute_dtype(t.dtype)
    mean, squares, count = _moments(lowering, t, dims, dtype, 1.0)
    if count < 2:
        raise NotLowered("batch norm of a single value per channel")
    rstd = _reciprocal_deviation(lowering, squares, count, bound["eps"], dtype)
    weight, bias, momentum = bound.get("weight"), bound.get("bias"), bound["momentum"]

    def channel(index: Position) -> Position:
        return tuple(index[-1] if d == 1 else ZERO for d in range(rank))

    def normalised(index: Position) -> Expr:
        at = tuple(i if d == 1 else ZERO for d, i in enumerate(index))
        deviation = apply("sub", E.cast(t.read(index), dtype), mean.read(at))
        value = apply("mul", deviation, rstd.read(at))
        return _scaled(value, weight, bias, _channels(index), dtype)

    def running(old: Tensor, new: Callable[[Position], Expr]) -> Callable[[Position], Expr]:
        kept, share = E.const(1 - momentum, dtype), E.const(momentum, dtype)

        def body(index: Position) -> Expr:
            before = apply("mul", kept, E.cast(old.read(index), dtype))
            return apply("add", apply("mul", share, new(index)), before)

        return body

    def variance(index: Position) -> Expr:
        return apply("truediv", squares.read(channel(index)), E.number(count - 1, dtype))

    out = lowering.output(vals[0], normalised, "batch_norm")
    saved = lowering.output(vals[1], lambda i: mean.read(channel(i)), "saved_mean")
    saved_rstd = lowering.output(vals[2], lambda i: rstd.read(channel(i)), "saved_rstd")
    results = [out, saved, saved_rstd]
    if bound.get("running_mean") is not None:
        new_mean = running(bound["running_mean"], lambda i: mean.read(channel(i)))
        new_var = running(bound["running_var"], variance)
        results.append(lowering.output(vals[3], new_mean, "running_mean"))
        results.append(lowering.output(vals[4], new_var, "running_var"))
    return tuple(results)


def _group_norm(lowering: Building, vals: Any, bound: dict[str, Any]) -> tuple[Tensor, ...]:
    t: Tensor = bound["input"]
    groups, dtype = bound["group"], compute_dtype(t.dtype)
    batch, channels, *rest = t.shape
    shape = (batch, groups, channels // groups, *rest)
    dims = tuple(range(2, len(shape)))

    def joined(index: Position) -> Position:
        return (index[0], index[1] * (channels // groups) + index[2], *index[3:])

    grouped = lowering.pointwise(shape, t.dtype, lambda i: t.read(joined(i)), "grouped")
    given = _reader(grouped, dtype)
    mean, squares, counted = moments(lowering, grouped.shape, dims, dtype, given)
    count: Any = counted
    rstd = _reciprocal_deviation(lowering, squares, count, bound["eps"], dtype)
    weight, bias = bound.get("weight"), bound.get("bias")
    if any(p is not None and p.strides != (1,) for p in (weight, bias)):
        raise NotLowered("weights with gaps, whose strides eager's kernel does not look at")

    def group_of(index: Position) -> Position:
        group = index[1].floordiv(channels // groups)
        return (index[0], group, *(ZERO for _ in dims))

    def factor(index: Position) -> Expr:
        return _scaled(rstd.read(group_of(index)), weight, None, _channels(index), dtype)

    def offset(index: Position) -> Expr:
        moved = apply("neg", apply("mul", factor(index), mean.read(group_of(index))))
        return _scaled(moved, None, bias, _channels(index), dtype)

    def normalised(index: Position) -> Expr:  # eager's formula, with its rounding
        value = apply("mul", E.cast(t.read(index), dtype), factor(index))
        return apply("add", value, offset(index))

    def whole_group(index: Position) -> Position:
        return (*index, *(ZERO for _ in dims))

    seen = _seen_mean(mean, squares)
    return (
        lowering.output(vals[0], normalised, "group_norm"),
        lowering.output(vals[1], lambda i: seen(whole_group(i)), "mean"),
        lowering.output(vals[2], lambda i: rstd.read(whole_group(i)), "rstd"),
    )


def _spread_and_mean(
    root: bool, lowering: Building, vals: Any, bound: dict[str, Any]
) -> tuple[Tensor, Tensor]:
    t: Tensor = bound["self"]
    rank = len(t.shape)
    dims, keepdim = dims_of(bound.get("dim"), rank), bool(bound.get("keepdim", False))
    mean, squares, count = _moments(lowering, t, dims, _spread_dtype(lowering, t))
    seen = mean.read if count == 1 else _seen_mean(mean, squares)
    return (
        _spread(root, lowering, vals[0], bound, joint=True),
        lowering.output(vals[1], lambda i: seen(_kept(i, dims, rank, keepdim)), "mean"),
    )


def _logsumexp(lowering: Building, val: Any, bound: dict[str, Any]) -> Tensor:
    t: Tensor = bound["self"]
    rank, result = len(t.shape), name_of(val.dtype)
    if rank and bound.get("dim") in ([], ()):
        raise NotLowered("no dimension to reduce, which eager rejects")
    dims, keepdim = dims_of(bound.get("dim"), rank), bool(bound.get("keepdim", False))
    dtype = compute_dtype(result)
    x = _reader(t, dtype)
    largest = lowering.reduce("max", t.shape, dims, dtype, x)

    def finite(index: Position) -> Expr:  # an infinite maximum would give nan
        top = largest.read(index)
        return apply("where", apply("isinf", top), E.const(0, dtype), top)

    shift = lowering.pointwise(largest.shape, dtype, finite, "shift")

    def power(index: Position) -> Expr:
        at = tuple(ZERO if d in dims else i for d, i in enumerate(index))
        return apply("exp", apply("sub", x(index), shift.read(at)))

    total = lowering.reduce("sum", t.shape, dims, dtype, power)

    def finish(index: Position) -> Expr:
        at = _kept(index, dims, rank, keepdim)
        return apply("add", apply("log", total.read(at)), shift.read(at))

    return lowering.output(val, finish, "logsumexp")


def _count_nonzero(lowering: Building, val: Any, bound: dict[str, Any]) -> Tensor:
    t: Tensor = bound["self"]
    rank = len(t.shape)
    dims = dims_of(bound.get("dim"), rank)
    truth = _truth(t)
    raw = lowering.reduce("sum", t.shape, dims, "int64", lambda i: E.cast(truth(i), "int64"))
    return lowering.output(val, lambda i: raw.read(_kept(i, dims, rank, False)), "count")


def _power(value: Expr, order: float, dtype: str) -> Expr:
    """Few products take a tenth of what a power takes."""
    if order not in range(2, MOST_FACTORS + 1):
        return apply("pow", value, E.const(order, dtype))
    found = value
    for digit in f"{int(order):b}"[1:]:
        found = apply("mul", found, found)
        found = apply("mul", found, value) if digit == "1" else found
    return found


def _norm(lowering: Building, val: Any, bound: dict[str, Any]) -> Tensor:
    t: Tensor = bound["self"]
    rank, order, dtype = len(t.shape), bound.get("ord", 2), compute_dtype(name_of(val.dtype))
    dims, keepdim = dims_of(bound.get("dim"), rank), bool(bound.get("keepdim", False))
    if not isinstance(order, (int, float)):
        raise NotLowered("a norm whose order is another one in each call")
    power = order not in (0, 1, 2, math.inf, -math.inf)
    x = _reader(t, dtype)
    if is_complex(t.dtype):  # of the magnitudes

        def x(index: Position) -> Expr:
            return E.cast(apply("abs", t.read(index)), dtype)

    def term(index: Position) -> Expr:
        value = x(index)
        if order == 2:
            return apply("mul", value, value)
        if order == 0:
            return E.cast(apply("ne", value, E.const(0, dtype)), dtype)
        size = apply("abs", value)
        return _power(size, order, dtype) if power else size

    kind = {math.inf: "max", -math.inf: "min"}.get(order, "sum")
    raw = lowering.reduce(kind, t.shape, dims, dtype, term)

    def finish(index: Position) -> Expr:
        value = raw.read(_kept(index, dims, rank, keepdim))
        if power:
            return apply("pow", value, E.const(1 / order, dtype))
        return apply("sqrt", value) if order == 2 else value

    return lowering.output(val, finish, "norm")


def _old_norm(lowering: Building, val: Any, bound: dict[str, Any]) -> Tensor:
    """``aten.norm``, whose order is called otherwise and may be left out."""
    order = bound.get("p")
    if name_of(val.dtype) != bound["self"].dtype:
        raise NotLowered("a norm in another dtype")
    return _norm(lowering, val, {**bound, "ord": 2 if order is None else order})


def _softmax_backward(log: bool, lowering: Building, val: Any, bound: dict[str, Any]) -> Tensor:
    grad, out = bound["grad_output"], bound["output"]
    dims, dtype = dims_of(bound["dim"], len(out.shape)), compute_dtype(out.dtype)
    if name_of(val.dtype) != out.dtype or not out.shape:
        raise NotLowered("a gradient in another dtype, or of a single number")
    g, y = _reader(grad, dtype), _reader(out, dtype)

    def term(index: Position) -> Expr:
        return g(index) if log else apply("mul", g(index), y(index))

    total = lowering.reduce("sum", out.shape, dims, dtype, term)

    def finish(index: Position) -> Expr:
        at = tuple(ZERO if d in dims else i for d, i in enumerate(index))
        if log:
            return apply("sub", g(index), apply("mul", apply("exp", y(index)), total.read(at)))
        return apply("mul", y(index), apply("sub", g(index), total.read(at)))

    return lowering.output(val, finish, "softmax_backward")


RULES: dict[str, Rule] = {
    **{
        f"reduce:{name}": functools.partial(_reduction, kind)
        for name, kind in (
            ("sum", "sum"),
            ("mean", "mean"),
            ("prod", "prod"),
            ("amax", "max"),
            ("amin", "min"),
            ("any", "any"),
            ("all", "all"),
        )
    },
    "reduce:var": functools.partial(_spread, False),
    "reduce:std": functools.partial(_spread, True),
    "reduce:var+mean": functools.partial(_spread_and_mean, False),
    "reduce:std+mean": functools.partial(_spread_and_mean, True),
    "reduce:count_nonzero": _count_nonzero,
    "reduce:norm": _norm,
    "reduce:old_norm": _old_norm,
    "compose:logsumexp": _logsumexp,
    "compose:softmax": functools.partial(_softmax, False),
    "compose:log_softmax": functools.partial(_softmax, True),
    "compose:softmax_backward": functools.partial(_softmax_backward, False),
    "compose:log_softmax_backward": functools.partial(_softmax_backward, True),
    "compose:layer_norm": _layer_norm,
    "compose:group_norm": _group_norm,
    "compose:batch_norm": _batch_norm_inference,
    "compose:batch_norm_training": _batch_norm_training,
    **copies.RULES,
    **resizing.RULES,
    **sampling.RULES,
    **searches.RULES,
    **scatters.RULES,
    **windows.RULES,
    **extremes.RULES,
    **gathers.RULES,
    **pieces.RULES,
}
