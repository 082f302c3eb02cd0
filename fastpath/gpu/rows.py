"""Where the rows that a kernel reduces begin in memory, and whether vectors begin there too."""

from __future__ import annotations

import math
from collections import Counter

from fastpath.ir.index import Axis, Index
from fastpath.ir.size import divides
from fastpath.schedule.kernel import Kernel, Store, itemsize

VECTOR = 16  # bytes: of what a thread loads at once


def flatten(index: Index, axes: tuple[Axis, ...], flat: Axis) -> Index:
    """``index`` over ``flat`` where it steps through all the axes as through one."""
    step = index.coefficient(axes[-1])
    if not step:
        return index
    rest, stride = index, step
    for axis in reversed(axes):
        if index.coefficient(axis) != stride:
            return index
        rest = rest + Index({axis: -stride})
        stride *= axis.extent
    return rest + Index({flat: step})


def beginning(index: Index, r: tuple[Axis, ...]) -> Index | None:
    """Where the row begins whose elements ``index`` steps through, if that is what it does."""
    flat = r[0]
    if len(r) > 1:
        flat = Axis(math.prod(a.extent for a in r))
        index = flatten(index, r, flat)
    if index.coefficient(flat) != 1 or index.lookups():
        return None
    start = index + Index({flat: -1})
    return None if start.axes() & set(r) else start


def same_place(a: Index, b: Index, group: int) -> bool:
    """Whether rows that begin at ``a`` and ``b`` are as far behind a multiple of ``group``."""
    rest = a + b * -1
    return all(divides(group, c) for c in (*rest.terms.values(), rest.const))


def common_beginning(kernel: Kernel, r: tuple[Axis, ...]) -> tuple[Index, int] | None:
    """The beginning that vectors are laid by, and the elements of the largest vector, where rows
    of at least one buffer do not begin or end at multiples of one."""
    if kernel.running():  # its points are taken in order, from the first on
        return None
    size = {b.name: itemsize(b.dtype) for b in kernel.buffers}
    found: Counter[tuple[Index, int]] = Counter()
    for stage in kernel.stages:
        if not stage.axes:
            continue
        places = [(e.args[0], e.args[1]) for e in stage.loads()]
        places += [(s.buffer, s.index) for s in stage.statements if isinstance(s, Store)]
        for buffer, index in places:
            start = beginning(index, r)
            if start is not None and size[buffer] < VECTOR:
                found[start, VECTOR // size[buffer]] += 1
    if not found:
        return None
    group = max(g for _, g in found)
    length = math.prod(a.extent for a in r)
    odd = [start for start, g in found if length % g or not same_place(start, Index({}), g)]
    if not odd:
        return None
    # What most of the bytes go through; a weight that all rows share is read often, from a cache.
    moving = Counter[Index]()
    for (start, _), count in found.items():
        moving[start] += count if start.axes() else 0
    reference = max(moving, key=moving.__getitem__)
    return (reference, group) if reference.axes() else None
