"""Numbers that a program reads from tensors are read where they are used, in one program."""

from __future__ import annotations

import math
import re
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


GIVEN: dict[str, Callable[[torch.Tensor, float], Any]] = {
    "operands": lambda x, k: ((x * k + k / 2).exp() - k * 3) * (abs(k) ** 0.5) / k,
    "factors": lambda x, k: torch.addcmul(x.add(x, alpha=-k), x, x, value=k).masked_fill(x > 0, k),
    "comparisons": lambda x, k: (torch.where(x > k, k, x), x.clamp(max=k), x // k, x % k),
    "reduced": lambda x, k: ((x * k).sum(-1), torch.tensor(k) * x[0]),
    "with a size": lambda x, k: x * k * x.shape[0],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", GIVEN)
def test_floats_that_each_call_chooses_are_given_to_kernels(name: str, dtype: torch.dtype) -> None:
    function = GIVEN[name]
    x = torch.randn(9, 5, generator=torch.Generator().manual_seed(2)).to(dtype)
    refcompiler.reset()
    compiled = refcompiler.compile(function, fullgraph=True)
    for k in (0.5, 0.7, -3.1, 1e-3, math.inf, math.nan, 1e39):
        if k != k and name == "comparisons" and not torch.zeros(9).clamp(max=k).isnan().all():
            continue  # torch 2.11 on the CPU: no bound
        try:
            expected = tree_leaves(function(x, k))
        except RuntimeError as error:  # a number that the dtype does not have
            with pytest.raises(RuntimeError, match=re.escape(str(error))):
                compiled(x, k)
            assert k == 1e39 and name in ("factors", "comparisons", "reduced")
            continue
        for found, wanted in zip(tree_leaves(compiled(x, k)), expected, strict=True):
            torch.testing.assert_close(found, wanted, equal_nan=True)
        report = fastpath.last_report()
        assert report is not None and report.kernels and not report.aten_calls, report
    assert refcompiler.counters()["graphs"] <= 3  # for one number, and for any of either sign
