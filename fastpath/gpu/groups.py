"""Elements that several points share: the weight of a channel at each of an image's pixels, say, or
the vector of a word."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fastpath.ir.index import Axis, Index, variable
from fastpath.ir.size import divides, known


def one_for_all(index: Index, axes: Sequence[Axis], group: int) -> bool:
    """Whether ``index`` is the same at each ``group`` of neighbours along ``axes``, as they are
    flattened, the fastest last; the first group begins at the first point."""
    there, points = index.axes(), 1
    for axis in reversed(axes):
        if axis in there:
            return points == 1 and _in_steps(index, axis, group)
        if not known(axis.extent):
            return False
        points = math.gcd(points * axis.extent, group)
        if points == group:
            return True
    return False


def _in_steps(index: Index, axis: Axis, group: int) -> bool:
    """Whether only every so many'th point of the axis has another one."""
    if not known(axis.extent) or not divides(group, axis.extent):
        return False
    first, within = Axis(axis.extent // group), Axis(group)
    whole = variable(first) * group + variable(within)
    return within not in index.substitute({axis: whole}).axes()
