"""What is computed more than once is computed once: how often, and that nothing else is seen."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import fastpath
import fastpath.compiler
import refcompiler

Made = Callable[..., Any]


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many nodes each graph has no more."""
    found: list[int] = []
    rewrite = fastpath.compiler.merge_equal

    def counted(graph: torch.fx.GraphModule) -> int:
        found.append(rewrite(graph))
        return found[-1]

    monkeypatch.setattr(fastpath.compiler, "merge_equal", counted)
    return found


def sums(x: torch.Tensor, y: torch.Tensor) -> Any:
    return (x @ y).sum(0) * 2 + (x @ y).sum(0) * 3


def both_returned(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x @ y, x @ y


def views_returned(x: torch.Tensor, y: torch.Tensor) -> Any:
    return (x @ y).t(), (x @ y)[1:], (x @ y).exp()


def of_an_input(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x.t(), x.t(), x.t() + y


def one_returned(x: torch.Tensor, y: torch.Tensor) -> Any:
    return torch.tanh(x @ y).sum(), torch.tanh(x @ y)


def several_results(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x.sort(0)[1] + x.sort(0)[1], x.sort(1), x.sort(1)


def parts_returned(x: torch.Tensor, y: torch.Tensor) -> Any:
    return (x @ y).repeat(2, 1)[::2], (x @ y).repeat(2, 1)[::2]


def like_constants(x: torch.Tensor, y: torch.Tensor) -> Any:
    one = torch.full((), 1), torch.full((), 1.0), torch.full((), True)
    zero = torch.full((3,), 0.0), torch.full((3,), -0.0)
    return (*one, 1 / zero[0], 1 / zero[1], x + math.nan, x + math.nan)


def drawn(x: torch.Tensor, y: torch.Tensor) -> Any:
    mask = torch.dropout(x, 0.5, True)
    return torch.rand(8) + torch.rand(8), torch.nn.functional.dropout(x) + mask


def written(x: torch.Tensor, y: torch.Tensor) -> Any:
    a, b = x * 2, x * 2
    a.add_(y)
    return a.sin(), b.sin(), x * 2


#: And how many nodes of each are merged.
PROGRAMS: list[tuple[Made, int]] = [
    (sums, 2),
    (both_returned, 1),
    (views_returned, 2),
    (of_an_input, 0),
    (one_returned, 2),
    (several_results, 2),
    (parts_returned, 2),
    (like_constants, 1),
    (drawn, 1),
    (written, 2),
]


@pytest.mark.parametrize(
    ("function", "count", "dynamic"),
    [(*each, False) for each in PROGRAMS] + [(*each, True) for each in PROGRAMS[1:4]],
)
def test_programs(function: Made, count: int, dynamic: bool, counts: list[int]) -> None:
    compiled: Any = refcompiler.compile(function, backend="fastpath", dynamic=dynamic)
    x, y = torch.randn(2, 12, 12)
    for given in ((x, y), (y, x - 1)):
        torch.manual_seed(1)
        found = compiled(*given)
        after = torch.get_rng_state()
        torch.manual_seed(1)
        expected = function(*given)
        assert torch.equal(torch.get_rng_state(), after)
        leaves = [torch.utils._pytree.tree_leaves(t) for t in (found, expected)]
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5, equal_nan=True)
        memory = [[t.untyped_storage().data_ptr() for t in some] for some in leaves]
        for a, b in zip(*leaves, strict=True):
            assert a.dtype == b.dtype and a.stride() == b.stride()
        shared = [[a.index(p) for p in a] for a in memory]
        assert shared[0] == shared[1]  # which of the results are of one tensor
        assert [a is b for a in leaves[0] for b in leaves[0]] == [
            a is b for a in leaves[1] for b in leaves[1]
        ]
    assert fastpath.last_report().fallback is None
    assert counts == [count]


def test_equal_gradients_are_two_tensors(counts: list[int]) -> None:
    """As those of a recurrent cell's two biases are."""
    cells, x = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(2)]), torch.randn(3, 4)

    def run(x: torch.Tensor) -> torch.Tensor:
        return (cells[0](x) + cells[1](x * 2)).square().sum()

    compiled: Any = refcompiler.compile(run, backend="fastpath")

    def gradients(call: Made) -> list[torch.Tensor]:
        cells.zero_grad()
        call(x).backward()
        return [p.grad for p in cells.parameters() if p.grad is not None]

    for _ in range(2):
        found, expected = gradients(compiled), gradients(run)
        torch.testing.assert_close(found, expected)
        assert len({g.data_ptr() for g in found}) == 4
        x.add_(1)
    assert fastpath.last_report().fallback is None
    assert counts[1] >= 2  # a sum, and its operand's transposed view


@pytest.mark.parametrize(("inner", "products"), [(False, 6), (True, 7)])
def test_what_is_computed_again_is_not_kept(inner: bool, products: int) -> None:
    """A checkpoint in another one computes again what that did."""

    def layer(x: torch.Tensor) -> torch.Tensor:
        return (x @ x).sin() @ x

    def outer(x: torch.Tensor) -> torch.Tensor:
        return (checkpoint(layer, x, use_reentrant=False) if inner else layer(x)).cos()

    def run(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(outer, x, use_reentrant=False).sum()

    compiled: Any = refcompiler.compile(run, backend="fastpath")
    for seed in range(2):
        x = torch.randn(16, 16, generator=torch.Generator().manual_seed(seed)).div_(4)
        x.requires_grad_()
        (found,), (expected,) = (torch.autograd.grad(call(x), x) for call in (compiled, run))
        torch.testing.assert_close(found, expected)
    assert [r.products for r in fastpath.last_report().backwards] == [products]


def test_sparse_gradients_are_left_as_they_are() -> None:
    refcompiler.reset()
    bag = torch.nn.EmbeddingBag(20, 4, mode="sum", sparse=True)
    places = torch.randint(0, 20, (3, 4))
    seen = []
    for each in (bag, refcompiler.compile(bag, backend="fastpath", fullgraph=True)):
        bag.zero_grad()
        (each(places).square().mean() + each(places).sum()).backward()
        gradient = bag.weight.grad
        assert gradient is not None and gradient.is_sparse
        seen.append(gradient.to_dense())
    torch.testing.assert_close(seen[1], seen[0])
    assert refcompiler.counters()["uncompiled"] == 0
