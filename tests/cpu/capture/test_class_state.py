"""What a program keeps in classes from outside, in caches, and in context variables."""

from __future__ import annotations

import contextvars
import functools
import heapq
import re
import typing
from collections.abc import Callable

import pytest
import torch

from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()
VAR: contextvars.ContextVar = contextvars.ContextVar("VAR", default=1)


class Typed(typing.TypedDict):
    a: int


def t(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


# ---- attributes of classes -------------------------------------------------------------------


@cases(graphs=3, recompiles=2)
def instances_counted():
    class Base:
        made = 0
        items: list = []

        def __init__(self):
            type(self).made += 1
            Base.items.append(self.made)

    class Sub(Base):
        pass

    def f(x):
        Base(), Sub()
        last = Sub()
        return x * Base.made + Sub.made, last.made, Base.items[-1], "made" in dir(Sub)

    return f, [(t(2),)] * 3, [Base, Sub]


@cases(breaks=1)
def class_attributes_across_a_break():
    class Holder:
        v = 1

    def f(x):
        Holder.v = 5
        Holder.w = x
        torch._dynamo.graph_break()
        Holder.v += 1
        y = Holder.w + Holder.v
        del Holder.w
        return y, hasattr(Holder, "w"), hasattr(Holder(), "w")

    return f, [(t(2),)] * 3, [Holder]


@cases()
def buffer_of_a_class():
    class Holder:
        total = torch.zeros(2)

    def f(x):
        Holder.total = Holder.total + x
        return Holder.total * 2

    return f, [(t(2),)] * 3, [Holder]


@cases(graphs=2, recompiles=1)
def method_replaced():
    class Adder:
        def go(self, x):
            return x + 1

    adder = Adder()

    def f(x):
        y = adder.go(x)
        Adder.go = lambda self, x: x * 2
        return y, adder.go(x)

    return f, [(t(2),)] * 2, [Adder]


@cases()
def class_attributes_that_are_not_there():
    class Empty:
        __slots__ = ("q",)

    def f(x):
        found = []
        for delete in (lambda: delattr(Empty, "none"), lambda: setattr(Empty(), "none", 1)):
            try:
                delete()
            except AttributeError as error:
                found.append(str(error))
        return x + 1, found, Typed(a=1)

    return f


@cases(breaks=1)
def namespace_of_a_written_class():
    class Holder:
        v = 1

    def f(x):
        Holder.v = x.shape[0]
        return x + Holder.__dict__["v"]

    return f, [(t(2),)] * 2, [Holder]


# ---- caches ----------------------------------------------------------------------------------


@functools.lru_cache(maxsize=None)
def odd(n: int) -> int:
    return n * 2 + 1


@functools.cache
def listed(n: int) -> list:
    return [n, n]


@functools.lru_cache(2)
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@cases()
def cached_data_is_one_object():
    return lambda x: (x * odd(3) + odd(x.shape[0]), listed(2), listed(2) is listed(2), doubled(x))


@cases()
def cache_of_the_frame():
    def f(x):
        calls = []

        @functools.lru_cache
        def scaled(n):
            calls.append(n)
            return x * n

        return scaled(1) + scaled(1) + scaled(2), calls, scaled(1)

    return f


@cases(graphs=1, breaks=1)  # the second time the cache answers
def cached_method_with_effects():
    log = []

    class Counter:
        @functools.lru_cache
        def go(self, n):
            log.append(n)
            return n + 1

    counter = Counter()
    return (lambda x: x * counter.go(2) + counter.go(2)), [(t(2),)] * 2, [log]


@cases(graphs=2, recompiles=1)
def cached_method_of_an_object_that_changes():
    class Table:
        @functools.lru_cache
        def go(self, n):
            return n * self.k

    table = Table()

    def f(x, k):
        table.k = k
        return x * table.go(2)  # what it was the first time

    return f, [(t(2), 2), (t(2), 3), (t(2), 4)], [table]


@cases(graphs=1, breaks=4, recompiles=1)
def full_cache():
    @functools.lru_cache(2)
    def listed(n):
        return [n, n]

    return lambda x: x * sum(listed(1) + listed(2) + listed(3)), [(t(2),), (t(2),)]


# ---- comparisons by functions -----------------------------------------------------------------


@cases()
def keys_of_comparisons():
    def f(x, y):
        calls = []

        def compare(a, b):
            calls.append((a, b))
            return a - b

        key = functools.cmp_to_key(compare)
        ordered = sorted([3, 1, 2], key=key), min([2, 1], key=key), max([1, 5], key=key)
        lengths = functools.cmp_to_key(lambda a, b: a.shape[0] - b.shape[0])
        found = key(1) < key(2), heapq.nsmallest(1, [3, 2], key=key)
        return ordered, found, calls, sorted([x, y], key=lengths), x * 2

    return f, [(t(3), t(2)), (t(3), t(2))]


@cases(graphs=2, breaks=3)  # C keeps the function of such a key from everybody else
def key_of_a_comparison_across_a_break():
    def f(x):
        key = functools.cmp_to_key(lambda a, b: b - a)
        one = key(1)
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2, one.obj, sorted([1, 2, 3], key=key)

    return f


# ---- context variables ------------------------------------------------------------------------


@cases(graphs=2, breaks=1)
def variable_set_across_a_break():
    def f(x):
        token = VAR.set(5)
        y = x + 1
        torch._dynamo.graph_break()
        y = y * VAR.get()
        VAR.reset(token)
        return y, VAR.get(), VAR.get(7)

    return f


@cases()
def token_of_a_variable():
    def f(x):
        token = VAR.set(2)
        y = x * VAR.get()
        VAR.reset(token)
        return y, token.old_value is contextvars.Token.MISSING

    return f


# ---- what is dropped, and objects that are not made again ---------------------------------------


@cases()
def generators_dropped():
    def f(x):
        log = []

        def values():
            try:
                yield x
            finally:
                log.append("closed")

        def held(container: object, drop: Callable) -> None:
            next(container[0])
            drop(container)
            log.append("dropped")

        held([values()], list.clear)
        held({0: values()}, lambda d: d.pop(0))
        held([values()], lambda items: items.__delitem__(0))
        return x + 1, log

    return f


@cases(graphs=2, breaks=5)
def iterator_that_is_not_made_again():
    def f(x):
        y = x + 1
        found = re.finditer("a", "aab")
        first = next(found)
        torch._dynamo.graph_break()
        return y * len(list(found)), first.group()

    return f


@pytest.mark.parametrize("case", cases, ids=str)
def test_class_state(case: Case) -> None:
    assert check(case) > 0
