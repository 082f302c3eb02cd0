"""The gamma function's logarithm, Bessel functions and the inverse error function in kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fastpath
import refcompiler
from specs.scalars import SCALARS

NAMES = ("lgamma", "digamma", "erfinv", "i0", "i0e", "i1", "i1e")
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
ENDS = [math.inf, -math.inf, math.nan, 0.0, -0.0, 1.0, -1.0, 2.0, -3.0, 1e-30, -1e-30, 89.0, -89.0]


def functions(x: torch.Tensor) -> list[torch.Tensor]:
    s = torch.special
    return [
        *(torch.lgamma(x), torch.digamma(x), torch.erfinv(x)),
        *(s.i0(x), s.i0e(x), s.i1(x), s.i1e(x)),
    ]


def run(function: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    refcompiler.reset()
    found = refcompiler.compile(function, backend="fastpath", dynamic=False)(*inputs)
    report = fastpath.last_report()
    assert report is not None and report.fallback is None and not report.aten_calls, report
    return found


def is_special(t: torch.Tensor) -> torch.Tensor:
    return ~t.isfinite() | (t == 0)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.bool], ids=str)
def test_they_are_as_near_to_float64_as_eagers_are(dtype: torch.dtype) -> None:
    numbers = torch.cat([torch.linspace(-30, 30, 173), torch.linspace(-1.25, 1.25, 61)])
    x = torch.cat([torch.tensor(ENDS, dtype=torch.float64), numbers]).to(dtype)
    if not dtype.is_floating_point:
        x = torch.tensor([0, 1, 2, 3, -1, 7, 40, -300]).to(dtype)
    compared = 0
    for name, found, eager in zip(NAMES, run(functions, x), functions(x), strict=True):
        meaning = SCALARS[name].meaning("float64")
        exact = torch.tensor([float(meaning(float(v))) for v in x.tolist()], dtype=torch.float64)
        assert (found.dtype, found.shape) == (eager.dtype, eager.shape)
        ends = is_special(eager)
        torch.testing.assert_close(found[ends], eager[ends], rtol=0, atol=0, equal_nan=True)
        signed = ends & ~eager.isnan()
        assert torch.equal(found.signbit()[signed], eager.signbit()[signed])
        step = torch.finfo(eager.dtype).eps
        error = (found.double() - exact).abs()[~ends]
        scale = exact.abs()[~ends]
        # Below 0 lgamma and digamma cancel about their roots, in eager as here.
        room = 2 * (eager.double() - exact).abs()[~ends] + step * (4 * scale + 4)
        assert (error <= room).all()
        compared += len(error)
    assert compared > (300 if dtype.is_floating_point else 10)


def test_neighbours_of_roots_and_of_where_the_method_changes() -> None:
    """Against float64 of what float32 is given, whose own errors are far smaller."""
    points = torch.tensor([1.4616321, 1.0, 2.0, 6.0, 8.0, 16.0, 0.999, -0.999, 0.0])
    near = torch.arange(-40, 41)
    x = torch.cat([p + near * p.abs().clamp(min=1e-3) * 2**-23 for p in points])
    for name, found, exact in zip(NAMES, run(functions, x), functions(x.double())):
        known = exact.isfinite() & (exact != 0)
        if name == "digamma":  # digamma's own float64 is no better than its terms at the root
            known &= (x - 1.4616321).abs() > 1e-3
        error = (found.double() - exact)[known].abs() / exact[known].abs()
        assert known.sum() > 100 and error.max() < 6 * 2**-24, name


def test_gradients() -> None:
    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        s = torch.special
        first = torch.lgamma(x) * s.i0(x) + s.i0e(x) * s.i1(x)
        return (first + s.i1e(x) + torch.erfinv(y)).sum()

    x = torch.linspace(0.3, 9, 77, dtype=torch.float64)
    y = torch.linspace(-0.9995, 0.9995, 77, dtype=torch.float64)
    refcompiler.reset()
    compiled = refcompiler.compile(loss, backend="fastpath", dynamic=False)
    results = []
    for function in (loss, compiled):
        given = [t.clone().requires_grad_() for t in (x, y)]
        function(*given).backward()
        results.append([t.grad for t in given])
    report = fastpath.last_report()
    assert report is not None and not report.aten_calls
    for found, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)
