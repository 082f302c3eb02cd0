"""Values from outside that C code asks for more than a guard knows; contexts; native code."""

from __future__ import annotations

import contextvars
import decimal
import fractions
import heapq
import re
import sys
import traceback
import zlib
from collections.abc import Callable
from functools import cmp_to_key
from queue import SimpleQueue
from typing import Any

import numpy
import pytest
import torch
from torch.nn.attention import SDPBackend

import refcompiler
from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()
graph_break = torch._dynamo.graph_break
LEVEL: contextvars.ContextVar = contextvars.ContextVar("LEVEL", default=1)
OTHER: contextvars.ContextVar = contextvars.ContextVar("OTHER")


def t() -> torch.Tensor:
    return torch.randn(3)


@cases(graphs=2, breaks=2, recompiles=2)
def enumeration_in_cpp():
    def f(x, kind):
        return x * int(kind), str(kind), kind in (SDPBackend.MATH, 7), {kind: 1}

    one, other = SDPBackend.MATH, SDPBackend.FLASH_ATTENTION
    return f, [(t(), one), (t(), other), (t(), one)]


@cases(graphs=3, breaks=2, recompiles=1)
def numbers_of_the_library():
    def f(x, number, part):
        y = x * 2
        return y, number in (decimal.Decimal(1), 3), hash(part), x + 1

    one, two = (
        (decimal.Decimal(1), fractions.Fraction(1)),
        (decimal.Decimal(2), fractions.Fraction(2)),
    )
    return f, [(t(), *one), (t(), *two), (t(), *one)]


class Remainder:
    def __init__(self, text: str):
        self.text = text

    def __rmod__(self, other: object) -> str:
        return "never"

    def __str__(self) -> str:
        return self.text


@cases()
def text_before_remainders():
    def f(x, n):
        return x + 1, "%s!" % Remainder(str(n)), b"%d" % n

    return f, [(t(), 1), (t(), 1)]


@cases(graphs=1, breaks=2)
def advanced_before_a_break():
    def f(x):
        calls = []

        def compare(a, b):
            calls.append((a, b))
            return a - b

        key = cmp_to_key(compare)
        torch._dynamo.graph_break()
        return heapq.nsmallest(1, [3, 2], key=key), calls, x * 2

    return f, [(t(),)] * 2


@torch._dynamo.disable
def told() -> tuple[str, str]:
    return repr(sys.exception()), traceback.format_exc(0)[-12:]


@torch._dynamo.disable
def raised_again() -> None:
    raise


@cases(graphs=1, breaks=2)
def exception_that_native_code_sees():
    def f(x):
        try:
            try:
                raise ValueError("a")
            except ValueError:
                said = told()
                raised_again()
        except ValueError as error:
            return x * 2, said, repr(error)

    return f, [(t(),)] * 2


def leveled(value: int) -> Any:
    LEVEL.set(value)
    return LEVEL.get()


@cases()
def contexts():
    def f(x):
        LEVEL.set(9)
        copy = contextvars.copy_context()
        LEVEL.set(2)
        empty = contextvars.Context()
        token = empty.run(OTHER.set, x * 3)
        try:
            OTHER.reset(token)
        except ValueError as error:
            said = str(error)[-30:]
        y = copy.run(lambda: x * LEVEL.get()) + copy.copy().run(leveled, 5)
        found = copy[LEVEL], OTHER in copy, copy.get(OTHER, 3), empty[OTHER] + 1
        LEVEL.set(1)
        return y, found, LEVEL.get(), said, copy.run(LEVEL.get), empty.run(LEVEL.get)

    return f, [(t(),)] * 2


@cases(graphs=2, breaks=1)
def context_across_a_break():
    def f(x):
        copy = contextvars.copy_context()
        copy.run(LEVEL.set, x * 3)
        torch._dynamo.graph_break()
        return copy[LEVEL] + 1, copy.run(LEVEL.get) * 2, LEVEL.get()

    return f, [(t(),)] * 2


@cases(graphs=4, breaks=6, recompiles=1)
def tokens_across_a_break():
    def f(x):
        mine = contextvars.Context()
        first = mine.run(OTHER.set, x)
        second = mine.run(OTHER.set, x * 2)
        undone = LEVEL.set(5)
        LEVEL.reset(undone)
        kept = LEVEL.set(x * 3)
        inner = mine.copy()
        y = x + 1
        torch._dynamo.graph_break()
        mine.run(OTHER.reset, second)
        once = mine[OTHER] + 0
        mine.run(OTHER.reset, first)
        old = kept.old_value, second.old_value is contextvars.Token.MISSING
        LEVEL.reset(kept)
        said = repr(undone).startswith("<Token used")
        return y * 2, said, once, OTHER in mine, inner[OTHER] + 1, old, LEVEL.get()

    return f, [(t(),)] * 2


