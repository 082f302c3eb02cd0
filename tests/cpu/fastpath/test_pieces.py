"""What is put together of pieces: cat, stack, padding, and gradients of slices, at every edge."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fastpath
import refcompiler
from fastpath.gpu.compile import machine_code
from fastpath.gpu.vectors import print_kernel
from fastpath.ir import pieces
from tests.cpu.fastpath.triton_kernels import kernels_of, program_of

aten = torch.ops.aten
# A dtype of each size in memory, with widths on both sides of a vector.
WIDTHS = {torch.float32: 33, torch.int64: 3, torch.float16: 17, torch.bfloat16: 16, torch.bool: 65}

# Where pieces begin and end does not depend on it: pairs of dtypes share the cases between them.
PARTS = {torch.int64: slice(0, None, 2), torch.float16: slice(1, None, 2)}
PARTS |= {torch.bool: slice(0, None, 2), torch.bfloat16: slice(1, None, 2)}


def values(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    x = torch.randn(*shape) * 50
    return x > 0 if dtype is torch.bool else x.to(dtype)


def agree(function: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    """All outputs are eager's bit for bit, and kernels alone made them."""
    with torch.no_grad():
        run = fastpath.compile_graph(torch.fx.symbolic_trace(function), list(inputs))
        found, expected = run(*inputs), function(*inputs)
    assert run.report.fallback is None and not run.report.aten_calls, run.report
    assert len(found) == len(expected) > 0
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b) and (a.dtype, a.stride()) == (b.dtype, b.stride())
    return run


