"""Loops that take two elements of 16 bits at a time.

A register of bfloat16 holds twice as many elements as one of float32, which they are computed in.
Widening neighbours into registers of their own moves every one of them to another lane, on the way
in and on the way out. The elements of even and of odd place, though, are already in the right lanes
as the low and high halves of 32-bit words. So where all that a kernel's innermost loops step
through in memory is bfloat16, they run over words.
"""

from __future__ import annotations

from collections.abc import Iterator

from fastpath.ir.index import Index
from fastpath.ir.size import divides
from fastpath.schedule.kernel import Kernel, Stage, Store

HALF = "bfloat16"


def in_pairs(kernel: Kernel) -> bool:
    """Whether the innermost loops may run over pairs, and have anything to gain from it."""
    if kernel.running():  # one element after the other
        return False
    looping = [s for s in kernel.stages if s.axes]
    if kernel.lane is not None:
        # Accumulators of lanes and transposed tiles lie in memory of their own layout.
        if looping or kernel.tile is not None or kernel.block % 2:
            return False
        nests = [(s, kernel.lane) for s in kernel.stages]
    else:
        if kernel.scratch and any(len(s.axes) > 1 for s in looping):
            return False
        nests = [(s, s.axes[-1]) for s in looping]
    touched = 0
    for stage, axis in nests:
        if not divides(2, axis.extent) or stage.guarded():  # a condition may differ within a pair
            return False
        for dtype, index in _accesses(kernel, stage):
            if axis not in index.axes():
                continue
            if dtype != HALF or index.coefficient(axis) != 1:
                return False
            touched += 1
    return touched > 0


def _accesses(kernel: Kernel, stage: Stage) -> Iterator[tuple[str, Index]]:
    """Dtype and index of each access to memory; a scratch row is laid out as the loops want."""
    dtypes = {b.name: b.dtype for b in kernel.buffers}
    for s in stage.statements:
        if isinstance(s, Store):
            yield dtypes[s.buffer], s.index
    for e in stage.loads():
        yield dtypes[e.args[0]], e.args[1]
