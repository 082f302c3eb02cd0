"""Vectors that are looked up, some of their columns after the others.

Where there are more positions than vectors, most of what is read was read before, and comes from
the cache if that still has it. It does not have all of a table that is larger; of a few columns it
has all that there is. So these are read for every position before the next ones are.
"""

from __future__ import annotations

import math

from fastpath.ir.expr import Expr, inside
from fastpath.ir.index import Axis, Index, Lookup, variable
from fastpath.ir.size import known
from fastpath.schedule.kernel import Kernel, itemsize, substitute

LEAST = 1 << 21  # bytes of a table; smaller ones are in the cache as they are: measured on an H200


def popular(index: Index) -> bool:
    """Whether more positions are read than there are for them to be."""
    for atom in index.terms:
        if isinstance(atom, Lookup) and any(e.op == "load" for e in inside([atom.value])):
            axes = atom.value.axes()
            count = math.prod(a.extent for a in axes)
            if known(count, atom.extent) and axes and count > atom.extent:
                return True
    return False


def in_slabs(kernel: Kernel, width: int) -> Kernel:
    """``kernel`` with a slowest loop over pieces of ``width`` bytes of the vectors that it looks
    up, if it is nothing but pointwise and they are longer, and many; 0 for none."""
    lane = kernel.lane
    if not width or lane is None or kernel.tile is not None or kernel.product is not None:
        return kernel
    if any(stage.axes for stage in kernel.stages) or not known(lane.extent):
        return kernel
    loads = [e for stage in kernel.stages for e in (*stage.loads(), *stage.guarded())]
    found = [e for e in loads if _of_table(e, lane) and popular(e.args[1])]
    values = [s.value for stage in kernel.stages for s in stage.statements]
    if not found or any(e.op.startswith("philox") for e in inside(values)):  # by the order of all
        return kernel
    columns = width // max(itemsize(e.dtype) for e in found)
    if lane.extent <= columns or lane.extent % columns:
        return kernel
    slab, within = Axis(lane.extent // columns), Axis(columns)
    substitute(kernel, {lane: variable(slab) * columns + variable(within)})
    kernel.outer, kernel.lane = (slab, *kernel.outer), within
    return kernel


def _of_table(e: Expr, lane: Axis) -> bool:
    """Whether what lies side by side along ``lane`` is read from one position that is data, and of
    a large table."""
    index = e.args[1]
    if index.coefficient(lane) != 1 or any(lane in data.axes() for data in index.lookups()):
        return False
    extents = [atom.extent for atom in index.terms if isinstance(atom, Lookup)]
    vectors = math.prod(extents)
    return known(vectors) and vectors * lane.extent * itemsize(e.dtype) >= LEAST
