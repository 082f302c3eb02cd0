"""What is alive at a break: classes, state of the interpreter and the library, what tells ends."""

from __future__ import annotations

import contextvars
import functools
import inspect
import json
import weakref
from typing import Any

import pytest
import torch

from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()


@pytest.mark.parametrize("case", cases, ids=str)
def test_alive(case: Case) -> None:
    assert check(case) > 20


def _x():
    return torch.arange(12.0).reshape(3, 4)


# ---- class statements ------------------------------------------------------------------------


@cases()
def class_used_inside():
    def f(x):
        class A:
            k = 3

            def g(self, t):
                return t * self.k

        return A().g(x) + 1

    return f


@cases()
def class_given_back():
    def f(x):
        n = x.shape[0]

        class A:
            """Text."""

            k: int = n

            def __init__(self, v):
                super().__init__()
                self.v = v

            @property
            def twice(self):
                return self.v * 2

            @staticmethod
            def plus(t):
                return t + n

            @classmethod
            def make(cls, t):
                return cls(cls.plus(t))

            def me(self):
                return __class__

        class B(A):
            __slots__ = ("w",)

            def __init__(self, v):
                super().__init__(v)
                self.w = [v]

        return A.make(x), B(x * 2), B

    def g(x):
        a, b, cls = f(x)
        assert b.me() is type(a) and isinstance(b, type(a))
        return a.v, a.twice, b.w, b.k, cls.__name__, cls.__qualname__, type(a).__doc__

    return g


@cases(graphs=3, breaks=1, recompiles=1)
def class_with_a_metaclass():
    """Natively made, and then another class in every call."""
    made = []

    class Meta(type):
        def __new__(meta, name, bases, space):
            made.append(super().__new__(meta, name, bases, space))
            return made[-1]

    def f(x):
        x = x + 1

        class A(metaclass=Meta):
            k = 2

        return x * A.k

    return f, [(_x(),), (_x(),)], [made]


# ---- state of the interpreter and of the library -----------------------------------------------

VAR = contextvars.ContextVar("VAR", default=1)
UNSET_VAR: Any = contextvars.ContextVar("UNSET_VAR")


@cases()
def context_variable_set_and_reset():
    def f(x):
        token = VAR.set(VAR.get() + 1)
        x = x * VAR.get()
        VAR.reset(token)
        return x + VAR.get()

    return f


@cases(graphs=2, recompiles=1)
def context_variable_left_set():
    def f(x):
        VAR.set(VAR.get() + 1)
        return x * VAR.get()

    def reset():
        VAR.set(1)

    def value(x):
        return VAR.get()

    return f, [reset, (_x(),), (_x(),), reset, (_x(),)]


@cases(graphs=2, breaks=1)
def context_variable_across_a_break():
    def f(x):
        try:
            UNSET_VAR.get()
        except LookupError as error:
            x = x + len(error.args)
        token = UNSET_VAR.set([1])
        x = x * UNSET_VAR.get()[0]
        print("break")
        UNSET_VAR.get().append(5)
        x = x + len(UNSET_VAR.get())
        UNSET_VAR.reset(token)
        return x * UNSET_VAR.get(3)

    return f


class Version:
    def __init__(self, v):
        self.v = v

    def __lt__(self, other):
        return self.v < other.v

    def __repr__(self):
        return f"V{self.v}"


@cases()
def comparisons_of_the_users():
    def f(x):
        items = sorted([Version(3), Version(1), Version(2)])
        others = [Version(5), Version(7)]
        others.sort(reverse=True)
        keyed = sorted("bca", key=lambda c: Version(-ord(c)))
        return x * items[0].v + min(items).v - max(items).v, items, others, keyed

    return f


@cases()
def texts_of_the_users():
    def f(x):
        v, w = Version(1), Version(2)
        texts = [f"{v} {w!r:>5}", "%s %r %d" % (v, [1], 3), "%(a)s" % {"a": w}]
        texts += ["{} {!r} {k:<4}|".format(v, 5, k=2), str(v), json.dumps({"a": [1, None]})]
        return x * len(texts), texts, json.loads(texts[-1])

    return f


@functools.singledispatch
def dispatched(a, x):
    return x


@dispatched.register
def _(a: int, x):
    return x + a


@functools.lru_cache
def cached(n):
    return n * 2


@cases()
def tools_of_the_library():
    class Holder:
        @functools.cached_property
        def w(self):
            return 5

    def target(a, b=2, *, c=3):
        pass

    def f(x):
        h = Holder()
        n = len(inspect.signature(target).parameters)
        return dispatched(3, x) + dispatched("s", x) * cached(3) + h.w * h.w + n, h

    return f


# ---- what tells of its end --------------------------------------------------------------------


class Held:
    pass


def _closing(x, log):
    try:
        yield x
        yield x + 1
    finally:
        log.append("closed")


@cases(graphs=2, breaks=2)
def loop_left_after_a_break():
    """What the generator does at its end comes before what follows the loop."""

    def f(x):
        log = []
        for item in _closing(x, log):
            x = x + item
            torch._dynamo.graph_break()
            log.append("in")
            break
        log.append("out")
        return x * 2, log

    return f


@cases(graphs=1, breaks=2)
def generator_in_a_list_that_is_cleared():
    def f(x):
        log = []
        held = [_closing(x, log)]
        y = next(held[0])
        torch._dynamo.graph_break()
        y = y * 2
        held.clear()
        log.append("cleared")
        return y, log

    return f


@cases(graphs=2, breaks=2)
def object_with_a_weak_reference():
    def f(x):
        held = Held()
        known = weakref.ref(held)
        y = x + 1
        torch._dynamo.graph_break()
        y, before = y * 2, known() is None
        del held
        return y, before, known() is None

    return f


@cases(graphs=1, breaks=1)
def object_that_nobody_reads_again():
    """A variable holds it until the end."""

    def f(x):
        held = Held()
        known = weakref.ref(held)
        y = x + 1
        torch._dynamo.graph_break()
        return y, known() is None

    return f
