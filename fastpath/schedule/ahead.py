"""What a kernel asks memory for before it reads it.

Processors foresee what lies one behind the other. Where a loop's rows do not, as halves of longer
rows, tiles, and rows that integers name, each begins with a wait for memory; so while one row is
computed, the next ones are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastpath.ir.expr import Expr
from fastpath.ir.index import Axis, Index
from fastpath.schedule import streams
from fastpath.schedule.kernel import Accumulate, Kernel, Store

FAR = 4096  # bytes: about what memory delivers while one line is waited for
LEAST_ROWS, MOST_ROWS = 2, 8
LEAST, MOST = 128, 16384  # bytes of rows: shorter are not worth asking, longer ones are foreseen
MOST_READS = 4


@dataclass(frozen=True)
class Ahead:
    """What ``load`` reads while the loop over ``axis`` is ``rows`` further; where there is no axis,
    while the lanes are ``rows`` blocks further."""

    load: Expr
    axis: Axis | None
    rows: int


def asked_ahead(
    kernel: Kernel, sizes: Mapping[str, int], items: Mapping[str, int]
) -> tuple[Ahead, ...]:
    """Of a kernel's reads those to be asked for. ``sizes`` and ``items``: bytes of each buffer, and
    of its elements."""
    cache, lane = streams.last_level_cache(), kernel.lane
    if not cache or sum(sizes[b.name] for b in kernel.buffers) <= cache:
        return ()
    if lane is None or len(kernel.stages) != 1 or kernel.pairs or kernel.units is None:
        return ()
    (stage,) = kernel.stages
    if not all(isinstance(s, Store) for s in stage.statements):
        return ()
    if kernel.tile is not None:
        reads = [e for e in stage.loads() if e.args[1].coefficient(lane) == 1]
        where = (kernel.tile, kernel.downwards) if kernel.downwards else (None, 1)
        return tuple(Ahead(e, *where) for e in reads[:MOST_READS])
    around = [*kernel.outer, *stage.axes]
    if not around or kernel.blocks != 1:
        return ()
    found = []
    for e in stage.loads():
        row = lane.extent * items[e.args[0]]
        if LEAST <= row <= MOST and _leaps(e.args[1], around[-1], lane):
            found.append(Ahead(e, around[-1], min(MOST_ROWS, max(LEAST_ROWS, FAR // row))))
    return tuple(found[:MOST_READS])


def asked_within(kernel: Kernel, sizes: Mapping[str, int]) -> frozenset[str]:
    """The buffers of which a reduction that memory holds up asks for what it reads a little later.

    Processors foresee no further than a page, and of several streams at a time little; and where
    nothing is stored, nothing but reading takes the time.
    """
    cache = streams.last_level_cache()
    if not cache or sum(sizes[b.name] for b in kernel.buffers) <= cache or kernel.pairs:
        return frozenset()
    loops = [stage for stage in kernel.stages if stage.axes]
    if not loops or not all(isinstance(s, Accumulate) for g in loops for s in g.statements):
        return frozenset()
    found = set()
    for stage in loops:
        axis = kernel.lane if kernel.lane is not None else stage.axes[-1]
        for e in stage.loads():
            if e.args[1].coefficient(axis) == 1 and sizes[e.args[0]] > cache // MOST_READS:
                found.add(e.args[0])
    return frozenset(found)


def _leaps(index: Index, axis: Axis, lane: Axis) -> bool:
    """Whether rows along ``lane`` do not follow each other as ``axis`` goes on."""
    if index.coefficient(lane) != 1:
        return False
    step: Any = index.coefficient(axis)
    if step is None:
        return any(axis in value.axes() for value in index.lookups())
    return not 0 <= step <= lane.extent
