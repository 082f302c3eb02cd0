"""Random numbers: kernels that draw eager's, bit for bit, against eager, by one thread's time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

import refcompiler
from benchmarks.harness import Row, compare, one_thread

GOAL = 0.8
SIZES = {"1M": 1 << 20, "16M": 1 << 24}
ROUNDS = 11


def cases(n: int) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    torch.manual_seed(0)
    x, y = torch.randn(n), torch.randn(n)
    return {
        "rand": (lambda n: torch.rand(n), (n,)),
        "randn": (lambda n: torch.randn(n), (n,)),
        "bernoulli": (lambda t: torch.bernoulli(t), (torch.rand(n),)),
        "dropout and residual": (lambda x, y: F.dropout(x, 0.1) + y, (x, y)),
    }


def rows() -> list[Row]:
    """A row for each case and size. Raises ``AssertionError`` where the numbers are not eager's."""
    with torch.no_grad(), one_thread():
        return [
            draw_row(f"{name} {size}", *case)
            for size, n in SIZES.items()
            for name, case in cases(n).items()
        ]


def draw_row(name: str, function: Callable[..., Any], given: tuple[Any, ...]) -> Row:
    refcompiler.reset()
    compiled = refcompiler.compile(function, dynamic=False)
    for seed in (3, 4):
        torch.manual_seed(seed)
        expected = function(*given), torch.get_rng_state()
        torch.manual_seed(seed)
        assert torch.equal(compiled(*given), expected[0]), name
        assert torch.equal(torch.get_rng_state(), expected[1]), name
    assert refcompiler.counters()["graphs"] == 1, name
    return compare(
        name,
        lambda: compiled(*given),
        lambda: function(*given),
        against="eager",
        goal=GOAL,
        rounds=ROUNDS,
        clock=time.thread_time,
    )
