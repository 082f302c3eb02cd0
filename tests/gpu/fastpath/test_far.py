"""Tensors of more than 2**31 elements: places and positions of 64 bits, and draws eager splits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import fastpath
import refcompiler
from tests.cpu.fastpath import triton_far
from tests.gpu.fastpath.test_random import _agree

GIGABYTES = 40  # of the device, for what a test holds at once
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available()
    or torch.cuda.get_device_properties(0).total_memory < GIGABYTES << 30,
    reason=f"needs a CUDA device of {GIGABYTES} gigabytes",
)
HALF = torch.bfloat16
HIGH, WIDE = 70_000, 40_000  # 2.8e9 elements
MOST = 1 << 31


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    torch.cuda.empty_cache()  # what other processes of a parallel run can use
    yield
    refcompiler.reset()
    torch.cuda.empty_cache()


def small(*shape: int, dtype: torch.dtype = torch.int8) -> torch.Tensor:
    """Numbers from -8 to 7, which no period that is a power of two repeats."""
    found = torch.empty(*shape, dtype=dtype, device="cuda")
    flat = found.view(-1)
    for first in range(0, flat.numel(), 1 << 28):
        part = flat[first : first + (1 << 28)]
        part.copy_((torch.arange(part.numel(), device="cuda", dtype=torch.int32) + first) % 17 - 8)
    return found


def equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Without masks of the whole."""
    if (a.shape, a.dtype, a.stride()) != (b.shape, b.dtype, b.stride()):
        return False
    if a.dim() == 0 or a.numel() < 1 << 28:
        return torch.equal(a, b)
    if a.shape[0] == 1:
        return equal(a[0], b[0])
    step = max(1, (1 << 28) * a.shape[0] // a.numel())
    return all(torch.equal(x, y) for x, y in zip(a.split(step), b.split(step), strict=True))


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    refcompiler.reset()
    return refcompiler.compile(function, fullgraph=True, **options)


def check(function: Callable[..., Any], *inputs: torch.Tensor) -> None:
    ours = compiled(function)(*inputs)
    report = fastpath.last_report()
    assert report.fallback is None and report.kernels and not report.aten_calls, str(report)
    eager = function(*inputs)
    if isinstance(ours, torch.Tensor):
        ours, eager = [ours], [eager]
    assert len(ours) == len(eager)
    for a, b in zip(ours, eager):
        assert equal(a, b)


FAR = "columns rows all points turned one scans data quotients ranges".split() + ["put together"]


@pytest.mark.parametrize("name", FAR)
def test_what_lies_far_apart(name: str) -> None:
    function, plain, inputs = triton_far.cases("cuda")[name]
    found, expected = compiled(function)(*inputs), plain(*inputs)
    if isinstance(found, torch.Tensor):
        found, expected = [found], [expected]
    assert fastpath.last_report().kernels
    for ours, eager in zip(found, expected, strict=True):
        assert torch.equal(ours, eager)


def test_points() -> None:
    x = small(MOST + 4099)
    check(lambda x: (x * 3).relu() ^ 5, x)
    check(lambda x: x.flip(0) + 1, x)
    check(lambda x: x[3:] - x[:-3], x)
    check(lambda x: [x[MOST + 7] * 2, x[MOST - 1 : MOST + 9] * 2], x)
    # Sizes just in range of 32 bits, whose last block is not.
    for n in (MOST - 1, MOST, MOST + 1):
        check(lambda x: x * 2, x[:n])


def test_in_place() -> None:
    x = small(HIGH, WIDE)
    other = x.clone()

    def program(x: torch.Tensor, y: torch.Tensor) -> None:
        x[HIGH - 3 :].add_(1)
        x[:, WIDE - 2 :].mul_(2)
        x[y, 5] = 3

    rows = torch.tensor([69_999, 60_000, 5], device="cuda")
    compiled(program)(x, rows)
    program(other, rows)
    assert equal(x, other)


def test_reductions() -> None:
    x = small(HIGH, WIDE)
    x[HIGH - 1, WIDE - 3], x[7, 9] = 100, -100
    check(lambda x: [x.sum(0), x.amax(0)], x)
    check(lambda x: [x.sum(1), x.amin(1), x.argmax(1)], x)
    check(lambda x: [x.sum(), x.amax(), x.amin()], x)
    check(lambda x: [x.argmax(), x.argmin()], x)
    check(lambda x: x.view(-1, 5).sum(1), x)
    check(lambda x: (x > 5).any(0), x)
    check(lambda x: x.t().sum(0), x)
    check(lambda x: x[:, :3].cumsum(0), x)
    check(lambda x: x.view(-1)[:MOST].view(2, -1).sum(1), x)


def test_transposes() -> None:
    x = small(HIGH, WIDE)
    check(lambda x: x.t().contiguous(), x)
    check(lambda x: x.view(7, 10_000, WIDE).transpose(0, 2).contiguous() + 1, x)
    x = x.view(-1)[: 40 * (MOST // 32)]
    check(lambda x: x.view(40, -1).t().contiguous() + 1, x)
    check(lambda x: x.view(-1, 40).t().contiguous() + 1, x)


def test_positions_that_are_data() -> None:
    x = small(HIGH, WIDE)
    rows = torch.randint(-HIGH, HIGH, (5000,), device="cuda")
    rows[:3] = torch.tensor([HIGH - 1, -1, -HIGH], device="cuda")
    places = torch.randint(HIGH * WIDE, (5000,), device="cuda")
    places[0] = HIGH * WIDE - 1
    check(lambda x, i: x[i] * 2, x, rows)
    check(lambda x, i: x.view(-1)[i] * 2, x, places)
    check(lambda x, i: torch.gather(x, 0, i.abs().view(1, -1) % HIGH) + 1, x, rows)
    check(lambda x, i: torch.take(x, i) * 3, x, places)

    def scattered(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x.view(-1).index_fill(0, i, 3)

    check(scattered, x, places[:3])


def test_normalised_rows() -> None:
    for width in (32_768, 50_257):
        x = small(MOST // width + 3000, width, dtype=HALF)
        weight = small(width, dtype=HALF)
        for function in (
            lambda x, w: torch.softmax(x, -1),
            lambda x, w: F.layer_norm(x, w.shape, w),
        ):
            ours = compiled(function)(x, weight)
            eager = function(x, weight)
            step = 4096
            for a, b in zip(ours.split(step), eager.split(step), strict=True):
                torch.testing.assert_close(a, b, rtol=1.6e-2, atol=1e-3)
            del ours, eager
    x, targets = x[:, :50_000], torch.arange(len(x), device="cuda") % 50_000
    ours, eager = compiled(F.cross_entropy)(x, targets), F.cross_entropy(x, targets)
    torch.testing.assert_close(ours, eager, rtol=2e-3, atol=1e-3)


def test_moments_of_columns() -> None:
    x = small(HIGH, WIDE, dtype=HALF)
    mean, var = compiled(lambda x: (x.mean(0), x.var(0)))(x)
    for first in range(0, WIDE, 1000):
        part = x[:, first : first + 1000].double()
        torch.testing.assert_close(mean[first : first + 1000], part.mean(0).to(HALF))
        torch.testing.assert_close(var[first : first + 1000], part.var(0).to(HALF))


def test_gradients() -> None:
    x = small(MOST + 4099, dtype=HALF).requires_grad_()
    weight = torch.tensor(0.5, device="cuda", dtype=HALF)

    def program(x: torch.Tensor) -> torch.Tensor:
        return (torch.relu(x) * weight)[5:]

    given = small(MOST + 4094, dtype=HALF)
    (ours,) = torch.autograd.grad(compiled(program)(x), x, given)
    (eager,) = torch.autograd.grad(program(x), x, given)
    assert equal(ours, eager)


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_one_program_for_sizes_on_either_side(mode: str | None) -> None:
    x = small(MOST + 4096)

    def program(x: torch.Tensor) -> list[torch.Tensor]:
        return [x * 2, x.flip(0)[:9] + 1, x.view(16, -1).sum(0)[:99]]

    ours = compiled(program, dynamic=True, mode=mode)
    for n in (1 << 12, 1 << 20, MOST + 4096, 3 << 10, MOST - 16, MOST, 1 << 14):
        for a, b in zip(ours(x[:n]), program(x[:n]), strict=True):
            assert equal(a, b), n


def test_draws() -> None:
    """What is at most 2**31 bytes is drawn in kernels; of more eager draws one part after the
    other, each from a place of its own in the generator's stream."""
    kept = fastpath_draws(lambda: torch.empty(MOST - 9, dtype=torch.bool, device="cuda"))
    assert kept
    assert fastpath_draws(lambda: torch.empty((1 << 29) - 1, device="cuda"))
    assert not fastpath_draws(lambda: torch.empty((1 << 29) + 5, device="cuda"))
    assert not fastpath_draws(lambda: torch.empty((1 << 30) + 5, dtype=HALF, device="cuda"))
    for n in (MOST - 8, MOST - 9, MOST + 8):  # dropout takes them all at once
        _agree(lambda x: F.dropout(x, 0.3), small(n, dtype=HALF))
        torch.cuda.empty_cache()


def fastpath_draws(make: Callable[[], torch.Tensor]) -> bool:
    def program() -> torch.Tensor:
        return make().bernoulli_(0.3)

    report = _agree(program)
    torch.cuda.empty_cache()
    return bool(report.draws)
