"""Reductions, with long ones of few results split into partial results that threads can share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from fastpath.ir.expr import Expr
from fastpath.ir.index import ZERO
from fastpath.ir.program import Position, Tensor

if TYPE_CHECKING:
    from fastpath.ir.lower import Lowering

Body = Callable[[Position], Expr]


def reduce(
    lowering: Lowering,
    kind: str,
    space: tuple[int, ...],
    dims: tuple[int, ...],
    dtype: str,
    body: Body,
) -> Tensor:
    """``kind`` of ``body`` over ``dims`` of ``space``, with size 1 there."""
    length = math.prod(space[d] for d in dims)
    results = math.prod(space) // max(length, 1)
    pieces = lowering.target.pieces(length, results, dims[-1] == len(space) - 1) if dims else 1
    cut = _cut([space[d] for d in dims], pieces) if pieces > 1 else None
    if cut is None:
        return lowering.add_reduction(kind, space, dims, dtype, body)
    axis, pieces = dims[cut[0]], cut[1]
    # The dimension to cut becomes two; dimensions before it and its first part are kept at first.
    fine = (*space[:axis], pieces, space[axis] // pieces, *space[axis + 1 :])

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


def _cut(order: list[int], wanted: int) -> tuple[int, int] | None:
    """Which dimension to cut in how many pieces, so that there are about ``wanted`` in all.

    Dimensions before the cut stay whole, so indices stay free of divisions.
    """
    found: list[tuple[float, int, int]] = []
    before = 1
    for place, n in enumerate(order):
        for d in range(1, min(n, 8 * wanted) + 1):
            if n % d == 0 and 1 < before * d <= 8 * wanted:
                found.append((abs(math.log(before * d / wanted)), place, d))
        before *= n
    return min(found)[1:] if found else None
