"""Windows over images, images of another size, borders: against eager and float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fastpath
import refcompiler
from fastpath.ir import windows

aten = torch.ops.aten


def agree(function: Callable[..., Any], x: torch.Tensor, exact: bool = True) -> Any:
    """All outputs are eager's bit for bit, or (``exact`` false) as near to float64's."""
    refcompiler.reset()
    with torch.no_grad():
        run = refcompiler.compile(function, backend="fastpath")
        found, expected = run(x), function(x)
        truth = function(x.double()) if not exact else expected
    report = fastpath.last_report()
    assert report is not None and report.fallback is None and not report.aten_calls, report
    assert len(found) == len(expected) > 0
    for a, b, c in zip(found, expected, truth, strict=True):
        assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
        if exact:
            torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
        else:
            room = 4 * (b.double() - c).abs() + 32 * torch.finfo(a.dtype).eps * (1 + c.abs())
            assert ((a.double() - c).abs() <= room).all()
    return report


def image(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = torch.randn(2, 4, 9, 10, generator=torch.Generator().manual_seed(3))
    return x.to(dtype)


def greatest(x: Any) -> Any:
    return (
        *F.max_pool2d(x, 3, 2, 1, return_indices=True),
        *F.max_pool2d(x, (2, 3), ceil_mode=True, return_indices=True),
        F.max_pool2d(x, 3, 1, dilation=2),
        F.max_pool1d(x[0], 3, 2, 1),
        F.max_pool3d(x, 2),
        *F.adaptive_max_pool2d(x, (3, 5), return_indices=True),
    )


def test_the_greatest_of_windows() -> None:
    x = image(torch.bfloat16)
    x[0, 0, 0, 0], x[0, 1], x[1, 2, 3:5] = torch.nan, -torch.inf, 1
    agree(greatest, x)


def means(x: Any) -> Any:
    return (
        F.avg_pool2d(x, 3, 2, 1),
        F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
        F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        F.avg_pool2d(x, 2, divisor_override=3),
        F.avg_pool1d(x[0], 3, 2, 1),
        F.adaptive_avg_pool2d(x, (3, 5)),
    )


def test_means_of_windows() -> None:
    agree(lambda x: (*means(x)[:5], F.avg_pool3d(x, 2, ceil_mode=True)), image())
    agree(lambda x: means(x)[::5], image(torch.bfloat16), exact=False)


def moved(x: Any) -> Any:
    return (
        F.interpolate(x, scale_factor=2),
        F.interpolate(x, size=(5, 6)),
        F.interpolate(x, scale_factor=1.7),
        F.interpolate(x, size=(13, 17), mode="nearest-exact"),
        F.interpolate(x[0], size=31),
        F.interpolate(x[None], scale_factor=2),
        F.unfold(x, 3, padding=1, stride=2),
        F.unfold(x[0], (2, 3), dilation=2),
        x.unfold(2, 3, 2) * 1,
        F.pixel_shuffle(x, 2),
        F.pixel_unshuffle(x[..., :8, :], 2),
        x.roll(3),
        x.roll(-100),
        x.roll((1, 2), (0, 3)),
        x.rot90(1, (2, 3)),
        x.rot90(3, (0, -1)),
        F.pad(x, (1, 2, 3, 1), mode="reflect"),
        F.pad(x, (1, 2, 3, 1, 2, 0), mode="replicate"),
        F.pad(x[0], (1, -2), mode="reflect"),
    )


def test_elements_that_move() -> None:
    agree(moved, image())


def test_columns_of_windows_go_by_rows_of_the_image() -> None:
    """Though only what reading depends on divides their places."""
    x = torch.randn(1, 2, 6, 20)
    run: Any = fastpath.compile_graph(
        torch.fx.symbolic_trace(lambda x: F.unfold(x, 3, padding=1)), [x]
    )
    assert torch.equal(run(x), F.unfold(x, 3, padding=1))
    (source,) = run.kernel_sources
    assert "// 20" not in source and "% 20" not in source and "range(6)" in source


def between(x: Any) -> Any:
    return (
        F.interpolate(x, scale_factor=2, mode="bilinear"),
        F.interpolate(x, size=(5, 6), mode="bilinear", align_corners=True),
        F.interpolate(x[0], size=31, mode="linear"),
        F.interpolate(x[None], scale_factor=1.5, mode="trilinear"),
        F.interpolate(x, size=(1, 6), mode="bilinear", align_corners=True),
    )


def test_elements_between_others() -> None:
    agree(between, image(), exact=False)
    agree(lambda x: between(x)[1:2], image(torch.float64), exact=False)


def test_gradients_are_sums_over_windows() -> None:
    """As kernels, where they are; of maxima the CPU's own writes are fewer than reads would be."""
    x = image().requires_grad_()
    for function in (
        lambda x: F.avg_pool2d(x, 3, 2, 1).sin().sum(),
        lambda x: F.interpolate(x, scale_factor=2).sin().sum(),
        lambda x: F.adaptive_avg_pool2d(x, (3, 5)).sin().sum(),
    ):
        refcompiler.reset()
        run = refcompiler.compile(function, backend="fastpath")
        (found,), (expected,) = (torch.autograd.grad(f(x), x) for f in (run, function))
        torch.testing.assert_close(found, expected)
        report = fastpath.last_report()
        assert report is not None
        assert [dict(r.aten_calls) for r in report.backwards] == [{}], report
    refcompiler.reset()
    run = refcompiler.compile(lambda x: F.max_pool2d(x, 3, 2, 1).sin().sum(), backend="fastpath")
    (a,) = torch.autograd.grad(run(x), x)
    (b,) = torch.autograd.grad(F.max_pool2d(x, 3, 2, 1).sin().sum(), x)
    torch.testing.assert_close(a, b)
    report = fastpath.last_report()
    assert report is not None and list(report.backwards[0].aten_calls) == [
        "aten.max_pool2d_with_indices_backward.default"
    ]


