"""Reductions and scans of long rows, several rows at a time.

One row is one stream from memory, and a processor that waits for a line of it could fetch others;
in a scan each addition waits for the one before it, and could be done beside those of other rows.
The rows of a unit lie as far apart as they can, so that each stream goes on where the unit before
left it. How many there are depends on sizes alone, so a row's terms are added up in the same order
by any number of threads.
"""

from __future__ import annotations

import math
from dataclasses import replace

from fastpath.ir.expr import Expr, inside
from fastpath.ir.index import Axis, Index
from fastpath.schedule.cost import CHEAP, own_cost
from fastpath.schedule.kernel import Accumulate, Kernel, Stage, Statement, Store

SHORTEST = 64  # terms of a row that is worth it
LEAST = 16  # units that are left for threads
MOST_READS = 2  # of a term: more are streams enough
_WIDE = frozenset({"float32", "float64", "int32", "int64"})


def rows_together(kernel: Kernel, count: int) -> Kernel:
    """``kernel``, with ``count`` rows to a unit where it is a reduction that only reads, or a scan
    that writes what it has so far; a scan may have fewer, as it waits for itself alone."""
    units = kernel.units
    if count == 1 or units is None or not kernel.outer or not _plain(kernel):
        return kernel
    last = kernel.outer[-1]
    counts = range(count, 1, -1) if kernel.running() else (count,)
    count = next((n for n in counts if last.extent % n == 0), 1)
    if count == 1 or units < LEAST * count:
        return kernel
    slow = Axis(last.extent // count)
    stages = []
    for stage in kernel.stages:
        statements = []
        for n in range(count):
            place = {last: Index({slow: 1}, n * slow.extent)}
            statements += [_placed(s, n, place) for s in stage.statements]
        stages.append(Stage(stage.axes, statements))
    return replace(kernel, outer=(*kernel.outer[:-1], slow), stages=stages)


def _plain(kernel: Kernel) -> bool:
    if kernel.lane is not None or kernel.scratch or kernel.transposed or kernel.product is not None:
        return False
    loops = [stage for stage in kernel.stages if stage.axes]
    inside_loops = (Accumulate, Store) if kernel.running() else Accumulate
    if len(loops) != 1 or not all(isinstance(s, inside_loops) for s in loops[0].statements):
        return False
    if not all(isinstance(s, Store) for g in kernel.stages if not g.axes for s in g.statements):
        return False
    terms = math.prod(axis.extent for axis in loops[0].axes)
    if not isinstance(terms, int) or terms < SHORTEST:
        return False
    every = inside(s.value for stage in kernel.stages for s in stage.statements)
    if any(e.op in ("bounded", "guarded") for e in every):
        return False
    reads = loops[0].loads()
    cheap = sum(own_cost(s.value)[0] for s in loops[0].statements) <= CHEAP
    return cheap and len(reads) <= MOST_READS and all(e.dtype in _WIDE for e in reads)


def _placed(s: Statement, n: int, place: dict[Axis, Index]) -> Statement:
    """The statement for one of the rows, whose accumulators have names of their own."""
    memo: dict[Expr, Expr] = {}

    def at(e: Expr) -> Expr:
        known = memo.get(e)
        if known is None:
            if e.op in ("reduced", "running"):
                known = Expr(e.op, (_named(e.args[0], n),), e.dtype)
            else:
                known = e.mapped(at, lambda index: index.substitute(place))
            memo[e] = known
        return known

    if isinstance(s, Accumulate):
        return replace(s, reduction=_named(s.reduction, n), value=at(s.value))
    assert isinstance(s, Store)
    return replace(s, index=s.index.substitute(place), value=at(s.value))


def _named(reduction: str, n: int) -> str:
    return f"{reduction}_row{n}"
