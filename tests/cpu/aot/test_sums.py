"""Strides of gradients that come by several ways, which autograd adds up in place where it can."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import refcompiler


def squared_difference(x: Any, y: Any) -> Any:
    d = x - y
    return (d * d).sum()


def square_and_rows(x: Any, y: Any) -> Any:
    return (y * y).sum() + (x.sum(-1, keepdim=True) * 2).sum()


def several_sums(x: Any, y: Any) -> Any:
    a, d = y * y, y + x
    e = d + a
    f = a * x
    return (f * a).sum() + (e + f * a).sum()


def passed_on(x: Any, y: Any) -> Any:
    d = x * y
    return (d + d.sin() + torch.cat([d, d]).sum(0)).sum()


def gaps(*shape: int) -> torch.Tensor:
    """A tensor with gaps between its elements, of which strides of new ones come in their order."""
    return torch.randn(99).as_strided(shape, {2: (7, 2), 3: (8, 9, 2)}[len(shape)])


def turned(*shape: int) -> torch.Tensor:
    return torch.randn(*shape[::-1]).permute(*reversed(range(len(shape))))


PROGRAMS = [squared_difference, square_and_rows, several_sums, passed_on]
SHAPES = [(2, 1, 3), (1, 4), (3, 4, 1), (1, 1, 5)]


@pytest.mark.parametrize("made", [torch.randn, gaps, turned], ids=lambda f: f.__name__)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("backend", ["aot_eager", "fastpath"])
def test_they_lie_as_in_eager(backend: str, shape: tuple[int, ...], made: Any) -> None:
    compared = 0
    for program in PROGRAMS:
        found = []
        for function in (program, refcompiler.compile(program, backend=backend, fullgraph=True)):
            torch.manual_seed(0)
            x, y = (made(*shape).requires_grad_() for _ in range(2))
            function(x, y).backward()
            found.append((x.grad, y.grad))
        for expected, ours in zip(*found, strict=True):
            torch.testing.assert_close(ours, expected)
            assert ours.stride() == expected.stride(), program.__name__
            compared += 1
    assert compared == 2 * len(PROGRAMS)
