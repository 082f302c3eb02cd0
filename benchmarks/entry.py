"""Entry: one call of a small function that is already compiled, so mostly guards and launch.

With one thread for both: 4,096 elements are not worth a second one, and waiting for it would cost
more than everything that is measured here.
"""

from __future__ import annotations

import torch

import refcompiler
from benchmarks.harness import Row, compare, one_thread

GOAL = 0.5


def relu_of_sum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * y + x)


def rows() -> list[Row]:
    with one_thread():
        return entry_rows()


def entry_rows() -> list[Row]:
    torch.manual_seed(0)
    x, y = torch.randn(64, 64), torch.randn(64, 64)
    ours = refcompiler.compile(relu_of_sum)
    theirs = torch.compile(relu_of_sum)
    mixed = torch.compile(relu_of_sum, backend="fastpath")
    torch.testing.assert_close(ours(x, y), relu_of_sum(x, y))
    name = "`relu(x * y + x)`, 64 x 64, 1 thread"
    return [
        compare(
            name,
            lambda: ours(x, y),
            lambda: theirs(x, y),
            against="`torch.compile`",
            goal=GOAL,
            rounds=51,
        ),
        compare(name, lambda: ours(x, y), lambda: mixed(x, y), against="torch's entry, `fastpath`"),
        compare(name, lambda: ours(x, y), lambda: relu_of_sum(x, y), against="eager"),
    ]
