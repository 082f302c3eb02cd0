"""Tiles that are turned in registers, whole squares and what is narrower, and reads from line to
line of memory, which are made once."""

from __future__ import annotations

import ctypes
import mmap
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fastpath
from fastpath.schedule import streams

#: Rows of a tile, and dtypes.
CASES = [(4, torch.float32), (25, torch.float32), (73, torch.float32), (9, torch.float64)]
CASES += [(9, torch.bfloat16), (15, torch.int64), (9, torch.bool)]


def compiled(function: Callable[..., Any], *inputs: torch.Tensor) -> tuple[Any, list[str]]:
    call: Any = fastpath.compile_graph(torch.fx.symbolic_trace(function), list(inputs))
    assert call.report.fallback is None and not call.report.aten_calls, call.report
    return call, call.kernel_sources


def turned(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(-1, -2).clone(memory_format=torch.contiguous_format)


@pytest.mark.parametrize(("narrow", "dtype"), CASES)
def test_squares_and_what_is_narrower(narrow: int, dtype: torch.dtype) -> None:
    x = torch.randint(-99, 99, (3, 77, narrow)).to(dtype)
    call, (source,) = compiled(turned, x)
    assert "square_" in source
    rest = narrow % 16 if narrow < 64 else 0
    assert bool(re.search(rf"square_\w+_\d+_\d+_{rest}\(", source)) == bool(rest)
    for given in (x, x.flip(1).contiguous()):
        assert torch.equal(call(given), turned(given))


def test_nothing_is_read_behind_the_last_row() -> None:
    """What is given ends where the process's memory does."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + page), page, 0) == 0
    for narrow in (9, 15):
        x = torch.randn(64, narrow)
        offset = page - x.nbytes
        there = torch.frombuffer(memory, dtype=x.dtype, count=x.numel(), offset=offset)
        call, _ = compiled(turned, x)
        assert torch.equal(call(there.view(x.shape).copy_(x)), turned(x))


@pytest.mark.parametrize("seen", [False, True])
def test_rows_of_a_turned_sum_are_read_once(seen: bool) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = x + y.transpose(1, 2)
        return (F.layer_norm(z, (48,)), z * 2) if seen else F.layer_norm(z, (48,))

    x, y = torch.randn(3, 20, 48), torch.randn(3, 48, 20)
    call, sources = compiled(function, x, y)
    loads = [line for line in "".join(sources).splitlines() for _ in re.findall(r"\* 20\b", line)]
    assert len(loads) == 1, loads
    for sign in (1, -1):
        found, expected = call(x * sign, y), function(x * sign, y)
        torch.testing.assert_close(found, expected if not seen else list(expected))


#: What is turned, its dtype, and the rows of the tiles that follow each other along its lines; 0
#: where the lines of the result do not begin with lines of memory, or there are few tiles.
FLAT: list[tuple[tuple[int, ...], torch.dtype, int]] = [
    ((64, 160), torch.float32, 16),
    ((192, 137), torch.float32, 16),
    ((2, 128, 200), torch.float32, 16),
    ((80, 131), torch.float64, 16),
    ((96, 300), torch.bfloat16, 32),
    ((128, 515), torch.int8, 64),
    ((144, 1100), torch.float32, 128),
    ((80, 530), torch.float64, 64),
    ((64, 2100), torch.float32, 256),
    ((100, 160), torch.float32, 0),
    ((64, 120), torch.float32, 0),
]


@pytest.mark.parametrize(("shape", "dtype", "rows"), FLAT)
def test_flat_tiles(
    shape: tuple[int, ...], dtype: torch.dtype, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not streams.last_level_cache():
        pytest.skip("this machine has no streaming stores, or does not tell the size of its cache")
    monkeypatch.setattr(streams, "last_level_cache", lambda: 1000)

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return y + x.transpose(-1, -2)

    x = torch.randint(-99, 99, shape).to(dtype)
    y = torch.randint(-9, 9, (*shape[:-2], shape[-1], shape[-2])).to(dtype)
    call, (source,) = compiled(function, x, y)
    assert bool(re.search(rf"tile_first \+ {rows or 64}\b", source))
    before = torch.get_num_threads()
    try:
        for threads, given in ((1, x), (2, -x), (3, x.flip(0).contiguous())):
            torch.set_num_threads(threads)
            assert torch.equal(call(given, y), function(given, y))
    finally:
        torch.set_num_threads(before)
