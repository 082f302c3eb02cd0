"""Gradients of embeddings as a device computes them: what they become has eager's values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from fastpath.embeddings import sum_embeddings

aten = torch.ops.aten
ROWS = 40


def traced(padding: int, often: bool, *inputs: torch.Tensor) -> torch.fx.GraphModule:
    def gradient(g: Any, i: Any) -> Any:
        return aten.embedding_dense_backward(g, i, ROWS, padding, often)

    with FakeTensorMode() as mode:
        graph = make_fx(gradient)(*(mode.from_tensor(t) for t in inputs))
    return graph


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize(
    ("shape", "padding"), [((3, 5), -1), ((3, 5), 7), ((6, 20), 39), ((39,), 0), ((1,), 0)]
)
def test_sums_of_rows(shape: tuple[int, ...], padding: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    graph = None
    for kind in (torch.int64, torch.int32):
        places = torch.randint(ROWS, shape).to(kind)
        places[..., : shape[-1] // 2 + 1] = 7  # many of one row
        given = torch.randn(*shape, 2, 6).to(dtype)[..., 1, :]  # whose rows lie apart
        if padding == 7:
            given[..., 0, :] = torch.nan  # which nobody asked for
        if graph is None or kind is torch.int32:
            graph = traced(padding, False, given, places)
            assert sum_embeddings(graph) == 1
            targets = [n.target for n in graph.graph.nodes]
            few = dtype is not torch.float32 and places.numel() < ROWS
            assert (aten.scatter.src in targets) == few
        got = torch.fx.Interpreter(graph).run(given, places)
        exact = aten.embedding_dense_backward(given.double(), places, ROWS, padding, False)
        eager = aten.embedding_dense_backward(given, places, ROWS, padding, False)
        assert (got.dtype, got.stride()) == (eager.dtype, eager.stride())
        torch.testing.assert_close(got.double(), exact.to(dtype).double(), rtol=1e-6, atol=1e-6)


def test_what_is_left_to_eagers_kernel() -> None:
    inputs = torch.randn(3, 5, 6), torch.randint(ROWS, (3, 5))
    assert sum_embeddings(traced(-1, True, *inputs)) == 0  # scaled by how often a row is read
    assert sum_embeddings(traced(-1, False, inputs[0].double(), inputs[1])) == 0
    torch.use_deterministic_algorithms(True)
    try:
        assert sum_embeddings(traced(-1, False, *inputs)) == 0
    finally:
        torch.use_deterministic_algorithms(False)
    assert sum_embeddings(traced(-1, False, *inputs)) == 1
