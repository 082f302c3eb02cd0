"""Exponentials that 1 is added to, and what is made of them: each in fewer steps than written."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import fastpath
from specs.rounding import ulp_error
from specs.scalars import SCALARS

KINDS = [torch.float32, torch.float64]


def numbers(dtype: torch.dtype) -> torch.Tensor:
    """Where exponentials under- and overflow, nans with payloads, and what lies between."""
    ends = [0.0, 1.0, 17.3, 17.4, 36.0, 38.0, 87.33, 88.72, 88.73, 89.0, 103.9, 104.5, 110.0]
    ends += [708.3, 709.7, 709.8, 710.0, 745.1, 746.0, 800.0, 1e30, math.inf]
    exact = torch.tensor(ends, dtype=torch.float64)
    some = torch.cat([exact, -exact, torch.linspace(-120, 120, 999, dtype=torch.float64)])
    if dtype is torch.float32:
        nans = torch.tensor([0x7FC00000, 0x7FFFFFFF, -1, 0x7FC00155], dtype=torch.int32)
    else:
        nans = torch.tensor([0x7FF8 << 48, (1 << 63) - 1, -1], dtype=torch.int64)
    return torch.cat([some.to(dtype), nans.view(dtype)])


def run(function: Any, x: torch.Tensor) -> tuple[Any, str]:
    call = fastpath.compile_graph(torch.fx.symbolic_trace(function), [x])
    (source,) = call.kernel_sources
    found = call(x)
    return found[0] if len(found) == 1 else found, source


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_the_sum_of_one_and_a_power_has_the_bits_of_two_steps(dtype: torch.dtype) -> None:
    x = numbers(dtype)
    left, source = run(lambda x: 1 + torch.exp(x), x)
    right, other = run(lambda x: torch.exp(-x) + 1, -x)
    assert "one_and_exp" in source and "one_and_exp" in other
    (power, total), apart = run(lambda x: (torch.exp(x), torch.exp(x) + 1), x)
    assert "one_and_exp" not in apart  # the power is there already
    torch.testing.assert_close(total, power + 1, rtol=0, atol=0, equal_nan=True)
    for found in (left, right):
        torch.testing.assert_close(found, total, rtol=0, atol=0, equal_nan=True)
    assert int(left.isnan().sum()) == int(x.isnan().sum()) > 2


@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("name", ["sigmoid", "tanh"])
def test_logistic_functions_are_within_their_bounds_to_the_ends(
    name: str, dtype: torch.dtype
) -> None:
    x = numbers(dtype)
    found, _ = run(lambda x: getattr(torch, name)(x), x)
    row, kind = SCALARS[name], str(dtype).removeprefix("torch.")
    compared = 0
    for value, got in zip(x.tolist(), found.tolist(), strict=True):
        want = row.exact(value)
        if value != value:
            assert got != got
            continue
        assert ulp_error(got, want, kind) <= row.ulp[kind], (value, got)
        compared += 1
    assert compared > 1000


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_the_logarithm_of_one_and_a_power_is_the_operand_or_little_more(dtype: torch.dtype) -> None:
    x = numbers(dtype)
    found, source = run(lambda x: torch.log1p(torch.exp(x)), x)
    assert "log_one_and_exp" in source
    (_, kept), apart = run(lambda x: (torch.exp(x), torch.log1p(torch.exp(x))), x)
    assert "log_one_and_exp" not in apart  # the power is there already
    same = kept.isinf() | kept.isnan()
    torch.testing.assert_close(found[same], kept[same], rtol=0, atol=0, equal_nan=True)
    power, sum_ = SCALARS["exp"], SCALARS["log1p"]
    kind = str(dtype).removeprefix("torch.")
    bound, compared = power.ulp[kind] + sum_.ulp[kind], 0
    for value, got in zip(x[~same].tolist(), found[~same].tolist(), strict=True):
        assert ulp_error(got, sum_.exact(power.exact(value)), kind) <= bound, (value, got)
        compared += 1
    assert compared > 800


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_silu_ends_as_eagers_does(dtype: torch.dtype) -> None:
    x = numbers(dtype)
    found, source = run(lambda x: F.silu(x), x)
    assert "one_and_exp" in source
    eager = x / (1 + torch.exp(-x))
    special = ~eager.isfinite() | (eager == 0)
    torch.testing.assert_close(found[special], eager[special], rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(found, eager, equal_nan=True, rtol=1e-6, atol=0)
    assert int(special.sum()) > 10
