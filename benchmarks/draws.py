"""Random numbers: kernels that draw eager's, bit for bit, against eager, by one thread's time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import refcompiler
from benchmarks.harness import Row, compare, one_thread

GOAL = 0.8
PAIRING = 1.05
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
    with one_thread():
        with torch.no_grad():
            found = [
                draw_row(f"{name} {size}", *case)
                for size, n in SIZES.items()
                for name, case in cases(n).items()
            ]
        return found + [pairing_row(rows) for rows in (256, 1024, 4096)]


def pairing_row(rows: int) -> Row:
    """Checkpointed blocks with dropout, a training step: draws paired with their recomputation.

    Against the same without (``preserve_rng_state=False``), whose gradients have other masks.
    ``rows``: of the activation, by 256. Raises ``AssertionError`` where paired gradients are not
    eager's.
    """
    torch.manual_seed(0)
    x = torch.randn(rows, 256, requires_grad=True)
    weights = [torch.randn(256, 256).mul_(0.05).requires_grad_() for _ in range(2)]

    def block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.dropout(torch.tanh(x @ w), 0.1) + x

    def program(paired: bool) -> Callable[[], torch.Tensor]:
        def run(x: torch.Tensor) -> torch.Tensor:
            for w in weights:
                x = checkpoint(block, x, w, use_reentrant=False, preserve_rng_state=paired)
            return x.square().mean()

        compiled = refcompiler.compile(run, dynamic=False)
        gradients = []
        for function in (run, compiled):
            torch.manual_seed(1)
            gradients += torch.autograd.grad(function(x), x)
        assert not paired or torch.allclose(*gradients, rtol=1e-4, atol=1e-7)

        def step() -> torch.Tensor:
            return torch.autograd.grad(compiled(x), [x, *weights])[0]

        return step

    refcompiler.reset()
    return compare(
        f"pairing with recomputed draws, {rows} x 256",
        program(True),
        program(False),
        against="the same, unpaired",
        goal=PAIRING,
        rounds=4 * ROUNDS,
        clock=time.thread_time,
    )


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
