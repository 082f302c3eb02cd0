"""Soundness: which object something is decides, in C code or by a class."""

from __future__ import annotations

import copy

import pytest
import torch

import refcompiler
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


def test_which_nan_it_is_decides() -> None:
    def told(x: torch.Tensor, v: float, w: float) -> tuple:
        items = [v, 1]
        return x + 1, w in items, len({v, w}), copy.deepcopy(items) == [w, 1]

    compiled = refcompiler.compile(told, backend="eager")
    one, other = float("nan"), float("nan")
    for pair in ((one, other), (one, one), (other, one), (2.0, 2.0)):
        assert compiled(torch.ones(1), *pair)[1:] == told(torch.ones(1), *pair)[1:]


def test_lists_are_copied_as_often_as_there_are() -> None:
    def copied(x: torch.Tensor, v: list, w: list) -> tuple:
        return x + 1, copy.deepcopy([v, w])

    compiled = refcompiler.compile(copied, backend="eager")
    one, other = [1], [1]
    for pair in ((one, other), (one, one), (other, one)):
        first, second = compiled(torch.ones(1), *pair)[1]
        assert (first is second) == (pair[0] is pair[1])
