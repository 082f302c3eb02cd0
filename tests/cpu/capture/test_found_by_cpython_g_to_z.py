"""Programs that the later half of CPython's own tests, compiled, showed to run otherwise.

Each returns what can be seen, as text. It runs natively, and compiled three times; of the compiled
calls, the graphs and breaks are those that stand at its decorator.
"""

from __future__ import annotations

import collections
import copy
import datetime
import functools
import inspect
import operator
import random
import time
import types
from collections.abc import Callable
from typing import Any, Self, get_type_hints
from unittest import mock

import pytest
import torch

import refcompiler
from refcompiler.runtime.counters import reasons

PROGRAMS: list[tuple[Callable[[torch.Tensor], Any], int, int]] = []
graph_break = torch._dynamo.graph_break
LOG: list[Any] = []
GENERATOR = random.Random(3)


def program(graphs: int, breaks: int) -> Callable:
    def register(function: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
        PROGRAMS.append((function, graphs, breaks))
        return function

    return register


def seen(function: Callable[[torch.Tensor], Any], turn: int) -> str:
    LOG.clear()
    GENERATOR.seed(turn)
    try:
        return repr((function(torch.ones(2) + turn), LOG))
    except Exception as error:
        return repr((error, error.__cause__, error.__context__, LOG))


def named(value: Any) -> str:
    return getattr(value, "__name__", str(value))


# ---- what a function that the frame makes refers to --------------------------------------------

COUNT = 3


@program(graphs=2, breaks=1)
def globals_of_a_function(x):
    def inner():
        return COUNT

    space = inner.__globals__
    y = x + space["COUNT"]
    graph_break()
    space["COUNT"] = COUNT + 1
    z = y * COUNT
    inner.__globals__["COUNT"] = 3
    return space is globals(), z, inner(), inner.__builtins__ is seen.__builtins__


@program(graphs=1, breaks=3)
def hints_of_a_function(x):
    class Kind:
        def method(self) -> Self: ...

    return x * 2, get_type_hints(Kind.method)


# ---- numbers, and named tuples in C, across a break --------------------------------------------


@program(graphs=1, breaks=4)
def methods_of_drawn_numbers(x):
    texts = [GENERATOR.random().hex() for _ in range(3)]
    return texts, x * GENERATOR.random(), GENERATOR.random().as_integer_ratio()


@program(graphs=1, breaks=2)
def named_tuples_of_c(x):
    when = datetime.datetime(2020, 1, 2, 3, tzinfo=datetime.UTC).timetuple()
    y = x + when.tm_hour
    graph_break()
    other = time.struct_time(range(9), {"tm_zone": "here", "tm_gmtoff": 7})
    return y, when, when.tm_zone, other, other.tm_zone, other.tm_gmtoff


# ---- iterators over numbered items -------------------------------------------------------------


class Items:
    def __init__(self, size):
        self.size = size

    def __getitem__(self, i):
        LOG.append(i)
        if i >= self.size:
            raise IndexError(i)
        return torch.ones(2) * i


class Counted(Items):
    def __len__(self):
        LOG.append("len")
        return self.size


@program(graphs=1, breaks=0)
def iterator_of_items(x):
    given = iter(Items(4))
    y = x + next(given)
    return y, type(given), next(given), list(given), next(given, None)


@program(graphs=2, breaks=2)
def iterator_across_a_break(x):
    given = iter(Items(4))
    y = x + next(given)
    graph_break()
    y = y + next(given)
    return type(given), y, [*given], next(given, 7), next(given, 7)


@program(graphs=1, breaks=0)
def iterator_of_counted_items(x):
    given = iter(Counted(3))
    left = given.__length_hint__(), operator.length_hint(given)
    return x + next(given), left, list(given)


@program(graphs=2, breaks=3)
def copy_of_an_iterator(x):
    given = iter(Items(5))
    y = x + next(given)
    other = copy.copy(given)
    next(given)
    return y, other.__reduce__()[2], given.__reduce__()[2]


@program(graphs=1, breaks=0)
def items_as_they_are_asked_for(x):
    pairs = []
    for i, item in enumerate(Items(3)):
        LOG.append("body")
        x = x * item + i
        pairs.append(i)
    return x, pairs, any(item is item for item in Items(3)), list(zip(Items(2), "ab", strict=False))


@program(graphs=1, breaks=0)
def items_without_end(x):
    class Numbers:
        def __getitem__(self, i):
            LOG.append(i)
            return i

    given = iter(Numbers())
    return x + next(given), 3 in given, next(given), dict(zip("ab", given, strict=False))


def test_numbers_of_which_python_makes_no_text() -> None:
    def function(x, n):
        graph_break()
        return x + n % 7, n > 5

    refcompiler.reset()
    compiled = refcompiler.compile(function, backend="eager")
    compared = 0
    for n in (3**20000, 5**20000, 7**20000):
        assert repr(compiled(torch.ones(1), n)) == repr(function(torch.ones(1), n))
        compared += 1
    told = list(map(str, reasons("recompiles")))
    assert compared == 3 and told and any("an int of" in why for why in told)


# ---- iterators over lists that have become shorter -----------------------------------------------


@program(graphs=1, breaks=4)
def iterators_beyond_their_lists(x):
    first, second = list(range(6)), list(range(6))
    forwards, backwards = iter(first), reversed(second)
    for given in (forwards, backwards):
        next(given), next(given)
    first[1:] = second[1:] = []
    graph_break()
    left = operator.length_hint(backwards), list(backwards)
    graph_break()
    first.extend([4, 5, 6])
    second.extend([4, 5, 6])
    return x + 1, left, list(forwards), list(backwards)


@program(graphs=1, breaks=0)
def empty_iterators_of_lists(x):
    given = reversed(list(range(3)))
    return x + 1, list(given), list(given), next(given, None)


# ---- generators that ask themselves -------------------------------------------------------------


@program(graphs=1, breaks=1)
def generators_that_delegate_to_themselves(x):
    def first():
        yield 0
        yield from second()
        yield 3

    def second():
        yield 1
        try:
            yield from given
        except ValueError as error:
            LOG.append(str(error))
            graph_break()
        yield 2

    given = first()
    return x + 1, list(given)


@program(graphs=1, breaks=1)
def generators_that_run_themselves(x):
    def own():
        yield 0
        for act in (
            next,
            list,
            lambda g: g.send(1),
            lambda g: g.throw(KeyError),
            lambda g: g.close(),
        ):
            try:
                act(given)
            except ValueError as error:
                LOG.append(str(error))
        graph_break()
        yield 3

    given = own()
    return x + 1, list(given), given.gi_running


# ---- signatures --------------------------------------------------------------------------------


def told(a, b: int = 2, *c, d=3): ...


@functools.wraps(told)
def around(*args): ...


def test_signatures_are_what_they_are_at_the_call() -> None:
    def function(x):
        parts = inspect.signature(told), inspect.signature(around)
        return x * parts[0].parameters["b"].default, str(parts[0]), str(parts[1])

    refcompiler.reset()
    compiled = refcompiler.compile(function, backend="eager")
    x, compared = torch.ones(1), 0
    other = inspect.Signature([inspect.Parameter("b", inspect.Parameter.KEYWORD_ONLY, default=4)])
    changes: list[dict[str, Any]] = [
        {},
        {"__defaults__": (5,)},
        {"__annotations__": {"a": str}},
        {"__kwdefaults__": {"d": 9}},
        {"__signature__": other},
        {"__text_signature__": "($self, b=7, /)"},
    ]
    before = told.__defaults__, told.__annotations__, told.__kwdefaults__
    for change in changes:
        for name, value in change.items():
            setattr(told, name, value)
        assert repr(compiled(x)) == repr(function(x))
        compared += 1
        told.__defaults__, told.__annotations__, told.__kwdefaults__ = before
        for name in ("__signature__", "__text_signature__"):
            vars(told).pop(name, None)
    assert compared == 6 and repr(compiled(x)) == repr(function(x))
    assert refcompiler.counters()["graphs"] == 6  # one for each other number


class Alike:
    def __init__(self, function):
        for name in ("__name__", "__code__", "__defaults__", "__kwdefaults__", "__annotations__"):
            setattr(self, name, getattr(function, name))

    def __call__(self, *args): ...


@program(graphs=1, breaks=2)
def signatures_of_what_is_like_a_function(x):
    alike = Alike(lambda a, b=1: None)
    y = x + 1
    graph_break()
    return y, str(inspect.signature(alike)), str(inspect.signature(Alike))


# ---- generators of random numbers with methods of the program's ---------------------------------


@program(graphs=1, breaks=4)
def another_way_to_draw(x):
    with mock.patch("random.Random.random", lambda self: 0.5):
        drawn = GENERATOR.gammavariate(1.0, 2.0)
    y = x + GENERATOR.uniform(1, 2)
    return y, drawn


@program(graphs=1, breaks=2)
def another_way_in_one_generator(x):
    GENERATOR.random = lambda: 0.25
    drawn = GENERATOR.uniform(1, 2)
    del GENERATOR.random
    return x + GENERATOR.uniform(1, 2), drawn


def test_another_way_to_draw_is_noticed() -> None:
    @refcompiler.compile(backend="eager")
    def function(x):
        return x + GENERATOR.uniform(1, 2)

    refcompiler.reset()
    x, compared = torch.zeros(1), 0
    for patched in (False, True, False):
        way = (lambda self: 0.5) if patched else random.Random.random
        with mock.patch("random.Random.random", way):
            GENERATOR.seed(5)
            expected = x + GENERATOR.uniform(1, 2)
            GENERATOR.seed(5)
            assert function(x).equal(expected)
            compared += 1
    assert compared == 3


# ---- proxies of mappings -----------------------------------------------------------------------

CHAIN = types.MappingProxyType(collections.ChainMap({"a": 1}, {"b": 2}))
ORDERED = types.MappingProxyType(collections.OrderedDict(a=1, b=2))


@program(graphs=2, breaks=4)
def proxies_of_mappings(x):
    y = x * ORDERED["a"] + ORDERED["b"]
    z = y + CHAIN["b"]
    made = types.MappingProxyType(collections.OrderedDict(c=3))
    graph_break()
    return z, type(CHAIN.copy()), type(ORDERED.copy()), made.copy(), made == {"c": 3}, len(CHAIN)


# ---- numbers beyond 64 bits --------------------------------------------------------------------

LARGE: dict[str, Callable[[int], Any]] = {
    "10 ** k": lambda k: 10**k,
    "(k + 1) ** 40": lambda k: (k + 1) ** 40,
    "2 ** (k * 9)": lambda k: 2 ** (k * 9),
    "k << 80": lambda k: k << 80,
    "(k << 70) % 7": lambda k: (k << 70) % 7,
    "(k << 70) >> (k + 60)": lambda k: (k << 70) >> (k + 60),
    "k >> (k + 64)": lambda k: k >> (k + 64),
    "1 << k": lambda k: 1 << k,
}


@pytest.mark.parametrize("text", LARGE)
def test_numbers_beyond_64_bits(text: str) -> None:
    def function(x, k):
        return x + k, LARGE[text](k)

    refcompiler.reset()
    compiled = refcompiler.compile(function, backend="eager")
    compared = 0
    for k in (3, 17, 20, 30):
        assert repr(compiled(torch.ones(1), k)) == repr(function(torch.ones(1), k))
        compared += 1
    assert compared == 4 and refcompiler.counters()["captures"] <= 3


@pytest.mark.parametrize("function, graphs, breaks", PROGRAMS, ids=named)
def test_as_native(function: Callable[[torch.Tensor], Any], graphs: int, breaks: int) -> None:
    refcompiler.reset()
    compiled = refcompiler.compile(function, backend="eager")
    compared = 0
    for turn in (0, 1, 0):
        assert seen(compiled, turn) == seen(function, turn)
        compared += 1
        if not turn and compared == 1:
            counters = refcompiler.counters()
            assert (counters["graphs"], counters["breaks"]) == (graphs, breaks)
    assert compared == 3 and not refcompiler.counters()["fallbacks"]


def test_an_iterator_from_outside() -> None:
    @refcompiler.compile(backend="eager")
    def function(x, given):
        return x + next(given), next(given)

    refcompiler.reset()
    compared = 0
    ours, plain = iter(Items(10)), iter(Items(10))
    x = torch.ones(2)
    for _ in range(4):
        LOG.clear()
        found, asked = function(x, ours), list(LOG)
        LOG.clear()
        expected = x + next(plain), next(plain)
        assert repr(found) == repr(expected) and asked == LOG
        assert ours.__reduce__()[2] == plain.__reduce__()[2]
        compared += 1
    counters = refcompiler.counters()
    assert compared == 4 and not counters["breaks"] and counters["graphs"] <= 2
    list(ours)
    with pytest.raises(StopIteration):
        function(x, ours)


def test_the_end_of_one_from_outside_is_asked_for_once() -> None:
    @refcompiler.compile(backend="eager")
    def function(x, given):
        for item in given:
            x = x + item
        return x, next(given, 5)

    refcompiler.reset()
    for size in (3, 3, 2):
        LOG.clear()
        given = iter(Items(size))
        found, asked = function(torch.ones(2), given), list(LOG)
        assert asked == list(range(size + 1)) and found[1] == 5
        assert found[0].equal(torch.ones(2) + sum(range(size)))
    assert refcompiler.counters()["graphs"] == 2


class Slotted(types.ModuleType):
    __slots__ = ("own",)


SLOTTED = Slotted("slotted")


def test_slots_of_modules() -> None:
    def function(x):
        SLOTTED.own = 3
        y = x * SLOTTED.own
        SLOTTED.own += 1
        return y, SLOTTED.own

    refcompiler.reset()
    compiled = refcompiler.compile(function, backend="eager")
    for _ in range(2):
        assert repr(compiled(torch.ones(1))) == repr(function(torch.ones(1)))
        assert "own" not in vars(SLOTTED)
    assert refcompiler.counters()["graphs"] == 1


class Told(set):
    def __repr__(self):
        return "told " + super().__repr__()


class Frozen(frozenset):
    pass


TOLD = [Told("a"), Told(), Frozen("a"), Frozen()]


def test_texts_of_sets_of_their_own_class() -> None:
    def function(x):
        return x + 1, [(repr(kind), kind.__repr__()) for kind in TOLD], f"{TOLD[0]}"

    refcompiler.reset()
    compiled = refcompiler.compile(function, backend="eager")
    for _ in range(2):
        assert repr(compiled(torch.ones(1))) == repr(function(torch.ones(1)))
    assert refcompiler.counters()["graphs"] == 1
