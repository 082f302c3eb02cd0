"""Positions that are data, scans and windows as Triton: offline for a GPU, and interpreted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from fastpath.gpu.compile import machine_code
from fastpath.gpu.vectors import print_kernel
from tests import forked
from tests.cpu.fastpath.triton_kernels import kernels_of, program_of
from tests.cpu.fastpath.triton_positions import cases

KERNELS = {"embedding": 1, "gather": 2, "guarded": 1, "scatter": 1, "cross entropy": 2}
KERNELS |= {"extrema": 3, "scans": 2, "other scans": 1, "windows": 2, "images": 3}
KERNELS |= {"channels": 3, "in turns": 2, "between": 2}
KERNELS |= {"in turns of four": 1, "in turns of four, halves": 1, "in turns of four, integers": 1}
KERNELS |= {"pairs in turns": 2, "in turns, halves": 2, "borders": 3, "patches": 2}
KERNELS |= {"apart": 3, "apart, integers": 16}
KERNELS |= {"slabs": 4}
KERNELS |= {"many writes": 7, "writes without order": 5}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_compile_for_a_gpu_that_is_not_there(name: str) -> None:
    found, _ = kernels_of(program_of(*cases()[name]))
    assert len(found) == KERNELS[name]
    for kernel in found:
        dtypes = tuple(b.dtype for b in kernel.buffers)
        assert machine_code(print_kernel(kernel), dtypes, 90).asm["cubin"]


def test_elements_apart_are_parts_of_words() -> None:
    """But not where buffers may begin anywhere, nor 64 bits of which a word would have 128."""
    parts = {}
    for name in ("apart", "apart, integers"):
        found, _ = kernels_of(program_of(*cases()[name]))
        texts = [[print_kernel(k, aligned=each).source for k in found] for each in (True, False)]
        parts[name] = [sum(text.count("m.part(") for text in each) for each in texts]
    assert parts == {"apart": [7, 0], "apart, integers": [10, 0]}


def test_bytes_that_are_masked_are_mended_as_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is beyond all floats of eight bits, where that is no number."""
    monkeypatch.setattr("fastpath.gpu.values.saturates", lambda: False)
    for size, whole in ((4096, True), (5002, True), (300, False)):
        x = torch.empty(size)
        (kernel,), _ = kernels_of(program_of(lambda x: x.to(torch.float8_e4m3fn), [x]))
        text = print_kernel(kernel).source
        assert ("NARROW, 0x7F, True)" in text) == whole
        assert ("NARROW, 0x7F, False)" in text) == (size != 4096)


def test_positions_are_asserted_on_the_device() -> None:
    w, i = torch.empty(64, 128), torch.zeros(100, dtype=torch.int64)
    (kernel,), _ = kernels_of(program_of(lambda w, i: F.embedding(i, w), [w, i]))
    printed = print_kernel(kernel)
    assert printed.source.count("tl.device_assert(") == 1
    compiled = machine_code(printed, tuple(b.dtype for b in kernel.buffers), 90)
    assert "__assertfail" in compiled.asm["ptx"]
    (known,), _ = kernels_of(program_of(lambda w: w[torch.arange(64)] * 2, [w]))
    assert "device_assert" not in print_kernel(known).source


def test_long_rows_are_scanned_block_by_block_in_order() -> None:
    x = torch.empty(4, 50_001, dtype=torch.bfloat16)
    (kernel,), _ = kernels_of(program_of(lambda x: x.float().cumsum(1), [x]))
    text = print_kernel(kernel).source
    assert text.count("for r_first in range(0, 50001, ") == 1
    assert text.count("tl.associative_scan(") == 1 and text.count("tl.reduce(") == 1
    assert machine_code(print_kernel(kernel), tuple(b.dtype for b in kernel.buffers), 90)


def test_what_32_bits_hold_is_counted_in_them_and_nothing_else() -> None:
    """Where the last place, the last position, or what is divided for one is just in range, or is
    not; the points of the last block behind all points are compared, too."""

    def wide(function: Any, *inputs: torch.Tensor) -> bool:
        (kernel,), _ = kernels_of(program_of(function, inputs))
        printed = print_kernel(kernel)
        assert ("tl.program_id(0).to(tl.int64)" in printed.source) == printed.wide
        assert machine_code(printed, tuple(b.dtype for b in kernel.buffers), 90).asm["cubin"]
        return printed.wide

    def given(*size: int, stride: tuple[int, ...] | None = None) -> torch.Tensor:
        stride = stride or tuple(torch.empty(size, device="meta").stride())
        return torch.empty_strided(size, stride, dtype=torch.uint8, device="meta")

    def many(x: torch.Tensor) -> torch.Tensor:
        return x.expand(1 << 23, len(x)).reshape(-1)

    most = 1 << 31
    few, odd = given(512), given(509)
    for more in (0, 1):
        assert wide(lambda x: x ^ 1, given(most + more)) == bool(more)
        assert wide(lambda x: x ^ 1, given(2, 9, stride=(most - 9 + more, 1))) == bool(more)
        assert wide(lambda x: x.amax(1), given(1 << 16, (1 << 15) + more)) == bool(more)
        assert wide(lambda x: x.amax(0), given(1 << 15, (1 << 16) + more)) == bool(more)
        assert wide(lambda x: x.t() ^ 1, given(40, 50, stride=(1, most // 49 + more))) == bool(more)
        # Of which one is copied the place is the remainder of a number just in range, or not.
        count = 128 + more
        assert wide(lambda x, n=count: many(x)[17 :: 1 << 24][:n] ^ 1, odd) == bool(more)
    assert wide(lambda x: torch.arange(0, 1 << 35, 1 << 26) + x, few)
    assert not wide(lambda x: torch.arange(0, 1 << 31, 1 << 22) + x, few)


def test_kernels_give_eagers_values_in_tritons_interpreter(tmp_path: Path) -> None:
    script = Path(__file__).with_name("triton_positions.py")
    done = forked.fresh(script, {**os.environ, "TRITON_INTERPRET": "1"}, tmp_path)
    if "only 0-dimensional arrays can be converted to Python scalars" in done.stderr:
        pytest.skip("Triton 3.6's interpreter makes no bound of a range with NumPy from 2.4 on")
    assert done.returncode == 0, done.stderr[-3000:]
    ran, compared, far, beyond, programs, kernels, elements = map(int, done.stdout.split()[-7:])
    assert ran >= 18 and compared > 5_000
    assert far >= 14 and beyond > 5_000  # 32 bits do not hold the places
    # Whose sizes each call chooses: a program of each kind, with kernels that take them.
    assert programs == 2 and kernels >= 5 and elements > 3_000
