"""Values of C classes and buffers in memory: computed while capturing, made again after it."""

from __future__ import annotations

import array
import decimal
import io
import os
import uuid
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from typing import ParamSpec

import pytest
import torch

import refcompiler
from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()
_P = ParamSpec("_P")


@pytest.mark.parametrize("case", cases, ids=str)
def test_values(case: Case) -> None:
    assert check(case) > 20


@cases()
def decimals():
    def f(x):
        a = Decimal("1.50") + 1
        return x * int(a), str(a * a), f"{a:.1f}", a > 2, -a, a.quantize(Decimal("1")), {a: 1}[a]

    return f


@cases()
def dates_and_times():
    def f(x):
        at = datetime(2024, 5, 17, 3, 4, tzinfo=timezone.utc)
        later = at + timedelta(days=3, hours=2)
        days = later.day, at.replace(year=2020).isoformat(), (later - at).total_seconds()
        return x * later.day, days, at < later, date(2020, 1, 1).weekday(), str(at)

    return f


@cases()
def fractions_paths_and_identifiers():
    def f(x):
        half = Fraction(1, 3) + Fraction(1, 6)
        path = PurePosixPath("/a/b") / "c.txt"
        return x * float(half), half, path.suffix, str(path.parent), uuid.UUID(int=5).int

    return f


@cases()
def buffers():
    def f(x):
        text = io.StringIO()
        text.write(f"{x.dim()} dims")
        numbers = array.array("d", [1, 2])
        numbers.append(4.5)
        return x * numbers[2], text.getvalue(), text.tell(), sum(numbers), numbers

    return f


@cases(graphs=2, breaks=2)
def files_that_were_closed():
    """They have nothing to be made again of."""

    def f(x):
        text, data = io.StringIO("abc"), io.BytesIO(b"abc")
        data.made = x + 2
        text.close()
        data.close()
        torch._dynamo.graph_break()
        try:
            text.read()
        except ValueError as error:
            return x * 2, text, data, str(error)

    return f


@cases()
def paths_as_texts_and_annotations_of_decorators():
    def f(x):
        def given(*args: _P.args, **kwargs: _P.kwargs):
            return len(args)

        return x * given(1, 2), os.path.normpath("a//b/../c"), os.path.splitext("a/b.c")

    return f


@cases(graphs=2, breaks=2)
def buffer_across_a_break():
    """It is made again where it was; one from outside is read natively."""

    def f(x):
        made = io.BytesIO(b"abcdef")
        made.read(2)
        y = x + 1
        torch._dynamo.graph_break()
        y = y * 2
        return y, made.read()

    return f


def test_values_from_outside() -> None:
    """Guarded by what they are made of: equal numbers of other digits are others."""

    def f(x, d):
        return x * int(d), d, str(d)

    refcompiler.reset()
    compiled = refcompiler.compile(f, backend="eager", fullgraph=True)
    x, d = torch.ones(2), Decimal("2.50")
    for value in (d, Decimal("2.5"), Decimal("2.50"), Decimal(7)):
        found, wanted = compiled(x, value), f(x, value)
        assert torch.equal(found[0], wanted[0])
        assert found[1] is value and found[2] == wanted[2]
    assert refcompiler.counters()["captures"] == 3


def test_decimals_know_their_context() -> None:
    def f(x):
        return x + 1, Decimal(1) / Decimal(3)

    refcompiler.reset()
    compiled = refcompiler.compile(f, backend="eager", fullgraph=True)
    x = torch.ones(2)
    for precision in (28, 5, 28):
        with decimal.localcontext() as context:
            context.prec = precision
            found = compiled(x)[1]
            assert context.flags[decimal.Inexact]
            assert found == f(x)[1]
    assert refcompiler.counters()["captures"] == 2
