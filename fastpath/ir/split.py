"""Reductions, with long ones of few results split into partial results that threads can share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from fastpath.ir.expr import Expr
from fastpath.ir.index import ZERO
from fastpath.ir.program import Position, Tensor
from fastpath.ir.size import Number, hint

if TYPE_CHECKING:
    from fastpath.ir.lower import Lowering

Body = Callable[[Position], Expr]


def reduce(
    lowering: Lowering,
    kind: str,
    space: tuple[Number, ...],
    dims: tuple[int, ...],
    dtype: str,
    body: Body,
) -> Tensor:
    """``kind`` of ``body`` over ``dims`` of ``space``, with size 1 there."""
    length = math.prod(hint(space[d]) for d in dims)
    results = math.prod(map(hint, space)) // max(length, 1)
    wanted = lowering.target.pieces(length, results, dims[-1] == len(space) - 1) if dims else 1
    cut = _cut([space[d] for d in dims], wanted) if wanted > 1 else None
    if cut is None:
        return lowering.add_reduction(kind, space, dims, dtype, body)
    axis, pieces = dims[cut[0]], cut[1]
    # The dimension to cut becomes two; dimensions before it and its first part are kept at first.
    rest = 1 if pieces is None else space[axis] // pieces
    fine = (*space[:axis], space[axis] if pieces is None else pieces, rest, *space[axis + 1 :])

    def moved(d: int) -> int:
        return d + 1 if d > axis else d

    def partial(index: Position) -> Expr:
        flat = index[axis] * fine[axis + 1] + index[axis + 1]
        return body((*index[:axis], flat, *index[axis + 2 :]))

    first = [axis + 1, *(moved(d) for d in dims if d > axis)]
    parts = lowering.add_reduction(kind, fine, first, dtype, partial)
    kept = [1 if d in first else n for d, n in enumerate(fine)]
    second = [axis, *(d for d in dims if d < axis)]
    whole = lowering.add_reduction(kind, kept, second, dtype, parts.read)
    shape = [1 if d in dims else n for d, n in enumerate(space)]

    def spread(index: Position) -> Expr:
        return whole.read((*index[:axis], ZERO, *index[axis:]))

    return lowering.pointwise(shape, dtype, spread, kind)


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
