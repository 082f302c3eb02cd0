"""Views of results, made where gradients are off: they require gradients, and lead nowhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import refcompiler


def _alone(x: Any) -> Any:
    made = x * 2
    with torch.no_grad():
        view = made.view(4)
    return view, x.sin()


def _of_a_write(x: Any) -> Any:
    made = torch.zeros(4).copy_(x)
    with torch.no_grad():
        view = made[1:]
    return view, x.expand(3, 4)


def _several(x: Any) -> Any:
    made = x * 2
    with torch.no_grad():
        first, second = made[:2], made[1:]
    return first, second, x.sin()


def _written(x: Any) -> Any:
    made = x * 2
    with torch.no_grad():
        view = made[0]
        view.mul_(2)
    return view, x.sin()


def _older(x: Any) -> Any:
    made = x * 2
    with torch.no_grad():
        view = made[0]
        made.mul_(2)
    return view, x.sin()


ASKED: tuple[Callable[[Any, Any], Any], ...] = (
    lambda t, x: t.detach().clone(),
    lambda t, x: torch.tensor([t.requires_grad, t._version]),
    lambda t, x: torch.tensor([t.is_leaf, t.grad_fn is None]),
    lambda t, x: torch.autograd.grad(t.sum(), x, retain_graph=True)[0],
    lambda t, x: torch.autograd.grad(t._base.sum(), x, retain_graph=True)[0],
    lambda t, x: t.backward(torch.ones_like(t), retain_graph=True) or t.grad,
    lambda t, x: t.add_(1).detach(),
)


def _answers(results: Any, x: Any) -> list[Any]:
    found: list[Any] = []
    for t in results:
        for ask in ASKED:
            try:
                found.append(ask(t, x))
            except (RuntimeError, AttributeError) as error:
                found.append(str(error).partition(".")[0])
    return found


@pytest.mark.parametrize("program", [_alone, _of_a_write, _several, _written, _older])
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_view_made_without_gradients(program: Callable[..., Any]) -> None:
    refcompiler.reset()
    call = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    for n in range(2):
        sides = []
        for each in (call, program):
            x = (torch.arange(4.0) + n).requires_grad_()
            sides.append(_answers(each(x), x))
        assert len(sides[0]) == len(sides[1]) >= 2 * len(ASKED)
        for mine, eager in zip(*sides, strict=True):
            same = isinstance(mine, torch.Tensor) and isinstance(eager, torch.Tensor)
            assert torch.equal(mine, eager) if same else mine == eager
    assert refcompiler.counters()["uncompiled"] == 0


def test_a_view_made_without_gradients_that_is_to_require_one() -> None:
    """As its base does it says that it requires one before; only then it is a leaf of its own."""

    def program(x: Any) -> Any:
        view = x.view(2, 2)
        view.requires_grad_()
        return view, x * 2

    sides = []
    for each in (refcompiler.compile(program, backend="aot_eager"), program):
        x = torch.arange(4.0, requires_grad=True)
        with torch.no_grad():
            view, _ = each(x)
        (view * 3).sum().backward()
        sides.append((view.grad, x.grad, view.is_leaf))
    assert torch.equal(sides[0][0], sides[1][0]) and sides[0][1:] == sides[1][1:] == (None, True)


@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize("made", [True, False])
def test_a_view_made_without_gradients_refuses_to_be_written_one(made: bool, tracked: bool) -> None:
    def program(x: Any, y: Any) -> Any:
        base = x.detach() * 2 if made else x.detach()
        with torch.no_grad():
            view = base.view(2, 2)
        return base, view, view * 2, y * 2

    for each in (refcompiler.compile(program, backend="aot_eager", fullgraph=True), program):
        x = torch.arange(4.0, requires_grad=tracked)
        _, view, *_ = each(x, torch.ones(4, requires_grad=tracked))
        view.mul_(2)
        with pytest.raises(RuntimeError, match="created in no_grad mode"):
            view.mul_(torch.ones(2, 2, requires_grad=True))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_an_input_that_is_a_view_older_than_a_write(backend: str) -> None:
    """Without gradients nobody asks what made it."""

    def program(x: Any, y: Any) -> Any:
        with torch.no_grad():
            z = y * 2
        return x * 2, z

    sides = []
    for each in (refcompiler.compile(program, backend=backend), program):
        x = torch.arange(4.0, requires_grad=True) * 1
        with torch.no_grad():
            view = x[:2]
        x[0] = 3
        first, second = each(x, view)
        first.sum().backward()
        sides.append((first.detach(), second))
    assert all(map(torch.equal, *sides))


def _dense() -> list[Any]:
    leaf = torch.arange(6.0).view(2, 3)[:].requires_grad_()
    return [leaf, leaf, leaf.detach()[0]]


def _with_gaps() -> list[Any]:
    leaf = torch.arange(12.0).view(2, 6)[:, ::2].requires_grad_()
    return [leaf, leaf, leaf.data[1:]]


def _viewed() -> list[Any]:
    leaf = torch.arange(6.0).view(2, 3)[:].requires_grad_()
    return [leaf, leaf.t(), leaf.detach()]


@pytest.mark.parametrize(
    ("make", "compiled"), [(_dense, True), (_with_gaps, False), (_viewed, False)]
)
def test_a_leaf_that_is_a_view_of_what_has_no_gradient(
    make: Callable[[], list[Any]], compiled: bool
) -> None:
    """Something else that has its memory is written to: its gradients are its own all the same."""

    def program(x: Any, z: Any) -> Any:
        z.mul_(2)
        return x[0], x * x

    call = refcompiler.compile(program, backend="aot_eager")
    call(torch.ones(2, 3, requires_grad=True), torch.ones(3))
    for _ in range(2):
        seen: list[Any] = []
        for function in (program, call):
            leaf, x, z = make()
            results = function(x, z)
            assert all(t.requires_grad for t in results)
            sums = [t.sum() for t in results]
            (gradient,) = torch.autograd.grad(sums, leaf, allow_unused=True)
            seen.append([gradient, leaf, z, z._version, *results])
        ours = seen[1][-1].grad_fn.name().endswith("CompiledBackward")
        assert ours is compiled
        assert seen[0][3] == seen[1][3] == 1
        tensors = [[t for t in each if isinstance(t, torch.Tensor)] for each in seen]
        assert len(tensors[0]) == 4 + (make is not _viewed) and all(map(torch.equal, *tensors))


def test_a_view_of_what_is_detached_takes_a_write_of_one() -> None:
    """It is made where gradients are on, of what requires none."""

    def program(x: Any) -> Any:
        return x.detach().view(4), x.detach()[0], x * 2

    call = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    found = []
    for each in (call, program):
        x = torch.ones(2, 2, requires_grad=True)
        first, second, _ = each(x)
        first.mul_(torch.full((4,), 2.0, requires_grad=True))
        found.append([first.tolist(), second.tolist(), first.requires_grad, second._version])
    assert found[0] == found[1]
    assert refcompiler.counters()["uncompiled"] == 0


def test_gradients_with_a_graph_beside_an_argument_that_leads_nowhere() -> None:
    """A view of a leaf, made without gradients: it requires one, and has no function."""

    def program(x: Any, y: Any) -> Any:
        same = y.to(y.dtype)
        return x.norm() * 2 + (x * same).sum()

    call = refcompiler.compile(program, backend="aot_eager")
    seen: list[Any] = []
    for function in (program, call):
        leaf, other = (torch.arange(1.0, 7.0).view(2, 3).clone().requires_grad_() for _ in range(2))
        with torch.no_grad():
            view = other[:1]
        assert view.requires_grad
        x = leaf.sin()
        result = function(x, view)
        first = torch.autograd.grad(result, [x, leaf, other], create_graph=True, allow_unused=True)
        (second,) = torch.autograd.grad(first[1].square().sum(), leaf)
        seen.append([result, *first, second])
    assert len(seen[0]) == 5 and seen[0][3] is seen[1][3] is None
    assert all(map(torch.equal, *[[t for t in each if t is not None] for each in seen]))
    assert refcompiler.counters()["graphs"] == 1
