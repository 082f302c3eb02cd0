"""Random words for a block of points: four come of one computation, and are shared.

The words of Philox are by far the dearest part of a kernel that draws, and each computation gives
four of them. Eager's kernels give them to elements a whole grid of threads apart, or side by side
where they load vectors. A block of points is laid so that it has all four: of four pieces that lie
a grid apart (a *stripe*), one after the other and each by itself, or as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from fastpath.ir.expr import Expr
from fastpath.ir.index import ZERO, Axis, Division, Index, delinearize, variable
from fastpath.schedule.kernel import Kernel

PIECE = 256  # points of each of the four pieces of a stripe, at least; it divides eager's grids
MOST_PIECE = 1024  # two vectors of four-byte elements for each thread of four warps
WORDS = 4
DRAWN = ("philox", "philox_normal", "philox_log")  # of the same seed, counter and place


def _within(values: Iterable[Expr]) -> Iterator[Expr]:
    """All expressions that ``values`` consist of, each once."""
    seen: set[Expr] = set()
    stack = list(values)
    while stack:
        e = stack.pop()
        if e not in seen:
            seen.add(e)
            yield e
            stack.extend(e.operands())


def _values(kernel: Kernel) -> Iterator[Expr]:
    return (s.value for stage in kernel.stages for s in stage.statements)


def draws(kernel: Kernel) -> list[Expr]:
    """The distinct words of Philox that the kernel computes, or numbers that come of them."""
    return [e for e in _within(_values(kernel)) if e.op in DRAWN]


def either_way(kernel: Kernel) -> Expr | None:
    """What decides in each call, for all points alike, where the kernel's words come from.

    A program computes the ones or the others, and not both to select from them.
    """
    for e in _within(_values(kernel)):
        if e.op == "where" and e.args[1].op in DRAWN and e.args[2].op in DRAWN:
            if all(part.op not in ("load", "guarded", "index") for part in _within(e.args[:1])):
                return e.args[0]
    return None


def stripe_of(kernel: Kernel, x: Sequence[Axis]) -> int:
    """How far apart the elements lie that share a computation, if they do not lie side by side; 0
    where there are none."""
    extents = [a.extent for a in x]
    if not all(isinstance(n, int) for n in extents):
        return 0
    # What a division by the grid was simplified to, of an axis that steps by several points.
    steps = {math.prod(extents[n:]) for n in range(1, len(extents) + 1)}
    for e in draws(kernel):
        for grid in sorted({divisor * step for divisor in _divisors(e) for step in steps}):
            if grid % PIECE == 0 and shared(e, x, grid) is not None:
                return grid
    return 0


def piece_of(stripe: int, most: int = MOST_PIECE) -> int:
    """How many points a program takes of each of a stripe's pieces, ``most`` at most."""
    return min(MOST_PIECE, max(most, PIECE), stripe & -stripe)


def _divisors(e: Expr) -> set[int]:
    found: set[int] = set()
    for operand in e.args[1:]:
        for index in _indices(operand):
            for atom in index.terms:
                if isinstance(atom, Division) and isinstance(atom.divisor, int):
                    found.add(atom.divisor)
    return found


def _indices(e: Expr) -> list[Index]:
    found = [e.args[0]] if e.op == "index" else []
    for operand in e.operands():
        found += _indices(operand)
    return found


class Shared:
    """A draw as four words at each point of ``axes``: of a ``counter`` and an ``index``.

    ``axes`` are a number of four neighbours, or of a stripe and of a place in its first piece.
    """

    def __init__(self, axes: tuple[Axis, ...], seed: Expr, counter: Expr, index: Index):
        self.axes, self.seed, self.counter, self.index = axes, seed, counter, index


def shared(e: Expr, x: Sequence[Axis], grid: int) -> Shared | None:
    """The draw ``e``, if it gives one word each to four points that are ``grid`` apart, or side by
    side where ``grid`` is 0; ``x`` are the axes of all points."""
    extents = [a.extent for a in x]
    if not all(isinstance(n, int) for n in extents):
        return None
    points, word = math.prod(extents), Axis(WORDS)
    axes: tuple[Axis, ...]
    if grid:
        axes = Axis(-(-points // (WORDS * grid))), Axis(grid)
        flat = variable(axes[0]) * (WORDS * grid) + variable(word) * grid + variable(axes[1])
    else:
        axes = (Axis(-(-points // WORDS)),)
        flat = variable(axes[0]) * WORDS + variable(word)
    # Places behind the last point are computed with the others, and are no row's.
    places = delinearize(flat, [WORDS * math.prod(a.extent for a in axes), *extents[1:]])
    seed, counter, place = (part.substitute(dict(zip(x, places))) for part in e.args)
    if word in seed.axes() or word in counter.axes() or place.op != "index":
        return None
    index = place.args[0].simplified()
    if index.coefficient(word) != 1:
        return None
    rest = index + variable(word) * -1
    first = rest.floordiv(WORDS)
    if word in rest.axes() or rest.mod(WORDS) != ZERO:
        return None
    within = axes[-1]
    if grid and (within in counter.axes() or first.coefficient(within) is None):
        return None
    return Shared(axes, seed, counter, first)
