"""Sums of rows that integers name: gradients of embeddings and of reads, in eager's order."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fastpath

aten = torch.ops.aten


def run(function: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    """The compiled function; kernels alone compute it."""
    call = fastpath.compile_graph(torch.fx.symbolic_trace(function), list(inputs))
    assert call.report.fallback is None and not call.report.aten_calls, call.report
    return call


def embedding(padding: int, shared: bool = False) -> Callable[..., Any]:
    def gradient(i: Any, g: Any) -> Any:
        return aten.embedding_dense_backward(g, i, 37, padding, shared)

    return gradient


CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "embedding": (embedding(-1), (9, 5)),
    "embedding, padded": (embedding(3), (9, 5)),
    "embedding, padding that is no row": (embedding(36), (45,)),
    "embedding, by frequency": (embedding(3, True), (9, 5)),
    "index_add": (lambda i, g: torch.ones(37, 32).to(g.dtype).index_add(0, i, g), (45,)),
    "index_put": (
        lambda i, g: torch.ones(37, 32).to(g.dtype).index_put((i - 37,), g, True),
        (9, 5),
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_sums_are_eagers_to_the_bit(name: str, dtype: torch.dtype) -> None:
    if name == "index_add" and dtype is torch.bfloat16:  # a product of rows, as a scatter_add is
        return
    function, shape = CASES[name]
    generator = torch.Generator().manual_seed(5)
    call, compared = None, 0
    for seed in range(3):
        i = torch.randint(0, 37, shape, generator=generator)
        if seed == 2:
            i[..., -3:] = 11  # many for one row
        g = torch.randn(*shape, 32, generator=generator).to(dtype)
        call = call or run(function, i, g)
        for threads in (1, 2):
            before = torch.get_num_threads()
            torch.set_num_threads(threads)
            try:
                assert torch.equal(call(i, g), function(i, g))
                compared += 1
            finally:
                torch.set_num_threads(before)
    assert compared == 6


def test_rows_that_lie_apart_and_positions_of_32_bits() -> None:
    function = embedding(-1)
    i = torch.randint(0, 37, (7, 2))
    g = torch.randn(7, 2, 12)[..., 3:9]
    assert torch.equal(run(function, i, g)(i, g), function(i, g))
    i = i.int()
    assert torch.equal(run(function, i, g)(i, g), function(i, g))


@pytest.mark.parametrize("name", ["embedding", "embedding, by frequency", "index_put"])
def test_rows_whose_elements_lie_apart(name: str) -> None:
    """The gradient of a bias of positions: one matrix for each head."""
    function, _ = CASES[name]
    i = torch.randint(0, 37, (9, 5))
    g = torch.randn(32, 9, 5).permute(1, 2, 0)
    assert torch.equal(run(function, i, g)(i, g), function(i, g))


@pytest.mark.parametrize("function, places", [
    (lambda x, i, g: x.index_add(0, i, g), ([1, 5], [-7, 0], [0, -1])),
    (lambda x, i, g: x.index_put((i,), g, accumulate=True), ([1, 5], [-6, 0])),
])  # fmt: skip
def test_positions_outside_raise_what_eager_raises(
    function: Callable[..., Any], places: tuple[list[int], ...]
) -> None:
    x, g = torch.randn(5, 3), torch.randn(2, 3)
    call = run(function, x, torch.tensor([0, 1]), g)
    for found in places:
        i = torch.tensor(found)
        with pytest.raises((IndexError, RuntimeError)) as eager:
            function(x, i, g)
        with pytest.raises(eager.type) as ours:
            call(x, i, g)
        assert str(ours.value) == str(eager.value)
    assert torch.equal(call(x, torch.tensor([4, 4]), g), function(x, torch.tensor([4, 4]), g))


def test_outside_of_memory_nothing_is_read_or_written() -> None:
    """What is given ends where the process's memory does."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + page), page, 0) == 0

    def at_the_end(t: torch.Tensor) -> torch.Tensor:
        size = t.numel() * t.itemsize
        count, offset = t.numel(), page - size
        made = torch.frombuffer(memory, dtype=t.dtype, count=count, offset=offset)
        return made.view(t.shape).copy_(t)

    i, g, x = torch.tensor([36, 0, 36]), torch.randn(3, 6), torch.randn(37, 6)
    for function in (embedding(-1), lambda i, g: x.index_add(0, i, g)):
        call = run(function, i, g)
        expected = function(i, g)
        assert torch.equal(call(at_the_end(i), g), expected)
        assert torch.equal(call(i, at_the_end(g)), expected)
        for wrong in (37, -1, 1 << 40, -(1 << 62)):
            bad = torch.tensor([0, wrong, 1])
            try:
                function(bad, g)
            except (IndexError, RuntimeError):
                with pytest.raises((IndexError, RuntimeError)):
                    call(bad, g)
            else:
                assert torch.equal(call(bad, g), function(bad, g))