def test_what_surrounds_a_window_is_in_its_kernel() -> None:
    report = agree(lambda x: (torch.relu(F.avg_pool2d(x * 2, 2)) + 1,), image())
    assert report.kernels == 1


def test_large_windows_are_reductions() -> None:
    x = image()
    x[0, 0, 0, 0], x[0, 0, 2, 3], x[0, 1], x[1, 2, 3:5] = torch.nan, torch.nan, -torch.inf, 1

    def largest(x: Any) -> Any:
        return (
            *F.max_pool2d(x, 6, 3, 2, return_indices=True),
            *F.max_pool2d(x, (7, 5), return_indices=True),
            *F.adaptive_max_pool2d(x[:, :, :8], (1, 2), return_indices=True),
            F.max_pool3d(x, (4, 3, 3), 1),
        )

    agree(largest, x)

    def means(x: Any) -> Any:
        return (
            F.avg_pool2d(x, 7),
            F.avg_pool2d(x, 6, 1, 3, count_include_pad=False),
            F.avg_pool2d(x, (9, 8), (2, 1), ceil_mode=True, divisor_override=5),
            F.adaptive_avg_pool2d(x[:, :, :8], (1, 2)),
            F.avg_pool3d(x, (4, 3, 3), 1),
        )

    agree(means, image(), exact=False)
    apart = image().requires_grad_()
    refcompiler.reset()
    run = refcompiler.compile(lambda x: F.avg_pool2d(x, 9).sin().sum(), backend="fastpath")
    (found,) = torch.autograd.grad(run(apart), apart)
    (expected,) = torch.autograd.grad(F.avg_pool2d(apart, 9).sin().sum(), apart)
    torch.testing.assert_close(found, expected)
    report = fastpath.last_report()
    assert report is not None and not report.aten_calls
    assert [dict(r.aten_calls) for r in report.backwards] == [{}]


def test_windows_over_integers_are_atens() -> None:
    refcompiler.reset()
    x = image().mul(9).long()
    run = refcompiler.compile(lambda x: F.max_pool2d(x, 2), backend="fastpath")
    assert torch.equal(run(x), F.max_pool2d(x, 2))
    report = fastpath.last_report()
    assert report is not None and sum(report.aten_calls.values()) == 1


def test_the_comparison_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "within", lambda index, low, high: windows.TRUE)
    with pytest.raises(AssertionError):
        agree(lambda x: (F.avg_pool2d(x, 3, 2, 1),), image()[:, :, :5].clone())