@pytest.fixture
def guard_page() -> Callable[[int], torch.Tensor]:
    """Makes tensors of n floats with pages before and behind them that nobody may touch."""
    protect = ctypes.CDLL(None).mprotect
    page = mmap.PAGESIZE

    def make(count: int) -> torch.Tensor:
        size = -(-count * 4 // page) * page
        memory = mmap.mmap(-1, size + 2 * page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for place in (start, start + page + size):
            assert protect(ctypes.c_void_p(place), page, 0) == 0
        offset = page + size - 4 * count
        return torch.frombuffer(memory, dtype=torch.float32, count=count, offset=offset)

    return make


# One graph of everything, so that there is little to compile.
def everything(x: Any, y: Any, z: Any, row: Any) -> Any:
    w = x.shape[1]
    return (
        torch.cat([x, y, z], 1),
        torch.cat([y, x], -1),
        torch.cat([x, x[:2]], 0),
        torch.stack([x, x.flip(0)], 0),
        torch.stack([x, x.flip(0)], -1),
        F.pad(x, (2, 3)),
        F.pad(x, (-1, 3, 1, 0), value=1),
        aten.slice_backward(x, [5, 2 * w + 3], 1, 1, 2 * w + 1, 2),
        aten.slice_backward(x, [9, w], 0, 2, 7, 1),
        aten.slice_backward(x, [10, w], 0, 1, 10, 2).flip(0),
        aten.select_backward(x, [5, 4, w], 1, 2),
        aten.select_backward(x, [5, w, 3], -1, -1),
        aten.slice_scatter(torch.cat([x, z], 1), x, 1, 1, w + 1, 1),
        aten.slice_scatter(x, row, 0, 1, 4, 2),
        aten.select_scatter(x, row[0], 0, 3),
        aten.diagonal_backward(x[:, 0], [5, 7], 2, 0, 1),
        aten.diagonal_backward(x.t().contiguous(), [w, 8, 7], -2, 2, 1)[:, :, :3] * 1,
    )


@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
def test_pieces_are_eagers(dtype: torch.dtype) -> None:
    w = WIDTHS[dtype]
    part = PARTS.get(dtype, slice(None))
    inputs = values(dtype, 5, w), values(dtype, 5, 7), values(dtype, 5, 2), values(dtype, 2, w)
    agree(lambda x, y, z, row: everything(x, y, z, row)[part], *inputs)


def test_layouts_and_dtypes_of_pieces() -> None:
    images = [
        values(torch.float32, 2, c, 4, 5).to(memory_format=torch.channels_last) for c in (3, 2)
    ]
    agree(lambda a, b: (torch.cat([a, b], 1), torch.cat([a, a], 2)), *images)
    turned, wide = values(torch.float32, 40, 70).t(), values(torch.float64, 70, 3)
    agree(lambda a, b: (torch.cat([a, a * 2], 0), torch.cat([a, b], 1)), turned, wide)
    agree(
        lambda a: (torch.cat([a[2:], a[:-1:2]]), torch.cat([a]), F.pad(a, ())),
        values(torch.float32, 9),
    )
    x = torch.randn(7)[3].expand(4, 6)
    agree(
        lambda a: (torch.cat([a, a + 1], 1), F.pad(a, (1, 0, 0, 2), value=float("nan")).isnan()), x
    )


def test_a_copy_of_what_an_operand_lies_in_begins_as_far_in() -> None:
    """However far that is in a later call, which no guard asks; what is expanded has none."""

    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        twice = torch.slice_scatter(torch.slice_scatter(x, y, 0, 0, 2), y, 0, 1, 3)
        wide = torch.slice_scatter(x[:1].expand(4, x.shape[1]), y, 0, 1, 3)
        part = torch.select_scatter(x[1:], y[0], 0, 1)
        return twice, part, part[1:], wide, torch.slice_scatter(x * 2, y, 0, 1, 3)

    compared = 0
    for dynamic in (False, True):
        refcompiler.reset()
        compiled = refcompiler.compile(program, backend="fastpath", dynamic=dynamic)
        base = torch.randn(99)
        for start in (0, 3, 5):
            for steps in ((7, 1), (9, 1), (1, 5)):
                x, y = base[start:].as_strided((5, 7), steps), torch.randn(2, 7)
                for found, wanted in zip(compiled(x, y), program(x, y), strict=True):
                    assert torch.equal(found, wanted)
                    assert found.stride() == wanted.stride()
                    assert found.storage_offset() == wanted.storage_offset(), (start, steps)
                    compared += 1
        report = fastpath.last_report()
        assert report is not None and report.fallback is None and not report.aten_calls
    assert compared == 90


def test_pieces_are_computed_where_they_are_read() -> None:
    x, angles = torch.randint(0, 9, (2, 4, 9, 16)).float(), torch.randint(0, 9, (9, 16)).float()

    def rotated(q: Any, c: Any) -> Any:
        return (q * c + torch.cat((-q[..., 8:], q[..., :8]), -1) * (c + 1),)

    assert agree(rotated, x, angles).report.kernels == 1
    # And reductions of pieces read no piece that is not there.
    agree(lambda a: (torch.cat([a, a[:, :1] * 2], 1).sum(0), F.pad(a, (3, 0)).amax(1)), x[0, 0])


def test_many_pieces_and_empty_ones_are_left_to_aten() -> None:
    x = torch.randn(5)
    for function in (lambda a: torch.cat([a] * 9), lambda a: torch.cat([a[:0], a])):
        with torch.no_grad():
            run = fastpath.compile_graph(torch.fx.symbolic_trace(function), [x])
            assert torch.equal(run(x), function(x))
        assert dict(run.report.aten_calls) == {"aten.cat.default": 1}
    assert (
        "pieces"
        in fastpath.compile_graph(
            torch.fx.symbolic_trace(lambda a: torch.cat([a] * 9)), [x]
        ).report.reasons["aten.cat.default"]
    )


def test_outside_of_a_piece_nothing_is_read(guard_page: Callable[[int], torch.Tensor]) -> None:
    """Pieces that end where memory ends: a read past them would be a fault."""
    first, second = guard_page(37), guard_page(1000)
    first.copy_(torch.arange(37.0))
    second.copy_(torch.arange(1000.0))
    agree(
        lambda a, b: (torch.cat([a, b]), F.pad(a, (0, 900)), torch.cat([b, a]) * 2), first, second
    )
    agree(lambda b: (aten.slice_backward(b, [2100], 0, 5, 2005, 2), b + 1), second)


def test_what_is_written_over_is_not_asked_for_behind_a_border() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = x.argmax(1, keepdim=True)
        over = aten.select_scatter(found * found, x[:, 0].long(), 1, 0)
        sums = x.cumsum(1)[:, :1].clone()
        with_sums = F.pad(aten.select_scatter(sums * 2, x[:, 1], 1, 0), (1, 2))
        return F.pad(over, (2, 2), value=2), with_sums, sums

    agree(program, values(torch.float32, 30, 19))


def test_gradients_of_slices_are_kernels() -> None:
    w = torch.randn(6, 8, requires_grad=True)

    def program(w: Any) -> Any:
        return torch.cat([w[:, 1:5], w[2].expand(6, 8) * 2], 1).sum(1) + F.pad(w, (1, 1))[:, 3]

    run = fastpath.compile_graph(torch.fx.symbolic_trace(program), [w])
    t = torch.randn(6)
    (found,) = torch.autograd.grad(run(w), w, t)
    (expected,) = torch.autograd.grad(program(w), w, t)
    torch.testing.assert_close(found, expected)
    (backward,) = run.report.backwards
    assert backward.fallback is None and not backward.aten_calls, run.report


@pytest.mark.parametrize(
    "piece", ["guard", "order"], ids=["without a guard's upper bound", "with pieces exchanged"]
)
def test_the_comparison_notices(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if piece == "guard":
        monkeypatch.setattr(pieces, "within", lambda index, low, high: pieces.TRUE)
    else:
        monkeypatch.setattr(pieces, "_replaced", lambda index, dim, value: index)
    x = values(torch.float32, 5, 3)
    with pytest.raises(AssertionError):
        agree(lambda a: (torch.cat([a, a * 2 + 1], 1),), x)


def test_a_gpu_asks_the_same_guards() -> None:
    pytest.importorskip("triton")
    x, y = torch.empty(64, 96), torch.empty(64, 40)
    for function in (
        lambda a, b: torch.cat([a, b * 2], 1),
        lambda a, b: F.pad(a, (3, 5)).sum(1) + b[:, 0],
        lambda a, b: aten.select_backward(a, [64, 5, 96], 1, 2),
    ):
        (kernel, *_), _ = kernels_of(program_of(function, [x, y]))
        text = print_kernel(kernel)
        assert ", other=0)" in text.source
        dtypes = tuple(b.dtype for b in kernel.buffers)
        assert machine_code(text, dtypes, 90).asm["cubin"]
