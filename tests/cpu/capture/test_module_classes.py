"""Attributes that the class of a module object makes when they are asked for."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._higher_order_ops.wrap

import refcompiler


class Operator:
    """As those of a library: it has what cannot be made anew, and counts its calls."""

    def __init__(self) -> None:
        self.keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
        self.calls = 0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        self.calls += 1
        return x + self.calls


class Space(types.ModuleType):
    """``operators``: by name; one is found with each ``looks``, of which it may keep the result."""

    def __init__(self, keeps: bool) -> None:
        super().__init__("space")
        self.keeps, self.looks, self.operators = keeps, 0, {"scale": Operator()}

    def __getattr__(self, name: str) -> Any:
        if name not in self.operators:
            raise AttributeError(name)
        found = self.operators[name]
        if self.keeps:
            setattr(self, name, found)
        self.looks += 1
        return found


def _called(space: Any, x: torch.Tensor) -> torch.Tensor:
    return space.scale(x * 2)  # type: ignore[no-any-return]


def _asked(space: Any, x: torch.Tensor) -> torch.Tensor:
    return x * 2 if hasattr(space, "scale") else x * 3


@pytest.mark.parametrize("function", [_called, _asked])
@pytest.mark.parametrize("keeps", [False, True])
def test_what_a_module_finds_is_the_very_object(keeps: bool, function: Callable) -> None:
    found = []
    refcompiler.reset()
    for run in (function, refcompiler.compile(function, backend="eager")):
        space = Space(keeps)
        operator = space.operators["scale"]
        results = [run(space, torch.ones(2)) for _ in range(3)]
        kept = vars(space).get("scale")
        space.operators.clear()  # what it finds next is another
        vars(space).pop("scale", None)
        results.append(run(space, torch.ones(2)) if function is _asked else torch.ones(2))
        found.append((*results, space.looks, operator.calls, kept is operator, kept is None))
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
    known = refcompiler.counters()
    assert known["captures"] >= 1 and known["uncompiled"] == 0


def test_an_operator_that_torch_has_not_asked_for_yet() -> None:
    """Its namespace keeps it from then on; a break in front of its call makes no other one."""
    operator = torch._higher_order_ops.wrap.wrap
    vars(torch.ops.higher_order).pop("wrap", None)

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.higher_order.wrap(lambda x: x + 1, x * 2)

    compiled = refcompiler.compile(function, backend="eager")
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
    assert torch.ops.higher_order.wrap is operator
    assert refcompiler.explain(function)(torch.ones(2)).graph_count >= 1
