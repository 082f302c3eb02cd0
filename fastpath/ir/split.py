"""Reductions, with long ones of few results split into partial results that threads can share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fastpath.ir import expr as E
from fastpath.ir.building import Body, Building
from fastpath.ir.elementwise import apply
from fastpath.ir.expr import Expr, inside
from fastpath.ir.index import ZERO, axes_for, variable
from fastpath.ir.program import Position, Tensor
from fastpath.ir.size import Number, hint

NOISE = 2.0**-18  # of a sum of squares, what the roundings of its terms can leave of it
PART = 2.0**-30  # of each term, so that the sum of any number of finite ones is finite


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


def cut_of(
    lowering: Building, space: tuple[Number, ...], dims: tuple[int, ...], body: Body
) -> Cut | None:
    """How the reduction of ``body`` is split, if it is long and has few results."""
    if not dims:
        return None
    length = math.prod(hint(space[d]) for d in dims)
    results = math.prod(map(hint, space)) // max(length, 1)
    across, along = (lowering.target.pieces(length, results, rows) for rows in (False, True))
    wanted = along if across == along or _side_by_side(space, dims, body) else across
    found = _cut([space[d] for d in dims], wanted) if wanted > 1 else None
    if found is None:
        return None
    axis, pieces = dims[found[0]], found[1]
    rest = 1 if pieces is None else space[axis] // pieces
    fine = (*space[:axis], space[axis] if pieces is None else pieces, rest, *space[axis + 1 :])
    return Cut(axis, space, fine, dims)


def _side_by_side(space: tuple[Number, ...], dims: tuple[int, ...], body: Body) -> bool:
    """Whether the terms of one result are neighbours in memory, rather than several results' are:
    in what is largest of what the terms are computed of, as that lies."""
    axes = axes_for(space)
    value = body(tuple(variable(a) for a in axes))
    reads = [e.args[:2] for e in inside([value]) if e.op == "read"]
    if reads:
        node, position = max(reads, key=lambda read: hint(read[0].numel))
        place = sum((i * n for i, n in zip(position, node.strides)), ZERO)
        steps = {d: abs(hint(place.coefficient(a) or 0)) for d, a in enumerate(axes)}
        steps = {d: n for d, n in steps.items() if n and space[d] != 1}
        if steps:
            return min(steps, key=steps.__getitem__) in dims
    return dims[-1] == len(space) - 1


def reduce(
    lowering: Building,
    kind: str,
    space: tuple[Number, ...],
    dims: tuple[int, ...],
    dtype: str,
    body: Body,
) -> Tensor:
    """``kind`` of ``body`` over ``dims`` of ``space``, with size 1 there."""
    cut = cut_of(lowering, space, dims, body)
    if cut is None:
        return lowering.add_reduction(kind, space, dims, dtype, body)
    parts = lowering.add_reduction(kind, cut.fine, cut.first, dtype, cut.partial(body))
    return cut.whole(lowering, kind, dtype, parts.read)


def moments(
    lowering: Building,
    space: tuple[Number, ...],
    dims: tuple[int, ...],
    dtype: str,
    body: Body,
    part: float = PART,
) -> tuple[Tensor, Tensor, Number]:
    """The mean of ``body`` and the sum of squared deviations over ``dims``, and the count.

    Two passes: the deviations from the rounded mean are exact where a one-pass formula cancels, and
    their own mean says how far that one is off (Chan, Golub and LeVeque 1983, the corrected
    two-pass algorithm). So equal terms have their own value as the mean, and no deviations. Of a
    reduction that is split, each piece takes both passes, the second one out of a cache, and the
    pieces' moments are merged by the same two passes over their means.

    The first pass adds up a ``part`` of each term, a power of two, so that only the squares can
    overflow, as in Welford's algorithm, which most of eager's kernels take; what underflows by it
    is in the second pass again. Where eager adds the terms themselves, ``part`` is 1.
    """
    count = math.prod(space[d] for d in dims)
    cut = cut_of(lowering, space, dims, body)
    if cut is None:

        def added(value: Body) -> Tensor:
            return lowering.add_reduction("sum", space, dims, dtype, value)

        near, off, squares = _two_passes(lowering, added, body, None, dims, count, dtype, part)
        return _moved(lowering, near, off, dtype), squares, count
    each = math.prod(cut.fine[d] for d in cut.first)
    pieces = math.prod(cut.fine[d] for d in cut.second)

    def of_piece(value: Body) -> Tensor:
        return lowering.add_reduction("sum", cut.fine, cut.first, dtype, value)

    def of_pieces(value: Body) -> Tensor:
        return cut.whole(lowering, "sum", dtype, value)

    parts = cut.partial(body)
    middle, rest, within = _two_passes(
        lowering, of_piece, parts, None, cut.first, each, dtype, part
    )

    def whole(index: Position) -> Position:
        """The place in the whole result of a place among the pieces."""
        at = tuple(ZERO if d in cut.second else i for d, i in enumerate(index))
        return (*at[: cut.axis + 1], *at[cut.axis + 2 :])

    near, off, between = _two_passes(
        lowering, of_pieces, middle.read, rest.read, cut.second, pieces, dtype, part, whole
    )
    spread = of_pieces(within.read)

    def merged(index: Position) -> Expr:
        outside = apply("mul", between.read(index), E.number(each, dtype))
        return apply("add", spread.read(index), outside)

    squares = lowering.pointwise(spread.shape, dtype, merged, "squares")
    return _moved(lowering, near, off, dtype), squares, count


def _two_passes(
    lowering: Building,
    added: Callable[[Body], Tensor],
    value: Body,
    rest: Body | None,
    dims: Sequence[int],
    count: Number,
    dtype: str,
    part: float,
    place: Callable[[Position], Position] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The rounded mean of ``value``, how far it is off, and the sum of squared deviations.

    ``added`` sums over ``dims``; to each term belongs a ``rest``, too small to be a part of it;
    ``place`` of a term is where the sum lies that it belongs to, if not at 0 in ``dims``.
    """
    share, nothing = E.const(part, dtype), E.const(0.0, dtype)

    def little(index: Position) -> Expr:
        if lowering.target.factors:  # nor would the sum be one of parts then
            return apply("fma", value(index), share, nothing)
        return apply("mul", value(index), share)

    first = added(value if part == 1 else little)
    near = lowering.pointwise(first.shape, dtype, _over(first.read, count, dtype, part), "mean")

    def away(index: Position) -> Expr:
        at = tuple(ZERO if d in dims else i for d, i in enumerate(index))
        found = apply("sub", value(index), near.read(place(index) if place else at))
        return found if rest is None else apply("add", found, rest(index))

    total = added(away)
    squares = added(lambda index: apply("mul", away(index), away(index)))
    off = lowering.pointwise(near.shape, dtype, _over(total.read, count, dtype), "off")

    def around(index: Position) -> Expr:
        """Around the mean; nothing where only the roundings of both sums are left.

        Of squares that overflow nothing can be taken away: the sum of the deviations may be
        infinite, too.
        """
        found = squares.read(index)
        left = apply("sub", found, apply("mul", total.read(index), off.read(index)))
        noise = apply("mul", found, E.const(NOISE, dtype))
        none = apply("mul", found, nothing)
        found = apply("where", apply("gt", left, noise), left, none)
        return apply("where", apply("isinf", squares.read(index)), squares.read(index), found)

    return near, off, lowering.pointwise(near.shape, dtype, around, "squares")


def _moved(lowering: Building, near: Tensor, off: Tensor, dtype: str) -> Tensor:
    def mean(index: Position) -> Expr:
        off_by = off.read(index)  # no number where a term is infinite, or their sum
        moved = apply("add", near.read(index), off_by)
        return apply("where", apply("isfinite", off_by), moved, near.read(index))

    return lowering.pointwise(near.shape, dtype, mean, "mean")


def _over(value: Body, count: Number, dtype: str, part: float = 1.0) -> Body:
    """``value``, which is of a ``part`` of each term, over their ``count``."""
    divisor = E.number(count, dtype)
    if part != 1:
        scaled = isinstance(count, int)
        share = E.const(part, dtype)
        divisor = E.const(count * part, dtype) if scaled else apply("mul", divisor, share)
    return lambda index: apply("truediv", value(index), divisor)


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
