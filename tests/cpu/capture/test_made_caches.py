"""Functions under ``lru_cache`` that the frame makes: what they know, across breaks and calls."""

from __future__ import annotations

import functools

import pytest
import torch

from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()


def three():
    return [(torch.randn(3, 4),) for _ in range(3)]


@cases(graphs=2, breaks=1)
def constants():
    def f(x):
        @functools.lru_cache(maxsize=None)
        def g(n):
            return n * 2

        y = x * g(3) + g(3)
        torch._dynamo.graph_break()
        return y + g(4) + g(3)

    return f, three()


@cases(graphs=2, breaks=1)
def tensors():
    def f(x):
        @functools.lru_cache
        def g(n):
            return x * n

        a = g(2)
        torch._dynamo.graph_break()
        return a + g(3) + g(2)

    return f, three()


@cases(breaks=5)
def info():
    def f(x):
        @functools.cache
        def g(n, k=1):
            return n + k

        y = x * g(1) + g(1, k=2) + g(1)
        torch._dynamo.graph_break()
        i = g.cache_info()
        return y, tuple(i), g.cache_parameters(), g.__name__, g.__wrapped__(5)

    return f, three()


@cases()
def returned():
    def f(x):
        @functools.lru_cache(maxsize=8, typed=True)
        def g(n, *, k=1):
            return (n, k)

        g(1)
        g(1.0)
        g(1, k=2)
        g(1)
        return x + 1, g

    def check(x):
        y, g = f(x)
        return (
            y,
            tuple(g.cache_info()),
            g(1),
            g(1.0),
            g(1, k=2),
            tuple(g.cache_info()),
            g(7),
            tuple(g.cache_info()),
        )

    return f, three()


@cases(graphs=2, breaks=1)
def recursive():
    def f(x):
        @functools.cache
        def fib(n):
            return n if n < 2 else fib(n - 1) + fib(n - 2)

        y = x * fib(8)
        torch._dynamo.graph_break()
        return y + fib(10)

    return f, three()


@cases(graphs=4, breaks=1, recompiles=2)
def in_class():
    def f(x):
        class A:
            def __init__(self, v):
                self.v = v

            @functools.lru_cache
            def m(self, n):
                return self.v * n

        a = A(x)
        y = a.m(2)
        torch._dynamo.graph_break()
        return y + a.m(2) + a.m(3)

    return f, three()


@cases(graphs=3, recompiles=2)
def factory_outside():
    def make(k):
        @functools.lru_cache
        def g(n):
            return n * k

        return g

    fs = [make(2), make(2), make(3)]

    def f(x, g):
        return x * g(3) + g(3)

    return f, [(torch.ones(3), q) for q in fs] + [(torch.ones(3) * 2, fs[0])], fs


@cases(breaks=1)
def raises():
    def f(x):
        @functools.cache
        def g(n):
            if n < 0:
                raise ValueError(n)
            return n

        try:
            g(-1)
        except ValueError as e:
            m = str(e)
        y = x * g(2)
        torch._dynamo.graph_break()
        return y, m, g(2)

    return f, three()


@cases(graphs=2, breaks=2)
def cleared():
    def f(x):
        @functools.cache
        def g(n):
            return n + 1

        y = x * g(1)
        g.cache_clear()
        torch._dynamo.graph_break()
        return y * g(1), tuple(g.cache_info())

    return f, three()


@cases(graphs=2, breaks=2)
def evicted():
    def f(x):
        @functools.lru_cache(maxsize=1)
        def g(n):
            return n + 1

        y = x * g(1) * g(2) * g(1)
        torch._dynamo.graph_break()
        return y * g(1), tuple(g.cache_info())

    return f, three()


@cases(breaks=2)
def passed_on():
    def apply(g, x):
        torch._dynamo.graph_break()
        return x * g(2)

    def f(x):
        g = functools.lru_cache(lambda n: n + x.shape[0])
        y = apply(g, x)
        return y + g(2), g.cache_info().hits

    return f, three()


@cases(graphs=2, breaks=2)
def calls_itself():
    def f(x):
        @functools.lru_cache(maxsize=None)
        def fib(n):
            return n if n < 2 else fib(n - 1) + fib(n - 2)

        y = x * fib(3)
        torch._dynamo.graph_break()
        return y * fib(10), tuple(fib.cache_info())

    return f, three()


@pytest.mark.parametrize("case", cases, ids=str)
def test_captured_as_in_eager(case: Case) -> None:
    assert check(case) > 0
