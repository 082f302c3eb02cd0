"""Log records of programs that change what becomes of them.

(Warnings take the same way; what shows them is the test runner's here.)
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import refcompiler

log = logging.getLogger("a program that says")
log.propagate = False
PROGRAMS: dict[str, tuple[Callable, int]] = {}


def program(breaks: int) -> Callable:
    def add(f: Callable) -> Callable:
        PROGRAMS[f.__name__] = f, breaks
        return f

    return add


@program(0)
def said_where_it_is(x: Any) -> Any:
    log.warning("one %s", 2)
    log.error("two")
    return x + 1, io.StringIO()


@program(1)
def another_stderr_and_back(x: Any) -> Any:
    before, text = sys.stderr, io.StringIO()
    sys.stderr = text
    y = x + 1
    log.warning("one")
    sys.stderr = before
    return y, text


@program(1)
def another_stderr_behind_it(x: Any) -> Any:
    log.error("one")
    text = io.StringIO()
    sys.stderr = text
    return x + 1, text


@program(3)
def redirected(x: Any) -> Any:
    text = io.StringIO()
    with contextlib.redirect_stderr(text):
        log.warning("one")
        y = x * 2
        log.error("two")
    return y, text


@program(2)
def disabled_between(x: Any) -> Any:
    log.warning("one")
    log.disabled = True
    log.warning("two")
    log.disabled = False
    return x + 1, io.StringIO()


@program(1)
def without_the_last_resort(x: Any) -> Any:
    before = logging.lastResort
    logging.lastResort = None
    log.warning("one")
    logging.lastResort = before
    return x + 1, io.StringIO()


@program(1)
def another_end_of_lines(x: Any) -> Any:
    handler = logging.lastResort
    before = handler.terminator
    handler.terminator = "!\n"
    log.warning("one %s", "two")
    handler.terminator = before
    return x + 1, io.StringIO()


def told(f: Callable, x: torch.Tensor) -> tuple[torch.Tensor, str, str]:
    with contextlib.redirect_stderr(io.StringIO()) as outside:
        y, text = f(x)
    return y, outside.getvalue(), text.getvalue()


@pytest.mark.parametrize("name", PROGRAMS)
def test_records_go_where_eager_sends_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f, breaks = PROGRAMS[name]
    monkeypatch.setattr(log.manager, "emittedNoHandlerWarning", True)
    monkeypatch.setattr(log, "handlers", [])  # the test runner adds its own
    compiled = refcompiler.compile(f, backend="eager")
    before = refcompiler.counters()["breaks"]
    for x in (torch.ones(2), torch.full((2,), 3.0)):
        expected, *said = told(f, x)
        found, *heard = told(compiled, x)
        assert torch.equal(found, expected)
        assert heard == said
        assert any(said) or name == "without_the_last_resort"
    assert refcompiler.counters()["breaks"] - before == breaks
