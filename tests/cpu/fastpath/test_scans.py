"""Positions of extrema, and scans: eager's values bit for bit, nan and equal ones included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import fastpath
import refcompiler
from fastpath.ir import extremes

INTEGER, HALF = torch.int64, torch.bfloat16


def agree(function: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    """All outputs are eager's bit for bit but for the payloads of nan, and kernels made them."""
    refcompiler.reset()
    with torch.no_grad():
        run = refcompiler.compile(function, backend="fastpath")
        found, expected = run(*inputs), function(*inputs)
    report = fastpath.last_report()
    assert report is not None and report.fallback is None and not report.aten_calls, report
    assert len(found) == len(expected) > 0
    for a, b in zip(found, expected, strict=True):
        assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
    return report


def numbers(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Small ones, so that many are equal; floats with zeros of either sign, nan and infinity."""
    x = (torch.arange(torch.Size(shape).numel()) * 37 % 23 - 11).reshape(shape)
    if dtype is torch.bool:
        return x > 3
    if dtype is torch.uint8:
        x = x.abs()
    x = x.to(dtype)
    if dtype.is_floating_point:
        x[0], x[-1] = 1, torch.inf
        x.view(-1)[2], x.view(-1)[-3] = -0.0, torch.nan
        x[1, ..., 3], x[1, ..., 1] = -torch.inf, torch.nan
    return x


def positions(x: Any) -> Any:
    return (
        x.argmax(),
        x.argmax(0),
        x.argmin(-1, keepdim=True),
        *x.max(0),
        *x.min(-1, keepdim=True),
        x.flatten().argmin(),
        x.mT.argmax(),
        x.mT.argmin(keepdim=True),
        *x.aminmax(dim=1),
        *torch.aminmax(x),
    )


def scans(x: Any) -> Any:
    return (
        x.cumsum(0),
        x.cumsum(-1),
        x.cumsum(1, dtype=torch.float64),
        x.cumprod(1),
        x.mT.cumsum(0),
        *x.cummax(0),
        *x.cummin(-1),
        (x > 0).cumsum(-1),
        *(x > 0).cummax(0),
    )


# All of them of floats, whose nan and zeros matter, and every other one of each kind of integers.
SHAPES: list[tuple[torch.dtype, tuple[int, ...], slice]] = [
    (torch.float32, (130, 70), slice(None)),
    (HALF, (4, 1, 33), slice(0, None, 2)),
    (INTEGER, (3, 5), slice(0, None, 2)),
    (torch.uint8, (4, 18), slice(1, None, 2)),
]


@pytest.mark.parametrize(("dtype", "shape", "part"), SHAPES, ids=str)
def test_as_in_eager(dtype: torch.dtype, shape: tuple[int, ...], part: slice) -> None:
    x = numbers(dtype, *shape)
    assert agree(lambda x: positions(x)[part], x).kernels <= 9
    agree(lambda x: scans(x)[part], x)


def test_bool_and_float16() -> None:
    agree(lambda x: (*x.max(0), *x.min(1), *x.cummax(1), x.cumsum(0)), numbers(torch.bool, 4, 9))
    agree(lambda x: (x.argmax(0), x.cumsum(1), *x.cummin(0)), numbers(torch.float16, 4, 17))


def test_rows_of_any_length_and_single_numbers() -> None:
    for n in (1, 31):
        x = numbers(torch.float32, 2, n) if n > 3 else torch.randn(2, n)
        agree(lambda x: (x.argmax(1), x.argmin(0), x.cumsum(1), *x.cummax(0)), x)
    agree(
        lambda x: (x.argmax(), x.argmin(0), *x.max(0), x.argmax(-1, keepdim=True)), torch.ones(())
    )
    long = torch.zeros(100_003)
    long[70_001] = long[70_002] = 3
    agree(lambda x: (x.argmax(), *x.max(0), x.argmin()), long)
    agree(lambda x: (x.expand(4, 6).argmax(1), x.expand(4, 6).cumsum(0)), torch.ones(6))
    agree(lambda x: (x[:, ::2].cumsum(1), x[1:, 1:].argmax(0)), torch.randn(5, 9))


def test_complex_numbers_are_added_up_as_precisely_as_eagers() -> None:
    x = torch.complex(torch.rand(5000, 3) + 100, torch.rand(5000, 3) - 100)
    agree(lambda x: (x.cumsum(0), x[:9].cumsum(1), x.t().cumsum(-1)), x)


def test_nothing_to_look_at_is_eagers_matter() -> None:
    for function in (lambda x: x.argmax(1), lambda x: x.max(1)[0]):
        refcompiler.reset()
        run = refcompiler.compile(function, backend="fastpath")
        x = torch.ones(3, 0)
        with pytest.raises(IndexError) as expected:
            function(x)
        with pytest.raises(IndexError) as found:
            run(x)
        assert str(found.value).splitlines()[0] == str(expected.value).splitlines()[0]
    refcompiler.reset()
    run = refcompiler.compile(lambda x: x.cumsum(1), backend="fastpath")
    assert torch.equal(run(x), x)


def test_what_surrounds_a_scan_is_in_its_kernel() -> None:
    x = torch.randn(7, 40)
    assert agree(lambda x: ((x * 2 + 1).cumsum(-1).abs() + x,), x).kernels == 1
    assert agree(lambda x: ((x * 2 + 1).cumsum(0).abs() + x,), x).kernels == 1
    assert agree(lambda x: (x.cumsum(-1).amax(-1), x.cumsum(0).amin(0)), x).kernels == 2
    # A value of the whole row is known only behind the loop, so another one follows.
    assert agree(lambda x: ((x / x.amax(-1, keepdim=True)).cumsum(-1),), x).kernels == 2
    assert agree(lambda x: (x.cumsum(-1) - x.cumsum(-1).amax(-1, keepdim=True),), x).kernels == 2
    agree(lambda x: (x.cumsum(0)[-1], x.cumsum(1).flip(1), x.cumsum(1).t() + x.t()), x)


def test_gradients() -> None:
    x = torch.randn(5, 9, requires_grad=True)

    def program(x: Any) -> Any:
        return x.cumsum(1) + x.max(1, keepdim=True)[0] + x.cummax(0)[0]

    refcompiler.reset()
    run = refcompiler.compile(program, backend="fastpath")
    t = torch.randn(5, 9)
    (a,) = torch.autograd.grad(run(x), x, t)
    (b,) = torch.autograd.grad(program(x), x, t)
    torch.testing.assert_close(a, b)


@pytest.mark.parametrize("broken", ["ties", "nan"])
def test_the_comparison_notices(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(x: Any, extremum: Any) -> Any:
        if broken == "ties":
            return extremes.apply("eq", x, x)
        return extremes.apply("eq", x, extremum)

    monkeypatch.setattr(extremes, "_is", wrong)
    with pytest.raises(AssertionError):
        agree(lambda x: (x.argmax(1),), numbers(torch.float32, 3, 5))
