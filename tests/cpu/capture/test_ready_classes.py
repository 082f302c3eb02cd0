"""Dataclasses, named tuples, enums, and what functools makes of classes."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import typing

import pytest
import torch

from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()
t = torch.randn


@dataclasses.dataclass
class Config:
    scale: float = 2.0
    items: list = dataclasses.field(default_factory=list)
    tag: typing.ClassVar[str] = "c"

    def __post_init__(self):
        self.double = self.scale * 2


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: torch.Tensor
    n: int = 1


@dataclasses.dataclass(order=True)
class Ordered:
    a: int
    b: int


@dataclasses.dataclass(slots=True)
class Slotted:
    a: object
    b: int = 2


@cases()
def dataclasses_made_inside():
    def f(x):
        c = Config(3.0)
        c.items.append(x)
        fr = Frozen(x * 2, n=4)
        try:
            fr.n = 5
        except dataclasses.FrozenInstanceError as error:
            text = str(error)
        o = Ordered(1, 2) < Ordered(1, 3)
        g = dataclasses.replace(fr, n=7)
        return c, fr, text, o, g, Ordered(1, 2) == Ordered(1, 2), Slotted(x), Config.tag, c.double

    return f


@cases()
def dataclass_functions():
    def f(x):
        c = Config(3.0, [1])
        names = [fd.name for fd in dataclasses.fields(c)]
        return x * c.scale, names, dataclasses.is_dataclass(c), repr(Ordered(1, 2))

    return f


@cases(recompiles=1, graphs=2)
def dataclass_argument():
    def f(c, x):
        c.items.append(x)
        c.scale = c.scale + 0
        return x * c.scale * c.double

    return f, [(Config(2.0), t(2)), (Config(2.0), t(2)), (Config(4.0), t(2))]


class Pair(typing.NamedTuple):
    first: torch.Tensor
    second: int = 3

    def total(self):
        return self.first * self.second


Old = collections.namedtuple("Old", "a b", defaults=[4])


@cases()
def namedtuples():
    def f(x, p):
        q = Pair(x + 1)
        a, b = q
        r = q._replace(second=5)
        o = Old(x)
        return (
            q,
            a,
            b,
            r.total(),
            o,
            o._asdict(),
            Old._fields,
            q[0],
            p.total(),
            p,
            isinstance(o, tuple),
        )

    p = Pair(t(2), 2)
    return f, [(t(2), p), (t(2), p)]


class Color(enum.Enum):
    RED = 1
    BLUE = 2

    @property
    def label(self):
        return self.name.lower()


class Flag(enum.Flag):
    A = 1
    B = 2


class Number(enum.IntEnum):
    ONE = 1
    TWO = 2


@cases(recompiles=1, graphs=2)
def enums():
    def f(x, c):
        if c is Color.RED:
            x = x + 1
        elif c == Color.BLUE:
            x = x * 2
        names = [m.name for m in Color]
        return (
            x, c, c.value, c.name, c.label, names, Color(2), Color["RED"], Number.TWO + 1,
            (Flag.A | Flag.B) & Flag.A, Number(1) == 1, {Color.RED: x}, str(c), f"{c!r}", c in Color,  # noqa: E501
        )  # fmt: skip

    return f, [(t(2), Color.RED), (t(2), Color.BLUE), (t(2), Color.RED)]


#: Python 3.13's keeps what it has dispatched in a dictionary of weak references.
_KEEPS_WEAKLY = "WeakKeyDictionary" in functools.singledispatchmethod.__init__.__code__.co_names


@cases(breaks=2 if _KEEPS_WEAKLY else 0)
def functools_on_classes():
    class K:
        def __init__(self, x):
            self.x = x
            self.runs = 0

        @functools.cached_property
        def double(self):
            self.runs += 1
            return self.x * 2

        def scaled(self, k, y):
            return self.x * k + y

        tripled = functools.partialmethod(scaled, 3)

        @functools.singledispatchmethod
        def show(self, v):
            return "other"

        @show.register
        def _(self, v: int):
            return "int"

    def f(x):
        k = K(x)
        return k.double, k.double is k.double, k.runs, k.tripled(1), k.show(1), k.show("a")

    return f


@cases(graphs=2, recompiles=1)
def cached_property_outside():
    class K:
        def __init__(self, x):
            self.x = x

        @functools.cached_property
        def double(self):
            return self.x * 2

    k = K(torch.ones(2))
    return (lambda x: x + k.double), [(t(2),)] * 3, [k]


@cases()
def lru_cache():
    @functools.lru_cache(maxsize=None)
    def square(n):
        return n * n

    return lambda x: x * square(3) + square(3)


@cases()
def singledispatch():
    @functools.singledispatch
    def show(v):
        return "other"

    @show.register
    def _(v: int):
        return "int"

    @show.register(list)
    def _(v):
        return [show(i) for i in v]

    return lambda x: (x + 1, show(1), show("a"), show([1, "b"]))


@cases()  # sorted calls __lt__
def total_ordering():
    @functools.total_ordering
    class K:
        def __init__(self, n):
            self.n = n

        def __lt__(self, other):
            return self.n < other.n

        def __eq__(self, other):
            return self.n == other.n

    return lambda x: (x + 1, K(1) >= K(0), K(1) <= K(0), sorted([K(2), K(1)])[0].n)


@pytest.mark.parametrize("case", cases, ids=str)
def test_ready_classes(case: Case) -> None:
    assert check(case) > 0
