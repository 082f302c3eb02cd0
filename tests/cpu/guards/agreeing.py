"""A guard's text, as plans run it, and its plain check: whether they agree on values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings

from refcompiler.guards.kinds import (
    KINDS,
    Guard,
)
from refcompiler.guards.sources import Source, Sources
from refcompiler.interpreter.continued import continued
from refcompiler.interpreter.frame import UNSET
from refcompiler.interpreter.machine import Machine
from refcompiler.plan.entry import Entry
from refcompiler.plan.writer import Writer
from refcompiler.runtime.failing import read

PLACE = ("program.py", 7)
quick = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def compiled(guard: Guard, parameters: list[str]) -> Callable[..., bool]:
    """The guard as plans run it: whether it holds for these arguments."""
    writer = Writer()
    missed = object()
    writer.namespace["__MISS"] = missed
    entry = Entry([guard], []).lines(writer.name, writer.constant)
    lines = ["try:", *["    " + line for line in entry], "    pass"]
    lines += ["except Exception:", "    return __MISS"]
    function = writer.function(parameters, lines, "test")
    return lambda *args: function(*args) is not missed


def checked(guard: Guard, arguments: dict[str, Any]) -> bool:
    """The guard by its plain meaning, where what raises does not hold."""
    try:
        value = None if guard.source is None else read(guard.source, arguments)
        wanted = guard.wanted(lambda source: read(source, arguments))
        return bool(KINDS[guard.kind].check(value, wanted))
    except Exception:
        return False


def argument(name: str = "x") -> Source:
    return Sources().make("arg", None, name)


def agree(kind: str, expected: Any, values: list[Any], capture: Any = None) -> int:
    """Text and check say the same of each value; how often they say yes."""
    guard = Guard(kind, argument(), expected, PLACE)
    fast = compiled(guard, ["x"])
    held = 0
    for value in values:
        found = fast(value)
        assert found is checked(guard, {"x": value}), (kind, expected, value)
        held += found
        if not found:
            text = guard.explain(value)
            assert "x" in text and "program.py:7" in text, text
    return held


def moved(iterator: Any, steps: int) -> Any:
    for _ in range(steps):
        next(iterator)
    return iterator


#: Iterators of every kind that can be read ahead of, each made anew.
def counting(n: int) -> Any:
    for i in range(n):
        yield i + 0
    yield "last"
    yield from "ab"


def suspended(steps: int, function: Callable = counting) -> Any:
    """An interpreted generator as capture rebuilds them, ``steps`` yields on."""
    machine = Machine()
    frame = machine.make_frame(function, (2,), {})
    return moved(continued(machine, frame, None, UNSET, ("g", "q.g")), steps)
