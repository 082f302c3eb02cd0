"""What one call of a compiled graph is, that no rule of ``specs/ahead.py`` names."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import refcompiler
from refcompiler.aot import (
    aot_autograd,
)
from refcompiler.aot.overlap import disjoint
from refcompiler.runtime.counters import reasons
from tests.cpu.aot.checks import raw


@pytest.mark.parametrize("backend", ["aot_eager", "fastpath"])
def test_graphs_that_run_as_they_are_are_counted(backend: str) -> None:
    call = refcompiler.compile(lambda x: x.masked_fill_(x > 0, 3) + 1, backend=backend)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.equal(call(torch.ones(1).expand(4)), torch.full((4,), 4.0))
    assert refcompiler.counters()["uncompiled"] == 1
    (why,) = reasons("uncompiled")
    assert why.startswith("a graph of 3 operations of ")
    assert why.endswith("runs as it is: a tensor that is written to overlaps itself")
    refcompiler.compile(torch.sin, backend=backend)(torch.ones(4))
    assert refcompiler.counters()["uncompiled"] == 1


def test_what_overlaps_itself_within_inference_mode() -> None:
    """Such tensors have no version that counts writes; only what is written to runs as it is."""

    @torch.inference_mode()
    def program(x: torch.Tensor, write: bool) -> Any:
        y = (x + 1).sum(0)
        z = y.expand(3, 4)
        first = z[0]
        if write:
            first.mul_(2)
        return y + 1, z * x, first

    call = refcompiler.compile(program, backend="aot_eager")
    for write, uncompiled in (False, 0), (True, 1):
        for _ in range(2):
            x = torch.randn(3, 4)
            for found, expected in zip(call(x, write), program(x, write), strict=True):
                assert torch.equal(found, expected) and found.is_inference()
        assert len(reasons("uncompiled")) == uncompiled


def test_as_many_elements_of_a_mask_as_this_call_has() -> None:
    """The sizes of a call that went before, of another number of them, are not remembered."""

    def program(x: torch.Tensor, mask: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        a, b = x.clone(), torch.zeros_like(x)
        a[mask] = values.sin()
        b[mask] = values.cos()
        return a - b

    call = refcompiler.compile(program, backend="aot_eager", dynamic=False)
    x = torch.randn(3, 3, requires_grad=True)
    for count in (5, 7, 0):
        mask = torch.arange(9).reshape(3, 3) < count
        values = torch.randn(count, requires_grad=True)
        pair = [
            torch.autograd.grad(f(x, mask, values).square().sum(), (x, values))
            for f in (call, program)
        ]
        assert all(map(torch.equal, *pair)), count
    assert refcompiler.counters()["graphs"] == 3 and not reasons("uncompiled")


def test_results_that_are_views_in_the_graph_are_written_to() -> None:
    """A compiler may answer with a view of memory of its own; for autograd it is none."""
    call = refcompiler.compile(
        lambda x: (x * 2).unsqueeze_(0), backend=aot_autograd(fw_compiler=lambda g, i: g.forward)
    )
    x = torch.randn(4, requires_grad=True)
    y = call(x)
    y.mul_(3)
    (found,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(found, torch.full((4,), 6.0))
    with torch.no_grad():
        y = call(x)
    y.mul_(x)
    (found,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(found, 2 * x.detach())


def test_a_write_that_no_version_tells_of_leaves_gradients_alone() -> None:
    x = torch.randn(4, requires_grad=True)
    call, graphs = raw(_through_data, x * 1)
    y = x * 1
    (found,) = torch.autograd.grad(call(y).sum(), x)
    assert torch.equal(found, torch.ones(4)) and torch.equal(y, x + 1) and len(graphs) == 1


def _through_data(x: Any) -> Any:
    x.data.add_(1)
    return x.view(2, 2)


def test_a_tensor_made_in_inference_mode_inside_is_one() -> None:
    def program(x: Any) -> Any:
        with torch.inference_mode():
            return x * 2

    call = refcompiler.compile(program, backend="aot_eager")
    x = torch.randn(4)
    for _ in range(2):
        assert call(x).is_inference() and torch.equal(call(x), program(x))


def test_addresses_of_any_number_of_inputs() -> None:
    """Few that moved are compared with all, many are sorted: the answer is that of all pairs."""
    draw = random.Random(0)
    memory, answers = torch.zeros(400), []

    def views(sizes: list[int]) -> list[torch.Tensor]:
        return [memory[(at := draw.randrange(380)) : at + size] for size in sizes]

    def pairs(tensors: list[torch.Tensor], written: list[int]) -> bool:
        spans = [range(t.storage_offset(), t.storage_offset() + t.numel()) for t in tensors]
        others = range(len(spans))
        return not any(set(spans[a]) & set(spans[b]) for a in written for b in others if a != b)

    for _ in range(150):
        sizes = [draw.choice([0, 1, 5, 20]) for _ in range(draw.randint(1, 12))]
        written = [n for n in range(len(sizes)) if draw.random() < 0.4]
        tensors = views(sizes)
        check = disjoint(tensors, written)
        for moved in (0, 1, 1, len(sizes)):
            new = views(sizes)
            for n in draw.sample(range(len(sizes)), moved):
                tensors[n] = new[n]
            answers.append(pairs(tensors, written))
            assert check(*tensors) == answers[-1]
    assert 100 < sum(answers) < 500


def test_a_call_that_runs_the_graph_as_it_is_says_why() -> None:
    def program(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        p.mul_(2)
        return q * 2

    made = aot_autograd(fw_compiler=lambda graph, inputs: graph.forward)
    known = torch.randn(4, dtype=torch.complex64)
    call = made(torch.fx.symbolic_trace(program), [known, known.clone()])
    for n in range(2):
        wanted = known.conj() * 4
        assert torch.equal(call(known, known.conj()), wanted)
        assert call.uncompiled.calls == n + 1 and "conjugate" in call.uncompiled.why
    torch.func.vmap(call)(known, known.clone())
    assert call.uncompiled.calls == 3 and "torch.func" in call.uncompiled.why


@pytest.mark.parametrize("given", [True, False])
def test_a_gradient_that_the_program_gives_a_result(given: bool) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        result, unseen = y * 2, y + 1
        unseen.grad = x.clone()
        if given:
            result.grad = x.clone()
        return result

    call = refcompiler.compile(program, backend="aot_eager")
    for _ in range(2):
        x, y = torch.randn(3), torch.randn(3)
        found, expected = call(x, y), program(x, y)
        assert torch.equal(found, expected)
        if given:
            assert torch.equal(found.grad, x) and torch.equal(expected.grad, x)
        else:
            assert found.grad is expected.grad is None
    counts = refcompiler.counters()
    assert counts["graphs"] == 1 and counts["uncompiled"] == given


@pytest.mark.parametrize("twice", [True, False])
def test_an_operator_of_lists_that_writes_to_one_tensor_twice(twice: bool) -> None:
    """Autograd's function of the second write goes past the first."""

    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        torch._foreach_mul_([x, x if twice else y], 2.0)
        return x * 1

    call = refcompiler.compile(program, backend="aot_eager")
    for _ in range(2):
        seen: list[Any] = []
        for function in (program, call):
            leaf = torch.arange(6.0).view(2, 3).requires_grad_()
            whole = leaf * 2
            x, y = whole[:1], leaf * 3
            result = function(x, y)
            asked = [x, whole, leaf]
            seen.append(torch.autograd.grad(result.sum(), asked, allow_unused=True))
            seen[-1] += (result,)
        for found, expected in zip(*seen, strict=True):
            assert (found is None) is (expected is None)
            assert expected is None or torch.equal(found, expected)
        assert (seen[0][1] is None) is twice
    counts = refcompiler.counters()
    assert counts["graphs"] == 1 and counts["uncompiled"] == twice


