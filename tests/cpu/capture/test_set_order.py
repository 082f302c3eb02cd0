"""The order of sets: after any history, over breaks, of sets from outside, and in what comes then.

What decides it are the places of items and of what was discarded, which no program shows; so the
sets are worked on after each call, until they are empty.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import refcompiler
from refcompiler.capture.setorder import alike, difference
from refcompiler.capture.settable import changed, filled, grow, table_of

KINDS: dict[str, Callable[[int], Any]] = {
    "int": lambda k: k,
    "str": lambda k: f"w{k}",
    "tuple": lambda k: (k, str(k)),
    "mixed": lambda k: (k, k + 0.5, f"{k}", None, (k,), -k)[k % 6],
}


def steps(draw: random.Random, item: Callable[[], Any], count: int) -> Iterator[tuple[str, Any]]:
    for _ in range(count):
        name = draw.choice(["add", "add", "add", "discard", "discard", "pop", "update", "-=", "&="])
        if name in ("add", "discard"):
            yield name, item()
        else:
            yield name, [item() for _ in range(draw.randrange(12))]


def apply(items: set[Any], steps: list[tuple[str, Any]]) -> None:
    for name, given in steps:
        if name == "add":
            items.add(given)
        elif name == "discard":
            items.discard(given)
        elif name == "pop":
            if items:
                items.pop()
        elif name == "update":
            items.update(given)
        elif name == "-=":
            items.difference_update(given)
        elif len(items) > 20:
            items.intersection_update([*list(items)[::2], *given])


def drawn(seed: int, kind: str) -> Iterator[list[tuple[str, Any]]]:
    """Histories, one after the other, over the same few or many items."""
    draw = random.Random(f"{seed} {kind}")
    most = draw.choice([10, 60, 3000])
    while True:
        yield [*steps(draw, lambda: KINDS[kind](draw.randrange(most)), draw.choice([3, 12, 60]))]


def emptied(items: set[Any]) -> list[Any]:
    return [items.pop() for _ in range(len(items))]


@pytest.mark.parametrize("kind", KINDS)
def test_copies_stay_alike(kind: str) -> None:
    compared = fillings = 0
    for seed in range(150):
        histories = drawn(seed, kind)
        items: set[Any] = set()
        apply(items, next(histories))
        copy = alike(items)
        assert table_of(copy) == table_of(items) is not None
        fillings += table_of(set(items)) != table_of(items)
        frozen = frozenset(items)
        assert [*alike(frozen)] == [*frozen]
        more = next(histories)
        apply(copy, more)
        known = alike(items)
        apply(items, more)
        found = difference(known, items)
        if found is not None:
            changed(known, *found)
            assert table_of(known) == table_of(items)
        assert emptied(copy) == emptied(items)
        compared += 1
    assert compared == 150 and fillings > 20


class Asked:
    """A key whose special methods are Python, and count how often they run."""

    times = 0

    def __init__(self, number: float):
        self.number = number

    def __hash__(self) -> int:
        Asked.times += 1
        return hash(self.number)

    def __eq__(self, other: object) -> bool:
        Asked.times += 1
        return self is other


def test_copies_of_keys_that_may_not_be_asked() -> None:
    compared = fillings = 0
    for seed in range(300):
        draw = random.Random(seed)
        keys = [Asked(draw.choice([i, 97 * i, -i - 1, draw.random()])) for i in range(30)]
        items: set[Any] = set()
        for _ in range(draw.randrange(1, 60)):
            step = items.add if draw.random() < 0.6 else items.discard
            step(draw.choice(keys))
            if items and draw.random() < 0.1:
                items.pop()
        fillings += table_of(set(items)) != table_of(items)
        Asked.times = 0
        copy = alike(items)
        assert Asked.times == 0
        if copy is not None:  # two of them have one hash otherwise
            assert table_of(copy) == table_of(items)
            assert [*map(id, copy)] == [*map(id, items)]
            compared += 1
    assert compared > 150 and fillings > 100


@pytest.mark.parametrize("size", [8, 16, 32, 64, 1024])
def test_tables_of_each_size(size: int) -> None:
    made: set[int] = set()
    grow(made, size - 1, 3)
    table = table_of(made)
    assert table is not None and (made, len(table.hashes)) == ({3}, size)
    for finger in (1, 5, size // 2 + 1, size):
        found = table_of(filled({9} - {9}, [1], ((1,), (5,), size - 1, finger)))
        assert found is not None
        assert (found.taken(), found.discarded(), found.finger) == ([1], [5], finger)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", KINDS)
def test_over_a_break(kind: str, seed: int) -> None:
    """Of a set that the frame makes and of one from outside, each changed."""
    histories = drawn(seed, kind)
    before, first, last = (next(histories) for _ in range(3))

    def f(x: torch.Tensor, given: set[Any]) -> Any:
        made: set[Any] = set()
        for items in (made, given):
            apply(items, first)
        torch._dynamo.graph_break()
        seen = [*made], [*given]
        for items in (made, given):
            apply(items, last)
        return x + 1, made, seen, [*made], [*given]

    def run(call: Callable) -> Any:
        found = []
        for _ in range(2):
            given: set[Any] = set()
            apply(given, before)
            _, made, *seen = call(torch.ones(2), given)
            found.append((seen, emptied(made), emptied(given)))
        return found

    refcompiler.reset()
    assert run(refcompiler.compile(f, backend="eager")) == run(f)
    counters = refcompiler.counters()
    assert counters["graphs"] == counters["breaks"] == 1 and not counters["fallbacks"]


@pytest.mark.parametrize("seed", range(12))
def test_a_set_that_many_calls_change(seed: int) -> None:
    """What a call leaves shows in the order that later items get."""
    draw = random.Random(seed)
    item = KINDS["str" if seed % 2 else "int"]
    work = [(draw.choice(["add", "discard"]), item(draw.randrange(40))) for _ in range(4)]

    def f(x: torch.Tensor, items: set[Any]) -> torch.Tensor:
        for name, given in work:
            (items.add if name == "add" else items.discard)(given)
        return x + 1

    def run(call: Callable) -> list[list[Any]]:
        items, found = {item(7 * k) for k in range(8)}, []
        for k in range(4):
            call(torch.ones(2), items)
            items.add(item(k))
            found.append([*items])
            items.discard(item(k))
        return [*found, emptied(items)]

    refcompiler.reset()
    assert run(refcompiler.compile(f, backend="eager")) == run(f)
    counters = refcompiler.counters()
    assert counters["graphs"] and not counters["fallbacks"] + counters["breaks"]
