"""Reductions, with long ones of few results split into partial results that threads can share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fastpath.ir import expr as E
from fastpath.ir.building import Body, Building
from fastpath.ir.elementwise import apply
from fastpath.ir.expr import Expr
from fastpath.ir.index import ZERO
from fastpath.ir.program import Position, Tensor
from fastpath.ir.size import Number, hint


@dataclass(frozen=True)
class Cut:
    """A reduction over ``dims`` of ``space`` in two steps: one of the dimensions becomes two.

    First ``first`` of ``fine`` are reduced, which leaves ``kept``; then ``second`` of these.
    """

    axis: int
    space: tuple[Number, ...]
    fine: tuple[Number, ...]
    dims: tuple[int, ...]

    def _moved(self, d: int) -> int:
        return d + 1 if d > self.axis else d

    @property
    def first(self) -> list[int]:
        return [self.axis + 1, *(self._moved(d) for d in self.dims if d > self.axis)]

    @property
    def second(self) -> list[int]:
        return [self.axis, *(d for d in self.dims if d < self.axis)]

    @property
    def kept(self) -> list[Number]:
        return [1 if d in self.first else n for d, n in enumerate(self.fine)]

    def partial(self, body: Body) -> Body:
        """``body``, which is of ``space``, over ``fine``."""
        axis, rest = self.axis, self.fine[self.axis + 1]

        def value(index: Position) -> Expr:
            flat = index[axis] * rest + index[axis + 1]
            return body((*index[:axis], flat, *index[axis + 2 :]))

        return value

    def whole(self, lowering: Building, kind: str, dtype: str, value: Body) -> Tensor:
        """The second step: ``value`` is of ``kept``; the result has size 1 in ``dims``."""
        found = lowering.add_reduction(kind, self.kept, self.second, dtype, value)
        shape = [1 if d in self.dims else n for d, n in enumerate(self.space)]

        def spread(index: Position) -> Expr:
            return found.read((*index[: self.axis], ZERO, *index[self.axis :]))

        return lowering.pointwise(shape, dtype, spread, kind)


def cut_of(lowering: Building, space: tuple[Number, ...], dims: tuple[int, ...]) -> Cut | None:
    """How the reduction is split, if it is long and has few results."""
    if not dims:
        return None
    length = math.prod(hint(space[d]) for d in dims)
    results = math.prod(map(hint, space)) // max(length, 1)
    wanted = lowering.target.pieces(length, results, dims[-1] == len(space) - 1)
    found = _cut([space[d] for d in dims], wanted) if wanted > 1 else None
    if found is None:
        return None
    axis, pieces = dims[found[0]], found[1]
    rest = 1 if pieces is None else space[axis] // pieces
    fine = (*space[:axis], space[axis] if pieces is None else pieces, rest, *space[axis + 1 :])
    return Cut(axis, space, fine, dims)


def reduce(
    lowering: Building,
    kind: str,
    space: tuple[Number, ...],
    dims: tuple[int, ...],
    dtype: str,
    body: Body,
) -> Tensor:
    """``kind`` of ``body`` over ``dims`` of ``space``, with size 1 there."""
    cut = cut_of(lowering, space, dims)
    if cut is None:
        return lowering.add_reduction(kind, space, dims, dtype, body)
    parts = lowering.add_reduction(kind, cut.fine, cut.first, dtype, cut.partial(body))
    return cut.whole(lowering, kind, dtype, parts.read)


def moments(
    lowering: Building, space: tuple[Number, ...], dims: tuple[int, ...], dtype: str, body: Body
) -> tuple[Tensor, Tensor, Number]:
    """The mean of ``body`` and the sum of squared deviations over ``dims``, and the count.

    Two passes: the deviations from the rounded mean are exact where a one-pass formula cancels. Of
    a reduction that is split, each piece takes both passes, the second one out of a cache, and the
    pieces' moments are merged (Chan, Golub and LeVeque 1983).
    """
    count = math.prod(space[d] for d in dims)
    cut = cut_of(lowering, space, dims)
    total: Tensor
    if cut is None:
        total = lowering.add_reduction("sum", space, dims, dtype, body)
    else:
        sums = lowering.add_reduction("sum", cut.fine, cut.first, dtype, cut.partial(body))
        total = cut.whole(lowering, "sum", dtype, sums.read)
    mean = lowering.pointwise(total.shape, dtype, _over(total.read, count, dtype), "mean")
    if cut is None:
        squares = _squares(body, mean.read, dims)
        return mean, lowering.add_reduction("sum", space, dims, dtype, squares), count
    each = math.prod(cut.fine[d] for d in cut.first)
    middle = _over(sums.read, each, dtype)
    squares = _squares(cut.partial(body), middle, cut.first)
    spread = lowering.add_reduction("sum", cut.fine, cut.first, dtype, squares)
    axis = cut.axis

    def merged(index: Position) -> Expr:
        at = tuple(ZERO if d in cut.second else i for d, i in enumerate(index))
        away = apply("sub", middle(index), mean.read((*at[: axis + 1], *at[axis + 2 :])))
        between = apply("mul", apply("mul", away, away), E.number(each, dtype))
        return apply("add", spread.read(index), between)

    return mean, cut.whole(lowering, "sum", dtype, merged), count


def _over(value: Body, count: Number, dtype: str) -> Body:
    return lambda index: apply("truediv", value(index), E.number(count, dtype))


def _squares(value: Body, mean: Body, dims: Sequence[int]) -> Body:
    def squared(index: Position) -> Expr:
        at = tuple(ZERO if d in dims else i for d, i in enumerate(index))
        deviation = apply("sub", value(index), mean(at))
        return apply("mul", deviation, deviation)

    return squared


def _cut(order: list[Number], wanted: int) -> tuple[int, int | None] | None:
    """Which dimension to cut in how many pieces, so that there are about ``wanted`` in all.

    A size that the caller chooses has as many as elements (None). Dimensions before the cut stay
    whole, so indices stay free of divisions.
    """
    found: list[tuple[float, int, int | None]] = []
    before = 1
    for place, n in enumerate(order):
        if isinstance(n, int):
            cuts: dict[int, int | None] = {
                d: d for d in range(1, min(n, 8 * wanted) + 1) if n % d == 0
            }
        else:
            cuts = {hint(n): None}
        for d, pieces in cuts.items():
            if 1 < before * d <= 8 * wanted:
                found.append((abs(math.log(before * d / wanted)), place, pieces))
        before *= hint(n)
    return min(found, key=lambda each: each[:2])[1:] if found else None
