"""The rows of the suite ``guards`` make programs that compile, each case with a name of its own."""

import ast
from collections import Counter

from conformance.case import Change
from conformance.rows.guarded import PLACES, Guarded, program_of
from conformance.suites.guards import ROWS, families


def test_sources_and_changes_are_python():
    plain = Guarded("number", "2", "return x * v")
    sources = [program_of(row, PLACES[0]) for row in ROWS]
    sources += [program_of(plain, place) for place in PLACES]
    for place in PLACES:
        sources += place.unrelated.values()
    for row in ROWS:
        changes = {**row.changes, **row.harmless}
        assert changes and len(changes) == len(row.changes) + len(row.harmless), row.name
        sources += [place.at(text) for text in changes.values() for place in PLACES[::7]]
    for source in sources:
        ast.parse(source)
    assert len(sources) > 2000


def test_names_tell_cases_apart():
    cases = [case for family in families("cpu") for case in family.cases]
    names = Counter(case.id for case in cases)
    assert [name for name, n in names.items() if n > 1] == []
    assert all(isinstance(c.history[2], Change) for c in cases if c.variant[-1].isdigit())


def test_a_place_stands_for_the_value():
    (deep,) = [place for place in PLACES if place.title == "module 2"]
    assert deep.at("v.n = 5") == "model.inner.inner.v.n = 5"
    assert deep.at("v = v + 1") == "model.inner.inner.v = model.inner.inner.v + 1"
    (default,) = [place for place in PLACES if place.title == "default 0"]
    assert default.at("if 1:\n    v = [v, 2]") == (
        "if 1:\n    model.__defaults__ = ([model.__defaults__[0], 2],)"
    )


def test_the_catalogue_is_a_product():
    found = [(f.subject, f.variant, len(f.cases)) for f in families("cpu")]
    placed = {(s, v) for s, v, _ in found if v[-1].isdigit()}
    kinds, places = {s for s, _ in placed}, {v for _, v in placed}
    assert len(places) == 32 and len(kinds) > 75
    # Some places have nothing beside the value.
    assert len(kinds) * len(places) - len(placed) <= 3
    assert sum(n for *_, n in found) > 15_000
