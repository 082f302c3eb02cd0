"""Gelus that the vendor's products compute, and products of few rows: what is found, and values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from fastpath.activations import fuse_activations
from fastpath.ir.products import FEW_ROWS, of_few_rows

BFLOAT = torch.bfloat16
FUSED = torch.ops.aten._addmm_activation.default


def numbers(*shape: int, dtype: torch.dtype = BFLOAT) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def graph_of(
    function: Callable[..., torch.Tensor], inputs: Sequence[torch.Tensor]
) -> torch.fx.GraphModule:
    with FakeTensorMode():
        fakes = [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype) for x in inputs]
        return make_fx(lambda *given: (function(*given),))(*fakes)


def gelu(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.linear(x, w, b), approximate="tanh")


LINEAR = [numbers(3, 20, 24), numbers(40, 24), numbers(40)]


@pytest.mark.parametrize(
    "function, inputs, count",
    [
        (gelu, LINEAR, 1),
        (gelu, [numbers(20, 24), *LINEAR[1:]], 1),
        (lambda *given: gelu(*given) * 2 + 1, LINEAR, 1),
        (lambda *given: gelu(*given) + F.linear(*given), LINEAR, 1),
        (lambda *given: F.gelu(y := F.linear(*given), approximate="tanh") + y, LINEAR, 0),
        (lambda *given: F.gelu(F.linear(*given)), LINEAR, 0),
        (lambda x, w, b: F.gelu(F.linear(x, w), approximate="tanh") + b, LINEAR, 0),
        (gelu, [x.float() for x in LINEAR], 0),
    ],
    ids=["rows", "matrix", "read", "beside", "kept", "erf", "no bias", "float32"],
)
def test_gelus_of_products_that_nothing_else_reads(
    function: Callable[..., torch.Tensor], inputs: list[torch.Tensor], count: int
) -> None:
    graph = graph_of(function, inputs)
    assert fuse_activations(graph) == count
    graph.graph.lint()
    targets = [node.target for node in graph.graph.nodes]
    assert targets.count(FUSED) == count
    assert (torch.ops.aten.gelu.default in targets) is not bool(count)
    graph.recompile()
    (found,) = graph(*inputs)
    exact = function(*(x.double() for x in inputs))
    eager = function(*inputs)
    assert (found.dtype, found.stride()) == (eager.dtype, eager.stride()) and found._base is None
    room = 2 * (eager.double() - exact).abs().max() + 1e-6
    assert (found.double() - exact).abs().max() <= room


def test_products_of_ours_keep_their_gelus() -> None:
    graph = graph_of(gelu, LINEAR)
    name = next(n.name for n in graph.graph.nodes if n.target is torch.ops.aten.addmm.default)
    assert fuse_activations(graph, {name}) == 0


@pytest.mark.parametrize(
    "rows, columns, depth, behind, found",
    [
        (FEW_ROWS, 1024, 1024, F.relu, 1),
        (2, 4096, 64, F.silu, 1),
        (7, 1024, 512, lambda y: y.view(7, 2, 512) * 3, 1),
        (1, 1024, 1024, F.relu, 0),
        (FEW_ROWS + 1, 1024, 1024, F.relu, 0),
        (16, 512, 1024, F.relu, 0),
        (16, 1024, 1 << 14, F.relu, 0),
        (16, 1024, 1024, lambda y: y.t(), 0),
    ],
)
def test_few_rows_with_work_behind_them(
    rows: int, columns: int, depth: int, behind: Callable[..., torch.Tensor], found: int
) -> None:
    given = [torch.empty(n, depth, dtype=BFLOAT) for n in (rows, columns)]
    graph = graph_of(lambda x, w: behind(F.linear(x, w)), given)
    tiles = of_few_rows(graph.graph)
    assert len(tiles) == found
    assert all(tile.m == FEW_ROWS and columns % tile.n == 0 for tile in tiles.values())
