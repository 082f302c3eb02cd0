"""Logs, warnings, clocks, context variables, and compiled code that calls compiled code."""

from __future__ import annotations

import contextvars
import logging
import time
import warnings

import pytest
import torch

import refcompiler
from tests.cpu.capture.oracle import Call, Case, Cases, check

cases = Cases()
t = torch.randn


LOG = logging.getLogger("capture-battery")
LOG.propagate = False
VARIABLE = contextvars.ContextVar("v", default=2)


class Stdout(logging.Handler):
    def emit(self, record):
        print(self.format(record))


LOG.handlers = [Stdout()]


@cases(graphs=2, breaks=2)
def logging_in_order():
    def f(x):
        y = x + 1
        print("one")
        LOG.warning("two %s", 2)
        return y * 2

    return f


@cases()
def warning_in_order():
    def f(x):
        y = x + 1
        warnings.warn("careful", stacklevel=1)
        return y * 2

    return f


@cases(graphs=3, breaks=1, recompiles=1)
def clocks():
    def f(x):
        y = x + 1
        now = time.time()
        return y * 2, now > 1

    return f


@cases(graphs=2, recompiles=1)
def context_variables():
    def f(x):
        return x * VARIABLE.get()

    token = []

    def change():
        token.append(VARIABLE.set(5))

    def back():
        VARIABLE.reset(token.pop())

    return f, [(t(3),), change, (t(3),), back, (t(3),)]


@cases()
def context_variable_set():
    def f(x):
        token = VARIABLE.set(7)
        y = x * VARIABLE.get()
        VARIABLE.reset(token)
        return y, VARIABLE.get()

    return f


@cases()
def class_statement():
    def f(x):
        class K:
            scale = 2

            def run(self, v):
                return v * self.scale

        return K().run(x)

    return f


@cases(breaks=1, graphs=1)
def evaluated_text():
    def f(x):
        return eval("x + 1") * 2

    return f


@cases()
def identities():
    def f(x):
        y = x + 1
        return id(y) == id(y), y * 2

    return f


@cases()
def coroutine_function():
    async def inner(x):
        return x + 1

    def f(x):
        c = inner(x)
        try:
            c.send(None)
        except StopIteration as stop:
            return stop.value * 2

    return f


@cases()
def compiled_calls_compiled():
    @refcompiler.compile(backend="eager")
    def inner(x):
        return x * 2

    return lambda x: inner(x) + inner(x + 1)


@cases()
def compiled_recursion():
    def down(n, x):
        return x if n == 0 else again(n - 1, x * 2)

    again = refcompiler.compile(down, backend="eager")
    return again, [(3, t(2)), (3, t(2))]


@cases()
def method_compiled():
    class K:
        def __init__(self, k):
            self.k = k

        def run(self, x, y=1):
            return x * self.k + y

    return K(2.0).run, [(t(3),), Call(t(3), y=1)]


@cases()
def callable_object_compiled():
    class K:
        def __init__(self, k):
            self.k = k

        def __call__(self, x):
            return x * self.k

    return K(2.0), [(t(3),), (t(3),)]


@cases()
def c_function_compiled():
    return torch.sin, [(t(3),), (t(3),)]


@pytest.mark.parametrize("case", cases, ids=str)
def test_world(case: Case) -> None:
    assert check(case) > 0
