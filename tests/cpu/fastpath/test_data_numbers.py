"""Numbers that a program reads from tensors are read where they are used, in one program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

import fastpath
import refcompiler


def scaled(x: torch.Tensor) -> Any:
    return x * x.sum().item()


def read_before_a_write(x: torch.Tensor) -> Any:
    y = x + 1
    s = y.max().item()
    y.add_(3)
    return y * s, x / s, s


def computed_with(x: torch.Tensor) -> Any:
    s = (x * 2).mean().item()
    return torch.clamp(x, max=s * 2 + 1), torch.full((3,), s), x.sum() > s


def read_from_an_input(x: torch.Tensor) -> Any:
    v = x[1:].t()[0].item() if x.dim() > 1 else x[1:][0].item()
    x.mul_(2)
    return x + v, x[0] * v


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    "function", [scaled, read_before_a_write, computed_with, read_from_an_input]
)
def test_numbers_read_from_tensors(function: Callable, dynamic: bool | None) -> None:
    refcompiler.reset()
    compiled = refcompiler.compile(function, fullgraph=True, dynamic=dynamic)
    compared = 0
    for size in (7, 8, 9):
        x = torch.randn(size)
        given = x.clone()
        expected, found = tree_leaves((function(x), x)), tree_leaves((compiled(given), given))
        for one, other in zip(expected, found, strict=True):
            torch.testing.assert_close(other, one)
            compared += 1
        report = fastpath.last_report()
        assert report is not None and report.fallback is None and report.kernels
    assert compared >= 6
