"""Gradients of embeddings on a GPU: sums of rows by positions, without sorting."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import fastpath
import refcompiler
from fastpath.gpu.embedding import MOST, NAME

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def looked_up(positions: Any, weight: Any) -> Any:
    return F.embedding(positions, weight, padding_idx=1) * 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(
    "shape, words, width",
    [((8, 128), 3000, 96), ((4, 300), 5, 768), ((1000,), 1, 33), ((2, MOST), 500, 32)],
    ids=["words", "often", "one", "many"],
)
def test_gradients(shape: Any, words: int, width: int, dtype: torch.dtype) -> None:
    refcompiler.reset()
    compiled = refcompiler.compile(looked_up, fullgraph=True)
    for seed in range(2):
        torch.manual_seed(seed)
        positions = torch.randint(words, shape, device="cuda")
        weight = torch.randn(max(words, 2), width, device="cuda").to(dtype).requires_grad_()
        exact = weight.detach().double().requires_grad_()
        found, wanted, sums = (
            torch.autograd.grad(f(positions, w).cos().sum(), [w])[0]
            for f, w in ((compiled, weight), (looked_up, weight), (looked_up, exact))
        )
        assert (found.dtype, found.stride()) == (wanted.dtype, wanted.stride())
        step = torch.finfo(dtype).eps
        room = 2 * (wanted.double() - sums).abs().max() + 4 * step * sums.abs().max()
        assert (found.double() - sums).abs().max() <= room
        assert not found[1].any()
        again = torch.autograd.grad(compiled(positions, weight).cos().sum(), [weight])[0]
        assert torch.equal(found, again)
    report = fastpath.last_report()
    assert report is not None and report.fallback is None
    assert (NAME in report.backwards[0].aten_calls) == (shape == (2, MOST))
