"""One kernel for tensors that differ in their lengths alone, as a model's parameters do.

Its only loop is of a length that each launch is given. What a constant length is worth to such a
loop is little, and compiling it once for each length of a model is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fastpath.ir.expr import Expr, inside
from fastpath.ir.index import Axis, Index, variable
from fastpath.ir.size import Size, Unknown
from fastpath.schedule.kernel import Kernel, Stage, Store, substitute

_PLAIN = frozenset({"guarded", "bounded", "tile", "scratch", "reduced", "running", "argument"})


def of_any_length(kernel: Kernel) -> Kernel | None:
    """``kernel`` with another length of its only loop in each launch; None where there are more
    loops, or the length says more than how far the loop goes."""
    lane = kernel.lane
    if lane is None or not isinstance(lane.extent, int) or kernel.sized:
        return None
    if kernel.outer or kernel.tile is not None or kernel.scratch or kernel.transposed:
        return None
    if kernel.pairs or kernel.streamed or kernel.product is not None:
        return None
    if any(stage.axes or not _stores(stage) for stage in kernel.stages):
        return None
    for e in _expressions(kernel):
        if e.op in _PLAIN or not all(_affine(i, lane) for i in e.args if isinstance(i, Index)):
            return None
    length = Axis(Size({(Unknown("length", lane.extent),): 1}))
    stages = [Stage(stage.axes, list(stage.statements)) for stage in kernel.stages]
    made = replace(kernel, lane=length, stages=stages, sizes=[])
    substitute(made, {lane: variable(length)})
    return made


def _stores(stage: Stage) -> bool:
    return all(isinstance(s, Store) for s in stage.statements)


def _affine(index: Index, lane: Axis) -> bool:
    numbers = (index.const, *index.terms.values())
    return set(index.terms) <= {lane} and all(isinstance(n, int) for n in numbers)


def _expressions(kernel: Kernel) -> Iterator[Expr]:
    statements = [s for stage in kernel.stages for s in stage.statements]
    places = [Expr("index", (s.index,), "int64") for s in statements if isinstance(s, Store)]
    return inside([*places, *(s.value for s in statements)])
