"""Sizes that go through a tensor, or through a ``torch.Size`` of their own, stay symbols."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo

import refcompiler
from tests.cpu.shapes.programs import compare, see


def _chunks(x: Any) -> Any:
    n = torch.div(x.shape[1], 4, rounding_mode="trunc") - 1
    return x[:, :n], n, x.new_zeros(n + 1), x.view(x.shape[0], torch.tensor(x.shape[1]) * 1)


def _read(x: Any) -> Any:
    n = torch.tensor(x.shape[0]) + 1
    half = torch.floor_divide(n.clone(), 2).item()
    return x * n.item(), int(n) * 2, x[:half], float(n), n.tolist(), range(x.shape[1])[-1 - half]


def _decided(x: Any) -> Any:
    if torch.tensor(x.shape[0]) > 6:
        return x + 1
    return x - 1 if bool(torch.tensor(x.shape[1]) != 9) else x


def _written(x: Any) -> Any:
    n = torch.tensor(x.shape[0])
    n += 1
    return x * n, n.item()


CALLS = [(torch.arange(float(a * b)).reshape(a, b),) for a, b in ((4, 8), (5, 9), (7, 12), (8, 8))]


@pytest.mark.parametrize("program, most", [(_chunks, 1), (_read, 4), (_decided, 3)])
def test_numbers_that_tensors_hold(program: Callable, most: int) -> None:
    assert 1 <= compare(program, CALLS, dynamic=True) <= most
    assert refcompiler.counters()["breaks"] == 0


def test_a_tensor_that_was_written_to_holds_what_the_run_knows() -> None:
    compare(_written, CALLS, dynamic=True)
    assert refcompiler.counters()["breaks"] == 1


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_from_outside(dynamic: bool | None) -> None:
    def program(x: Any, size: torch.Size) -> Any:
        return x.new_ones(size).sum(), size[0] + 1, size.numel(), size

    calls = [(torch.ones(3), torch.Size([n, 4])) for n in (5, 6, 7, 8)]
    assert compare(program, calls, dynamic=dynamic) == (1 if dynamic else 2)


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_across_a_break(dynamic: bool | None) -> None:
    def program(x: Any) -> Any:
        size = x.shape
        torch._dynamo.graph_break()
        return x.new_ones(size) * size[0]

    made = refcompiler.compile(program, backend="eager", dynamic=dynamic)
    for n in (4, 5, 6, 7):
        assert see(made(torch.ones(n, 3))) == see(program(torch.ones(n, 3)))
    assert refcompiler.counters()["captures"] == (2 if dynamic else 4)
