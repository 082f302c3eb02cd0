"""The suite ``guards``: one thing changes between two calls, wherever the program reads it.

What a program reads (a tensor, a constant, a container, an object, a function, a class, a module),
from where (a module, a closure, a container, a global, ...), at which depth, and what happens to
it: the product of these. After the change the next call gives eager's answer; where the change
cannot matter, it also compiles nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from conformance.case import Case, Compiles
from conformance.rows import guards_functions, guards_modules, guards_objects, guards_values
from conformance.rows.guarded import PLACES, Guarded, Place, case
from conformance.rows.guards_state import RELATIONS, STATES
from conformance.suites.suite import Family

ROWS: tuple[Guarded, ...] = (
    *guards_values.ROWS,
    *guards_objects.ROWS,
    *guards_functions.ROWS,
    *guards_modules.ROWS,
)

#: What is read at each place where something beside it changes.
_BESIDE = Guarded("something beside", "2", "return x * v")


def families(device: str) -> Iterator[Family]:
    """One family per row and place, of one case for each change."""
    for state in STATES:
        yield Family("guards", state.name, "ambient", cases=state.cases())
    for relation in RELATIONS:
        made = relation.case()
        yield Family("guards", made.subject, made.variant, cases=(made,))
    for place in PLACES:
        for row in ROWS:
            cases = tuple(_cases(row, place))
            if cases:
                yield Family("guards", row.name, place.title, cases=cases)
        beside = [
            case(_BESIDE, place, name, text, Compiles.NO) for name, text in place.unrelated.items()
        ]
        if beside:
            yield Family("guards", _BESIDE.name, place.title, cases=tuple(beside))


def _cases(row: Guarded, place: Place) -> Iterator[Case]:
    for name, text in row.changes.items():
        if row.deletable and text == "del v" and not place.deletable:
            continue
        yield case(row, place, name, place.at(text), Compiles.ANY)
    for name, text in row.harmless.items():
        compiles = Compiles.ANY if place.seen_whole else Compiles.NO
        yield case(row, place, name, place.at(text), compiles)
