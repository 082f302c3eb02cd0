"""Gradients of embeddings on a GPU: as near to float64's as eager's, in eager's layout."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import fastpath
import refcompiler

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

SIZES = [
    (50257, (8, 64), 96, None),
    (1000, (4, 700), 33, 3),
    (64, (2, 5000), 8, None),
    (5000, (7,), 130, 4999),
    (30, (1,), 1, 0),
]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize(("rows", "shape", "width", "padding"), SIZES)
def test_gradients(
    rows: int, shape: tuple[int, ...], width: int, padding: int | None, dtype: torch.dtype
) -> None:
    def looked_up(i: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return F.embedding(i, w, padding_idx=padding) * s

    refcompiler.reset()
    compiled = refcompiler.compile(looked_up, fullgraph=True)
    weight = torch.randn(rows, width, device="cuda", dtype=dtype, requires_grad=True)
    for call in range(3):
        places = torch.randint(rows, shape, device="cuda")
        if call == 2:
            places[..., : shape[-1] // 2 + 1] = rows - 1  # many of one row
        if padding is not None:
            places.view(-1)[0] = padding
        scale, tangent = (torch.randn(*shape, width, device="cuda", dtype=dtype) for _ in range(2))
        found = []
        for function in (compiled, looked_up):
            (one,) = torch.autograd.grad(function(places, weight, scale), weight, tangent)
            found.append(one)
        ours, eager = found
        exact = torch.zeros(rows, width, device="cuda", dtype=torch.float64)
        kept = places.flatten() != (-1 if padding is None else padding)
        each = (tangent * scale).double().flatten(0, -2)[kept]
        exact.index_add_(0, places.flatten()[kept], each)
        assert (ours.dtype, ours.stride()) == (eager.dtype, eager.stride())
        room = 1.3 * (eager.double() - exact).norm() + 1e-6 * exact.norm()
        assert (ours.double() - exact).norm() <= room
        assert torch.equal(ours.count_nonzero(1) == 0, eager.count_nonzero(1) == 0)
    (back,) = fastpath.last_report().backwards
    assert back.fallback is None and "aten.embedding_dense_backward.default" not in back.aten_calls