def _between(x: Any, y: Any) -> Any:
    y.add_(1)
    x.mul_(2)
    y.add_(1)
    return y * 1


def _listed(x: Any, y: Any) -> Any:
    torch._foreach_exp_([y, x])
    return y * 1


def _drawing(x: Any, y: Any) -> Any:
    x.mul_(2)
    return torch.rand(3) * x, y.add_(1)


def _of_several(leaf: Any) -> Any:
    return leaf.clone().chunk(2)[0]


def _made_without_gradients(leaf: Any) -> Any:
    whole = leaf.clone()
    with torch.no_grad():
        return whole[:3]


@pytest.mark.parametrize("program", [_between, _listed, _drawing])
@pytest.mark.parametrize("make", [lambda t: t[:3], _of_several, _made_without_gradients])
def test_a_write_that_autograd_refuses_ends_the_call_there(
    program: Callable[..., Any], make: Callable[[Any], Any]
) -> None:
    """What is written to, and drawn, before it is; what is behind it is not."""
    call = refcompiler.compile(program, backend="aot_eager")
    for allowed in (True, False, True):
        seen: list[Any] = []
        for function in (program, call):
            leaf = torch.arange(6.0).requires_grad_()
            x, y = leaf.clone()[:3] if allowed else make(leaf), torch.ones(3)
            torch.manual_seed(0)
            try:
                function(x, y)
                text = ""
            except RuntimeError as error:
                text = str(error)
            state = torch.get_rng_state().tolist()
            seen.append((text, y.tolist(), y._version, x.tolist(), x._version, state))
        assert seen[0] == seen[1]
        assert bool(seen[0][0]) is not allowed
    assert refcompiler.counters()["graphs"] == 1
