"""Containers, protocols and registries of a program's own."""

from __future__ import annotations

import abc
import collections
import heapq
import inspect
import itertools
import operator
import typing
import weakref
from typing import Any

import torch

from tests.slow.batteries.idioms.common import Compiled, idiom


@idiom
def containers_of_ones_own(compiled: Compiled) -> list[Any]:
    class Bag(collections.abc.MutableMapping):
        def __init__(self, **items):
            self.items_ = dict(items)
            self.log: list[str] = []

        def __getitem__(self, key):
            self.log.append(key)
            return self.items_[key]

        def __setitem__(self, key, value):
            self.items_[key] = value

        def __delitem__(self, key):
            del self.items_[key]

        def __iter__(self):
            return iter(self.items_)

        def __len__(self):
            return len(self.items_)

    class Chunks(collections.UserList):
        def __add__(self, other):
            return type(self)([*self.data, *other])

        def merged(self):
            return torch.cat(self.data)

    class Default(dict):
        def __missing__(self, key):
            self[key] = made = len(key)
            return made

    @compiled
    def f(bag, chunks, x):
        bag["y"] = bag["x"] + x
        bag.update(z=x * 2)
        found = bag.pop("x")
        chunks = chunks + [x, found]
        bag.setdefault("x", x - 1)
        return chunks.merged(), sum(bag.values()), len(bag), "y" in bag

    @compiled
    def g(d, key, x):
        return x * d[key] + d.get("none", 0), len(d)

    out: list[Any] = []
    for n in (2, 3):
        bag, chunks = Bag(x=torch.ones(n)), Chunks([torch.zeros(1)])
        out += [*f(bag, chunks, torch.randn(n)), list(bag.log), list(bag), len(chunks)]
    d = Default()
    for key in ("a", "bcd", "a"):
        out += [*g(d, key, torch.ones(1)), dict(d)]
    heap = [(3, "c"), (1, "a"), (2, "b")]

    @compiled
    def h(x, heap):
        heapq.heapify(heap)
        k, name = heapq.heappop(heap)
        heapq.heappush(heap, (k + x.shape[0], name))
        return x * k, name, heapq.nsmallest(2, heap)

    for n in (1, 4, 1):
        out += [*h(torch.ones(n), heap), list(heap)]
    return out


@idiom
def protocols_and_signatures(compiled: Compiled) -> list[Any]:
    @typing.runtime_checkable
    class Encodes(typing.Protocol):
        def encode(self, x): ...

    class Base(abc.ABC):
        @abc.abstractmethod
        def encode(self, x): ...

        @classmethod
        def create(cls, *args):
            return cls(*args)

    class Plus(Base):
        def __init__(self, n=1):
            self.n = n

        def encode(self, x):
            return x + self.n

        def __matmul__(self, other):
            return lambda x: other.encode(self.encode(x))

        def __rmul__(self, k):
            return type(self)(self.n * k)

        def __bool__(self):
            return self.n > 0

        def __index__(self):
            return self.n

        def __format__(self, spec):
            return f"<{self.n:{spec}}>"

    def wants(fn, options):
        known = inspect.signature(fn).parameters
        return {k: v for k, v in options.items() if k in known}

    def scaled(x, scale=1.0, *, bias=0.0):
        return x * scale + bias

    @compiled
    def f(x, n, options):
        p = Plus.create(n)
        both = (2 * p) @ p
        y = both(x) if p else x
        y = y + operator.index(p) + [10, 20, 30][p]
        assert isinstance(p, Encodes) and issubclass(Plus, Base)
        return (
            scaled(y, **wants(scaled, options)),
            f"{p:03d}",
            Plus.__abstractmethods__ == frozenset(),
        )

    out: list[Any] = []
    for n, options in ((1, {}), (2, {"scale": 2.0, "other": 3}), (0, {"bias": 1.0}), (1, {})):
        out += f(torch.ones(2), n, options)
    try:
        compiled(lambda x: Base().encode(x))(torch.ones(1))
    except TypeError as error:
        out.append("abstract" in str(error))
    return out


@idiom
def weak_and_global_state(compiled: Compiled) -> list[Any]:
    class Pool:
        live: weakref.WeakSet = weakref.WeakSet()
        cache: weakref.WeakValueDictionary = weakref.WeakValueDictionary()
        ids = itertools.count()

        def __init__(self):
            self.id = next(Pool.ids)
            Pool.live.add(self)

    class Once:
        made = None

        def __new__(cls, *args):
            if cls.made is None:
                cls.made = super().__new__(cls)
                cls.made.values = []
            return cls.made

    @compiled
    def f(x, n):
        one = Once()
        one.values.append(n)
        assert Once() is one
        return x + sum(one.values)

    @compiled
    def g(x):
        p = Pool()
        return x * p.id, p

    out: list[Any] = []
    for n in (1, 2, 3):
        out.append(f(torch.ones(1), n))
    kept = []
    for _ in range(3):
        y, p = g(torch.ones(1))
        kept.append(p)
        out += [y, p.id, len(Pool.live)]
    del kept, p
    return [*out, Once().values]
