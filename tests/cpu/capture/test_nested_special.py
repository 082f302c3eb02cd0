"""A break in a special method that C code or an operator calls costs one break."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.cpu.capture.oracle import Case, check


def _x() -> torch.Tensor:
    return torch.arange(12.0).reshape(3, 4)


# ---- special methods --------------------------------------------------------------------------


class Box:
    """Speaks in each of its special methods."""

    def __init__(self, v):
        self.v = v

    @property
    def doubled(self):
        y = self.v * 2
        print("property")
        return y + 1

    @doubled.setter
    def doubled(self, new):
        print("setter")
        self.v = new * 3

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        print("getattr")
        if name == "lacking":
            raise AttributeError(name)
        return self.v + 5

    def __getitem__(self, key):
        print("getitem")
        return self.v * key

    def __setitem__(self, key, new):
        print("setitem")
        self.v = new + key

    def __delitem__(self, key):
        print("delitem")
        self.v = self.v * key

    def __add__(self, other):
        print("add")
        return NotImplemented if type(other) is str else self.v + other

    def __rmul__(self, other):
        print("rmul")
        return self.v * other

    def __isub__(self, other):
        print("isub")
        self.v = self.v - other
        return self

    def __lt__(self, other):
        print("lt")
        return NotImplemented

    def __gt__(self, other):
        return True

    def __eq__(self, other):
        print("eq")
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, item):
        print("contains")
        return [item]

    def __bool__(self):
        print("bool")
        return False

    def __len__(self):
        print("len")
        return 3

    def __call__(self, y):
        print("call")
        return y * 2

    def __enter__(self):
        print("enter")
        self.v = self.v + 1
        return self

    def __exit__(self, kind, error, traceback):
        self.v = self.v * 2
        return kind is ValueError

    def __iter__(self):
        print("iter")
        return iter([self.v, 1])


class Counting:
    def __init__(self, x):
        self.x, self.n = x, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.n == 1:
            raise StopIteration
        self.n += 1
        print("next")
        return self.x * self.n


class Meta(type):
    def __call__(cls, *args):
        print("meta")
        return super().__call__(*args)


class Made(metaclass=Meta):
    def __new__(cls, v):
        return super().__new__(cls)

    def __init__(self, v):
        self.v = v * 2


class New:
    def __new__(cls, v):
        print("new")
        return super().__new__(cls)

    def __init__(self, v):
        self.v = v * 2


class Init:
    def __init__(self, v):
        y = v * 2
        print("init")
        self.v = y


def _block(b):
    with b as c:
        y = c.v * 3
        if y.shape[0] == 3:
            raise ValueError
    return c


def _store(b):
    b.doubled = b.v


def _store_item(b):
    b[2] = b.v


def _delete_item(b):
    del b[2]


def _subtract(b):
    b -= 2
    return b.v


def _unsupported(b):
    try:
        return b + "text"
    except TypeError as error:
        return str(error)


_SPECIAL: dict[str, Callable] = {
    "property": lambda b: b.doubled,
    "setter": _store,
    "getattr": lambda b: b.other,
    "getattr with a default": lambda b: getattr(b, "lacking", 7),
    "hasattr": lambda b: (hasattr(b, "lacking"), hasattr(b, "v")),
    "getitem": lambda b: b[2],
    "setitem": _store_item,
    "delitem": _delete_item,
    "add": lambda b: b + 2,
    "add that is not implemented": _unsupported,
    "reflected": lambda b: 3 * b,
    "with assignment": _subtract,
    "order": lambda b: b < Box(1),
    "equality": lambda b: b == 3,
    "contains": lambda b: 3 in b,
    "contains not": lambda b: 3 not in b,
    "condition": lambda b: 1 if b else 2,
    "not": lambda b: not b,
    "or": lambda b: b or 3,
    "and": lambda b: (b and 3).v,
    "len": lambda b: len(b),
    "call": lambda b: b(b.v),
    "iter": lambda b: [v * 2 for v in b],
    "next": lambda b: [v * 2 for v in Counting(b.v)],
    "next by hand": lambda b: next(Counting(b.v)),
    "sum of items": lambda b: sum(Counting(b.v)),
    "enter and exit": _block,
    "metaclass": lambda b: Made(b.v).v,
    "new": lambda b: New(b.v).v,
    "init": lambda b: Init(b.v).v,
}


@pytest.mark.parametrize("use", _SPECIAL.values(), ids=_SPECIAL)
def test_special_method(use: Callable) -> None:
    """Two graphs: nothing before or after the break runs outside of them."""

    def f(x):
        b = Box(x * 2)
        found = use(b)
        return found, b.v * 3

    def make() -> Any:
        return f

    make.__name__ = "special_method"
    breaks = {"equality": 2}.get(use.__name__, 1)
    check(Case(make, {"graphs": 2, "breaks": breaks, "recompiles": 0, "fallbacks": 0}, ("eager",)))
