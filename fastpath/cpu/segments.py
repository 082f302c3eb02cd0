"""Innermost loops, cut where what they ask of a position changes.

What is put together of pieces asks at every element which piece it is of, and reads on a condition,
which no vector does. Along the axis of the loop such conditions change a few times only: between
two changes they are constants, and reads are reads.

Where what is not read counts as 0, loops become vectors with masks. Where it counts as something
else, as around the windows of a maximum, LLVM makes branches of it, which no loop of vectors has:
such loops are cut where they are short, too, and conditions of the loops around them are asked once
for a whole loop. But of a loop of few vectors the parts are hardly any: where it reads once or
twice, masks take less than the elements that make no vector. What little is computed in is left as
it is: that is a second or third text to compile.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fastpath.ir.expr import FALSE, TRUE, Expr, const, inside, position
from fastpath.ir.index import Axis, Index
from fastpath.ir.size import Number, Undecided, hint, known
from fastpath.schedule.kernel import itemsize
from specs.dtypes import is_float

SHORTEST = 64  # elements of a loop that is worth several
SHORTEST_OF_BRANCHES = 5
MASKED, MOST_MASKED = 32, 2  # elements of so short a loop, of so few reads, that masks are better
WORTH = 1 << 16  # element operations of a kernel whose short loops are cut
MOST = 25  # loops
MOST_TEXT = 600  # operations of all of them, about: what there is to compile
OFTEN = 1 / 8  # of what loops go through: what is worth as much text as the usual case

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
    if extent < SHORTEST and not (_branches(found, axis) and hint(work) >= WORTH):
        return []
    changes = {e: at for e in found if (at := _change(e, axis)) is not None}
    asked = _asked(found)
    cuts = sorted({at for e, at in changes.items() if e in asked and 0 < at < extent})
    if len(cuts) >= MOST or not any(e in asked for e in changes):
        return []
    ends = [0, *cuts, extent]
    parts = [(first, last, _facts(changes, first, last)) for first, last in zip(ends, ends[1:])]
    return parts if sum(_size(values, facts) for *_, facts in parts) <= MOST_TEXT else []


def _size(values: Iterable[Expr], facts: Facts) -> int:
    """Operations that are left where the facts hold."""
    return sum(1 for _ in inside(_left(values, facts)))


@dataclass(frozen=True)
class Case:
    """Where all of ``tests`` hold, and those of no case before it, a loop computes what it does
    under the ``facts``. ``often``: for much of what the loops go through."""

    tests: tuple[Expr, ...]
    facts: Facts
    often: bool


def cases(values: Iterable[Expr], axis: Axis, work: Number) -> list[Case]:
    """What a loop over ``axis`` would better be told before it begins: how the positions of loops
    around it compare. The last case has no tests; there are none where it makes no difference.

    The usual case is asked for first, and behind it the others of each position, one by one: there
    a loop that is left with nothing to ask is one of vectors, too, as that which fills a border.
    """
    values = list(values)
    found = list(inside(values))
    if not isinstance(axis.extent, int) or axis.extent < SHORTEST_OF_BRANCHES:
        return []
    if hint(work) < WORTH or not _branches(found, axis) or 2 * len(found) > MOST_TEXT:
        return []
    asked = _asked(found)
    alike: dict[Index, list[Expr]] = {}
    for e in found:
        if e in asked and _is_around(e, axis):
            (index,) = e.args[0].args
            alike.setdefault(index + -index.const, []).append(e)
    groups = [parts for parts in map(_parts, alike, alike.values()) if len(parts) > 1]
    usual = [max(parts, key=lambda part: part.share) for parts in groups]
    if not groups:
        return []
    told = Case(_every(part.tests for part in usual), _merged(part.facts for part in usual), True)
    made, known = [told], Facts()
    for parts, main in zip(groups, usual):
        for part in parts:
            if part is not main:
                facts = _merged((known, part.facts))
                # Both bounds: the usual part of these positions, which may lie before it, is not
                # ruled out where another group's keeps the first case from holding.
                made.append(Case(part.tests, facts, part.share >= OFTEN))
        known = _merged((known, main.facts))
    if sum(_size(values, case.facts) for case in made) > MOST_TEXT:
        made = [told, Case((), {}, False)]
    made[-1] = replace(made[-1], tests=())
    while len(made) > 2 and _left(values, made[-2].facts) == _left(values, made[-1].facts):
        del made[-2]
    return made


def _left(values: Iterable[Expr], facts: Facts) -> list[Expr]:
    """The values where the facts hold."""
    memo: dict[Expr, Expr] = {}
    return [folded(e, facts, memo) for e in values]


def _every(tests: Iterable[tuple[Expr, ...]]) -> tuple[Expr, ...]:
    return tuple(e for some in tests for e in some)


def _merged(facts: Iterable[Facts]) -> Facts:
    return {e: truth for some in facts for e, truth in some.items()}


@dataclass(frozen=True)
class _Part:
    """Positions between two changes, which ``tests`` tell from all others; ``share`` is about how
    many of all positions are its."""

    tests: tuple[Expr, ...]
    facts: Facts
    share: float


def _parts(index: Index, compared: Sequence[Expr]) -> list[_Part]:
    """The parts of ``index``, in order, between which what is ``compared`` changes."""
    try:
        least, most = index.bounds()
    except Undecided:
        return []
    changes = {}  # from where on a comparison is false that was true, or the reverse
    for e in compared:
        (own,) = e.args[0].args
        changes[e] = e.args[1].args[0] - own.const + (e.op in ("le", "gt"))
    places = set(changes.values())
    low, high = hint(least), hint(most) + 1
    first, last = -math.inf, math.inf
    if known(least, most):
        first, last = low, high
        places = {at for at in places if first < at < last}
    ends = [first, *sorted(places), last]
    found = []
    for begin, end in zip(ends, ends[1:]):
        tests = [("ge", begin)] if begin != first else []
        tests += [("lt", end)] if end != last else []
        facts = {e: end <= at if e.op in ("lt", "le") else begin >= at for e, at in changes.items()}
        share = max(0, min(end, high) - max(begin, low)) / max(1, high - low)
        texts = [Expr(op, (position(index), const(at, "int64")), "bool") for op, at in tests]
        found.append(_Part(tuple(texts), facts, share))
    return found


def _asked(found: Iterable[Expr]) -> set[Expr]:
    """What reading depends on, and all that this is made of."""
    asked: set[Expr] = set()
    for e in found:
        if e.op in ("guarded", "bounded") and len(e.args) == 3:
            asked.update(inside([e.args[-1]]))
    return asked


def _branches(found: Iterable[Expr], axis: Axis) -> bool:
    """Whether something is read on a condition and is not 0 elsewhere, and masks are no better."""
    found = list(found)
    reads = [e for e in found if e.op == "guarded"]
    few = len(reads) <= MOST_MASKED and axis.extent < MASKED
    if few and all(e.args[1].coefficient(axis) == 1 and itemsize(e.dtype) >= 4 for e in reads):
        return False  # no processor without AVX-512 masks smaller elements
    chosen = (_uncast(a) for e in found if e.op == "where" for a in e.args[1:])
    return any(a.op == "guarded" for a in chosen)


def _uncast(e: Expr) -> Expr:
    """What is computed in float32 is read in 16 bits."""
    return _uncast(e.args[0]) if e.op == "cast" else e


def _is_around(e: Expr, axis: Axis) -> bool:
    """Whether ``e`` compares a position that is the same all along ``axis``."""
    if e.op not in ("lt", "le", "gt", "ge") or e.args[0].op != "index" or e.args[1].op != "const":
        return False
    (index,) = e.args[0].args
    if not known(index.const):
        return False
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
