"""Programs that CPython's own tests, compiled, showed to run otherwise than natively.

Each returns what can be seen, as text. It runs natively, and compiled three times, within a handler
and outside of one; nothing may run natively but the instruction that breaks.
"""

from __future__ import annotations

import collections
import copy
import enum
import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import refcompiler

PROGRAMS: list[Callable[[torch.Tensor], Any]] = []
graph_break = torch._dynamo.graph_break


def program(function: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    PROGRAMS.append(function)
    return function


def seen(function: Callable[[torch.Tensor], Any], handling: bool) -> str:
    """What a call answers or raises, with the exceptions that it was raised among."""
    fresh()
    try:
        if not handling:
            return repr(function(torch.ones(2)))
        try:
            raise OSError("around")
        except OSError:
            return repr(function(torch.ones(2)))
    except Exception as error:
        return repr((error, error.__cause__, error.__context__))


def runs_as_natively(function: Callable[[torch.Tensor], Any]) -> None:
    compared = 0
    for handling in (False, True):
        refcompiler.reset()
        compiled = refcompiler.compile(function, backend="eager")
        for now in (handling, not handling, handling):
            assert seen(compiled, now) == seen(function, now)
            compared += 1
        counters = refcompiler.counters()
        assert counters["captures"] and not counters["fallbacks"]
    assert compared == 6


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_as_native(function: Callable[[torch.Tensor], Any]) -> None:
    runs_as_natively(function)


# ---- the order of sets -------------------------------------------------------------------------


class Named(set):
    pass


class Holder:
    ints: set[Any]
    texts: set[Any]
    named: Named
    sum: torch.Tensor


def fresh() -> None:
    Holder.ints, Holder.texts, Holder.named = set(), set(), Named()
    for i in (23, 7, 15, 3, 31):
        Holder.ints.add(i)
        Holder.named.add(i)
        Holder.texts.add(f"text {i}")
    Sized.n = 4
    FACTORY.clear()
    FACTORY.default_factory = list
    remembered.cache_clear()


@program
def sets_that_are_given_back(x):
    return [list(s) for s in (set([7, 15]), set([15, 7]), {7, 15, 23, "a", "b", "c"})]


@program
def sets_behind_a_break(x):
    given = [{7, 15}, {k * 8 + 7 for k in range(9)}, set(map(str, range(7))), Named([7, 15, 23])]
    frozen = frozenset([23, 7, 15])
    graph_break()
    return [list(s) for s in given], list(frozen), list(copy.copy(given[0]))


@program
def sets_that_lost_items(x):
    small, large = set(range(0, 64, 8)), set(map(str, range(40)))
    for i in range(0, 48, 8):
        small.discard(i)
    for i in range(30):
        large.discard(str(i))
    graph_break()
    return list(small), list(large)


@program
def sets_from_outside(x):
    Holder.ints.add(39)
    Holder.named.discard(47)
    Holder.named |= {47, 55}
    inside = [*Holder.ints], [*Holder.texts], [*Holder.named]
    graph_break()
    return inside, [*Holder.ints], [*Holder.texts], [*Holder.named], [*(Holder.ints | {63})]


@program
def sets_that_change_in_a_loop(x):
    found = []
    for kind in (set, frozenset, dict.fromkeys):
        items = kind([1, 2, 3])
        try:
            for item in items:
                found.append(item)
                graph_break()
                if kind is set:
                    items.add(item + 100)
                elif kind is not frozenset:
                    items[item + 100] = 0
        except RuntimeError as error:
            found.append(str(error))
    return found


@program
def loops_over_sets(x):
    found = []
    items = {7, 15, 23, 3}
    for item in items:
        found.append(item)
        graph_break()
    return found, list(items)


# ---- iterators ---------------------------------------------------------------------------------


class Sized:
    n = 4

    def __getitem__(self, i):
        if i >= self.n:
            raise IndexError
        return i


class Stopping:
    def __getitem__(self, i):
        if i >= 5:
            raise StopIteration
        return i


@program
def sequences_that_grow(x):
    sized = Sized()
    iterator = iter(sized)
    first = next(iterator)
    graph_break()
    Sized.n = 6
    rest = list(iterator)
    Sized.n = 9
    return first, rest, list(iterator)


@program
def sequences_that_stop(x):
    found = []
    for item in Stopping():
        found.append(item)
        graph_break()
    return found, list(Stopping()), list(enumerate(Stopping()))


@program
def ordered_dicts_that_change_in_a_loop(x):
    found = []
    for view in (iter, lambda o: iter(o.items()), reversed, lambda o: iter(o.values())):
        ordered = collections.OrderedDict(a=1, b=2, c=3)
        try:
            for item in view(ordered):
                found.append(item)
                graph_break()
                if item in ("b", 2, ("b", 2)):
                    ordered.move_to_end("a")
        except RuntimeError as error:
            found.append(str(error))
    return found


@program
def deques_that_change_in_a_loop(x):
    found = []
    items, empty = collections.deque([1, 2]), collections.deque()
    one, other = iter(items), iter(empty)
    next(one)
    empty.append(1)
    graph_break()
    items.append(3)
    for iterator in (one, other):
        try:
            found.append(next(iterator))
        except RuntimeError as error:
            found.append(str(error))
    return found


def test_iterators_of_sequences_are_given_back_as_cpythons() -> None:
    def both(x: torch.Tensor) -> Any:
        begun = iter(Sized())
        next(begun)
        return begun, iter(Sized()), x + 1

    fresh()
    compiled = refcompiler.compile(both, backend="eager", fullgraph=True)
    for _ in range(2):
        *made, _ = compiled(torch.ones(2))
        *native, _ = both(torch.ones(2))
        assert list(map(type, made)) == list(map(type, native))
        assert list(map(list, made)) == list(map(list, native)) == [[1, 2, 3], [0, 1, 2, 3]]


# ---- what is handled, inside and around --------------------------------------------------------


@program
def the_exception_around(x):
    return sys.exc_info()[0], sys.exception()


@program
def the_exception_around_behind_a_break(x):
    graph_break()
    return sys.exc_info()[0], sys.exception()


@program
def raise_again(x):
    Holder.sum = x + 1
    raise


@program
def raise_again_behind_a_break(x):
    graph_break()
    raise


@program
def raise_another(x):
    raise KeyError("q")


@program
def context_of_another(x):
    try:
        raise KeyError("q")
    except KeyError as error:
        return repr(error.__context__), sys.exc_info()[0]


@program
def generators_see_who_resumes_them(x):
    def numbers() -> Iterator[Any]:
        yield 1
        graph_break()
        yield sys.exc_info()[0]
        yield sys.exception()

    made = numbers()
    next(made)
    try:
        raise ValueError
    except ValueError:
        inside = next(made)
    return inside, next(made)


# ---- containers, attributes, calls -------------------------------------------------------------

FACTORY: Any = collections.defaultdict(list)


@program
def default_factory_is_replaced(x):
    FACTORY["k"].append(1)
    FACTORY.default_factory = int
    FACTORY["z"] += 1
    own = collections.defaultdict()
    own.default_factory = list
    other = own.copy()
    graph_break()
    other["a"].append(2)
    return dict(FACTORY), FACTORY.default_factory, other


@program
def attributes_of_ordered_dicts(x):
    made: Any = collections.OrderedDict(a=1)
    made.x = [1]
    shallow, deep = copy.copy(made), copy.deepcopy(made)
    graph_break()
    return shallow.x is made.x, deep.x, deep.x is made.x


@program
def a_deque_in_itself(x):
    made: Any = collections.deque([1, 2], maxlen=3)
    made.append(made)
    graph_break()
    return made[2] is made, len(made), made.maxlen


UNDER: dict[str, int] = {}
PROXY = types.MappingProxyType(UNDER)


@program
def dicts_under_proxies(x):
    own = {"b": 2}
    made = types.MappingProxyType(own)
    seen_inside = dict(PROXY)
    UNDER["z"] = own["c"] = 3
    now = dict(PROXY), dict(made)
    graph_break()
    own["d"] = 4
    del UNDER["z"]
    return seen_inside, now, dict(PROXY), dict(made), list(made.items())


class Frozen(frozenset):
    pass


FROZEN = Frozen([1, 2])


@program
def copies_of_a_frozenset_of_a_class(x):
    copied = FROZEN.copy()
    return type(copied).__name__, copied is FROZEN, id(copied) == id(FROZEN)


@program
def names_of_variables(x):
    a = 1
    graph_break()
    b = a + 1
    return dir(), sorted(vars()), b


@program
def long_numbers(x):
    n = 10**5000
    graph_break()
    return n % 1000007, (n * n).bit_length()


class Number(enum.IntEnum):
    A = 3


class Mask(enum.IntFlag):
    X, Y = 1, 2

    def __format__(self, spec):
        return "mask"


class Text(enum.StrEnum):
    P = "p"


@program
def texts_of_members(x):
    class Inside(enum.StrEnum):
        A = enum.auto()

    found = [(str(m), f"{m}", f"{m!r}", "%s" % m, format(m)) for m in (Number.A, Mask.Y, Text.P)]
    graph_break()
    return found, str(Inside.A), f"{Inside.A}", repr(Inside.A), str(Mask.X | Mask.Y)


class Index(int):
    def __index__(self):
        return 42


@program
def numbers_of_classes(x):
    return int(Index(7)), list(range(50))[Index(7)]


@functools.lru_cache
def remembered(a):
    return a


@program
def unhashable_arguments_of_a_cache(x):
    found = []
    for bad in ([1], {1: 2}, {3}):
        try:
            found.append(remembered(bad))
        except TypeError as error:
            found.append(str(error))
    return found


class Base:
    @property
    def p(self):
        return "p"

    def m(self):
        return "m"


class Derived(Base):
    pass


@program
def super_of_a_class(x):
    bound = super(Derived, Derived)
    return type(bound.p).__name__, type(bound.m).__name__, bound.m(Derived())


class OnlySet:
    def __set__(self, owner, value):
        owner.__dict__["_x"] = value


class Owner:
    d = OnlySet()


OWNER = Owner()


@program
def descriptors_that_only_set(x):
    own = Owner()
    found = []
    for owner in (own, OWNER):
        owner.__dict__.pop("d", None)
        found.append(type(owner.d).__name__)
        owner.d = 4
        owner.__dict__["d"] = 42
        found += [owner.d, owner._x]
    return found


@program
def errors_of_properties(x):
    class P:
        @property
        def only(self):
            return 1

    p = P()
    graph_break()
    found = []
    for act in (lambda: setattr(p, "only", 1), lambda: delattr(p, "only")):
        try:
            act()
        except AttributeError as error:
            found.append(str(error))
    return [text.replace(P.__qualname__, P.__name__) for text in found]


@program
def registered_behind_a_break(x):
    @functools.singledispatch
    def f(a):
        return "object"

    f.register(int, lambda a: "int")
    graph_break()
    f.register(float, lambda a: "float")
    return f(1.0), f(1), f("a")


BAD = {1: 2}


@program
def arguments_that_builtins_refuse(x):
    found = []
    for call in (
        lambda: dict(**BAD),
        lambda: {}.update(**BAD),
        lambda: print(**BAD),
        lambda: len(),
        lambda: len([1], [2]),
        lambda: isinstance(1),
        lambda: callable(),
        lambda: getattr(1),
        lambda: max(),
        lambda: max(1, 2, default=3),
        lambda: sorted(),
        lambda: sum(),
        lambda: vars(1),
        lambda: object(1),
    ):
        try:
            found.append(call())
        except TypeError as error:
            found.append(str(error))
    return found
