"""Innermost loops, cut where what they ask of a position changes.

What is put together of pieces asks at every element which piece it is of, and reads on a condition,
which no vector does. Along the axis of the loop such conditions change a few times only: between
two changes they are constants, and reads are reads.

Where what is not read counts as 0, loops become vectors with masks. Where it counts as something
else, as around the windows of a maximum, LLVM makes branches of it, which no loop of vectors has:
such loops are cut where they are short, too, and conditions of the loops around them, which hold
nearly everywhere, are asked once for a whole loop. What little is computed in is left as it is:
that is a second or third text to compile.
"""

from __future__ import annotations

from collections.abc import Iterable

from fastpath.ir.expr import FALSE, TRUE, Expr, inside
from fastpath.ir.index import Axis
from fastpath.ir.size import Number, hint
from specs.dtypes import is_float

SHORTEST = 64  # elements of a loop that is worth several
SHORTEST_OF_BRANCHES = 8
WORTH = 1 << 16  # element operations of a kernel whose short loops are cut
MOST = 25  # loops
MOST_TEXT = 600  # operations of all of them, about: what there is to compile

Facts = dict[Expr, bool]


def segments(values: Iterable[Expr], axis: Axis, work: Number) -> list[tuple[int, int, Facts]]:
    """Ranges of ``axis`` that follow each other, with what is known of comparisons in each.

    None where cutting the loop is not worth it; ``work``: the element operations of all loops.
    """
    extent = axis.extent
    if not isinstance(extent, int) or extent < SHORTEST_OF_BRANCHES:
        return []
    values = list(values)
    found = list(inside(values))
    if extent < SHORTEST and not (_branches(found) and hint(work) >= WORTH):
        return []
    changes = {e: at for e in found if (at := _change(e, axis)) is not None}
    asked = _asked(found)
    cuts = sorted({at for e, at in changes.items() if e in asked and 0 < at < extent})
    if len(cuts) >= MOST or not any(e in asked for e in changes):
        return []
    ends = [0, *cuts, extent]
    parts = [(first, last, _facts(changes, first, last)) for first, last in zip(ends, ends[1:])]
    size = 0
    for *_, facts in parts:
        memo: dict[Expr, Expr] = {}
        size += sum(1 for _ in inside([folded(e, facts, memo) for e in values]))
    return parts if size <= MOST_TEXT else []


def nearly_everywhere(values: Iterable[Expr], axis: Axis, work: Number) -> Facts:
    """What a loop over ``axis`` would better be told is true: comparisons of the positions of loops
    around it; none where it makes no difference."""
    found = list(inside(values))
    if not isinstance(axis.extent, int) or axis.extent < SHORTEST_OF_BRANCHES:
        return {}
    if hint(work) < WORTH:
        return {}
    if not _branches(found) or 2 * len(found) > MOST_TEXT:
        return {}
    return {e: True for e in found if e in _asked(found) and _is_around(e, axis)}


def _asked(found: Iterable[Expr]) -> set[Expr]:
    """What reading depends on, and all that this is made of."""
    asked: set[Expr] = set()
    for e in found:
        if e.op in ("guarded", "bounded") and len(e.args) == 3:
            asked.update(inside([e.args[-1]]))
    return asked


def _branches(found: Iterable[Expr]) -> bool:
    """Whether something is read on a condition and is not 0 elsewhere."""
    return any(e.op == "where" and "guarded" in (e.args[1].op, e.args[2].op) for e in found)


def _is_around(e: Expr, axis: Axis) -> bool:
    """Whether ``e`` compares a position that is the same all along ``axis``."""
    if e.op not in ("lt", "le", "gt", "ge") or e.args[0].op != "index" or e.args[1].op != "const":
        return False
    (index,) = e.args[0].args
    return not index.lookups() and bool(index.axes()) and axis not in index.axes()


def _facts(changes: dict[Expr, int], first: int, last: int) -> Facts:
    return {
        e: (first < at) == (e.op in ("lt", "le"))
        for e, at in changes.items()
        if not first < at < last
    }


def _change(e: Expr, axis: Axis) -> int | None:
    """Where along ``axis`` the comparison ``e`` of its position changes: the first place behind."""
    if e.op not in ("lt", "le", "gt", "ge"):
        return None
    left, right = e.args
    if left.op != "index" or right.op != "const":
        return None
    (index,) = left.args
    step, const, limit = index.terms.get(axis), index.const, right.args[0]
    if len(index.terms) != 1 or not all(type(n) is int for n in (step, const, limit)):
        return None
    if step <= 0:
        return None
    return -((const - limit - (e.op in ("le", "gt"))) // step)


def folded(e: Expr, facts: Facts, memo: dict[Expr, Expr]) -> Expr:
    """``e``, given what is known of comparisons in it."""
    known = memo.get(e)
    if known is None:
        truth = facts.get(e)
        if truth is not None:
            known = TRUE if truth else FALSE
        elif e.operands():
            known = _simple(e, e.mapped(lambda a: folded(a, facts, memo)))
        else:
            known = e
        memo[e] = known
    return known


def _simple(before: Expr, e: Expr) -> Expr:
    if e.op == "logical_and":
        a, b = e.args
        if FALSE in (a, b):
            return FALSE
        return b if a == TRUE else a if b == TRUE else e
    if e.op == "logical_or":
        a, b = e.args
        if TRUE in (a, b):
            return TRUE
        return b if a == FALSE else a if b == FALSE else e
    if e.op == "logical_not" and e.args[0] in (TRUE, FALSE):
        return FALSE if e.args[0] == TRUE else TRUE
    if e.op == "where" and e.args[0] in (TRUE, FALSE):
        chosen: Expr = e.args[1] if e.args[0] == TRUE else e.args[2]
        return chosen
    if e.op in ("guarded", "bounded") and len(e.args) == 3:
        if e.args[2] == TRUE:
            return Expr("load" if e.op == "guarded" else e.op, e.args[:2], e.dtype)
        if e.args[2] == FALSE:
            return _nothing(before, e)
    return e


def _nothing(before: Expr, e: Expr) -> Expr:
    """What is read where nothing is: 0; of a dtype without constants, on the old condition."""
    if e.dtype in ("float16", "bfloat16"):
        return before
    zero: bool | int | float = False if e.dtype == "bool" else 0.0 if is_float(e.dtype) else 0
    return Expr("const", (zero,), e.dtype)
