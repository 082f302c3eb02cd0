"""Derivatives of derivatives of one call, and what comes to them, in all combinations."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import refcompiler
from tests.cpu.aot.test_device_threads import Engine


def _one(x: Any, w: Any, b: Any) -> Any:
    h = (x @ w + b).tanh()
    return torch.nn.functional.softplus(h @ w).sum(-1)


def _two(x: Any, w: Any, b: Any) -> Any:
    h = torch.nn.functional.layer_norm(x @ w, (3,))
    return h, (h * b).sigmoid(), h.t()


#: Which leaves the first gradients are by, one after the other, and which are of squares.
FIRST = [((0,), ()), ((2,), (2,)), ((0, 2), ()), ((0, 2), (0,)), ((0, 2), (0, 2))]
#: What the second gradients are of, and what is computed last of: results, first and second.
SECOND = ["g", "gu", "h"]
LAST = ["G", "Gg", "Gu", "Ggu", "0", "1", "2", "0u", "0g"]


def _leaves() -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = (3, 3), (3, 3), (3,)
    return [torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in shapes]


def _total(tensors: Any) -> torch.Tensor:
    total: torch.Tensor = sum((t * t).sum() for t in tensors)
    return total


def _thirds(call: Any, first: Any, squares: Any, second: str, last: str) -> list[Any]:
    leaves = _leaves()
    found = call(*leaves)
    results = [*found] if isinstance(found, tuple) else [found]
    slopes = []
    for n in first:
        whole = _total(results) if n in squares else sum((t * 0.3).sum() for t in results)
        slopes += torch.autograd.grad(whole, leaves[n], create_graph=True)
    of = {"g": slopes, "gu": [*slopes, *results], "h": [slopes[0], results[0]]}[second]
    more = torch.autograd.grad(_total(of), leaves, create_graph=True, allow_unused=True)
    there = [t for t in more if t is not None]
    parts = {
        "G": there,
        "g": slopes,
        "u": results,
        "0": there[:1],
        "1": there[1:2],
        "2": there[-1:],
    }
    _total([t for name in last for t in parts[name]]).backward()
    return [*slopes, *more, *[t.grad for t in leaves]]


@pytest.mark.parametrize("function", [_one, _two], ids=lambda f: f.__name__.strip("_"))
def test_third_derivatives_have_eagers_bits_in_any_company(function: Any) -> None:
    """A level leads to all that those above it do, and ways end at what the caller's lead on from:
    without either some is lost, or comes twice."""
    call = refcompiler.compile(function, backend="aot_eager", fullgraph=True)
    compared = 0
    for (first, squares), second, last in itertools.product(FIRST, SECOND, LAST):
        case = first, squares, second, last
        for got, wanted in zip(_thirds(call, *case), _thirds(function, *case), strict=True):
            assert (got is None) == (wanted is None), case
            assert got is None or torch.equal(got, wanted), case
            compared += 1
    assert compared > 900
    assert refcompiler.counters()["uncompiled"] == 0


@pytest.mark.parametrize("function", [_one, _two], ids=lambda f: f.__name__.strip("_"))
def test_levels_may_come_in_any_order(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads number what they make each for itself: an older level, or the call, may come before
    one that would leave something to it, and is to free nothing that this one needs."""
    monkeypatch.setattr(torch.autograd.Variable, "_execution_engine", Engine())
    call = refcompiler.compile(function, backend="aot_eager", fullgraph=True)
    compared = 0
    for (first, squares), second, last in [*itertools.product(FIRST, SECOND, LAST)][2::4]:
        case = first, squares, second, last
        for got, wanted in zip(_thirds(call, *case), _thirds(function, *case), strict=True):
            torch.testing.assert_close(got, wanted)
            compared += 1
    assert compared > 200


