"""Comparisons of sizes and numbers that a program only keeps: nothing is decided by them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import refcompiler
from refcompiler.fakes.mode import EagerFakeMode

SIZES = (5, 6, 3, 2, 9, 11)


def returned(x: Any, n: int) -> Any:
    return x + n, n > 5, [n == 3, {"a": n <= 3}]


def negated(x: Any, n: int) -> Any:
    return x + n, not n, not n > 5, bool(n), operator.not_(n), operator.truth(n - 3)


def joined(x: Any, n: int) -> Any:
    return x + n, (n > 3) & (n < 9), (n > 9) | (n == 2), (n > 3) & True


def of_sizes(x: Any, n: int) -> Any:
    return x[:n] * 2, x[:n].shape[0] > 4, x.shape[0] == n, x.shape[0] != x.shape[1]


def operands(x: Any, n: int) -> Any:
    return x * (n > 5), torch.where(torch.tensor(n > 5), x, -x), x + (n == 3)


def stored(x: Any, n: int) -> Any:
    class Box:
        pass

    box = Box()
    box.large = n > 5  # type: ignore[attr-defined]
    return x - n, box.large, isinstance(n > 5, bool), type(n > 5)  # type: ignore[attr-defined]


def floats(x: Any, n: int) -> Any:
    ratio = n / 4
    return x * ratio, ratio > 1, not ratio, math.isnan(ratio), math.isfinite(ratio)


def chosen(x: Any, n: int) -> Any:
    return x + torch.sym_ite(n > 5, n * 2, n), torch.sym_not(n > 5)


def same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, torch.Tensor):
        return torch.equal(found, wanted)
    if isinstance(wanted, (tuple, list)):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return type(found) is type(wanted) and found == wanted


def run(function: Callable, backend: str) -> int:
    refcompiler.reset()
    compiled = refcompiler.compile(function, backend=backend, dynamic=True)
    count = 0
    for n in SIZES * 2:
        x = torch.arange(48.0).view(12, 4)
        assert same(compiled(x, n), function(x, n)), n
        count += 1
    assert count == 2 * len(SIZES)
    return refcompiler.counters()["captures"]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "fastpath"])
@pytest.mark.parametrize(
    "function", [returned, negated, joined, of_sizes, operands, stored, floats, chosen]
)
def test_nothing_is_decided(function: Callable, backend: str) -> None:
    assert run(function, backend) == 1


def branch(x: Any, n: int) -> Any:
    large = n > 5
    return x * 2 if large else x, large


def arithmetic(x: Any, n: int) -> Any:
    return x * n, (n > 5) + 1, (n > 5) == True, -(n > 5)  # noqa: E712


def identity(x: Any, n: int) -> Any:
    return x + n, (n > 5) is True, str(n > 5), f"{n > 5}", {n > 5: 1}, hash(n > 5), repr([n > 5])


def collected(x: Any, n: int) -> Any:
    found = [n > 5, n > 100]
    return x + n, sum(found), any(found), sorted(found), max(found), found.count(False)


@pytest.mark.parametrize("function", [branch, arithmetic, identity, collected])
def test_what_needs_the_answer_decides(function: Callable) -> None:
    assert run(function, "eager") == 2


def test_across_a_break() -> None:
    def function(x: Any, n: int) -> Any:
        large, none = n > 5, not n
        torch._dynamo.graph_break()
        return x + n, large, none

    assert run(function, "eager") <= 4


def test_a_size_that_is_known_to_be_a_number_is_one_for_the_rules_of_fakes(monkeypatch):
    asked = []
    dispatched = EagerFakeMode._dispatched

    def counting(mode, func, *args):
        asked.append(str(func))
        return dispatched(mode, func, *args)

    monkeypatch.setattr(EagerFakeMode, "_dispatched", counting)
    weight, bias = torch.randn(5, 7), torch.randn(7)

    def program(x):
        y = torch.addmm(bias, x, weight)  # which says that the rows of x have 5 elements
        return y + torch.addmm(bias, x + 1, weight) + torch.addmm(bias, x.sin(), weight)

    compiled = refcompiler.compile(program, backend="eager", dynamic=True, fullgraph=True)
    for rows in (3, 4, 9):
        x = torch.randn(rows, 5)
        assert torch.equal(compiled(x), program(x))
    assert asked.count("aten.addmm.default") <= 1
    assert refcompiler.counters()["captures"] == 1
