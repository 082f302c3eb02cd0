"""Runs of instructions in one function: made of the handlers' text, and of no other meaning.

That they agree with CPython is what every program of :func:`oracle.check` shows.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from refcompiler.interpreter import fusion
from refcompiler.interpreter.machine import Machine
from refcompiler.interpreter.registry import HANDLERS, program_of


def summed(n: int) -> int:
    total = 0
    for i in range(n):
        total += i * 2
        if total > 100:
            total -= 100
    return total


def fresh(function: Callable) -> Any:
    """The function with a code object that never ran."""
    return type(function)(function.__code__.replace(), function.__globals__)


def run(machine: Machine, function: Any, *args: Any) -> Any:
    return machine.run(machine.make_frame(function, args, {}))


def test_no_hook_is_called_whose_text_can_stand_there() -> None:
    """Of the hooks of one expression or statement none is left; others are called as ever."""
    texts = {name: fusion.body_of(handler).text for name, handler in HANDLERS.items()}
    left = {hook for text in texts.values() for hook in re.findall(r"\bm\.(\w+)\(", text)}
    simple = {"binary", "truth", "getattr", "setattr", "getitem", "setitem", "own", "key", "same"}
    assert not left & simple
    assert "call" in left
    assert "function" not in texts["BINARY_OP"] and "VALUE(s[-2], s[-1])" in texts["BINARY_OP"]


def test_runs_are_made_where_control_arrives_often() -> None:
    function = fresh(summed)
    fused = program_of(function.__code__).fused
    assert run(Machine(), function, 3) == summed(3)
    assert all(op is fusion.arrive for op in fused.ops)
    assert run(Machine(), function, 500) == summed(500)
    starts = [i for i, op in enumerate(fused.ops) if op is not fusion.arrive]
    assert 0 < len(starts) < len(fused.ops) / 2
    for start in starts:
        compile(fused.source(start), "<text>", "exec")
    assert run(Machine(), function, 500) == summed(500)


@pytest.mark.parametrize("count", [1, 500])
def test_a_domain_of_its_own_hooks_runs_them(count: int) -> None:
    """Whatever ran before: a machine that overrides a hook runs handler by handler."""
    calls = []

    class Counting(Machine):
        def binary(self, function: Callable, a: Any, b: Any) -> Any:
            calls.append(function)
            return super().binary(function, a, b)

    class Inheriting(Counting):
        pass

    class Entering(Machine):
        def enter(self, *args: Any) -> Any:
            return super().enter(*args)

    assert Machine.fused and Entering.fused and not Counting.fused and not Inheriting.fused
    function = fresh(summed)
    assert run(Machine(), function, count) == summed(count)
    for kind in (Counting, Inheriting):
        calls.clear()
        assert run(kind(), function, count) == summed(count)
        assert len(calls) >= 3 * count


def test_nothing_lives_longer_than_in_the_handlers() -> None:
    """What a program drops is gone before its next instruction, in a run too."""

    class Thing:
        pass

    def drops(thing: Callable, look: Callable) -> list[bool]:
        seen = []
        for _ in range(100):
            kept = [thing()]
            reference = look(kept[0])
            here = reference() is not None
            kept = None
            seen.append(here and reference() is None)
        return seen

    assert run(Machine(), drops, Thing, weakref.ref) == [True] * 100


def test_the_line_is_right_within_a_run() -> None:
    def fails(n: int) -> float:
        total = 0.0
        for i in range(n, -1, -1):
            total += 1
            total += 1 / i
        return total

    lines = []
    for call in (lambda: fails(200), lambda: run(Machine(), fails, 200)):
        with pytest.raises(ZeroDivisionError) as caught:
            call()
        traceback = caught.value.__traceback__
        while traceback is not None and traceback.tb_frame.f_code.co_name != "fails":
            traceback = traceback.tb_next
        assert traceback is not None
        lines.append((traceback.tb_lineno, traceback.tb_lasti))
    assert lines[0] == lines[1]
