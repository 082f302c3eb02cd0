"""How many strips of lanes that carry accumulators go together.

Columns are added up in strips, so that threads can share them. Lines of memory that follow each
other are read faster than pieces of rows; so a thread takes what strips it has at once, as wide as
its caches bear. To which column a row is added, and when, is the same whatever the strips are.
"""

from __future__ import annotations

import math

from fastpath.ir.size import hint
from fastpath.schedule.kernel import Accumulate, Kernel, itemsize
from fastpath.target import Target


def strips_together(kernel: Kernel, target: Target) -> int:
    """How many strips of lanes with accumulators a thread takes at once, where it has them.

    The accumulators are to stay in the nearest cache, and in the next one what later stages go
    through again.
    """
    loops = [stage for stage in kernel.stages if stage.axes]
    added = [s.value.dtype for g in loops for s in g.statements if isinstance(s, Accumulate)]
    if kernel.lane is None or not added or not target.strips:
        return 1
    found = target.strips // (kernel.block * sum(map(itemsize, added)))
    if len(loops) > 1:
        terms = hint(math.prod(axis.extent for axis in loops[0].axes))
        read = sum(itemsize(e.dtype) for e in loops[0].loads())
        found = min(found, target.again // max(1, terms * read * kernel.block))
    return max(1, found)
