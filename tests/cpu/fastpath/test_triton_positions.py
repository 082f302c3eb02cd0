"""Positions that are data, scans and windows as Triton: offline for a GPU, and interpreted."""

from __future__ import annotations

import os
from pathlib import Path

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


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_compile_for_a_gpu_that_is_not_there(name: str) -> None:
    found, _ = kernels_of(program_of(*cases()[name]))
    assert len(found) == KERNELS[name]
    for kernel in found:
        dtypes = tuple(b.dtype for b in kernel.buffers)
        assert machine_code(print_kernel(kernel), dtypes, 90).asm["cubin"]


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


def test_kernels_give_eagers_values_in_tritons_interpreter(tmp_path: Path) -> None:
    script = Path(__file__).with_name("triton_positions.py")
    done = forked.fresh(script, {**os.environ, "TRITON_INTERPRET": "1"}, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    ran, compared, programs, kernels, elements = map(int, done.stdout.split()[-5:])
    assert ran >= 18 and compared > 5_000
    # Whose sizes each call chooses: a program of each kind, with kernels that take them.
    assert programs == 2 and kernels >= 5 and elements > 3_000
