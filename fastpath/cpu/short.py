"""Innermost loops of few elements, without a rest that makes no vector.

A loop of 13 elements is one vector of 8 and 5 elements one by one, or two vectors the second of
which is masked; and what processors without AVX-512 store through a mask takes them as long. So the
last vector begins where it ends with the loop: what lies in the one before, too, is computed twice,
which changes nothing where all is stored, and is left out where it is added up.

A nest of loops that adds up along a short one would add up each vector of its sum by itself. There
the lanes of the short loop are added up in memory of their own first.
"""

from __future__ import annotations

from dataclasses import replace

from fastpath.cpu.gemm import vector_bytes
from fastpath.ir.expr import Expr
from fastpath.ir.index import Axis, Index
from fastpath.ir.size import divides
from fastpath.schedule.kernel import Accumulate, Kernel, Stage, Statement, Store, itemsize
from specs.dtypes import compute_dtype

NARROWEST = 4  # lanes of a vector
LONGEST = 64  # elements of a loop whose rest is much of it
UNROLLED = 32  # elements of one that adds up, whose vectors are all spelled out
TOGETHER = 4  # vectors that are added up before their sum meets the memory of the others


def lanes() -> int:
    """Of 4 bytes, of a vector of this machine; 0 where vectors have masks that cost nothing."""
    return 8 if vector_bytes() == 32 else 0


def width_of(kernel: Kernel, stage: Stage, count: int) -> int:
    """Lanes of the vectors that a loop of ``count`` elements is made of, 0 for any."""
    widest = max(itemsize(dtype) for dtype in _dtypes(kernel, stage))
    width = lanes() * 4 // max(4, widest)
    while width > count:
        width //= 2
    return width if width >= NARROWEST and count < LONGEST else 0


def _dtypes(kernel: Kernel, stage: Stage) -> list[str]:
    """What is computed in, and is in memory."""
    known = {b.name: b.dtype for b in kernel.buffers}
    found = [compute_dtype(s.value.dtype) for s in stage.statements]
    found += [known[s.buffer] for s in stage.statements if isinstance(s, Store)]
    return found + [known[e.args[0]] for e in stage.loads()]


def spans(kernel: Kernel, stage: Stage, first: int, last: int) -> list[tuple[int, int]]:
    """The loops that a loop of statements from ``first`` to ``last`` becomes."""
    count = last - first
    whole = [(first, last)]
    if kernel.in_place or any(isinstance(s, Accumulate) for s in stage.statements):
        return whole
    if stage.guarded():  # such loops have masks, or are no vectors
        return whole
    width = width_of(kernel, stage, count)
    if not width or count % width == 0 or count > 2 * width and count % width == 1:
        return whole
    return [(first, last - count % width), (last - width, last)]


def strip_width(kernel: Kernel, stage: Stage) -> int:
    """Lanes of the vectors that are added up side by side, 0 where the loop is left as it is."""
    added = [s for s in stage.statements if isinstance(s, Accumulate)]
    if kernel.lane is not None or not stage.axes or not added or any(s.running for s in added):
        return 0
    count = stage.axes[-1].extent
    if not isinstance(count, int) or count > UNROLLED or stage.guarded():
        return 0
    if kernel.in_place and len(added) < len(stage.statements):
        return 0
    width = width_of(kernel, stage, count)
    return width if width and (len(stage.axes) > 1 or count % width) else 0


def starts(count: int, width: int) -> list[int]:
    """Where the vectors of a loop begin."""
    return [*range(0, count - width, width), count - width]


def unrolled(stage: Stage, width: int, block: int) -> tuple[list[Stage], list[Axis], int]:
    """The stage for several places of the loop around the innermost one, the loops that are left
    around both, and how many places. The loop goes in steps of ``block``, if that is not 0."""
    *slow, row, axis = stage.axes
    most = TOGETHER // len(starts(axis.extent, width))
    counts = (n for n in range(most, 1, -1) if divides(n, row.extent) and block % n == 0)
    count = next(counts, 1)
    if count == 1:
        return [stage], [*slow, row], 1
    fewer = Axis(row.extent // count)
    places = ({row: Index({fewer: count}, n)} for n in range(count))
    return [_placed(stage, place) for place in places], [*slow, fewer], count


def _placed(stage: Stage, place: dict[Axis, Index]) -> Stage:
    memo: dict[Expr, Expr] = {}

    def at(e: Expr) -> Expr:
        if e not in memo:
            memo[e] = e.mapped(at, lambda index: index.substitute(place))
        return memo[e]

    moved: list[Statement] = []
    for s in stage.statements:
        if not isinstance(s, Accumulate):
            s = replace(s, index=s.index.substitute(place))
        moved.append(replace(s, value=at(s.value)))
    return Stage(stage.axes, moved)
