"""Gradients of what several graphs read: added up one by one, as in eager."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import refcompiler
from tests.cpu.aot.programs import Compiler

#: Rules of ``specs.ahead`` that are tested here.
KEPT = {"gradients of several graphs"}
READERS = 3


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    refcompiler.reset()


def stacked(x: torch.Tensor, shared: torch.Tensor) -> Any:
    """Graphs that read ``shared`` four times each; one of the results is not used."""
    for _ in range(READERS):
        x = x.sin() * shared + (shared * shared).tanh() * x.cos()
        unused = shared.exp() * x
        torch._dynamo.graph_break()
    return x + 0 * unused.detach()


def gradients(call: Any, leaf: bool = False) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(1)
    x, start = torch.randn(64, 64), torch.nn.Parameter(torch.randn(64, 64))
    shared = start if leaf else start * 3
    result = call(x, shared).square().mean()
    return torch.autograd.grad(result, (shared, start))


@pytest.mark.parametrize("leaf", [False, True])  # weights that are tied, across a break
@pytest.mark.parametrize("symbols", [False, None])
def test_sums_over_graphs_are_eagers(symbols: bool | None, leaf: bool) -> None:
    wanted = gradients(stacked, leaf)
    backend = Compiler(separate_reads=True)
    found = gradients(refcompiler.compile(stacked, backend=backend, dynamic=symbols), leaf)
    assert backend.reasons == [None] * len(backend.reasons) and len(backend.forward) >= READERS
    assert all(map(torch.equal, found, wanted))


def test_a_graphs_own_sum_is_rounded_otherwise() -> None:
    wanted = gradients(stacked)
    found = gradients(refcompiler.compile(stacked, backend=Compiler()))
    assert not torch.equal(found[0], wanted[0])
    torch.testing.assert_close(found, wanted)


def test_hooks_see_one_gradient() -> None:
    seen = []
    leaf = torch.randn(8, requires_grad=True)
    leaf.register_hook(lambda g: seen.append(g.clone()))
    backend = Compiler(separate_reads=True)
    refcompiler.compile(lambda x: x * x + x.sin(), backend=backend)(leaf).sum().backward()
    assert len(seen) == 1 and leaf.grad is not None and torch.equal(seen[0], leaf.grad)
    assert torch.equal(leaf.grad, torch.autograd.grad((leaf * leaf + leaf.sin()).sum(), leaf)[0])
