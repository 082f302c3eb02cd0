"""Guards of what is in dicts, as data and as the function that they become when asked often."""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest
import torch

import refcompiler
from refcompiler.guards.kinds import KINDS, Guard
from refcompiler.guards.sources import Source, Sources
from refcompiler.guards.tags import unchanged_dicts
from refcompiler.plan.seldom import OFTEN, Seldom, is_data
from refcompiler.runtime.api import _COMPILERS

PLACE = ("program.py", 7)
VALUES: list[Any] = [
    *[0, 1, True, False, -1, 2**70, 0.0, -0.0, 1.0, math.nan, math.inf, 1j, "", "a", b"a", None],
    *[(), (1, 2), (1.0, 2), (True, 2), [1, 2], torch.float32, torch.device("cpu"), object()],
]
NAMES = ["a", "b", 0, 1]


@functools.cache
def spaces() -> tuple[list[Source], dict[tuple[int, Any], Source]]:
    made = Sources()
    dicts = [made.make("dict", made.make("arg", None, name), None) for name in ("x", "y")]
    entries = {
        (at, key): made.make("member", space, key, str(key))
        for at, space in enumerate(dicts)
        for key in NAMES
    }
    return dicts, entries


def cases() -> list[tuple[Guard, int, Any]]:
    """Guards, the dict that each asks, and the key, or None for the dict itself."""
    dicts, entries = spaces()
    found: list[tuple[Guard, int, Any]] = []
    for at in (0, 1):
        for kind, wants in {
            "ABSENT": NAMES,
            "HAS": NAMES,
            "LACKS": NAMES,
            "LENGTH": [0, 1],
        }.items():
            found += [(Guard(kind, dicts[at], want, PLACE), at, None) for want in wants]
        for want in VALUES:
            found.append((Guard("EQUALS", entries[at, "a"], want, PLACE), at, "a"))
        for key in NAMES:
            for kind in ("NONE", "NOT_NONE", "PRESENT"):
                found.append((Guard(kind, entries[at, key], None, PLACE), at, key))
    return [case for case in found if is_data(case[0])]


def test_what_is_data_and_what_is_not() -> None:
    dicts, entries = spaces()
    assert is_data(Guard("EQUALS", entries[0, "a"], 1.5, PLACE))
    assert not is_data(Guard("ID", entries[0, "a"], object(), PLACE))  # which it would keep alive
    assert not is_data(Guard("ABSENT", dicts[0], object(), PLACE))
    assert not is_data(Guard("EQUALS", None, 1, PLACE))
    assert not is_data(Guard("KEYS", dicts[0], ("a",), PLACE))


def test_data_and_function_say_what_each_guard_means() -> None:
    dicts, _ = spaces()
    held = compared = 0
    contents: list[dict] = [{}, *[{"a": value} for value in VALUES], {"b": 1}, {0: 1, "a": None}]
    for guard, at, key in cases():
        data, seldom = Seldom([guard], dicts), Seldom([guard], dicts)
        function = seldom._compiled()
        for content in contents:
            given = ({}, content) if at else (content, {})
            data._asked = 0  # it stays data
            value = content if key is None else content.get(key, data)
            if value is data:
                for ask in (data, function):
                    with pytest.raises(KeyError):
                        ask(given)
            else:
                want = KINDS[guard.kind].check(value, guard.expected)
                assert data(given) is want and function(given) is want, (guard, content)
                held += want
            compared += 1
        assert data._function is None
    assert compared > 2000 and held > 500


def test_the_function_is_made_when_they_are_asked_often() -> None:
    dicts, entries = spaces()
    wanted = [Guard("EQUALS", entries[at, "a"], at, PLACE) for at in (1, 0)]
    seldom = Seldom([*wanted, Guard("ABSENT", dicts[0], "b", PLACE)], dicts)
    for often in range(OFTEN + 2):
        assert (seldom._function is not None) is (often >= OFTEN)
        assert seldom(({"a": 0}, {"a": 1, "b": 2})) is True
        seldom._asked -= 1
        assert seldom(({"a": 0}, {"a": 2})) is False
        seldom._asked -= 1
        assert seldom(({"a": 0, "b": 1}, {"a": 1})) is False


class Layer(torch.nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.factor = factor
        self.sizes = (1, 2)
        self.last = torch.zeros(0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = self.linear(x)  # so that the guards of its dict are asked in each call
        return self.last * self.factor + len(self.sizes)


@pytest.mark.skipif(unchanged_dicts() is None, reason="this Python does not number dicts")
@pytest.mark.parametrize("calls", [1, 2, OFTEN + 2])
@pytest.mark.parametrize(
    ("name", "new"), [("factor", 3), ("factor", -0.0), ("sizes", (1, 2, 3)), ("bias", None)]
)
def test_a_change_in_one_of_many_modules_is_seen(calls: int, name: str, new: Any) -> None:
    graphs = []

    def backend(module: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(module)
        return module

    model = torch.nn.Sequential(*[Layer(2.0 if i else 0.0) for i in range(8)])
    eager = torch.nn.Sequential(*[Layer(2.0 if i else 0.0) for i in range(8)])
    eager.load_state_dict(model.state_dict())
    compiled = refcompiler.compile(model, backend=backend, dynamic=False)
    x = torch.randn(2, 3)
    with torch.no_grad():
        for _ in range(calls):
            assert torch.equal(compiled(x), eager(x))
        count = len(graphs)
        for each in (model, eager):
            if name == "bias":
                each[0].linear.bias = new
            else:
                setattr(each[0], name, new)
        for _ in range(2):
            got, want = compiled(x), eager(x)
            assert torch.equal(got, want)
            assert torch.equal(torch.signbit(got), torch.signbit(want))
    assert len(graphs) == count + 1
    assert all(map(torch.equal, [e.last for e in model], [e.last for e in eager]))


def test_the_entry_of_a_model_has_no_text_for_them() -> None:
    refcompiler.reset()
    model = torch.nn.Sequential(*[torch.nn.LayerNorm(4) for _ in range(12)])
    refcompiler.compile(model, backend="eager")(torch.randn(2, 4))
    entries = [entry for _, known in _COMPILERS.values() for entry in known.entries.values()]
    (plan,) = [plan for entry in entries for plan in entry.plans]
    assert sum(guard.kind == "EQUALS" for guard in plan.guards) >= 12
    if unchanged_dicts() is not None:
        assert "Seldom(__dicts)" in plan.source and "['eps']" not in plan.source
