"""Sums of products that the products compute: which are, what comes out, and what is held."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import fastpath
import fastpath.accumulating
import refcompiler
from benchmarks.cpu.measure import peak

Made = Callable[..., Any]


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    found: list[int] = []
    rewrite = fastpath.accumulating.accumulate_products

    def counted(graph: torch.fx.GraphModule) -> int:
        found.append(rewrite(graph))
        return found[-1]

    monkeypatch.setattr(fastpath.accumulating, "accumulate_products", counted)
    return found


def mm3(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
    return a @ b + b @ c + c @ a


def turned(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
    return ((a @ b).t() + (c @ b).t() + (a @ c).t()) * 2


def batches(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
    x, y, z = (torch.stack((t, t * 2, t - 1)) for t in (a, b, c))
    return torch.bmm(x, y) + torch.bmm(y, z)


def viewed(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
    return ((a @ b).view(-1) + (b @ c).view(-1)).exp()


def biased(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
    return torch.addmm(c[0], a, b) + b @ c


def late(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
    """The product that has something to add to comes second."""
    first = a @ b
    return torch.addmm(c, b, c) + first


def read_twice(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
    p = a @ b
    return p + b @ c, p * 2


def itself(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
    p = a @ b
    return p + p


def scaled(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
    return torch.add(a @ b, b @ c, alpha=3)


def other_views(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
    return (a @ b).t() + b @ c


def a_sum_that_is_returned(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
    return (a @ b).t() + (b @ c).t()


#: And how many of the sums are the products' own.
PROGRAMS: list[tuple[Made, int]] = [
    (mm3, 2),
    (turned, 2),
    (batches, 1),
    (viewed, 1),
    (biased, 1),
    (late, 0),
    (read_twice, 0),
    (itself, 0),
    (scaled, 0),
    (other_views, 0),
    (a_sum_that_is_returned, 0),
]


@pytest.mark.parametrize(("function", "count"), PROGRAMS)
@pytest.mark.parametrize("dtype, side", [(torch.float32, 33), (torch.float64, 5)])
def test_sums_of_products(
    function: Made, count: int, dtype: torch.dtype, side: int, counts: list[int]
) -> None:
    inputs = torch.randn(3, side, side, dtype=dtype).unbind()
    graph = make_fx(function, tracing_mode="fake")(*inputs)
    before = str(graph.graph)
    call: Any = fastpath.compile_graph(graph, list(inputs))
    assert call.report.fallback is None and sum(counts) == count
    assert str(graph.graph) == before  # whose it is may compile it once more
    for given in (inputs, [t - 1 for t in inputs]):
        found, expected = call(*given), function(*given)
        if isinstance(expected, torch.Tensor):
            found = found if isinstance(found, torch.Tensor) else found[0]
            assert found.stride() == expected.stride() and not found._is_view()
        torch.testing.assert_close(
            tuple(found) if isinstance(expected, tuple) else found, expected, rtol=1e-4, atol=1e-4
        )


def test_other_dtypes_are_left_alone(counts: list[int]) -> None:
    inputs = torch.randn(3, 16, 16).bfloat16().unbind()
    fastpath.compile_graph(make_fx(mm3, tracing_mode="fake")(*inputs), list(inputs))
    assert counts == [0]


@pytest.mark.parametrize(("rows", "kernels"), [(16, 23), (7, 0)])  # of few rows ATen's
def test_a_weight_that_is_used_often_has_one_gradient(rows: int, kernels: int) -> None:
    class Repeated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(128, 128, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(12):
                x = torch.tanh(self.layer(x))
            return x

    model, x = Repeated(), torch.randn(rows, 128)
    compiled: Any = refcompiler.compile(model, backend="fastpath")

    def step(call: Any) -> torch.Tensor:
        model.zero_grad()
        call(x).square().sum().backward()
        assert model.layer.weight.grad is not None
        return model.layer.weight.grad

    for _ in range(2):
        torch.testing.assert_close(step(compiled).clone(), step(model), rtol=1e-4, atol=1e-4)
        x.add_(0.5)
    (backward,) = fastpath.last_report().backwards
    assert backward.products == kernels
    # What is saved, a result of a layer, and the sum, to which each product adds in place.
    assert peak(lambda: step(compiled)) < 13 * x.nbytes + model.layer.weight.nbytes + 100
