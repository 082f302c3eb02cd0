"""Marks on dimensions, of this project and of torch; ``dynamic_sources``; what the log says."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
import torch._dynamo.decorators

import refcompiler
from refcompiler.errors import ConstraintViolationError
from refcompiler.runtime import counters

BOTH = pytest.mark.parametrize("marks", [refcompiler, torch._dynamo.decorators])


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    refcompiler.reset()
    yield
    refcompiler.reset()


def twice(x: Any) -> Any:
    return x * 2, x.shape


def captures(function: Callable, *calls: Any, **options: Any) -> int:
    compiled = refcompiler.compile(function, backend="eager", **options)
    for x in calls:
        (found, shape), (wanted, sizes) = compiled(x), function(x)
        assert torch.equal(found, wanted) and shape == sizes
        assert all(type(n) is int for n in shape)
    return refcompiler.counters()["captures"]


@BOTH
def test_dynamic_from_the_start(marks: ModuleType) -> None:
    x = torch.ones(5, 4)
    marks.mark_dynamic(x, 0)
    assert captures(twice, x, torch.ones(7, 4), torch.ones(9, 4), dynamic=False) == 1
    assert captures(twice, torch.ones(7, 5), dynamic=False) == 2


@BOTH
def test_limits(marks: ModuleType) -> None:
    x = torch.ones(5, 4)
    marks.mark_dynamic(x, 0, min=3, max=8)
    assert captures(twice, x, torch.ones(8, 4), torch.ones(3, 4), dynamic=False) == 1
    assert captures(twice, torch.ones(9, 4), dynamic=False) == 2
    (reason,) = counters.reasons("recompiles")
    assert "x.shape[0]" in reason and "8" in reason


@BOTH
def test_a_marked_dimension_that_becomes_a_constant_is_refused(marks: ModuleType) -> None:
    def function(x: Any) -> Any:
        return x * 2 if x.shape[0] == 5 else x

    x = torch.ones(5, 4)
    marks.mark_dynamic(x, 0)
    with pytest.raises(ConstraintViolationError, match=r"x.shape\[0\] is marked .* 5 at .*\.py:"):
        refcompiler.compile(function, backend="eager")(x)
    single = torch.ones(1, 4)
    marks.mark_dynamic(single, 0)
    with pytest.raises(ConstraintViolationError, match="0 and 1"):
        refcompiler.compile(function, backend="eager")(single)
    y = torch.ones(5, 4)
    marks.maybe_mark_dynamic(y, 0)
    assert torch.equal(refcompiler.compile(function, backend="eager")(y), y * 2)


@BOTH
def test_maybe_and_static(marks: ModuleType) -> None:
    x = torch.ones(5, 4)
    marks.maybe_mark_dynamic(x, 0)
    assert captures(twice, x, torch.ones(7, 4), dynamic=False) == 1
    refcompiler.reset()
    y, z = torch.ones(5, 4), torch.ones(6, 4)
    for t in (y, z):
        marks.mark_static(t, 0)
    assert captures(twice, y, torch.ones(5, 9), z, dynamic=True) == 2


@BOTH
def test_unbacked(marks: ModuleType) -> None:
    x = torch.ones(5, 4)
    marks.mark_unbacked(x, 0)
    assert captures(twice, x, torch.ones(1, 4), torch.ones(0, 4)) == 1

    def branch(x: Any) -> Any:
        return (x * 2 if x.shape[0] > 3 else x), x.shape

    assert captures(branch, x, torch.ones(7, 4)) >= 2
    assert refcompiler.counters()["breaks"] == 1


def test_wrong_marks_are_refused() -> None:
    with pytest.raises(IndexError, match="2 is no dimension"):
        refcompiler.mark_dynamic(torch.ones(2, 3), 2)
    with pytest.raises(ValueError, match="larger"):
        refcompiler.mark_dynamic(torch.ones(2, 3), 0, min=5, max=3)
    with pytest.raises(TypeError, match="expected a tensor"):
        refcompiler.mark_static([1], 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("named", ["x", "L['x']", "z,x", ".*x"])
def test_dynamic_sources(named: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(refcompiler.config, "dynamic_sources", named)
    assert captures(twice, torch.ones(5, 4), torch.ones(6, 7), dynamic=False) == 1


def test_the_log_names_dimensions_and_lines(caplog: Any) -> None:
    def function(x: Any, k: int) -> Any:
        return [x * k for _ in range(x.shape[0])]

    with caplog.at_level(logging.INFO, logger="refcompiler.dynamic"):
        refcompiler.compile(function, backend="eager", dynamic=True)(torch.ones(3, 4), 5)
    text = caplog.text
    assert "x.shape[0] becomes symbolic as s0 (3 here)" in text
    assert "k becomes symbolic as n0 (5 here)" in text
    assert "x.shape[0] is specialised to 3 at" in text and "test_marks.py" in text
