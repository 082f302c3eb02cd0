"""Rules for windows over images: pooling, its gradients, and ``unfold`` of images.

A window's elements are read one by one, with a guard where the window hangs over the edge; those
of a large one are what a reduction goes through. The gradient of an element is the sum over the
windows that it is in, so nothing is written twice. The order of every sum but those of large
windows is eager's: windows, and the elements in them, by rows.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fastpath.ir import expr as E
from fastpath.ir.elementwise import NotLowered, apply
from fastpath.ir.expr import Expr
from fastpath.ir.index import ZERO, Index, contiguous_strides, delinearize, linear
from fastpath.ir.pieces import TRUE, both, where_true, within
from fastpath.ir.program import Position, Tensor
from fastpath.ir.size import known
from fastpath.ir.types import name_of
from specs.dtypes import REDUCED, compute_dtype, is_float

Rule = Callable[[Any, Any, dict[str, Any]], Any]
Body = Callable[[Position], Expr]
Bodies = tuple[Body, Body]

MOST = 32  # elements of a window that are spelled out one by one


def _per_dim(given: Any, rank: int, default: Sequence[int]) -> tuple[int, ...]:
    sizes = [given] if isinstance(given, int) else list(given if given is not None else ())
    if not sizes:
        return tuple(default)
    return tuple(sizes * rank if len(sizes) == 1 else sizes)


class _Windows:
    """Where windows lie over the last ``rank`` dimensions of an image of ``shape``."""

    def __init__(self, shape: Sequence[int], dtype: str, rank: int, bound: dict[str, Any]):
        if not is_float(dtype):
            raise NotLowered("windows over integers")
        if not known(*shape[len(shape) - rank :]):
            raise NotLowered("an image of a size that each call chooses")
        self.rank = rank
        self.image = tuple(shape[len(shape) - rank :])
        self.size = _per_dim(bound["kernel_size"], rank, ())
        self.stride = _per_dim(bound.get("stride"), rank, self.size)
        self.padding = _per_dim(bound.get("padding", 0), rank, (0,) * rank)
        self.dilation = _per_dim(bound.get("dilation", 1), rank, (1,) * rank)
        self.large = math.prod(self.size) > MOST

    def elements(self, index: Position) -> Iterator[tuple[Position, Expr]]:
        """Of the window at ``index``: the place in the image of each element, and whether it is."""
        for offsets in itertools.product(*map(range, self.size)):
            yield self.element(index, [Index({}, k) for k in offsets])

    def element(self, index: Position, offsets: Sequence[Index]) -> tuple[Position, Expr]:
        """The same of one element of the window."""
        before, at = index[: -self.rank], index[-self.rank :]
        place, inside = [], TRUE
        for d, k in enumerate(offsets):
            i = at[d] * self.stride[d] + k * self.dilation[d] + -self.padding[d]
            inside = both(inside, within(i, 0, self.image[d]))
            place.append(i)
        return (*before, *place), inside

    def begin(self, i: Index, d: int) -> Index:
        """Where the window at ``i`` of dimension ``d`` begins, perhaps before the image."""
        return i * self.stride[d] + -self.padding[d]

    def reduced(
        self,
        lowering: Any,
        kind: str,
        shape: Sequence[Any],
        dtype: str,
        value: Callable[[Position, Position, Expr], Expr],
    ) -> Callable[[Position], Expr]:
        """A reduction over the elements of each window of an output of ``shape``; ``value`` is of
        the window's position, and of the element's and whether there is one."""
        space = (*shape, *self.size)
        dims = tuple(range(len(shape), len(space)))

        def body(index: Position) -> Expr:
            window = index[: -self.rank]
            return value(window, *self.element(window, index[-self.rank :]))

        found = lowering.reduce(kind, space, dims, dtype, body)
        return lambda index: found.read((*index, *(ZERO for _ in dims)))

    def over(self, index: Position, counts: Sequence[int]) -> Iterator[tuple[Position, Expr]]:
        """Of the element at ``index``: each window that it may be in, and whether it is."""
        if self.dilation != (1,) * self.rank:
            raise NotLowered("gradients of dilated windows")
        before, at = index[: -self.rank], index[-self.rank :]
        most = [-(-k // s) for k, s in zip(self.size, self.stride)]
        if math.prod(most) > MOST:
            raise NotLowered(f"elements of more than {MOST} windows")
        for back in itertools.product(*(range(n - 1, -1, -1) for n in most)):
            place, inside = [], TRUE
            for d, j in enumerate(back):
                k, s, moved = self.size[d], self.stride[d], at[d] + self.padding[d]
                window = moved.floordiv(s) + -j
                inside = both(inside, within(moved.mod(s), 0, k - j * s))
                inside = both(inside, within(window, 0, counts[d]))
                place.append(window)
            yield (*before, *place), inside


class _Uneven(_Windows):
    """Windows that cover an image ``counts`` times a dimension, of several sizes: each from the
    part of the image that its place is, rounded down, to that of the next, rounded up."""

    def __init__(self, shape: Sequence[int], dtype: str, counts: Sequence[int]):
        image = shape[len(shape) - len(counts) :]
        super().__init__(shape, dtype, len(counts), {"kernel_size": [1] * len(counts)})
        self.counts = tuple(counts)
        spans = [
            [-(-(i + 1) * n // m) - i * n // m for i in range(m)] for n, m in zip(image, counts)
        ]
        self.size = tuple(map(max, spans))
        self.least = tuple(map(min, spans))
        self.large = math.prod(self.size) > MOST

    def begin(self, i: Index, d: int) -> Index:
        return (i * self.image[d]).floordiv(self.counts[d])

    def span(self, i: Index, d: int) -> Expr:
        n, m = self.image[d], self.counts[d]
        end = (i * n + (n + m - 1)).floordiv(m)
        return apply("sub", E.position(end), E.position(self.begin(i, d)))

    def element(self, index: Position, offsets: Sequence[Index]) -> tuple[Position, Expr]:
        before, at = index[: -self.rank], index[-self.rank :]
        place, inside = [], TRUE
        for d, k in enumerate(offsets):
            if k.bounds()[1] >= self.least[d]:
                shorter = apply("lt", E.position(k), self.span(at[d], d))
                inside = both(inside, shorter)
            place.append(self.begin(at[d], d) + k)
        return (*before, *place), inside


# -- the greatest ----------------------------------------------------------------------------------


def _max_pool(rank: int, lowering: Any, vals: Any, bound: dict[str, Any]) -> tuple[Tensor, Tensor]:
    t: Tensor = bound["self"]
    windows = bound.get("windows") or _Windows(t.shape, t.dtype, rank, bound)
    dtype = compute_dtype(t.dtype)
    least = E.const(-math.inf, dtype)
    if any(p and d != 1 for p, d in zip(windows.padding, windows.dilation)):
        raise NotLowered("dilated windows that begin outside of the image")
    strides = contiguous_strides(windows.image)

    def values(index: Position) -> Iterator[tuple[Position, Expr, Expr]]:
        for place, inside in windows.elements(index):
            read = functools.partial(_read, t, place, dtype)
            yield place, inside, where_true(inside, read, least)

    def greatest(index: Position) -> Expr:
        return functools.reduce(functools.partial(apply, "maximum"), (v for *_, v in values(index)))

    def first(index: Position) -> Expr:
        """The flat place of the window's first element in the image."""
        total = E.const(0, "int64")
        for d, i in enumerate(index[-rank:]):
            start = E.position(windows.begin(i, d))
            start = apply("maximum", start, E.const(0, "int64")) if windows.padding[d] else start
            total = apply("add", total, apply("mul", start, E.const(strides[d], "int64")))
        return total

    def place_of(index: Position) -> Expr:
        best, where = least, first(index)
        for place, inside, value in values(index):
            better = apply("logical_or", apply("gt", value, best), apply("isnan", value))
            flat = E.position(linear(place[-rank:], strides))
            better = both(inside, better)
            best, where = apply("where", better, value, best), apply("where", better, flat, where)
        return where

    found: Bodies = (greatest, place_of)
    if windows.large:
        found = _large_max(windows, lowering, t, vals[0].shape, dtype)
    names = "max_pool", "max_pool_indices"
    first_of, second_of = map(lowering.output, vals, found, names)
    return first_of, second_of


