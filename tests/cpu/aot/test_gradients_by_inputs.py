"""Gradients by an input whose values, or sizes, the function changes: by the very tensor, and by
the leaf that it was made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import refcompiler

Step = Callable[[Any], Any]


def past_autograd(write: Step) -> Step:
    def step(v: Any) -> None:
        with torch.no_grad():
            write(v)

    return step


#: What is done to an input in the middle of a function. A view has another function of autograd
#: behind each; past autograd, it leads past the one before.
VALUES: dict[str, Step] = {
    "no_grad": past_autograd(lambda v: v.mul_(2)),
    "detached": lambda v: v.detach().mul_(2),
    "twice, and a part": past_autograd(lambda v: v.mul_(2)[0].add_(1)),
    "detached, in size": lambda v: v.detach().t_(),
}
SIZES: dict[str, Step] = {
    "t_": lambda v: v.t_(),
    "unsqueeze_": lambda v: v.unsqueeze_(0),
    "squeeze_ of nothing": lambda v: v.squeeze_(),
    "there and back": lambda v: v.t_().t_(),
}
PAST: dict[str, Step] = {
    "no_grad, t_": past_autograd(lambda v: v.t_()),
    "no_grad, unsqueeze_": past_autograd(lambda v: v.unsqueeze_(0)),
}
#: By name, what makes an input of a leaf.
INPUTS: dict[str, Step] = {
    "a view": lambda leaf: leaf.view(2, 6),
    "a part": lambda leaf: leaf[1:3],
    "a view of a view": lambda leaf: leaf.view(-1)[2:8].view(2, 3),
    "no leaf": lambda leaf: leaf * 1,
    "a view of no leaf": lambda leaf: (leaf * 1).view(2, 6),
}


def reading(step: Step, before: bool, behind: bool) -> Callable[..., Any]:
    def program(v: Any, y: Any) -> Any:
        results = [y * 2]
        if before:
            results += [v * 3, v.sum() + 1]
        step(v)
        if behind:
            results += [v.cos(), (v * 5).exp()]
        return results

    return program


def _asked(call: Callable[..., Any], make: Step) -> list[Any]:
    """What comes back to both tensors, from each result, and to the view if it keeps it."""
    leaf = torch.linspace(-1, 1.3, 12).view(4, 3).clone().requires_grad_()
    v = make(leaf)
    results = call(v, torch.ones(2, requires_grad=True))
    found: list[Any] = [v._version, v.shape, v.stride(), v.detach().clone()]
    for t in results:
        asked = [torch.ones_like(t)], True
        for wanted in ([leaf], [v], [leaf, v]):
            found += torch.autograd.grad([t], wanted, *asked, allow_unused=True)
    v.retain_grad()
    sum(t.sum() for t in results).backward(retain_graph=True)
    return [*found, leaf.grad, v.grad]


def _compare(step: Step, inputs: Any, before: bool, behind: bool, backend: str) -> int:
    """The number of gradients, with equal values; where one is None, so is the other."""
    program = reading(step, before, behind)
    refcompiler.reset()
    call = refcompiler.compile(program, backend=backend, fullgraph=True)
    compared = 0
    for name in inputs:
        found, expected = _asked(call, INPUTS[name]), _asked(program, INPUTS[name])
        for n, (one, other) in enumerate(zip(found, expected, strict=True)):
            if not isinstance(other, torch.Tensor) or not isinstance(one, torch.Tensor):
                assert one == other if n < 3 else one is other is None, (name, n)
                continue
            exact = {"rtol": 0, "atol": 0} if backend == "aot_eager" else {}
            torch.testing.assert_close(one, other, **exact)
            compared += 1
    return compared


READS = [(True, False), (False, True), (True, True)]


def _on(names: Any, chosen: str) -> list[tuple[str, str]]:
    return [*[(name, "aot_eager") for name in names], (chosen, "fastpath")]


@pytest.mark.parametrize(("before", "behind"), READS)
@pytest.mark.parametrize(("name", "backend"), _on(VALUES, "no_grad"))
def test_written_past_autograd(name: str, before: bool, behind: bool, backend: str) -> None:
    """What reads a view before leads to its former function, and what reads it behind to that which
    it has then. A call that would need both runs as it is."""
    inputs = [each for each in INPUTS if each != "no leaf"]
    assert _compare(VALUES[name], inputs, before, behind, backend) >= 24
    assert refcompiler.counters()["uncompiled"] == 0
    _compare(VALUES[name], ["no leaf"], before, behind, backend)
    assert refcompiler.counters()["uncompiled"] == 0


@pytest.mark.parametrize(("before", "behind"), READS)
@pytest.mark.parametrize(("name", "backend"), _on(SIZES, "t_"))
def test_changed_in_size(name: str, before: bool, behind: bool, backend: str) -> None:
    """What reads it behind leads to the tensor as it is then."""
    inputs = ["no leaf"] + ["a view of no leaf"] * (not (before and behind))
    assert _compare(SIZES[name], inputs, before, behind, backend) >= 6
    assert refcompiler.counters()["uncompiled"] == 0


@pytest.mark.parametrize(("before", "behind"), READS)
@pytest.mark.parametrize("name", PAST)
def test_changed_in_size_past_autograd(name: str, before: bool, behind: bool) -> None:
    """Gradients have the sizes of then: the graph runs as it is where that is read."""
    inputs = [each for each in INPUTS if each != "no leaf"]
    assert _compare(PAST[name], inputs, before, behind, "aot_eager") >= 24
    assert bool(refcompiler.counters()["uncompiled"]) == behind


@pytest.mark.parametrize("name", ["no leaf", "a part"])
def test_a_place_in_memory_of_what_is_changed_in_size(name: str) -> None:
    def program(v: Any, y: Any) -> Any:
        v.as_strided_((2,), (1,), 3)
        return v * 2, y * 2

    def make(leaf: Any) -> Any:
        return (leaf * 1)[1:3] if name == "a part" else leaf * 1

    refcompiler.reset()
    call = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    for one, other in zip(_asked(call, make), _asked(program, make), strict=True):
        same = isinstance(one, torch.Tensor) and torch.equal(one, other)
        assert same or one == other


def _with_older(step: Step, reads: bool) -> Callable[..., Any]:
    def program(v: Any, y: Any) -> Any:
        older = v[..., :1]
        step(v)
        return [y * 2, older, v.view_as(v), *([older.cos(), v * 5] if reads else [])]

    return program


@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("name", ["no_grad", "detached", "mul_"])
def test_views_that_are_older_than_a_write(name: str, reads: bool) -> None:
    """They lead to what the view that was written to is of, and past it."""
    step = VALUES.get(name, lambda v: v.mul_(2))
    program = _with_older(step, reads)
    refcompiler.reset()
    call = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    compared = 0
    for kind, make in INPUTS.items():
        if name == "mul_" and "leaf" not in kind:
            continue
        for one, other in zip(_asked(call, make), _asked(program, make), strict=True):
            if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
                assert torch.equal(one, other), kind
                compared += 1
            else:
                assert one == other, kind
    assert compared >= 10
    assert refcompiler.counters()["uncompiled"] == 0


def test_a_leaf_that_is_a_view() -> None:
    """Of what requires no gradient: a view of it, behind a write, leads nowhere."""

    def program(v: Any, y: Any) -> Any:
        w = v[1:]
        with torch.no_grad():
            w.mul_(2)
        return w, v * 3, y * 2

    refcompiler.reset()
    call = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    sides = []
    for each in (call, program):
        leaf = torch.arange(12.0).view(3, 4).requires_grad_()
        results = each(leaf, torch.ones(2, requires_grad=True))
        found: list[Any] = [leaf._version]
        for t in results:
            found += torch.autograd.grad([t], [leaf], [torch.ones_like(t)], True, allow_unused=True)
        sides.append([t.tolist() if isinstance(t, torch.Tensor) else t for t in found])
    assert sides[0] == sides[1] and sides[0][1] is None


@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize("behind", [False, True])
def test_a_part_beside_one_that_is_written_to(behind: bool, tracked: bool) -> None:
    """They share a version, by which the other one has another function behind the write."""

    def program(part: Any, other: Any) -> Any:
        before = other * 3
        with torch.set_grad_enabled(tracked):
            part.mul_(2)
        return before, (other * 2 if behind else part * 5), part * 1

    refcompiler.reset()
    call = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    for shared in (False, True):
        sides = []
        for each in (call, program):
            leaf = torch.arange(12.0, requires_grad=True)
            whole = leaf * 1 if tracked else leaf
            part, other = whole[:6], whole[6:]
            if not shared:
                other = (leaf * 2)[6:]
            found: list[Any] = [part._version, other._version]
            results = each(part, other)
            for t in results:
                asked = [leaf, part, other]
                ones = torch.ones_like(t)
                found += torch.autograd.grad([t], asked, [ones], True, allow_unused=True)
            sides.append([t.tolist() if isinstance(t, torch.Tensor) else t for t in found])
        assert sides[0] == sides[1]
        assert len(sides[0]) == 11
    assert refcompiler.counters()["uncompiled"] == 0
