"""How kernels for GPUs compute places, and lay what takes turns: their texts and machine code.

Their values are compared by ``triton_positions.py`` and ``triton_kernels.py``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from torch.nn import functional as F

pytest.importorskip("triton")

from fastpath.gpu.compile import machine_code
from fastpath.gpu.kinds import kinds_of
from fastpath.gpu.ranges import Ranges
from fastpath.gpu.tiling import tiling
from fastpath.gpu.vectors import print_kernel
from fastpath.ir.expr import Expr, cast, const, position
from fastpath.ir.index import Axis, Index
from fastpath.schedule import slabs
from fastpath.schedule.kernel import Kernel, Store
from fastpath.schedule.slabs import in_slabs
from tests.cpu.fastpath.triton_kernels import kernels_of, program_of

HALF = torch.bfloat16


def kernel_of(function: Callable[..., Any], *inputs: torch.Tensor) -> Kernel:
    (kernel,) = kernels_of(program_of(function, inputs))[0]
    return kernel


def ptx_of(kernel: Kernel) -> str:
    dtypes = tuple(b.dtype for b in kernel.buffers)
    return str(machine_code(print_kernel(kernel), dtypes, 90).asm["ptx"])


def halves(*shape: int, dtype: torch.dtype = HALF) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype)


# -- places --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.pad(x, (1, 2, 3, 1), mode="reflect"),
        lambda x: F.pad(x, (1, 2, 3, 1), mode="replicate"),
        lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
        lambda x: F.interpolate(x, size=(90, 71)),
        lambda x: torch.where(torch.arange(112) * 2 > 30, x, 0.0),
    ],
    ids=["reflected", "replicated", "resized", "nearest", "compared"],
)
def test_places_that_fit_are_computed_in_32_bits(function: Callable[..., Any]) -> None:
    text = print_kernel(kernel_of(function, halves(32, 64, 112, 112))).source
    assert "int64" not in text and "int32" in text


def test_places_that_do_not_fit_and_numbers_that_are_data_have_64() -> None:
    far = kernel_of(lambda x: F.pad(x, (1, 1), mode="reflect"), halves(1 << 16, 1 << 16))
    assert "to(tl.int64)" in print_kernel(far).source
    numbers = halves(64, 512, dtype=torch.int64)
    text = print_kernel(kernel_of(lambda x: [x * 3 > 7, (x + 1).float()], numbers)).source
    assert "int32" not in text


def test_what_is_computed_in_32_bits_has_a_range() -> None:
    ranges, place = Ranges(), position(Index({Axis(1000): 1}))
    million = const(1_000_000, "int64")
    assert ranges.of(place) == (0, 999)
    assert ranges.small(Expr("sub", (place, million), "int64"))
    product = Expr("mul", (place, million), "int64")
    assert ranges.small(product)
    assert not ranges.small(Expr("mul", (product, million), "int64"))
    # Each part has to fit: what is left of two that do not is computed in 64.
    far = const(1 << 40, "int64")
    assert ranges.of(Expr("sub", (far, far), "int64")) == (0, 0)
    assert not ranges.small(Expr("sub", (far, far), "int64"))
    half = Expr("mul", (cast(place, "float32"), const(0.5, "float32")), "float32")
    assert ranges.small(cast(half, "int64"))
    read = Expr("load", ("x", Index({})), "float32")
    assert ranges.of(Expr("maximum", (read, half), "float32")) is None  # it may be nan
    assert not ranges.small(cast(read, "int64"))
    odd = Expr("truediv", (half, half), "float32")
    assert ranges.of(odd) is None and ranges.of(const(float("nan"), "float32")) is None


def test_programs_are_known_to_be_numbered_from_zero() -> None:
    kernel = kernel_of(lambda x: F.pad(x, (1, 1, 1, 1)), halves(8, 64, 112, 112))
    blocks = 2**31 // tiling(kernel).x_block
    assert f"tl.assume((program >= 0) & (program < {blocks}))" in print_kernel(kernel).source
    # Quotients of numbers that may be negative are more instructions.
    assert "mul.hi.s32" not in ptx_of(kernel)
    rows = kernel_of(lambda x: x.sum(-1), halves(8, 4096))
    assert "tl.assume(program >= 0)" in print_kernel(rows).source
    # However many there are, a kernel is compiled once.
    texts = {print_kernel(kernel_of(lambda x: x * 2, halves(n << 12))).source for n in (1, 2, 9)}
    assert len(texts) == 1


# -- elements that take turns --------------------------------------------------------------------


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    one, other = x[..., ::2], x[..., 1::2]
    return torch.stack([one * cos - other * sin, one * sin + other * cos], -1).flatten(-2)


def boxes(b: torch.Tensor) -> torch.Tensor:
    x, y, w, h = b.unbind(-1)
    return torch.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], -1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_parts_of_a_rotation_are_read_and_stored_as_vectors(dtype: torch.dtype) -> None:
    x, angles = halves(4, 8, 64, 128, dtype=dtype), halves(64, 64, dtype=dtype)
    kernel = kernel_of(rotated, x, angles, angles)
    text, ptx = print_kernel(kernel).source, ptx_of(kernel)
    assert text.count("m.apart_2(") == 1 and text.count("m.in_turns_2(") == 1
    assert text.count("tl.load(") == 3  # each once, though both parts need all
    loads = [line for line in ptx.splitlines() if "ld.global" in line]
    assert loads and not any(".b16" in line or ".b32 \t%r" in line for line in loads)
    # Each thread puts together what it has read: nothing goes by others.
    assert "st.shared" not in ptx


def test_four_kinds_take_turns_too() -> None:
    kernel = kernel_of(boxes, halves(4096, 4, dtype=torch.float32))
    text, ptx = print_kernel(kernel).source, ptx_of(kernel)
    assert text.count("m.apart_4(") == 1 and text.count("m.in_turns_4(") == 1
    assert text.count("tl.load(") == 1 and "st.shared" not in ptx


def test_what_takes_no_turns() -> None:
    def turns(function: Callable[..., Any], *inputs: torch.Tensor) -> int:
        kernel = kernel_of(function, *inputs)
        return kinds_of(kernel, tiling(kernel).x)

    x = halves(4096, 64)
    assert turns(lambda x, y: torch.stack([x, y], -1), x, x) == 2
    assert turns(lambda x, y: torch.stack([x, y, x + y], -1), x, x) == 0  # no power of two
    assert turns(lambda x, y: torch.stack([x, y], 1), x, x) == 0  # rows
    assert turns(lambda x: x * 2, halves(4096, 2)) == 0  # nothing is asked
    assert turns(lambda x, y: torch.cat([x, y], -1), halves(64, 1), halves(64, 3)) == 4


# -- what is read more often than once -----------------------------------------------------------


def test_vectors_of_more_words_than_there_are_stay_in_the_cache() -> None:
    look_up = lambda i, w: F.embedding(i, w)  # noqa: E731
    for count, popular in ((4096, True), (500, False)):
        kernel = kernel_of(look_up, torch.empty(count, dtype=torch.int64), halves(512, 1024))
        text = print_kernel(kernel).source
        assert ("evict_last" in text, "evict_first" in text) == (popular, popular)
    # Of computed positions the cache knows enough.
    resized = kernel_of(lambda x: F.interpolate(x, scale_factor=2.0), halves(2, 8, 56, 56))
    assert "evict" not in print_kernel(resized).source


def test_a_large_tables_columns_are_read_for_all_words_before_others_are() -> None:
    def extents(count: int, *table: int, dtype: torch.dtype = HALF) -> list[int]:
        ids = torch.empty(count, dtype=torch.int64)
        kernel = kernel_of(lambda i, w: F.embedding(i, w), ids, halves(*table, dtype=dtype))
        return [axis.extent for axis in tiling(kernel).x]

    assert extents(65536, 4096, 1024) == [8, 65536, 128]  # slabs of 256 bytes
    assert extents(65536, 4096, 1024, dtype=torch.float32) == [16, 65536, 64]
    assert extents(65536, 512, 1024) == [65536, 1024]  # the cache has all of it
    assert extents(4096, 4096, 1024) == [4096, 1024]  # hardly a vector is read twice
    assert extents(65536, 16384, 128) == [65536, 128]  # a slab is all of a vector
    assert extents(65536, 4096, 300) == [65536, 300]
    ids, table = torch.empty(64, 1024, dtype=torch.int64), halves(4096, 1024)
    placed = kernel_of(lambda i, w, p: F.embedding(i, w) * 2 + p, ids, table, halves(1024, 1024))
    assert tiling(placed).x[0].extent == 8
    ptx = ptx_of(placed)  # three vectors of words' elements and as many of positions' and results
    assert "ld.global.v4.b32" in ptx.replace(".L1::evict_last.L2::cache_hint", "")
    with mock.patch.object(slabs, "LEAST", 1 << 40):
        whole = kernel_of(lambda i, w: F.embedding(i, w), ids, table)
    (stage,) = whole.stages
    (store,) = stage.statements
    assert isinstance(store, Store) and len(whole.outer) == 1
    drawn = Expr("philox", (const(0, "int64"), const(0, "int64"), position(store.index)), "int64")
    stage.statements = [
        dataclasses.replace(store, value=Expr("mul", (store.value, drawn), "int64"))
    ]
    before = whole.outer
    assert in_slabs(whole, 256).outer == before  # random words go by the order of all elements


# -- how much a thread does ----------------------------------------------------------------------


def warps(function: Callable[..., Any], *inputs: torch.Tensor) -> int:
    return tiling(kernel_of(function, *inputs)).warps


def test_a_thread_has_fewer_points_of_long_rows_and_of_rows_that_are_stored_as_they_are_read() -> (
    None
):
    for width, expected in ((2048, 2), (4096, 8)):
        for dtype in (HALF, torch.float32):
            x = halves(16384, width, dtype=dtype)
            assert warps(lambda x: F.normalize(x, dim=-1), x) == expected
    x = halves(16384, 4096)
    assert warps(lambda x: x.float().var(-1), x) == 4  # stores none
    assert warps(lambda x: torch.softmax(x.float(), -1), x) == 4
    assert warps(lambda x: (x / x.amax(-1, True)).to(torch.float8_e5m2), x) == 4


def test_programs_of_longer_rows_have_more_warps() -> None:
    """So that fewer rows are on their way when the last ones are waited for."""
    amax, var = (lambda x: x.amax(-1)), (lambda x: x.float().var(-1))
    assert [warps(amax, halves(4096, n)) for n in (20000, 32768, 50257)] == [4, 16, 16]
    assert [warps(var, halves(4096, n)) for n in (20000, 32768, 50257)] == [8, 8, 8]


def test_what_threads_tell_each_other_decides_how_many_a_program_has() -> None:
    between = halves(64, 512, 2048)
    assert warps(lambda x: torch.softmax(x, 1), between) == 4
    assert warps(lambda x: x.mean(1, True) * x, between) == 8
    flat = halves(1 << 20, dtype=torch.float32)
    assert [warps(f, flat) for f in (lambda x: x.sin() + x.cos(), torch.sin)] == [2, 4]


def test_a_thread_has_more_points_of_a_series() -> None:
    flat = halves(1 << 20, dtype=torch.float32)
    blocks = [tiling(kernel_of(f, flat)).x_block for f in (torch.special.i0, torch.exp)]
    assert blocks == [2048, 1024]


def test_a_program_has_points_of_one_row_where_places_take_quotients_of_its_number() -> None:
    def plan(function: Callable[..., Any], *inputs: torch.Tensor) -> tuple[int, int, int]:
        found = tiling(kernel_of(function, *inputs))
        return len(found.outer), found.x_block, found.warps

    patches = lambda x: F.unfold(x, 3)  # noqa: E731
    assert plan(patches, halves(8, 64, 56, 56)) == (2, 4096, 8)  # of 2916, and none but 156 outside
    assert plan(patches, halves(8, 64, 112, 112)) == (2, 2048, 4)  # of 12100
    assert plan(patches, halves(8, 64, 112, 112, dtype=torch.float32)) == (2, 2048, 8)
    assert plan(patches, halves(8, 64, 57, 57))[0] == 0  # rows of 3025 begin anywhere
    assert plan(patches, halves(8, 64, 50, 49))[0] == 0  # 2256 of 4096 points are too few
    assert plan(lambda x: x[:, 1:].contiguous(), halves(64, 8, 4096))[0] == 0  # no quotients
    # Those are numbers: no thread divides for its points what the row has in common.
    text = print_kernel(kernel_of(patches, halves(8, 64, 56, 56))).source
    assert "a0 // 9" in text and "x // 54" in text and text.count("x //") == 1


def test_neighbours_that_add_at_places_of_their_own_are_neighbouring_threads() -> None:
    x, y = halves(64, 512, dtype=torch.float32), halves(64, 2048, dtype=torch.float32)
    i = torch.empty(64, 2048, dtype=torch.int64)
    *_, apart = kernels_of(program_of(lambda a, i, b: a.scatter_add(1, i, b), (x, i, y)))[0]
    assert (tiling(apart).x_block, tiling(apart).warps) == (128, 4)
    rows = x[:32].contiguous(), i[:, 0].contiguous(), x
    *_, together = kernels_of(program_of(lambda a, i, b: a.index_add(0, i % 32, b), rows))[0]
    assert tiling(together).x_block == 1024  # neighbours go to neighbouring places


def test_threads_that_scan_words_have_few_points_and_registers_for_these() -> None:
    def plan(width: int, dtype: torch.dtype) -> tuple[int, int | None]:
        found = tiling(kernel_of(lambda x: x.cumsum(-1), halves(16384, width, dtype=dtype)))
        return found.warps, found.registers

    single = [plan(width, torch.float32) for width in (1000, 2048, 4096, 8192, 16384)]
    assert single == [(4, None), (8, None), (16, 32), (16, 64), (16, None)]
    assert plan(4096, HALF) == (4, None) and plan(4096, torch.int64) == (8, None)
    kernel = kernel_of(lambda x: x.cumsum(-1), halves(16384, 4096, dtype=torch.float32))
    assert ".maxnreg 32" in ptx_of(kernel)


def test_programs_hold_as_many_bytes_of_rows_as_the_cache_does() -> None:
    def plan(
        function: Callable[..., Any], width: int, dtype: torch.dtype = HALF
    ) -> tuple[int, int, int | None]:
        found = tiling(kernel_of(function, halves(4096, width, dtype=dtype)))
        return found.warps, found.r_block, found.registers

    softmax = lambda x: torch.softmax(x, -1)  # noqa: E731
    assert plan(softmax, 24576) == (16, 4096, None)
    assert plan(softmax, 32000) == plan(softmax, 65536) == (32, 8192, 32)
    assert plan(softmax, 24576, torch.float32) == (32, 4096, 32)
    assert plan(softmax, 65536, torch.float32) == (32, 8192, None)
    assert plan(lambda x: F.normalize(x, dim=-1), 65536) == (32, 8192, 32)
    assert plan(lambda x: F.normalize(x, dim=-1), 24576, torch.float32)[0] == 16
    norm = lambda x: F.layer_norm(x, x.shape[-1:])  # noqa: E731
    assert plan(norm, 65536) == (16, 4096, None)  # moments need the registers


def test_three_blocks_of_moments_are_read_at_once_where_none_is_left_over_alone() -> None:
    def together(points: int) -> bool:
        kernel = kernel_of(lambda x: F.group_norm(x, 32), halves(64, 256, points // 8))
        return "loop_unroll_factor=3" in print_kernel(kernel).source

    blocks = [together(n * 4096 + 512) for n in (4, 5, 6, 7, 8, 9, 10)]
    assert blocks == [False, False, True, False, True, True, False]
