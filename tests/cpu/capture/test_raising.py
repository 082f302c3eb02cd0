"""Exceptions raised and caught around graphs and breaks."""

from __future__ import annotations

import time

import pytest
import torch

from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()
t = torch.randn


class Custom(Exception):
    def __init__(self, text, n):
        super().__init__(text)
        self.n = n


@cases()
def exceptions_caught_inside():
    def low(x, n):
        if n > 1:
            raise Custom("too many", n)
        return x * n

    def f(x):
        log = []
        for n in range(3):
            try:
                x = low(x, n + 1)
            except (KeyError, Custom) as error:
                log.append((str(error), error.n, type(error).__name__))
            else:
                log.append("fine")
            finally:
                log.append("finally")
        try:
            try:
                {}["k"]
            except KeyError as error:
                raise RuntimeError("chained") from error
        except RuntimeError as error:
            log.append((repr(error.__cause__), error.__suppress_context__))
        try:
            [][1]
        except IndexError as error:
            log.append(str(error))
        try:
            None.missing
        except AttributeError as error:
            log.append((str(error), error.name))
        try:
            int("x")
        except ValueError as error:
            log.append(str(error))
        try:
            1 / 0
        except ArithmeticError as error:
            log.append(str(error))
        try:
            undefined_name
        except NameError as error:
            log.append((str(error), error.name))
        return x, log

    return f


@cases(breaks=1)
def exception_out_of_the_function():
    def low(x):
        raise Custom("out", x.dim())

    def f(x, log):
        log.append(x + 1)
        try:
            low(x)
        finally:
            log.append("finally")

    return f, [(t(3), []), (t(3), [])]


@cases(breaks=1)
def exception_with_a_tensor():
    def f(x):
        raise ValueError(x + 1, "why")

    return f


@cases(breaks=1)
def exception_from_an_operation():
    def f(x):
        y = x + 1
        return y @ torch.ones(7)

    return f, [(t(3),), (t(3),)]


@cases(breaks=2)
def exception_after_a_break():
    def f(x):
        y = x + 1  # noqa: F841
        print("before")
        raise ValueError("after")

    return f


@cases(breaks=1)
def exception_from_a_native_call():
    def f(x):
        y = x + 1
        try:
            time.sleep("x")
        except TypeError as error:
            return y, str(error)

    return f


@cases(breaks=1)
def exception_chain_out():
    def f(x):
        y = x + 1
        try:
            {}["k"]
        except KeyError as error:
            raise ValueError("outer", y.dim()) from error

    return f


@cases(breaks=1)
def exception_reraised():
    def f(x):
        y = x + 1  # noqa: F841
        try:
            raise Custom("a", 1)
        except Custom as error:
            error.n += 1
            raise

    return f


@cases()
def exception_returned():
    def f(x):
        try:
            raise Custom("kept", 2)
        except Custom as error:
            kept = error
        return x + 1, ValueError("made", x), kept.n

    return f


@cases()
def exception_groups():
    def f(x):
        log = []
        try:
            raise ExceptionGroup("g", [ValueError("a"), KeyError("b")])
        except* ValueError as group:
            log.append([str(e) for e in group.exceptions])
        except* KeyError as group:
            log.append(len(group.exceptions))
        return x + 1, log

    return f


@cases(graphs=0, breaks=1)
def stop_iteration():
    def f(x):
        it = iter([x])
        next(it)
        return next(it)

    return f


@cases(graphs=2, recompiles=1)
def number_that_is_one_only_where_the_graph_raises():
    """The plan has a symbol for it, which a capture that begins with 1 would not make."""
    log = []

    def f(x, n):
        log.append(n)
        return x.index_select(0, torch.tensor([n * 3 % 5]))

    x = torch.randn(3, 2)
    return f, [(x, 2), (x, 5), (x, 1), (x, 0), (x, 6)], [log]


@pytest.mark.parametrize("case", cases, ids=str)
def test_raising(case: Case) -> None:
    assert check(case) > 0
