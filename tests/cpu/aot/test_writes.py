"""Writes that reach further than the tensor that is written to, each beside eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import refcompiler
from tests.cpu.aot.programs import Make, compare


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    refcompiler.reset()


def _leaves(*grad: bool) -> Make:
    return lambda: [torch.randn(4).requires_grad_(each) for each in grad]


def _each_reads_the_one_before(x: Any, y: Any) -> Any:
    """Eager's kernel goes through the lists in order, and reads what it has written."""
    a, b = x * 1, y * 1
    torch._foreach_add_([a, b], [b, a])
    torch._foreach_sub_([a, b], [b, a], alpha=2)
    return a, b, a.view(2, 2)


def _a_base_becomes_tracked(part: Any, base: Any, y: Any) -> Any:
    part.add_(y[:2])
    return base * 2, part.sin()


@pytest.mark.parametrize(
    ("program", "leaves", "into"),
    [
        (_each_reads_the_one_before, _leaves(True, True), lambda x, y: (x, y)),
        (
            _a_base_becomes_tracked,
            _leaves(False, True),
            lambda x, y: ((base := x.clone())[:2], base, y * 1),
        ),
    ],
)
def test_writes(program: Callable[..., Any], leaves: Make, into: Callable[..., Any]) -> None:
    compiler, seen = compare(program, leaves, into=into)
    assert compiler.reasons == [None] and seen.count > 40
