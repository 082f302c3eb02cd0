"""CUDA's random numbers in kernels: their values in Triton's interpreter, and machine code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from fastpath.random import philox
from tests import forked

triton = pytest.importorskip("triton")
TRITON = tuple(map(int, triton.__version__.split(".")[:2]))


def test_kernels_draw_what_eagers_threads_draw(tmp_path: Path) -> None:
    script = Path(__file__).with_name("philox_kernels.py")
    done = forked.fresh(script, {**os.environ, "TRITON_INTERPRET": "1"}, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split()[-1]) > 100_000


def _dropped(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.native_dropout(torch.relu(x), 0.1, True)[0] + y


@pytest.mark.parametrize(
    "program, shape, dtype",
    [
        (_dropped, (4096, 512), torch.bfloat16),
        (lambda x, _: torch.rand_like(x), (1 << 22,), torch.float32),
        (lambda x, y: x + torch.randn_like(x) * y, (1 << 22,), torch.float32),
        (lambda x, _: torch.ops.aten.exponential(x), (1 << 22,), torch.float32),
        # Two axes, the slower of which steps by what divides the grid.
        (lambda x, _: torch.ops.aten.uniform(x, -1, 1), (1056, 4096), torch.bfloat16),
    ],
)
def test_a_draw_is_part_of_the_kernel_that_uses_it(
    program: Any, shape: tuple[int, ...], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One kernel, which is given the seed and the offset, and compiles; words that lie a grid
    apart stay in the threads that computed them."""
    from fastpath.gpu.compile import machine_code
    from fastpath.gpu.vectors import print_kernel
    from fastpath.schedule.cluster import Fusion
    from fastpath.schedule.loops import Builder
    from fastpath.target import GPU
    from tests.cpu.fastpath.triton_kernels import program_of

    monkeypatch.setattr(philox, "resident", lambda device: 132 * 2048)

    given = [torch.empty(shape, dtype=dtype) for _ in range(2)]
    fusion = Fusion(program_of(program, given))
    kernels = [cluster for cluster in fusion.result if cluster.call is None]
    assert len(kernels) == 1
    roots = fusion.roots.roots
    kernel = Builder(kernels[0], "kernel", roots, set(fusion.roots.stored), (), GPU).build()
    printed = print_kernel(kernel)
    assert len(printed.arguments) == 2 and "philox" in printed.source
    compiled = machine_code(printed, tuple(b.dtype for b in kernel.buffers), 90)
    assert compiled.asm["cubin"]
    # Both halves of a product come of one multiplication; older Tritons take some apart.
    counts = [compiled.asm["ptx"].count(f"mul.{kind}.u32") for kind in ("hi", "wide")]
    assert counts[1] > 18 and (counts[0] < 10 or TRITON < (3, 8))
    apart = program is not _dropped
    assert ("_apart(" if apart else "_side_by_side(") in printed.source
    if apart:  # beside what is read a thread has a vector of each piece, else two
        reads = "tl.load(" in printed.source
        points = 4 * (512 if reads else 1024)
        normal = "philox_normal" in printed.source
        assert printed.warps == (4 if reads or normal else 2)
        assert f"tl.arange(0, {points // 4})" in printed.source
    if apart and dtype is torch.float32:
        assert compiled.metadata.shared == 0 and "st.global.v4.b32" in compiled.asm["ptx"]


def test_where_an_input_begins_decides_what_a_program_computes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a dropout's words: those that neighbours share, where it begins as tensors usually do."""
    from fastpath.gpu.vectors import print_kernel
    from fastpath.schedule.cluster import Fusion
    from fastpath.schedule.loops import Builder
    from fastpath.target import GPU
    from tests.cpu.fastpath.triton_kernels import program_of

    monkeypatch.setattr(philox, "resident", lambda device: 132 * 2048)

    def printed(count: int) -> str:
        given = [torch.empty(count)]
        fusion = Fusion(program_of(lambda x: torch.native_dropout(x, 0.1, True)[0], given))
        (cluster,) = [c for c in fusion.result if c.call is None]
        stored = set(fusion.roots.stored)
        kernel = Builder(cluster, "kernel", fusion.roots.roots, stored, (), GPU).build()
        return print_kernel(kernel).source

    usual, other = printed(1 << 22).split("    else:\n")
    assert "philox_side_by_side(" in usual and "philox(" not in usual
    assert "philox(" in other and "_side_by_side" not in other
    assert "philox_apart(" in printed((1 << 22) + 1)  # no thread takes several, wherever it begins


def test_a_graphs_threads() -> None:
    """What eager has of them on a GPU of 132 multiprocessors, and by how much offsets grow."""
    resident = 132 * 2048
    for count, threads, advance in (
        (1, 256, 4),
        (257, 512, 4),
        (1 << 20, 132 * 2048, 4),
        (1 << 24, 132 * 2048, 64),
    ):
        grid = philox.Grid(count, resident)
        assert (grid.threads, grid.advance) == (threads, advance)
