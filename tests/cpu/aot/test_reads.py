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


def of_a_result(x: Any, w: Any) -> Any:
    r = x * w
    v = r.t()
    return r, v, v.sin(), r.cos(), v.tanh(), v[1:], v[1:].exp()


def of_what_nobody_has(x: Any, w: Any) -> Any:
    v = (x * w).view(-1)
    return v, v.sin(), v.cos() * v.tanh()


def of_several(x: Any, w: Any) -> Any:
    r = x * w
    first, second, *_ = r.unbind()
    return r, first, second, first.sin() * second.cos(), second.exp()


def of_an_input(x: Any, w: Any) -> Any:
    first, v = x.sin(), x.t()
    return v, v[1:], v[1:].exp(), first, x.tanh() * w, v.cos()


def of_what_is_written(x: Any, w: Any) -> Any:
    x.mul_(w)
    v = x.view(-1)
    tripled = v * 3
    v[3:].mul_(2)
    return v, tripled, x.cos(), v.tanh()


def of_nothing_else(x: Any, w: Any) -> Any:
    r = x * w
    late, first, then = r.view(-1), r.t(), r[1:]
    return then, first, late


VIEWS = [
    *[of_a_result, of_what_nobody_has, of_several, of_an_input],
    *[of_what_is_written, of_nothing_else],
]


def of_views(call: Any, turn: int, leaf: bool, graph: bool) -> Any:
    """Gradients where some of what a call returns is read from outside."""
    torch.manual_seed(turn)
    size = 4 + turn % 2
    leaves = [torch.randn(size, size).requires_grad_() for _ in range(2)]
    given = leaves if leaf else [t * 1 for t in leaves]
    ends = [t for n, t in enumerate([*call(*given), *given]) if n != turn]
    loss = sum((t * torch.randn(t.shape)).sum() + t.sin().sum() for t in ends)
    return torch.autograd.grad(loss, leaves, create_graph=graph)


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("symbols", [False, True])
@pytest.mark.parametrize("function", VIEWS, ids=lambda f: f.__name__)
def test_sums_at_returned_views_are_eagers(function: Any, symbols: bool, graph: bool) -> None:
    compiled = refcompiler.compile(function, backend="aot_eager", dynamic=symbols)
    for turn in range(6):
        leaf = turn % 3 == 0 and function is not of_what_is_written
        wanted = of_views(function, turn, leaf, graph)
        found = of_views(compiled, turn, leaf, graph)
        assert all(map(torch.equal, found, wanted)), turn
    assert refcompiler.counters()["uncompiled"] == 0


def test_hooks_between_see_what_comes_to_views() -> None:
    def told(call: Any, hooked: int) -> list[torch.Tensor]:
        torch.manual_seed(0)
        leaves = [torch.randn(4, 4, dtype=torch.float64).requires_grad_() for _ in range(2)]
        results = call(*leaves)
        seen: list[torch.Tensor] = []
        results[hooked].register_hook(lambda g: seen.append(g.clone()))
        torch.stack([t.exp().sum() for t in results]).sum().backward()
        return [*seen, *[t.grad for t in leaves if t.grad is not None]]

    compiled = refcompiler.compile(of_a_result, backend="aot_eager")
    for hooked in range(7):
        wanted, found = told(of_a_result, hooked), told(compiled, hooked)
        assert len(found) == len(wanted) == 3
        torch.testing.assert_close(found, wanted)


def test_a_graph_beside_hooks_on_views_that_are_not_gated() -> None:
    """A backward with a graph that comes to a view alone needs no stages."""

    def slope(call: Any) -> Any:
        leaves = [torch.ones(4, 4).requires_grad_() for _ in range(2)]
        results = call(*leaves)
        results[0].retain_grad()
        return torch.autograd.grad(results[1].sin().sum(), leaves, create_graph=True)

    compiled = refcompiler.compile(of_a_result, backend="aot_eager")
    assert all(map(torch.equal, slope(compiled), slope(of_a_result)))
