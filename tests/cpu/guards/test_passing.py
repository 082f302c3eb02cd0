"""Constants that only pass through are no guards; those that something has looked at are."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

import refcompiler

Pair = collections.namedtuple("Pair", "value name")


class Box:
    last: Any = None


box = Box()


def _given(*args: Any, **named: Any) -> Any:
    return args, named


def _inner(x: Any, n: Any) -> Any:
    return {"value": x + 1, "name": n}


def nested(x: Any, n: Any) -> Any:
    return {"name": n, "all": [x + 1, (n, [n])]}


def filled(x: Any, n: Any) -> Any:
    found, table = [], {}
    found.append(n)
    found.append(x + 1)
    table["name"] = n
    table.update(other=n)
    found.extend([n, table])
    return [*found, n], {**table, "more": n}, found + [n], tuple(found), dict(name=n)  # noqa: C408


def through_calls(x: Any, n: Any) -> Any:
    made = _inner(x, n)
    again = _given(*(x, n), **made)
    first, second = n, made["value"]
    return again, made, [first, second][:1], len(made), bool(made)


def named_tuples(x: Any, n: Any) -> Any:
    pair = Pair(x + 1, n)
    value, name = pair
    return pair, pair.value * 2, name, pair[1]


def over_a_break(x: Any, n: Any) -> Any:
    found = {"name": n}
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2, found, (n,)


def stored(x: Any, n: Any) -> Any:
    box.last = n
    return x + 1, box.last


def asked_for_its_class(x: Any, n: Any) -> Any:
    return (x + 1 if isinstance(n, str) else x), [n]


def compared(x: Any, n: Any) -> Any:
    made = (x, n)
    return (x + 1 if made[1] == "b" else x - 1), made


def measured(x: Any, n: Any) -> Any:
    made = {"name": n}
    return x + len(made["name"]), made


def shown(x: Any, n: Any) -> Any:
    return x + 1, str([n])


def searched(x: Any, n: Any) -> Any:
    return x + (n in [n, 2]) + ["a", n].index(n), n


def iterated(x: Any, n: Any) -> Any:
    for item in [n, n]:
        x = x + len(item)
    return x


def read_back(x: Any, n: Any) -> Any:
    box.last = n
    return x + len(box.last)


PASSES = (nested, filled, through_calls, named_tuples, over_a_break, stored, asked_for_its_class)
LOOKS = (compared, measured, shown, searched, iterated, read_back)


def _run(function: Callable[..., Any]) -> int:
    """The captures for six strings, whose results are eager's."""
    refcompiler.reset()
    compiled = refcompiler.compile(function, backend="eager")
    x = torch.arange(3.0)
    for name in ("a", "b", "cc", "ddd", "e", "b"):
        assert repr(compiled(x, name)) == repr(function(x, name)), name
    return refcompiler.counters()["captures"]


@pytest.mark.parametrize("function", PASSES, ids=lambda f: f.__name__)
def test_what_passes_through_is_captured_once(function: Callable[..., Any]) -> None:
    assert _run(function) == 1 + (function is over_a_break)


@pytest.mark.parametrize("function", LOOKS, ids=lambda f: f.__name__)
def test_what_is_looked_at_is_guarded(function: Callable[..., Any]) -> None:
    assert _run(function) >= 2


def test_containers_stay_themselves() -> None:
    def function(x: torch.Tensor, n: str) -> Any:
        made = [n]
        same, other = made, list(made)
        made.append(x + 1)
        held = {"made": made}
        mixed = [made]
        made.append(mixed)
        return made, same is made, other is made, held["made"] is same, mixed[0] is made

    compiled = refcompiler.compile(function, backend="eager")
    for name in "ab":
        made, *facts = compiled(torch.ones(2), name)
        assert facts == [True, False, True, True]
        assert made[0] == name and made[2][0] is made and len(made) == 3


class Scaled(NamedTuple):
    scale: float
    name: str


class Renamed(Scaled):
    def __getattribute__(self, name: str) -> Any:
        return 7.0 if name == "scale" else super().__getattribute__(name)


@pytest.mark.parametrize("kind, captures", [(Scaled, 1), (Renamed, 2)])
def test_fields_of_a_named_tuple_are_guarded_one_by_one(kind: type[Scaled], captures: int) -> None:
    refcompiler.reset()

    def function(x: torch.Tensor, pair: Scaled) -> Any:
        return x * pair.scale

    compiled = refcompiler.compile(function, backend="eager", dynamic=False)
    x = torch.arange(3.0)
    for name in "ab":
        assert repr(compiled(x, kind(2.0, name))) == repr(function(x, kind(2.0, name)))
    assert refcompiler.counters()["captures"] == captures
    assert repr(compiled(x, kind(3.0, "b"))) == repr(function(x, kind(3.0, "b")))
