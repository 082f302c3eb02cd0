"""Which axis is the fastest where all points of a unit are computed at once: memory's lines decide.

A device that computes neighbours side by side moves memory in pieces of a few elements. What an
order costs is how many of these some neighbours touch, over all accesses. So a short axis is the
fastest one where results of two halves lie in turns, which the steps of single axes do not show.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fastpath.ir.index import Axis, Index
from fastpath.ir.size import hint

POINTS = 64  # neighbours that are looked at
PIECE = 16  # elements that memory moves at once: 32 bytes of those that have the fewest
FAR = 1 << 40  # a step that is no multiple of the axis
LESS = 0.8  # of the pieces, by which another axis than the usual one is worth it


def pieces(order: Sequence[Axis], accesses: Iterable[tuple[Index, int]]) -> int:
    """How many pieces of memory neighbours touch if the axes go through ``order``, fastest last.

    ``accesses``: positions, and how much each counts.
    """
    places = [_coordinates(order, point) for point in range(POINTS)]
    total = 0
    for index, weight in accesses:
        steps = [hint(c) if (c := index.coefficient(axis)) is not None else FAR for axis in order]
        touched = {sum(map(int.__mul__, steps, place)) // PIECE for place in places}
        total += weight * len(touched)
    return total


def _coordinates(order: Sequence[Axis], point: int) -> list[int]:
    found = []
    for axis in reversed(order):
        point, at = divmod(point, hint(axis.extent))
        found.append(at)
    return found[::-1]