def _large_max(
    windows: _Windows, lowering: Any, t: Tensor, shape: Sequence[Any], dtype: str
) -> Bodies:
    """The extremum of each window, and its first place in the image; of nans that of the last."""
    strides = contiguous_strides(windows.image)
    least, beyond = E.const(-math.inf, dtype), E.const(math.prod(windows.image), "int64")

    def value(window: Position, place: Position, inside: Expr) -> Expr:
        return where_true(inside, functools.partial(_read, t, place, dtype), least)

    greatest = windows.reduced(lowering, "max", shape, dtype, value)

    def first(window: Position, place: Position, inside: Expr) -> Expr:
        flat = E.position(linear(place[-windows.rank :], strides))
        equal = apply("eq", value(window, place, inside), greatest(window))
        return apply("where", both(inside, equal), flat, beyond)

    def last_nan(window: Position, place: Position, inside: Expr) -> Expr:
        flat = E.position(linear(place[-windows.rank :], strides))
        nan = apply("isnan", value(window, place, inside))
        return apply("where", nan, flat, E.const(-1, "int64"))

    at = windows.reduced(lowering, "min", shape, "int64", first)
    of_nan = windows.reduced(lowering, "max", shape, "int64", last_nan)

    def place_of(index: Position) -> Expr:
        return apply("where", apply("isnan", greatest(index)), of_nan(index), at(index))

    return greatest, place_of


