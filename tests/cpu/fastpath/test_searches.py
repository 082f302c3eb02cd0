"""Values looked up in others, and images read between their elements or by uneven windows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import fastpath
import refcompiler
from fastpath.ir import expr as E
from fastpath.ir.index import Axis, Index, Lookup, variable


def check(function: Callable[..., Any], *inputs: torch.Tensor, rtol: float = 0.0) -> None:
    """Kernels alone give eager's values, dtypes and strides."""
    refcompiler.reset()
    with torch.no_grad():
        found = refcompiler.compile(function, backend="fastpath", dynamic=False)(*inputs)
        expected = function(*inputs)
    report = fastpath.last_report()
    assert report is not None and report.fallback is None and not report.aten_calls, report
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.stride() == b.stride()
        torch.testing.assert_close(a, b, rtol=rtol, atol=rtol, equal_nan=True)


def numbers(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return (torch.randn(shape, generator=generator) * 20).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_searches(dtype: torch.dtype) -> None:
    edges, rows = numbers((37,), dtype).sort().values, numbers((5, 12), dtype).sort(-1).values
    x = numbers((5, 16), dtype)
    x[0, :9] = edges[4]
    if dtype.is_floating_point:
        x[1, :3] = torch.tensor([math.nan, math.inf, -math.inf])
        edges[-2:] = math.nan

    def program(x: torch.Tensor, edges: torch.Tensor, rows: torch.Tensor) -> list[torch.Tensor]:
        return [
            torch.bucketize(x, edges),
            torch.bucketize(x, edges, right=True, out_int32=True),
            torch.searchsorted(rows, x),
            torch.searchsorted(rows, x, side="right"),
            *(torch.searchsorted(edges[:n], x + 1) for n in (1, 8)),
            torch.isin(x, edges[:7]),
            torch.isin(x, x[2, :3], invert=True),
        ]

    check(program, x, edges, rows)


def test_what_is_sought_in_is_put_together_where_it_is_read() -> None:
    """Whether a place is in a piece is asked of the place, not of what the place is computed of."""

    def program(x: torch.Tensor, edges: torch.Tensor) -> list[torch.Tensor]:
        joined, padded = torch.cat([edges[:1] - 1, edges * 2]), F.pad(edges, (1, 1), value=99)
        place = torch.searchsorted(joined, x, right=True).clamp(max=joined.shape[0] - 1)
        return [place, joined[place] - x, torch.bucketize(x, padded[1:]), padded[place] * 2]

    sought = numbers((3, 5), torch.float32)
    for count in (8, 1000):
        check(program, sought, numbers((count,), torch.float32).sort().values)


def test_what_is_sought_in_what_was_found_takes_no_longer_with_each_step() -> None:
    """Data that is shared by positions is visited once, however deep they lie in each other."""
    axis = Axis(7)

    def made() -> E.Expr:
        value = E.position(variable(axis))
        for _ in range(30):
            place = E.Expr("add", (value, value), "int64")
            read = E.Expr("minimum", (E.position(Index({Lookup(place, 9): 1})), value), "int64")
            value = E.Expr("sub", (read, place), "int64")
        return value

    value = made()
    started = time.process_time()
    moved = value.substitute({axis: variable(Axis(7)) + 1})
    assert len(moved.axes()) == 1 and value.axes() == {axis}
    assert value == made() and value != moved
    assert time.process_time() - started < 5


@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels_last"])
def test_adaptive_pooling_by_windows_of_several_sizes(last: bool) -> None:
    x = numbers((2, 3, 11, 13), torch.float32)
    x[0, 1, 3, 4] = x[0, 1, 3, 5] = math.nan
    x[1, 2] = -math.inf
    if last:
        x = x.contiguous(memory_format=torch.channels_last)

    def program(x: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.adaptive_avg_pool2d(x, (4, 5)),
            F.adaptive_avg_pool2d(x, (12, 13)),
            *F.adaptive_max_pool2d(x, (4, 5), return_indices=True),
            F.adaptive_max_pool2d(x, (2, 3)),  # of more than are spelled out
        ]

    check(program, x, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bicubic_interpolation(dtype: torch.dtype) -> None:
    x = numbers((2, 3, 7, 9), dtype) / 20

    def program(x: torch.Tensor) -> list[torch.Tensor]:
        def to(size: Any = None, **more: Any) -> torch.Tensor:
            return F.interpolate(x, size, mode="bicubic", **more)

        found = [to((5, 18), align_corners=False), to((14, 3), align_corners=True)]
        return found if dtype is torch.bfloat16 else [*found[1:], to(scale_factor=1.7)]

    check(program, x, rtol=2e-2 if dtype is torch.bfloat16 else 4e-6)
