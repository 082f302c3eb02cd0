"""Sums of many terms: what is lost by adding them up in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fastpath
import refcompiler

ULP = 2.0**-24  # of a float32, what its own rounding may take away


def lost(function: Callable[..., tuple[torch.Tensor, ...]], *inputs: torch.Tensor) -> list[float]:
    """Of each result, the largest share that is wrong, in roundings of float32."""
    compiled = refcompiler.compile(function, dynamic=False)
    wanted = function(*(t.double() if t.is_floating_point() else t for t in inputs))
    found = compiled(*inputs)
    report = fastpath.last_report()
    assert report.fallback is None and not report.aten_calls
    return [((a - b) / b).abs().max().item() / ULP for a, b in zip(found, wanted, strict=True)]


def test_sums_of_many_terms_lose_little() -> None:
    """Images in both layouts, columns that few rows are left over of, and those of narrow rows;
    rows with a rest, of pairs of 16-bit numbers, and short ones that go as vectors side by side."""
    generator = torch.Generator().manual_seed(3)

    def above_zero(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator) + 0.5

    def program(
        image: torch.Tensor,
        last: torch.Tensor,
        rows: torch.Tensor,
        columns: torch.Tensor,
        short: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        return (
            image.sum((0, 2, 3)),
            last.sum((0, 2, 3)),
            rows.sum(1),
            (rows * rows).mean(1),
            columns.sum(0),
            (columns.exp() - columns).sum(0),
            short.sum((0, 2)),
            short.sum((0, 1)),
        )

    image = above_zero(40, 6, 40, 41)
    last = above_zero(33, 12, 20, 21).contiguous(memory_format=torch.channels_last)
    rows, columns, short = above_zero(67, 40_011), above_zero(8003, 65), above_zero(9000, 9, 13)
    wrong = lost(program, image, last, rows, columns, short)
    assert len(wrong) == 8 and max(wrong) < 5, wrong


def test_sums_lose_no_more_than_those_of_eager() -> None:
    """Rows of some thousand terms, and columns of some hundred, of which eager adds up few, too,
    before it goes on with another accumulator."""
    generator = torch.Generator().manual_seed(5)
    shapes = (1000, 4000), (1000, 2500), (500, 1000), (30, 500, 100)
    given = [torch.rand(shape, generator=generator) for shape in shapes]

    def program(rows: Any, fewer: Any, columns: Any, images: Any) -> tuple[torch.Tensor, ...]:
        return (rows * rows).sum(1), fewer.exp().sum(1), columns.sum(0), images.sum(1)

    def wrong(found: torch.Tensor, exact: torch.Tensor) -> float:
        return float(((found - exact) / exact).square().mean().sqrt())

    exact = program(*(t.double() for t in given))
    found = refcompiler.compile(program)(*given)
    for ours, eagers, wanted in zip(found, program(*given), exact, strict=True):
        assert wrong(ours, wanted) < 1.1 * wrong(eagers, wanted)
    assert fastpath.last_report().kernels and not fastpath.last_report().aten_calls


def test_sums_of_16_bit_numbers_lose_little() -> None:
    generator = torch.Generator().manual_seed(4)
    x = (torch.rand(9, 60_006, generator=generator) + 0.5).bfloat16()
    compiled = refcompiler.compile(lambda x: x.sum(1, dtype=torch.float32), dynamic=False)
    wanted = x.double().sum(1)
    assert ((compiled(x) - wanted) / wanted).abs().max().item() < 5 * ULP


def test_gradients_of_batch_norm_are_as_good_as_those_of_eager() -> None:
    """Which adds up in float64 there. The terms of the gradients cancel."""
    torch.manual_seed(5)
    x, weight, bias = torch.rand(8, 12, 40, 40) + 0.5, torch.rand(12) + 0.5, torch.randn(12)
    given = torch.randn(8, 12, 40, 40)

    def norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(x, None, None, weight, bias, True)

    def step(function: Callable[..., torch.Tensor], *inputs: Any) -> tuple[torch.Tensor, ...]:
        *leaves, given = inputs
        leaves = [t.detach().requires_grad_() for t in leaves]
        found = function(*leaves)
        return found, *torch.autograd.grad(found, leaves, given)

    def errors(found: tuple[torch.Tensor, ...]) -> list[float]:
        return [
            ((a - b).pow(2).mean() / b.pow(2).mean()).sqrt().item() for a, b in zip(found, wanted)
        ]

    inputs = x, weight, bias, given
    wanted = step(norm, *(t.double() for t in inputs))
    eager = errors(step(norm, *inputs))
    ours = errors(step(refcompiler.compile(norm, fullgraph=True), *inputs))
    # How eager rounds, the vectors of the processor say.
    assert len(ours) == 4 and all(a < 2 * b for a, b in zip(ours, eager, strict=True)), (
        ours,
        eager,
    )


@pytest.mark.parametrize("rows", [3, 2049, 20_011])
def test_sums_whose_lengths_each_call_chooses(rows: int) -> None:
    """One program: there are blocks of terms, or a part of one."""
    x = torch.rand(rows, 24, generator=torch.Generator().manual_seed(rows)) + 0.5
    for found, wanted in zip(SIZED(x), (x.double().sum(0), x.double().t().sum(1)), strict=True):
        assert ((found - wanted) / wanted).abs().max().item() < 5 * ULP


SIZED = refcompiler.compile(lambda x: (x.sum(0), x.t().contiguous().sum(1)), dynamic=True)
