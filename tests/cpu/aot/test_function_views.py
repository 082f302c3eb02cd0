"""Results that are views which a custom function made of an input."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import refcompiler
from tests.cpu.aot.programs import Compiler, compare


def _leaf() -> list[torch.Tensor]:
    return [torch.randn(4, requires_grad=True)]


class _Fivefold(torch.autograd.Function):
    """What it is given, or a view of it, with a gradient that is not the view's."""

    @staticmethod
    def forward(ctx: Any, x: Any, view: bool) -> Any:
        return x.view(2, 2) if view else x

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient.reshape(4) * 5, None


class _Part(torch.autograd.Function):
    """A part of what requires no gradient, with one for ``w``."""

    @staticmethod
    def forward(ctx: Any, b: Any, w: Any) -> Any:
        ctx.save_for_backward(w)
        return b[1:]

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (w,) = ctx.saved_tensors
        return None, w * gradient.sum()


def test_a_view_that_a_custom_function_returns_is_eagers() -> None:
    """Memory, base, versions, hooks, second derivatives, and the error of a write to it."""

    def program(w: Any, b: Any) -> Any:
        return _Part.apply(b, w), _Fivefold.apply(w.cos(), True)

    backend = Compiler()
    sides = []
    for call in (refcompiler.compile(program, backend=backend, fullgraph=True), program):
        for seed in (1, 2):
            torch.manual_seed(seed)
            w, b = torch.randn(4, requires_grad=True), torch.randn(4)
            part, other = call(w, b)
            seen = [part.detach().clone(), part._base is b, part._version, part.stride()]
            seen.append(part.storage_offset())
            part.register_hook(lambda gradient, seen=seen: seen.append(gradient) or gradient * 2)
            (first,) = torch.autograd.grad(
                (part * part).sum() + other.sum(), w, torch.tensor(3.0), create_graph=True
            )
            first.sum().backward()
            with torch.no_grad():
                part.add_(1)
            with pytest.raises(RuntimeError, match="is a view and is being modified") as raised:
                part.add_(1)
            seen += [first.detach(), w.grad, b, b._version, str(raised.value)]
            sides.append(seen)
    assert len(sides[0]) > 9
    for ours, theirs in zip(sides[:2], sides[2:], strict=True):
        for mine, other in zip(ours, theirs, strict=True):
            same = torch.equal(mine, other) if isinstance(other, torch.Tensor) else mine == other
            assert same, (mine, other)
    assert backend.reasons == [None]


@pytest.mark.parametrize("view", [False, True])
def test_a_view_that_a_custom_function_returns_keeps_its_backward(view: bool) -> None:
    def program(x: Any) -> Any:
        return _Fivefold.apply(x, view), x

    compiler, seen = compare(program, _leaf)
    assert compiler.reasons == [None]
    compiler, seen = compare(program, _leaf, into=lambda x: (x * 2,))
    assert compiler.reasons == [None]

    def inside(x: Any) -> Any:
        return _Fivefold.apply(x * 2, view).sin()

    compiler, seen = compare(inside, _leaf)
    assert compiler.reasons == [None] and seen.count > 10


def _of_nothing(x: Any) -> Any:
    return (_Fivefold.apply(x * 2, True),)


def _as_it_is(x: Any) -> Any:
    y = x * 2
    return _Fivefold.apply(y, False), y.sin()


def _part_of_it(x: Any) -> Any:
    return (_Fivefold.apply(x * 2, True)[1:],)


@pytest.mark.parametrize("program", [_of_nothing, _as_it_is, _part_of_it])
def test_a_custom_functions_view_of_an_intermediate_refuses_writes(program: Any) -> None:
    backend = Compiler()
    call = refcompiler.compile(program, backend=backend, fullgraph=True)
    for n in range(2):
        sides = []
        for each in (call, program):
            x = torch.linspace(n, 2, 4).requires_grad_()
            first, *others = each(x)
            seen = [first.detach().clone(), first._is_view(), first._version, first.stride()]
            with pytest.raises(RuntimeError, match="is a view and is being modified") as raised:
                first.add_(1)
            first.register_hook(lambda gradient, seen=seen: seen.append(gradient))
            sum(t.square().sum() for t in (first, *others)).backward()
            with torch.no_grad():
                first.mul_(3)
            said = str(raised.value).replace("Backward0", "Backward")  # torch 2.11 names these
            sides.append([*seen, first.detach(), first._version, x.grad, said])
        for ours, theirs in zip(*sides, strict=True):
            same = torch.equal(ours, theirs) if isinstance(theirs, torch.Tensor) else ours == theirs
            assert same, (ours, theirs)
    assert backend.reasons == [None]
