"""Reductions, with long ones of few results split into partial results that threads can share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from fastpath.ir.expr import Expr
from fastpath.ir.index import ZERO, delinearize
from fastpath.ir.program import Position, Tensor

if TYPE_CHECKING:
    from fastpath.ir.lower import Lowering

LONG = 32_768  # elements of one reduction that are worth splitting
FEW = 8  # results; more of them keep the threads busy without splitting
PIECE = 8_192  # elements of a partial result, about

Body = Callable[[Position], Expr]


def reduce(
    lowering: Lowering, kind: str, space: tuple[int, ...], dims: tuple[int, ...], dtype: str,
    body: Body,
) -> Tensor:
    """``kind`` of ``body`` over ``dims`` of ``space``, with size 1 there."""
    length = math.prod(space[d] for d in dims)
    results = math.prod(space) // max(length, 1)
    pieces = _pieces(length)
    if length < LONG or results > FEW or pieces is None:
        return lowering.add_reduction(kind, space, dims, dtype, body)
    kept = [d for d in range(len(space)) if d not in dims]
    shape = [space[d] for d in kept]
    order = [space[d] for d in dims]

    def partial(index: Position) -> Expr:
        *outer, piece, within = index
        flat = piece * (length // pieces) + within
        place = dict(zip(kept, outer)) | dict(zip(dims, delinearize(flat, order)))
        return body(tuple(place[d] for d in range(len(space))))

    rank = len(shape)
    parts = lowering.add_reduction(
        kind, (*shape, pieces, length // pieces), (rank + 1,), dtype, partial
    )

    def total(index: Position) -> Expr:
        return parts.read((*index, ZERO))

    whole = lowering.add_reduction(kind, (*shape, pieces), (rank,), dtype, total)
    where = {d: n for n, d in enumerate(kept)}

    def spread(index: Position) -> Expr:
        return whole.read((*(index[d] for d in sorted(where)), ZERO))

    shape_out = [1 if d in dims else n for d, n in enumerate(space)]
    return lowering.pointwise(shape_out, dtype, spread, kind)


def _pieces(length: int) -> int | None:
    """How many equal pieces: the divisor nearest to the one that gives pieces of PIECE."""
    wanted = max(2, length // PIECE)
    near = sorted(range(max(2, wanted // 4), wanted * 4 + 1), key=lambda n: abs(n - wanted))
    return next((n for n in near if length % n == 0), None)