@cases()
def a_used_token_is_given_back():
    def f(x):
        token = LEVEL.set(5)
        LEVEL.reset(token)
        return x + 1, type(token) is contextvars.Token, token.var is LEVEL, [token][:0], token

    return lambda x: (*(found := f(x))[:-1], type(found[-1]).__name__), [(t(),)] * 2


@cases()
def context_from_outside():
    context = contextvars.copy_context()
    context.run(LEVEL.set, 7)

    def f(x):
        y = context.run(lambda: x * LEVEL.get())
        context.run(leveled, context[LEVEL] if LEVEL in context else 0)
        return y, LEVEL.get()

    return f, [(t(),)] * 2


@cases(graphs=0, breaks=1)
def break_in_a_context():
    def inner(x):
        torch._dynamo.graph_break()
        LEVEL.set(4)
        return x * LEVEL.get()

    def f(x):
        copy = contextvars.copy_context()
        return copy.run(inner, x), LEVEL.get(), copy[LEVEL]

    return f, [(t(),)] * 2


@cases(graphs=1, breaks=1)
def equal_constants_that_are_two_objects():
    def f(x):
        one, other, number, another = "a %d" % 1, "a %d" % 1, int("1000"), int("1000")
        same, kept = one, {"k": one, other: [number, another, number]}
        y = x + 1
        graph_break()
        texts = one is other, one is same, kept["k"] is one, [*kept][1] is other
        first, second, third = kept[other]
        return y, texts, first is second, first is third, another is second, number is first

    return f, [(t(),)] * 2


@cases(graphs=2, breaks=2, recompiles=1)
def numbers_with_symbols_that_are_one_object():
    def f(x, n):
        number = n * 1000
        same, pair = number, (number, n * 1000)
        y = x + 1
        graph_break()
        return y, number is same, pair[0] is number, pair[1] is number

    return f, [(t(), 3), (t(), 4), (t(), 5)]


@cases(graphs=4, recompiles=3)
def parts_of_arguments_in_a_format():
    class Holder:
        size = 3

        def __init__(self):
            self.held = {"k": [1, 2]}

        def __getattr__(self, name):
            if name == "made":
                return "anew"
            raise AttributeError(name)

    holder = Holder()

    def failing(text, *args):
        try:
            return text.format(*args)
        except (IndexError, AttributeError, ValueError) as error:
            return str(error)

    def f(x):
        text = "{0.shape} {0.dtype!r:>15} {{}} {1.size:{2[w]}d} {1.held[k][1]} {1.made} {k.ndim}"
        told = (
            text.format(x, holder, {"w": 5}, k=x),
            "{.shape} {.size} {:{}}".format(x, holder, 3, 4),
        )
        errors = failing("{1}", holder), failing("{0.missing}", holder), failing("{0} {}", 1, 2)
        return x + 1, told, errors

    def change():
        holder.held["k"][1] = 7

    return f, [(t(),), (torch.randn(5),), (torch.randn(6),), change, (torch.randn(5),)]


@pytest.mark.parametrize("case", cases, ids=str)
def test_outside_values(case: Case) -> None:
    assert check(case) > 0


def queued(count: int) -> Any:
    queue = SimpleQueue()
    queue.put(count)
    take = queue.get
    torch._dynamo.graph_break()
    return take(timeout=1), queue.qsize()


def compressed(count: int) -> Any:
    compressor = zlib.compressobj()
    first = compressor.compress(bytes(count))
    rest = compressor.flush
    torch._dynamo.graph_break()
    return zlib.decompress(first + rest())


def scanned(count: int) -> Any:
    search = re.compile("a+b").scanner("aab" * count).search  # type: ignore[attr-defined]
    torch._dynamo.graph_break()
    return search().span(), search().span()


def drawn(count: int) -> Any:
    state = numpy.random.RandomState(count)
    draw = state.permutation
    torch._dynamo.graph_break()
    return list(draw(9)), state.beta(1.0, 2.0)


@pytest.mark.parametrize("uses", [queued, compressed, scanned, drawn])
def test_methods_in_c_are_those_of_this_call(uses: Callable[[int], Any]) -> None:
    """CPython tells some methods the class that defines them, and extensions have types for them.

    A plan held the first call's object for these: a queue was waited at for ever.
    """

    def program(x: torch.Tensor) -> Any:
        return uses(len(x)), x + 1

    refcompiler.reset()
    compiled, compared = refcompiler.compile(program, backend="eager"), 0
    for size in (3, 3, 4):
        x = torch.ones(size)
        (expected, y), (found, z) = program(x), compiled(x)
        assert found == expected and torch.equal(y, z)
        compared += 2
    counts = refcompiler.counters()
    assert compared == 6 and counts["fallbacks"] == 0 and 2 <= counts["graphs"] <= 3