def _read(t: Tensor, place: Position, dtype: str) -> Expr:
    return E.cast(t.read(place), dtype)


def _max_pool_backward(rank: int, lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    grad, indices = bound["grad_output"], bound["indices"]
    windows = _Windows(val.shape, name_of(val.dtype), rank, bound)
    dtype, strides = compute_dtype(name_of(val.dtype)), contiguous_strides(windows.image)
    zero = E.const(0, dtype)
    counts = grad.shape[len(grad.shape) - rank :]

    def body(index: Position) -> Expr:
        own = E.position(linear(index[-rank:], strides))
        total = zero
        for window, inside in windows.over(index, counts):
            chosen = E.guarded(apply("eq", indices.read(window), own), inside)
            hit = both(inside, chosen)
            value = E.guarded(_read(grad, window, dtype), inside)
            total = apply("add", total, apply("where", hit, value, zero))
        return total

    if not lowering.target.predicated:
        raise NotLowered("gradients of maxima, which are fewer writes than reads")
    list(windows.over(_first(val), counts))  # refuses what it does not know
    return lowering.output(val, body, "max_pool_backward")


def _first(val: Any) -> Position:
    return tuple(Index({}) for _ in val.shape)


# -- the mean --------------------------------------------------------------------------------------


def _count(windows: _Windows, at: Position, bound: dict[str, Any], dtype: str) -> Expr:
    """How many elements the mean over the window at ``at`` counts."""
    if isinstance(windows, _Uneven):
        spans = [windows.span(i, d) for d, i in enumerate(at)]
        return E.cast(functools.reduce(functools.partial(apply, "mul"), spans), dtype)
    if bound.get("divisor_override"):
        return E.const(bound["divisor_override"], dtype)
    total: Expr = E.const(1, dtype)
    for d, i in enumerate(at):
        n, k, pad = windows.image[d], windows.size[d], windows.padding[d]
        start = i * windows.stride[d] + -pad
        low, high = start.bounds()
        first, last = 0, n
        if bound["count_include_pad"]:
            first, last = -pad, n + pad
        if low >= first and high + k <= last:
            part = E.const(k, dtype)
        else:
            begin = apply("maximum", E.position(start), E.const(first, "int64"))
            end = apply("minimum", E.position(start + k), E.const(last, "int64"))
            part = E.cast(apply("sub", end, begin), dtype)
        total = apply("mul", total, part)
    return total


def _constant(value: Expr) -> float | None:
    """The number that a product of constants is."""
    if value.op == "const":
        return float(value.args[0])
    if value.op != "mul":
        return None
    factors = [_constant(a) for a in value.args]
    return None if None in factors else math.prod(f for f in factors if f is not None)


def _divided(value: Expr, count: Expr) -> Expr:
    known = _constant(count)
    return apply("truediv", value, count if known is None else E.const(known, count.dtype))


def _avg_pool(rank: int, lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    t: Tensor = bound["self"]
    if rank == 3 and t.dtype in REDUCED:
        raise NotLowered("volumes of 16-bit numbers, which eager does not take everywhere")
    windows = bound.get("windows") or _Windows(t.shape, t.dtype, rank, bound)
    dtype = compute_dtype(t.dtype)
    zero = E.const(0, dtype)

    def term(window: Position, place: Position, inside: Expr) -> Expr:
        return where_true(inside, functools.partial(_read, t, place, dtype), zero)

    def in_order(index: Position) -> Expr:
        total = zero
        for element in windows.elements(index):
            total = apply("add", total, term(index, *element))
        return total

    summed: Body = in_order
    if windows.large:
        summed = windows.reduced(lowering, "sum", val.shape, dtype, term)

    def body(index: Position) -> Expr:
        return _divided(summed(index), _count(windows, index[-rank:], bound, dtype))

    return lowering.output(val, body, "avg_pool")


def _avg_pool_backward(rank: int, lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    grad: Tensor = bound["grad_output"]
    windows = _Windows(val.shape, name_of(val.dtype), rank, bound)
    dtype = compute_dtype(name_of(val.dtype))
    zero = E.const(0, dtype)
    counts = grad.shape[len(grad.shape) - rank :]

    def body(index: Position) -> Expr:
        total = zero
        for window, inside in windows.over(index, counts):

            def share(window: Position = window) -> Expr:
                count = _count(windows, window[-rank:], bound, dtype)
                return _divided(_read(grad, window, dtype), count)

            total = apply("add", total, where_true(inside, share, zero))
        return total

    return lowering.output(val, body, "avg_pool_backward")


def _adaptive(t: Sequence[int], dtype: str, sizes: Sequence[int]) -> dict[str, Any]:
    """The windows of adaptive pooling."""
    image = t[len(t) - len(sizes) :]
    if not known(*image, *sizes):
        raise NotLowered("an image of a size that each call chooses")
    if any(n % m for n, m in zip(image, sizes)):
        return {"windows": _Uneven(t, dtype, sizes)}
    size = [n // m for n, m in zip(image, sizes)]
    return {"kernel_size": size, "stride": size, "count_include_pad": True}


def _adaptive_avg_pool(rank: int, lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    t, sizes = bound["self"], val.shape[val.dim() - rank :]
    given = _adaptive(t.shape, t.dtype, sizes)
    if "windows" in given and given["windows"].large and lowering.target.name == "cpu":
        raise NotLowered("large windows of several sizes, which ATen adds up faster")
    return _avg_pool(rank, lowering, val, {**bound, **given})


def _adaptive_avg_pool_backward(
    rank: int, lowering: Any, val: Any, bound: dict[str, Any]
) -> Tensor:
    grad: Tensor = bound["grad_output"]
    sizes = grad.shape[len(grad.shape) - rank :]
    windows = _adaptive(val.shape, grad.dtype, sizes)
    if "windows" in windows:
        raise NotLowered("gradients of windows of several sizes")
    return _avg_pool_backward(rank, lowering, val, {**bound, **windows})


def _adaptive_max_pool(rank: int, lowering: Any, vals: Any, bound: dict[str, Any]) -> Any:
    t, sizes = bound["self"], vals[0].shape[vals[0].dim() - rank :]
    return _max_pool(rank, lowering, vals, {**bound, **_adaptive(t.shape, t.dtype, sizes)})


# -- columns of windows ----------------------------------------------------------------------------


def _im2col(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    t: Tensor = bound["self"]
    windows = _Windows(t.shape, t.dtype, 2, bound | {"kernel_size": [1, 1]})
    size = tuple(bound["kernel_size"])
    dtype = compute_dtype(t.dtype)
    counts = tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(
            windows.image, windows.padding, windows.dilation, size, windows.stride
        )
    )
    channels = t.shape[-3]

    def body(index: Position) -> Expr:
        channel, *offsets = delinearize(index[-2], (channels, *size))
        at = delinearize(index[-1], counts)
        place, inside = [], TRUE
        for d in range(2):
            i = at[d] * windows.stride[d] + offsets[d] * windows.dilation[d] + -windows.padding[d]
            inside = both(inside, within(i, 0, windows.image[d]))
            place.append(i)
        read = functools.partial(_read, t, (*index[:-2], channel, *place), dtype)
        return where_true(inside, read, E.const(0, dtype))

    return lowering.output(val, body, "im2col")


_BY_RANK: dict[str, tuple[Callable[..., Any], Sequence[int]]] = {
    "max_pool": (_max_pool, (2, 3)),
    "max_pool_backward": (_max_pool_backward, (2, 3)),
    "avg_pool": (_avg_pool, (2, 3)),
    "avg_pool_backward": (_avg_pool_backward, (2, 3)),
    "adaptive_avg_pool": (_adaptive_avg_pool, (2, 3)),
    "adaptive_avg_pool_backward": (_adaptive_avg_pool_backward, (2, 3)),
    "adaptive_max_pool": (_adaptive_max_pool, (2, 3)),
}
RULES: dict[str, Rule] = {
    f"window:{name}{rank}d": functools.partial(rule, rank)
    for name, (rule, ranks) in _BY_RANK.items()
    for rank in ranks
}
RULES["window:im2col"] = _im2col
