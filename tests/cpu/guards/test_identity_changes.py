"""Soundness: which object something is decides, in C code or by a class."""

from __future__ import annotations

import pytest

from conformance.case import Compiles
from conformance.rows.guarded import PLACES, case
from conformance.suites.guards import ROWS
from tests.cpu.guards import catalogue

#: The rows of the suite ``guards`` that are about identity, each at three of its places.
_ROWS = [
    "function told by identity",
    "number of a class of its own",
    "named tuple by its names",
    "names of an object",
    "asked by its class's class",
    "made by its class's class",
    "object among others",
]
_PLACES = ("global 0", "closure 1", "argument 3")


@pytest.mark.parametrize("name", _ROWS)
def test_changes(name: str) -> None:
    (row,) = [row for row in ROWS if row.name == name]
    count = 0
    for place in PLACES:
        if place.title in _PLACES:
            for change, text in row.changes.items():
                catalogue.check(case(row, place, change, place.at(text), Compiles.ANY))
                count += 1
            for change, text in row.harmless.items():
                catalogue.check(case(row, place, change, place.at(text), Compiles.NO))
                count += 1
    assert count >= 9
