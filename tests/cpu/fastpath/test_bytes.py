"""Floats of one byte: kernels cast from them and to them as eager, and move them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import fastpath
import refcompiler

BYTES = (torch.float8_e4m3fn, torch.float8_e5m2)


def _bits(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(-(1 << 15), 1 << 15, dtype=torch.int16).view(dtype)


def _edges() -> torch.Tensor:
    """Either side of where a value is rounded up or down, and of the largest ones."""
    every = torch.arange(256, dtype=torch.uint8)
    near = torch.cat([every.view(dtype).float() for dtype in BYTES])
    middle = (near[1:] + near[:-1]) / 2
    ends = torch.tensor([464.0, 480.0, 61440.0, 65536.0, 1e9, float("inf"), 2.0**-10, 2.0**-17])
    values = torch.cat([near, middle, ends])
    up, down = (torch.nextafter(values, torch.tensor(end)) for end in (1e38, -1e38))
    both = torch.cat([values, up, down])
    return torch.cat([both, -both])


GIVEN: dict[str, Callable[[], torch.Tensor]] = {
    "float32": lambda: torch.cat([_edges(), torch.randn(4000) * torch.logspace(-7, 5, 4000)]),
    "float64": lambda: _edges().double(),
    "bfloat16": lambda: _bits(torch.bfloat16),
    "float16": lambda: _bits(torch.float16),
    "int64": lambda: torch.arange(-600, 600),
    "bool": lambda: torch.tensor([True, False] * 9),
    "other": lambda: torch.arange(256, dtype=torch.uint8).view(torch.float8_e5m2),
}


def _same(ours: torch.Tensor, eager: torch.Tensor) -> bool:
    """Bit for bit, but for the sign of what is no number."""
    assert (ours.dtype, ours.shape, ours.stride()) == (eager.dtype, eager.shape, eager.stride())
    a, b = ours.float(), eager.float()
    return bool((((a == b) & (a.signbit() == b.signbit())) | (a.isnan() & b.isnan())).all())


def _agree(function: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    refcompiler.reset()
    found, expected = refcompiler.compile(function, fullgraph=True)(*inputs), function(*inputs)
    for ours, eager in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, expected))):
        assert _same(ours, eager)
    report = fastpath.last_report()
    assert report.fallback is None
    return report


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("given", GIVEN)
def test_casts_to_them(given: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = GIVEN[given]()
    report = _agree(lambda x: x.to(dtype), x)
    assert report.kernels == (x.dtype != dtype) and not report.aten_calls


@pytest.mark.parametrize("dtype", BYTES)
def test_casts_from_them(dtype: torch.dtype) -> None:
    x = torch.arange(256, dtype=torch.uint8).view(dtype)

    def cast(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.float() * 2, x.bfloat16(), x.half(), x.double()

    assert not _agree(cast, x).aten_calls


def test_rows_are_scaled_and_cast_in_one_kernel() -> None:
    def quantised(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scale = x.abs().amax(-1, True) / 448
        return (x / scale).to(torch.float8_e4m3fn), scale

    torch.manual_seed(0)
    report = _agree(quantised, torch.randn(64, 300))
    assert report.kernels == 1 and not report.aten_calls


def test_views_of_them() -> None:
    x = torch.randn(33, 70).to(torch.float8_e4m3fn)
    for function in (
        lambda x: x.t().float() * 2,
        lambda x: x[::2, 1:].clone(),
        lambda x: x.float().sum(0).to(torch.float8_e5m2),
    ):
        report = _agree(function, x)
        assert report.kernels >= 1 and not report.aten_calls
    assert _agree(lambda x: torch.cat([x, x]), x).aten_calls  # nothing is computed on them


def test_they_compile_for_gpus_without_instructions_for_them() -> None:
    pytest.importorskip("triton")
    from fastpath.gpu.compile import machine_code
    from fastpath.gpu.vectors import print_kernel
    from tests.cpu.fastpath.triton_kernels import kernels_of, program_of

    def both(x: torch.Tensor) -> list[torch.Tensor]:
        return [x.float() * 2, *(x.to(dtype) for dtype in BYTES)]

    for dtype in BYTES:
        x = torch.empty(64, 512, dtype=dtype, device="meta")
        (kernel,) = kernels_of(program_of(both, [x]))[0]
        for architecture in (80, 90):
            code = machine_code(
                print_kernel(kernel), tuple(b.dtype for b in kernel.buffers), architecture
            )
            assert code.asm["cubin"]
