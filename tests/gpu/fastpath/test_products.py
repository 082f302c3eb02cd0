"""Matrix products in kernels of ours on a GPU: their values, and that the fastest way is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import fastpath
import refcompiler
from fastpath.gpu import tuning
from fastpath.ir.program import Tile
from refcompiler.cache import store
from tests.cpu.fastpath.triton_kernels import on_cuda
from tests.cpu.fastpath.triton_products import CASES, execute

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("tile", [Tile(16, 16, 16, 4, 2), Tile(64, 32, 32, 4, 3)], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, tile: Tile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", True)
    assert execute(name, on_cuda, "cuda", tile)[2] > 100


def normal(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(shape, device="cuda").to(dtype)


def images(*shape: int) -> torch.Tensor:
    return normal(*shape).contiguous(memory_format=torch.channels_last)


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], list[torch.Tensor]]]] = {
    "gelu": (
        lambda x, w, b: F.gelu(F.linear(x, w, b), approximate="tanh"),
        lambda: [normal(2, 512, 768), normal(3072, 768), normal(3072)],
    ),
    "odd": (
        lambda x, w: F.linear(x, w) * 2,
        lambda: [normal(1024, 768), normal(5001, 768)],
    ),
    "batch": (
        lambda a, b: torch.relu(a @ b.mT),
        lambda: [normal(16, 257, 64), normal(16, 511, 64)],
    ),
    "few rows": (
        lambda x, w: F.silu(x @ w),
        lambda: [normal(16, 4096), normal(4096, 4096)],
    ),
    "convolution": (
        lambda x, w, b, y: torch.relu(F.conv2d(x, w, b, padding=1) + y),
        lambda: [images(4, 64, 28, 28), images(96, 64, 3, 3), normal(96), images(4, 96, 28, 28)],
    ),
    "convolution by channels": (
        lambda x, w: F.silu(F.conv2d(x * 2 + 1, w, stride=2, padding=2)),
        lambda: [normal(16, 24, 29, 31), normal(32, 24, 3, 3)],
    ),
    "dropout": (
        lambda x, w, y: F.dropout(x @ w, 0.5) + y,
        lambda: [normal(512, 512), normal(512, 512), normal(512, 512)],
    ),
}


@pytest.mark.parametrize("forced", [False, True], ids=["measured", "ours"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_tuned(name: str, forced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    function, make = PROGRAMS[name]
    monkeypatch.setattr(tuning, "_known", {})
    monkeypatch.setattr(store, "current", lambda: None)
    monkeypatch.setattr(tuning, "GAIN", 100.0 if forced else tuning.GAIN)
    inputs = make()
    refcompiler.reset()
    compiled = refcompiler.compile(function, mode="max-autotune-no-cudagraphs")
    torch.manual_seed(1)
    got = compiled(*inputs)
    after = torch.cuda.get_rng_state()
    torch.manual_seed(1)
    eager = function(*inputs)
    assert torch.equal(after, torch.cuda.get_rng_state())
    exact = function(*(x.double() for x in inputs)) if name != "dropout" else eager.double()
    room = 4 * (eager.double() - exact).abs().max() + 0.02 * exact.abs().max()
    assert (got.double() - exact).abs().max() <= room and got.stride() == eager.stride()
    report = fastpath.last_report()
    assert report is not None and report.fallback is None
    assert report.kernels + len(report.aten_calls) >= 1  # cuBLAS may compute the gelu, too
    if forced:
        assert report.products == 1 and not report.aten_calls


def head(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.linear(x, w)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("trained", [True, False], ids=["trained", "frozen"])
@pytest.mark.parametrize("words, rows, way", [(5001, 1024, 2), (5004, 1022, 2), (5001, 1023, 1)])
def test_classes_of_rows(
    words: int, rows: int, way: int, trained: bool, dtype: torch.dtype
) -> None:
    """A head of an odd number of words and its gradients, by the vendor's kernels for parts.

    What is given for the head's results is padded for the gradient of its weights, if that is
    asked for, and multiplied so for the other.
    """
    refcompiler.reset()
    compiled = refcompiler.compile(head, fullgraph=True)
    torch.use_deterministic_algorithms(True, warn_only=True)  # fresh memory is NaN
    try:
        for call in range(2):
            # The second time, the rows of what is given do not begin at vectors.
            x = normal(rows, 768 + call, dtype=dtype)[:, call:].detach().requires_grad_()
            w = normal(words, 768, dtype=dtype).requires_grad_(trained)
            of = [x, w] if trained else [x]
            seed = normal(rows, words, dtype=dtype)
            got, eager = compiled(x, w), head(x, w)
            exact = head(x.double(), w.double())
            found = [got, *torch.autograd.grad(got, of, seed)]
            wanted = [eager, *torch.autograd.grad(eager, of, seed)]
            exacts = [exact, *torch.autograd.grad(exact, of, seed.double())]
            for a, b, c in zip(found, wanted, exacts, strict=True):
                assert (a.dtype, a.stride()) == (b.dtype, b.stride())
                room = 2 * (b.double() - c).abs().max()
                assert (a.double() - c).abs().max() <= room
            if call == 0:
                report = fastpath.last_report()
                assert report is not None and report.fallback is None
                names = [*report.aten_calls, *report.backwards[0].aten_calls]
                classes = way == 2, way == 2 and not trained
                assert ("by_columns" in names, "by_terms" in names) == classes
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("words, ours", [(5001, True), (5000, False)])
def test_results_whose_rows_begin_between_vectors(words: int, ours: bool) -> None:
    """A head of an odd number of words: stored as eager lays it, by the kernel that multiplies."""
    refcompiler.reset()
    compiled = refcompiler.compile(lambda x, w, b: F.linear(x, w, b), fullgraph=True)
    for _ in range(2):
        inputs = [normal(2, 512, 768), normal(words, 768), normal(words)]
        got, eager = compiled(*inputs), F.linear(*inputs)
        exact = F.linear(*(x.double() for x in inputs))
        assert got.stride() == eager.stride() and got.dtype is eager.dtype
        room = 2 * (eager.double() - exact).abs().max()
        assert (got.double() - exact).abs().max() <= room
    report = fastpath.last_report()
    assert report is not None and report.products == ours and bool(report.aten_calls) != ours
