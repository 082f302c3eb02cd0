"""What C code reads of instances from outside is guarded, whoever calls it."""

from __future__ import annotations

import array
import collections
import dataclasses
import itertools
import logging
import operator
import reprlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

import refcompiler


class Items(list):
    pass


class Row(tuple):
    pass


class Ends(collections.deque):
    pass


class Table(dict):
    pass


class Shown:
    def __init__(self, values: list[int]) -> None:
        self.values = values

    @reprlib.recursive_repr()
    def __repr__(self) -> str:
        return f"Shown({', '.join(map(repr, self.values))})"


@dataclasses.dataclass
class Data:
    values: list[int]


GIVEN: dict[str, Any] = {}


def give(n: int) -> None:
    """Other contents for each ``n``, in the same places."""
    numbers = list(range(1, n + 1))
    GIVEN.update(
        items=Items(numbers),
        row=Row(numbers),
        ends=Ends(numbers),
        table=Table({str(i): i for i in numbers}),
        ordered=collections.OrderedDict({str(i): i for i in numbers}),
        chain=collections.ChainMap({str(i): i for i in numbers}),
        text=collections.UserString("ab" * n),
        users=collections.UserList(numbers),
        bytes=bytearray(numbers),
        array=array.array("b", numbers),
        frozen=type("Frozen", (frozenset,), {})(numbers),
        dicts=[{"a": n}, {"b": [n]}],
        shown=Shown(numbers),
        data=Data(numbers),
    )


READ: list[tuple[str, Callable[[Any], Any]]] = [
    ("ends", lambda x: list(Ends(x))),
    ("ends", lambda x: Items(x)),
    ("table", lambda x: Table(x)),
    ("items", lambda x: array.array("i", x)),
    ("ends", lambda x: array.array("i", x)),
    ("array", lambda x: int.from_bytes(x, "big")),
    ("array", lambda x: array.array("i", x)),
    ("text", lambda x: operator.concat(x, x)),
    ("users", lambda x: operator.concat(x, x)),
    ("bytes", lambda x: operator.concat(x, x)),
    ("row", lambda x: operator.length_hint(x)),
    ("chain", lambda x: collections.OrderedDict().__ior__(x)),
    ("ordered", lambda x: collections.OrderedDict().__ior__(x)),
    ("frozen", lambda x: type(frozenset(x))),
    ("chain", lambda x: repr(x)),
    ("chain", lambda x: f"{x}"),
    ("shown", lambda x: repr(x)),
    ("data", lambda x: repr(x)),
    ("dicts", lambda x: ", ".join(map(repr, x))),
    ("dicts", lambda x: list(map(str, x))),
    ("dicts", lambda x: "{a}".format_map(x[0])),
    ("dicts", lambda x: list(itertools.starmap(repr, [(x,)]))),
    ("items", lambda x: (x.append == x.append, x.append != x.append, x.append.__doc__)),
]


@pytest.mark.parametrize("number", range(len(READ)), ids=lambda i: f"{i}-{READ[i][0]}")
def test_what_c_code_reads_is_guarded(number: int) -> None:
    name, read = READ[number]

    def program(x: torch.Tensor) -> Any:
        return x + 1, read(GIVEN[name])

    refcompiler.reset()
    compiled = refcompiler.compile(program, backend="eager")
    compared = 0
    for size in (3, 3, 4, 2):
        give(size)
        wanted = repr(program(torch.ones(2))[1])
        give(size)
        assert repr(compiled(torch.ones(2))[1]) == wanted, size
        compared += 1
    counters = refcompiler.counters()
    assert compared == 4 and counters["graphs"] and not counters["fallbacks"]


def test_a_program_that_logs_is_told_nothing_of_its_compilation() -> None:
    """A root logger that lets INFO through is no wish for the compiler's logs."""
    found: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = found.append  # type: ignore[method-assign]
    root, level = logging.getLogger(), logging.getLogger().level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        refcompiler.reset()
        refcompiler.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        asked = len([record for record in found if record.name.startswith("refcompiler")])
        refcompiler.set_logs(guards=True)
        refcompiler.reset()
        refcompiler.compile(lambda x: x + 2, backend="eager")(torch.ones(2))
    finally:
        refcompiler.set_logs(guards=False)
        root.setLevel(level)
        root.removeHandler(handler)
    assert not asked and {record.name for record in found} >= {"refcompiler.guards"}