def test_gradients_of_one_call_share_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a Jacobian run the graph once more, not once for each; what a backward has freed
    serves no other."""
    from refcompiler.aot import twice

    runs: list[int] = []
    run = twice.Derivable.run
    monkeypatch.setattr(
        twice.Derivable, "run", lambda self, *a, **k: runs.append(1) or run(self, *a, **k)
    )
    call = refcompiler.compile(_one, backend="aot_eager", fullgraph=True)
    sides = []
    for each in (call, _one):
        leaves = _leaves()
        result = each(*leaves)
        rows = [torch.autograd.grad(y, leaves[0], create_graph=True)[0] for y in result]
        _total([*rows, result]).backward(retain_graph=True)
        rows += torch.autograd.grad(result.sum(), leaves[0], create_graph=True)
        _total(rows).backward()
        sides.append([*rows, *[t.grad for t in leaves]])
    assert all(map(torch.equal, *sides)) and len(runs) == 1


def test_a_row_that_is_dropped_leaves_nothing() -> None:
    call = refcompiler.compile(_one, backend="aot_eager", fullgraph=True)
    leaves = _leaves()
    result = call(*leaves)
    (row,) = torch.autograd.grad(result.sum(), leaves[0], create_graph=True)
    node = result.grad_fn
    assert node.second_run() is not None
    del row
    assert node.second_run() is None


def test_a_gradient_by_a_tangent_that_leads_to_another_slope() -> None:
    """The directional derivative of a derivative, as of two backwards."""
    call = refcompiler.compile(_one, backend="aot_eager", fullgraph=True)
    sides = []
    for each in (call, _one):
        leaves = _leaves()
        v = torch.ones(3, dtype=torch.float64, requires_grad=True)
        result = each(*leaves)
        (back,) = torch.autograd.grad(result, leaves[0], v, create_graph=True)
        (forward,) = torch.autograd.grad(back, v, torch.full_like(back, 0.5), create_graph=True)
        (again,) = torch.autograd.grad(forward.sin().sum(), leaves[0], create_graph=True)
        third = torch.autograd.grad(_total([again, forward, back]), [*leaves, v])
        sides.append([back, forward, again, *third])
    assert all(map(torch.equal, *sides))


def _squared(x: Any, w: Any, b: Any) -> Any:
    h = (x @ w * b).exp()
    return h, h.sin().sum()


def test_hooks_on_a_result_that_nobody_has_are_told_of_what_slopes_bring() -> None:
    call = refcompiler.compile(_squared, backend="aot_eager", fullgraph=True)
    sides = []
    for each in (call, _squared):
        told: list[Any] = []
        leaves = _leaves()
        h, total = each(*leaves)
        h.register_hook(lambda g, told=told: told.append(g.detach().clone()))
        (slope,) = torch.autograd.grad(total + h.sum(), leaves[0], create_graph=True)
        del h
        found = torch.autograd.grad(_total([slope]) + total, leaves)
        sides.append([*told, *found])
    assert len(sides[0]) == 5 and all(map(torch.equal, *sides))


@pytest.mark.parametrize("dims", [(), (0,), (0, True)])
@pytest.mark.parametrize("zero", [False, True])
def test_second_derivatives_of_products_that_cannot_run_again(
    dims: tuple[Any, ...], zero: bool
) -> None:
    """The operator that asks for zeros has no derivative: silence, where a penalty was lost."""

    def program(x: Any) -> Any:
        x.data.mul_(2)  # so that the graph runs no second time
        return x.prod(*dims)

    call = refcompiler.compile(program, backend="aot_eager")
    seen: list[Any] = []
    for function in (program, call):
        leaf = torch.tensor([[1.0, 2.0, 3.0], [0.5, 0.0 if zero else 4.0, 2.0]]).requires_grad_()
        x = leaf * 3
        result = function(x)
        (slope,) = torch.autograd.grad(result.square().sum(), leaf, create_graph=True)
        (slope.square().sum() + result.sum()).backward()
        seen.append([result, slope, leaf.grad])
    assert len(seen[0]) == 3 and seen[0][2].abs().max() > 100
    torch.testing.assert_close(*seen, rtol=1e-5, atol=0)
    assert torch.equal(seen[0][1], seen[1][1])
    counts = refcompiler.counters()
    assert (counts["graphs"], counts["uncompiled"]) == (1, 0)
