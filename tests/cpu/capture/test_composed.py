"""Functions for which eager has a kernel, and torch only compositions, or no stand-in at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.distributions import Beta, Dirichlet

import refcompiler


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    refcompiler.reset()


ROWS: dict[str, Callable[[], torch.Tensor]] = {
    "contiguous": lambda: torch.randn(2, 4, 8),
    "transposed": lambda: torch.randn(2, 8, 4).mT,
    "batch inside": lambda: torch.randn(4, 2, 8).transpose(0, 1),
}
IMAGES: dict[str, Callable[[], torch.Tensor]] = {
    "contiguous": lambda: torch.randn(2, 4, 3, 5),
    "channels last": lambda: torch.randn(2, 4, 3, 5).to(memory_format=torch.channels_last),
    "volumes": lambda: torch.randn(2, 4, 3, 5, 2).to(memory_format=torch.channels_last_3d),
}
COMPOSED: dict[str, tuple[Callable[[Any], Any], dict[str, Callable[[], torch.Tensor]]]] = {
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), ROWS),
    "max_pool1d with places": (lambda x: F.max_pool1d(x, 2, return_indices=True), ROWS),
    "max_pool1d of torch": (lambda x: torch.max_pool1d(x, 3, 2, 1, 1, True), ROWS),
    "one_hot": (lambda x: F.one_hot((x > 0).long(), 3), ROWS),
    "rrelu": (lambda x: (F.rrelu(x), F.rrelu(x, training=True)), ROWS),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 2), IMAGES),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_results_lie_as_those_of_eagers_kernel(name: str) -> None:
    function, kinds = COMPOSED[name]
    stands: list[tuple] = []

    def backend(graph: torch.fx.GraphModule, _inputs: Any) -> Callable:
        results = next(iter(graph.graph.find_nodes(op="output"))).args[0]
        stands.extend([n.meta["example_value"].stride() for n in results])
        return graph

    for make in kinds.values():
        for grad in (False, True):
            x = make().requires_grad_(grad)
            torch.manual_seed(1)
            wanted = torch.utils._pytree.tree_leaves(function(x))
            stands.clear()
            refcompiler.compile(function, backend=backend, fullgraph=True, dynamic=False)(x)
            assert stands == [t.stride() for t in wanted]
            for dynamic in (False, True):
                torch.manual_seed(1)
                compiled = refcompiler.compile(
                    function, backend="aot_eager", fullgraph=True, dynamic=dynamic
                )
                found = torch.utils._pytree.tree_leaves(compiled(x))
                for a, b in zip(found, wanted, strict=True):
                    assert a.stride() == b.stride() and torch.equal(a, b)
                    assert a.requires_grad == b.requires_grad
            refcompiler.reset()


def test_draws_of_beta_and_dirichlet_are_in_one_graph_with_gradients() -> None:
    def program(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first, second = Beta(a, b), Dirichlet(torch.stack([a, b, a * b], -1))
        x, y = first.rsample(), second.rsample()
        return x, first.log_prob(x), first.entropy(), y, second.log_prob(y), second.sample((2,))

    compiled = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    for size in (3, 5, 4):
        found = []
        for function in (program, compiled):
            torch.manual_seed(size)
            given = [torch.rand(size).add_(0.5).requires_grad_() for _ in range(2)]
            results = function(*given)
            loss = torch.stack([t.square().sum() for t in results]).sum()
            gradients = torch.autograd.grad(loss, given)
            found.append([*results, torch.get_rng_state(), *gradients])
        for i, (a, b) in enumerate(zip(*found, strict=True)):
            assert a.stride() == b.stride()
            if i < 7:
                assert torch.equal(a, b)
            else:  # whose terms are added in another order
                torch.testing.assert_close(a, b)
    assert refcompiler.counters()["graphs"] == 2
