"""Which kernels' last axes only say which of a few expressions an element has: those that
:mod:`fastpath.gpu.turns` prints."""

from __future__ import annotations

from collections.abc import Sequence

from fastpath.gpu.words import draws
from fastpath.ir.expr import inside
from fastpath.ir.index import Axis
from fastpath.schedule.kernel import Kernel, Store

KINDS = (2, 4)


def kinds_of(kernel: Kernel, x: Sequence[Axis]) -> int:
    """How many kinds of elements take turns along the last of all axes, ``x``; 0 where they do not.

    The kernel reduces nothing.
    """
    if len(x) < 2 or kernel.tile is not None or kernel.in_place or kernel.product is not None:
        return 0
    last = x[-1]
    if last.extent not in KINDS or draws(kernel):
        return 0
    if not _chosen(kernel, last) or not _side_by_side(kernel, last):
        return 0
    return int(last.extent)


def _chosen(kernel: Kernel, last: Axis) -> bool:
    """Whether something is read on the condition that an element is of some kind."""
    values = inside(s.value for stage in kernel.stages for s in stage.statements)
    return any(e.op == "guarded" and e.args[2].axes() == {last} for e in values)


def _side_by_side(kernel: Kernel, last: Axis) -> bool:
    """Whether elements are stored as neighbours, and none is read that the kernel writes."""
    written = {b.name for b in kernel.buffers if b.written}
    statements = [s for stage in kernel.stages for s in stage.statements]
    if any(e.args[0] in written for g in kernel.stages for e in (*g.loads(), *g.guarded())):
        return False
    return all(
        isinstance(s, Store) and not s.index.lookups() and s.index.coefficient(last) == 1
        for s in statements
    )
