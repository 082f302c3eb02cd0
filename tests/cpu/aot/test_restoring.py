"""Writes to views by which torch's way back to what they are of loses something."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import refcompiler


def _windows(size: int, step: int) -> Callable[[torch.Tensor], Any]:
    def program(x: torch.Tensor) -> Any:
        y = x + 1
        part = y.unfold(0, size, step)
        part.relu_()
        x.unfold(0, size, step).mul_(2)
        return y, part

    return program


def _of_one(x: torch.Tensor) -> Any:
    """Dimensions of one element, over infinities and what rounds."""
    hidden = torch.full_like(x, -torch.inf)
    hidden.expand(1, *hidden.shape).triu_(1)
    x.expand(1, 1, *x.shape).mul_(-1.5)
    whole = x.expand_as(x)
    whole.add_(1)
    return hidden, whole


@pytest.mark.parametrize("backend", ["aot_eager", "fastpath"])
@pytest.mark.parametrize(
    ("program", "lengths", "uncompiled"),
    [
        (_windows(2, 2), (4, 5, 7, 9), 0),  # of the last ones there is a row that is in no window
        (_windows(1, 2), (4,), 0),
        (_windows(2, 3), (7,), 0),
        (_windows(1, 2), (5,), 1),  # less is behind the last window than between two
        (_windows(1, 2), (4, 6, 7), None),  # the last of them, and it is no new graph
        (_of_one, (4, 5, 7), 0),
    ],
)
def test_what_is_in_no_window_and_what_rounds_stays(
    backend: str, program: Any, lengths: tuple[int, ...], uncompiled: int | None
) -> None:
    refcompiler.reset()
    run = refcompiler.compile(program, backend=backend, fullgraph=True)
    for length in lengths:
        x = torch.linspace(-3, 3, length * 4).view(length, 4).bfloat16()
        y = x.clone()
        found, expected = run(x), program(y)
        for a, b in zip((x, *found), (y, *expected), strict=True):
            assert torch.equal(a, b)
            assert a.stride() == b.stride()
    assert uncompiled in (None, refcompiler.counters()["uncompiled"])


@pytest.mark.parametrize("kind", ["leaf", "result"])
def test_a_place_that_is_said_counts_from_the_beginning_of_memory(kind: str) -> None:
    """Not from where the input begins, which no guard on sizes tells."""

    def program(x: torch.Tensor) -> Any:
        x.detach().as_strided((2,), (1,), 4).mul_(2)
        return x.as_strided((2, 2), (1, 3), 5).abs(), x[1:].storage_offset()

    refcompiler.reset()
    run = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    weights = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    for length, offset in ((3, 3), (3, 4), (3, 0), (5, 3), (6, 2), (7, 2), (7, 0)):
        found = []
        for function in (program, run):
            whole = torch.linspace(-3, 5, length * 4 + offset)
            if kind == "result":
                whole.requires_grad_()
            x = whole[offset:].view(4, length).t()
            if kind == "leaf":
                x = x.detach().requires_grad_()
            y, place = function(x)
            (gradient,) = torch.autograd.grad(y, x if kind == "leaf" else whole, weights)
            found.append([whole, y, gradient, torch.tensor(place)])
        for a, b in zip(*found, strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("itself", [False, True])
def test_what_is_read_while_it_is_written(itself: bool) -> None:
    mask = torch.tensor([True, False, True, True])

    def program(x: torch.Tensor) -> Any:
        y = x + 1
        return y.masked_scatter_(mask, y if itself else y[:3]), x * 2

    refcompiler.reset()
    run = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    for seed in (1, 2):
        x = torch.arange(4.0) * seed
        found, expected = run(x.clone()), program(x.clone())
        assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("first", [True, False])
def test_a_place_in_memory_that_is_written_to(first: bool) -> None:
    """A new value is in memory of its own, whose beginning is another one."""

    def program(x: torch.Tensor) -> Any:
        if first:
            x.mul_(2)
        part = x.as_strided((2,), (1,), x.storage_offset())
        part.add_(1)
        if not first:
            x.mul_(2)
        return part * 1, x.as_strided((3,), (1,)) + 1

    refcompiler.reset()
    run = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    for length in (3, 5):
        sides = []
        for each in (run, program):
            whole = torch.arange(4.0 * length).view(length, 4)
            sides.append([*each(whole[1:]), whole])
        assert all(map(torch.equal, *sides))


def test_a_write_to_what_is_detached_from_an_expanded_tensor() -> None:
    def program(x: torch.Tensor) -> Any:
        part = x[1][::2]
        part.detach().mul_(-1.5)
        return part, x * 1

    refcompiler.reset()
    run = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    for seed in (1.0, 2.0):
        sides = []
        for each in (run, program):
            one = torch.full((1, 4), seed)
            sides.append([*each(one.expand(3, 4)), one])
        assert all(map(torch.equal, *sides))


def _then_read(x: Any) -> Any:
    with torch.no_grad():
        x.mul_(2)
    return x.sin()


def _past_autograd_then_read(x: Any) -> Any:
    x.detach().add_(1)
    return x.square(), x[0]


@pytest.mark.parametrize("backend", ["aot_eager", "fastpath"])
@pytest.mark.parametrize("program", [_then_read, _past_autograd_then_read])
def test_gradients_by_a_view_that_is_written_to_where_autograd_does_not_see_it(
    program: Any, backend: str
) -> None:
    """A view has another function of autograd behind a write, to which what reads it then leads."""
    call = refcompiler.compile(program, backend=backend, fullgraph=True)
    compared = 0
    for views in (True, False, True):
        sides = []
        for each in (call, program):
            leaf = torch.linspace(-1, 1, 12).view(4, 3).clone().requires_grad_()
            given = leaf[1:3] if views else leaf[1:3] * 1
            found = each(given)
            results = found if isinstance(found, tuple) else (found,)
            asked = [leaf, given]
            grads = [
                torch.autograd.grad(r, asked, torch.ones_like(r), True, allow_unused=True)
                for r in results
            ]
            flat = [g for pair in grads for g in pair]
            sides.append([given._version, *results, *flat])
        assert sides[0][0] == sides[1][0]
        for got, wanted in zip(sides[0][1:], sides[1][1:], strict=True):
            assert (got is None) == (wanted is None)
            if got is not None:
                torch.testing.assert_close(got, wanted)
                compared += 1
    assert compared >= 6


def test_patches_of_images_are_no_windows_of_a_tensor() -> None:
    """They are copied, and have the same name."""
    call = refcompiler.compile(
        lambda x: torch.nn.functional.unfold(x, 3, padding=1).sin(), backend="aot_eager"
    )
    x = torch.randn(1, 2, 4, 5)
    assert torch.equal(call(x), torch.nn.functional.unfold(x, 3, padding=1).sin())
    assert refcompiler.counters()["uncompiled"] == 0
