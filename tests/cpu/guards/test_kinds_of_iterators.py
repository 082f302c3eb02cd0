"""The guard kinds of iterators and generators."""

from __future__ import annotations

import collections
import inspect
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from refcompiler.guards.iterators import Ahead, Feeder, advance, count_on, fed, nested, shape
from refcompiler.guards.kinds import (
    Guard,
)
from refcompiler.guards.sources import Sources
from refcompiler.interpreter.continued import continued, finish, suspension
from refcompiler.interpreter.frame import UNSET
from refcompiler.interpreter.generators import activation_of
from refcompiler.interpreter.machine import Machine
from tests.cpu.guards.agreeing import (
    PLACE,
    agree,
    argument,
    checked,
    compiled,
    counting,
    moved,
    suspended,
)

# ---- iterators ---------------------------------------------------------------------------------


ITERATORS: dict[str, Callable[[], Any]] = {
    "list": lambda: iter([1, 2, 3]),
    "reversed list": lambda: reversed([1, 2, 3]),
    "tuple": lambda: iter((1, 2, 3)),
    "range": lambda: iter(range(4)),
    "text": lambda: iter("abc"),
    "dict": lambda: iter({1: 2, 3: 4}),
    "items": lambda: iter({1: 2, 3: 4}.items()),
    "set": lambda: iter({1, 2, 3}),
    "deque": lambda: iter(collections.deque([1, 2, 3])),
    "count": lambda: itertools.count(3, 2),
    "repeat": lambda: itertools.repeat(1, 4),
    "endless": lambda: itertools.repeat(1),
    "cycle": lambda: itertools.cycle([1, 2, 3]),
    "zip": lambda: zip([1, 2, 3], "abc", strict=False),
    "strict": lambda: zip([1, 2, 3], "abc", strict=True),
    "pairs": lambda: (lambda it: zip(it, it, strict=False))(iter(range(6))),
    "enumerate": lambda: enumerate("abcd", 5),
    "chain": lambda: itertools.chain([1, 2], itertools.count(7)),
    "from_iterable": lambda: itertools.chain.from_iterable([[1], (2, 3)]),
    "islice": lambda: itertools.islice(itertools.count(), 1, 9, 2),
    "product": lambda: itertools.product([1, 2], "ab"),
    "zip_longest": lambda: itertools.zip_longest([1, 2, 3], [1]),
    "nested": lambda: enumerate(zip(itertools.islice([1, 2, 3], 3), {1: 2, 2: 3}, strict=False)),
}


@pytest.mark.parametrize("steps", [0, 1, 2])
@pytest.mark.parametrize("name", ITERATORS)
def test_reading_ahead_of_an_iterator(name: str, steps: int) -> None:
    make = ITERATORS[name]
    expected = list(itertools.islice(moved(make(), steps), 5))
    iterator = moved(make(), steps)
    assert nested(iterator, {})
    ahead = Ahead(iterator)
    ended = len(expected) < 5
    assert [ahead[k] for k in range(len(expected))] == expected
    guard = Guard("ENDS", Sources().make("ahead", argument()), len(expected), PLACE)
    assert compiled(guard, ["x"])(iterator) is ended is checked(guard, {"x": iterator})
    advance(iterator, 1, False)  # nothing of the above has moved it
    assert list(itertools.islice(iterator, 4)) == expected[1:]
    other = moved(make(), steps)
    advance(other, len(expected), ended)
    assert not ended or next(other, None) is None


def test_ends() -> None:
    for count in range(4):
        guard = Guard("ENDS", Sources().make("ahead", argument()), count, PLACE)
        for size in range(4):
            found = compiled(guard, ["x"])(iter(range(size)))
            assert found is (size == count) is checked(guard, {"x": iter(range(size))})
            assert found or "x" in guard.explain(Ahead(iter(range(size))))


def test_shapes_of_iterators() -> None:
    makes = [make for name, make in ITERATORS.items() if name != "strict"]  # as any zip
    values = [make() for make in makes] + [map(abs, [1]), map(abs, iter(())), filter(None, [1])]
    values += [itertools.compress([1], [1]), itertools.compress([1], {1: 1})]
    values.append(zip(iter(range(1)), iter(range(1)), strict=False))  # two, not one twice
    for value in values:
        held = agree("SHAPE", shape(value), values)
        assert held == sum(shape(value) == shape(other) for other in values) >= 1
    assert shape(values[-1]) != shape(ITERATORS["pairs"]())
    assert len({repr(shape(value)) for value in values}) > 20


def test_iterators_apart() -> None:
    xs, ys = [1, 2], [3, 4]
    one, two = iter(xs), iter(ys)
    s = Sources()
    names = [s.make("arg", None, name) for name in "abc"]
    guard = Guard("APART", None, (tuple(names[:2]), (names[2],)), PLACE)
    fast = compiled(guard, ["a", "b", "c"])
    for a, b, c, apart in (
        (one, two, [5], True),
        (one, one, [5], False),
        (zip(one, two, strict=False), iter(xs), [5], True),
        (zip(one, two, strict=False), two, [5], False),
        (one, two, ys, False),
        (iter(ys), zip(one, iter("ab"), strict=False), xs, False),
        (iter({}), iter((d := {1: 2}).items()), d, False),
    ):
        assert fast(a, b, c) is apart is checked(guard, {"a": a, "b": b, "c": c})


def test_where_a_generator_is_suspended() -> None:
    def places() -> list[Any]:
        return [suspended(i) for i in range(4)] + [suspended(1), counting(2), iter(())]

    for i, want in enumerate((0, 1, 1, 3)):
        assert suspension(suspended(i)) == suspension(suspended(want)) is not None
        held = agree("SUSPENDED", suspension(suspended(want)), places())
        assert held == {0: 1, 1: 3, 3: 1}[want]
    assert suspension(counting(2)) is None


def test_a_generator_goes_on_elsewhere() -> None:
    for steps in range(5):
        old = suspended(steps)
        activation = activation_of(old.gi_frame)
        delegate = UNSET if not activation.delegates else old.gi_yieldfrom
        frame, activation.frame = activation.frame, None
        new = continued(Machine(), frame, None, delegate, ("new", "q.new"))
        assert list(new) == [0, 1, "last", "a", "b"][steps:]
        assert new.__name__ == "new" and inspect.getgeneratorstate(new) == "GEN_CLOSED"
        again = suspended(steps)
        finish(again)
        assert list(again) == [] and again.gi_frame is None


def test_numbering_goes_on_without_the_items() -> None:
    inner = iter("abcdef")
    numbered = enumerate(Feeder(inner), 2)
    assert fed(numbered) is inner and fed(enumerate("ab")) is None
    assert next(numbered) == (2, "a")
    assert [next(inner), next(inner)] == ["b", "c"]
    count_on(numbered, 2)
    assert list(numbered) == [(5, "d"), (6, "e"), (7, "f")]
