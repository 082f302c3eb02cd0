"""Positions that are data: every operator that reads or writes by them is a kernel, as eager is."""

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
from fastpath.ir import gathers
from tests.cpu.fastpath.triton_kernels import kernels_of, program_of

aten = torch.ops.aten


def compiled(function: Callable[..., Any]) -> Any:
    refcompiler.reset()
    return refcompiler.compile(function, backend="fastpath")


def agree(function: Callable[..., Any], *inputs: torch.Tensor, exact: bool = True) -> Any:
    """All outputs are eager's, and kernels alone made them; what eager asks first ATen asks."""
    with torch.no_grad():
        found, expected = compiled(function)(*inputs), function(*inputs)
    report = fastpath.last_report()
    assert report is not None and report.fallback is None, report
    assert report.aten_calls.keys() <= {"aten._assert_async.msg"}, report
    assert len(found) == len(expected) > 0
    for a, b in zip(found, expected, strict=True):
        assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
        if exact:
            assert torch.equal(a, b)
        else:
            torch.testing.assert_close(a, b)
    return report


def integers(below: int, *shape: int, least: int = 0, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(least, below, shape, generator=generator)


def values(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    x = torch.arange(-7, torch.Size(shape).numel() - 7).reshape(shape)
    return x > 0 if dtype is torch.bool else x.to(dtype)


def reads(x: Any, i: Any, j: Any, g: Any, step: int = 1) -> Any:
    every = (
        lambda: F.embedding(i, x[:, 0].float()) * 2,
        lambda: F.embedding(i.int(), x[1].float()),
        lambda: torch.gather(x, 1, g),
        lambda: torch.gather(x, -1, g[:2, :3, :1] % 5),
        lambda: torch.take_along_dim(x, g[:, :1] % 5, 2),
        lambda: torch.take(x, g - 4),
        lambda: x.index_select(1, j.abs()),
        lambda: x.transpose(0, 2).index_select(-1, i[0]),
        lambda: x[j],
        lambda: x[:, j, :2],
        lambda: x[i - 2, :, j],
        lambda: x[:, i, j],
        lambda: x[..., j],
        lambda: x[i[:, :1], j],
        lambda: x[torch.arange(3), j],
        lambda: x[1:, 2:][:, j % 4, ::2],
    )
    return [read() for read in every[::step]]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.bool], ids=str)
def test_reads_are_eagers(dtype: torch.dtype) -> None:
    x = values(dtype, 4, 6, 5)
    i, j = integers(4, 2, 3), torch.tensor([3, -2, 0])
    step = 4 if dtype is torch.bool else 1  # positions are found alike in all dtypes
    report = agree(lambda *given: reads(*given, step), x, i, j, integers(6, 4, 2, 5))
    assert report.kernels <= (16 if step == 1 else 5)


def writes(x: Any, s: Any, i: Any, j: Any) -> Any:
    return (
        x.scatter(1, i, s),
        x.scatter(1, i[:3, :2], 1),
        x.scatter(0, i[:3] % 5, s),
        x.t().scatter(-1, i[:4, :1] % 5, 1.0),
        x.index_copy(1, i[1], s),
        x.index_fill(0, j, 1.0),
        aten.index_put(x, [None, j], s),
        x.index_put((j[0],), x[1]),
        x.index_put((x > 0,), x[0, 0]),
        F.one_hot(i, 9),
    )


def sums(x: Any, s: Any, i: Any) -> Any:
    return (
        x.scatter_add(1, i, s),
        x.scatter_add(0, i[:2] % 5, s),
        x.index_add(1, i[0], s),
        x.index_add(1, i[0].int(), s, alpha=2),
        x[0].index_add(0, i[0], s[0]),
        aten.index_put(x, [i[0] - 5], s[0, 0], True),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool], ids=str)
def test_writes_are_eagers_in_its_order(dtype: torch.dtype) -> None:
    x, s = values(dtype, 5, 7), values(dtype, 5, 3)
    i = integers(7, 5, 3)
    i[0] = 2  # all three to one place
    step = 3 if dtype is torch.bool else 1
    agree(lambda *given: writes(*given)[::step], x, s, i, torch.tensor([3, -1, 3]))
    if dtype is torch.float32:
        agree(sums, x, s, i)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_sums_of_16_bits_are_rounded_where_eagers_are(dtype: torch.dtype) -> None:
    """Now each, now at their end: it goes by operator, rank, dimension, and the positions' type."""
    x, s = (torch.randn(5, n, 32, generator=torch.Generator().manual_seed(n)) for n in (7, 4))

    def added(x: Any, s: Any, i: Any) -> Any:
        places = i[None, :, None].expand(s.shape)
        turned = x.transpose(0, 1), s.transpose(0, 1)
        return (
            x.scatter_add(1, places, s),
            x.index_add(1, i, s),
            turned[0].index_add(0, i, turned[1]),
            turned[0].index_add(0, i.int(), turned[1]),
            turned[0].index_put((i,), turned[1], accumulate=True),
            turned[0].index_add(0, i, turned[1], alpha=1 / 3),
            x[0, :, 0].index_add(0, i, s[0, :, 0], alpha=1 / 3),
        )

    for i in ([3, 3, 3, 3], [6, 3, 6, 6]):
        agree(added, x.to(dtype), s.to(dtype), torch.tensor(i))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16])
def test_many_sums_are_in_eagers_order(dtype: torch.dtype) -> None:
    """By threads that have a part of the places each; those of 16 bits are ATen's."""
    x, i = (torch.randn(90, 40) * 9).to(dtype), integers(90, 90, 40)
    rows = integers(90, 70)

    def function(x: Any, i: Any, rows: Any) -> Any:
        added = torch.zeros_like(x).index_add(0, rows, x[:70] * 3)
        return x.scatter_add(0, i, x + 1), x.scatter_add(1, i % 40, x * 2), added

    run, before = compiled(function), torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            for found, expected in zip(run(x, i, rows), function(x, i, rows), strict=True):
                assert torch.equal(found, expected)
    finally:
        torch.set_num_threads(before)
    report = fastpath.last_report()
    assert report is not None
    left = {"aten.scatter_add.default": 2, "aten.index_add.default": 1}
    assert dict(report.aten_calls) == (left if dtype is torch.bfloat16 else {}), report


@pytest.mark.parametrize(
    ("shape", "reduction"), [((9, 33), "mean"), ((2, 33, 3, 4), "sum"), ((9, 33), "none")]
)
def test_cross_entropy_is_one_pass_over_the_scores(shape: Any, reduction: str) -> None:
    scores = torch.randn(shape, generator=torch.Generator().manual_seed(1), requires_grad=True)
    target = integers(33, shape[0], *shape[2:])
    target[1] = -100
    weight = torch.linspace(0.5, 2, 33)

    def program(x: Any, t: Any, w: Any) -> Any:
        return F.cross_entropy(x * 2, t, w, reduction=reduction)

    run = compiled(program)
    found, expected = run(scores, target, weight), program(scores, target, weight)
    torch.testing.assert_close(found, expected)
    (a,) = torch.autograd.grad(found.sum(), scores)
    (b,) = torch.autograd.grad(expected.sum(), scores)
    torch.testing.assert_close(a, b)
    report = fastpath.last_report()
    assert report is not None and not report.aten_calls and report.kernels <= 3, report
    assert [dict(backward.aten_calls) for backward in report.backwards] == [{}], report


def test_a_gradient_of_few_positions_is_a_kernel() -> None:
    x = torch.randn(4, 6, requires_grad=True)
    at = torch.tensor([[1], [5], [0], [2]])

    def program(x: Any, at: Any) -> Any:
        return (torch.log_softmax(x, -1).gather(1, at) * 2).sum()

    (a,) = torch.autograd.grad(compiled(program)(x, at), x)
    (b,) = torch.autograd.grad(program(x, at), x)
    torch.testing.assert_close(a, b)
    report = fastpath.last_report()
    assert report is not None
    assert [(r.kernels, dict(r.aten_calls)) for r in report.backwards] == [(1, {})], report


OUTSIDE: dict[str, Callable[..., Any]] = {
    "embedding": lambda x, i: F.embedding(i, x) + 1,
    "index_select": lambda x, i: x.index_select(0, i),
    "index_select of columns": lambda x, i: x.index_select(1, i),
    "gather": lambda x, i: x.gather(1, i[None]) * 2,
    "index": lambda x, i: x[i],
    "index and a sum": lambda x, i: x[:, i].sum(),
    "take": lambda x, i: x.take(i * 9),
    "cross_entropy": lambda x, i: F.cross_entropy(x[:2], i),
    "nll_loss": lambda x, i: F.nll_loss(x[:2], i, x[0], reduction="none"),
    "scatter": lambda x, i: x.scatter(1, i[None], 1.0),
    "scatter_add": lambda x, i: x.scatter_add(1, i[None], x),
    "index_add": lambda x, i: x.index_add(0, i, x[:2]),
    "index_put": lambda x, i: x.index_put((i,), x[:2]),
    "index_copy": lambda x, i: x.index_copy(0, i, x[:2]),
    "index_fill": lambda x, i: x.index_fill(0, i, 2.0),
    "piece": lambda x, i: torch.cat([x[i], x]) * 2,
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_positions_outside_raise_what_eager_raises(name: str) -> None:
    function = OUTSIDE[name]
    x, good = torch.randn(3, 4), torch.tensor([0, 1])
    run = compiled(function)
    for bad in (good, torch.tensor([0, 5]), torch.tensor([-9, 1]), good):
        if bad is good:
            torch.testing.assert_close(run(x, bad), function(x, bad))
            report = fastpath.last_report()
            assert report is not None and not report.aten_calls, report
            continue
        with pytest.raises(Exception) as expected:
            function(x, bad)
        with pytest.raises(expected.type) as found:
            run(x, bad)
        assert str(found.value).splitlines()[0] == str(expected.value).splitlines()[0]


def test_what_is_not_asked_for_raises_nothing() -> None:
    """Behind a guard, and for classes that do not count, no position is looked at."""
    x, i = torch.randn(6, 5), torch.tensor([4, 0, 2])
    agree(lambda x, i: (torch.cat([x[:, 0][i + 1], x[0]]), F.pad(x[i + 3 - i], (2, 2))), x, i)
    t = torch.tensor([-100, 3, 99, 1, 0, 99])
    agree(lambda x, t: (F.nll_loss(x, t.clamp(max=4)), F.nll_loss(x, t % 5)), x, t % 5, exact=False)
    agree(lambda x, t: (F.nll_loss(x, t, ignore_index=99),), x, t.clamp(min=0), exact=False)


def test_outside_of_memory_nothing_is_read() -> None:
    """Tables that end where memory ends: a read at a position outside would be a fault."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 3 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for place in (start, start + 2 * page):
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(place), page, 0) == 0
    table = torch.frombuffer(memory, dtype=torch.float32, count=page // 4, offset=page).view(64, -1)
    table.copy_(torch.arange(page // 4.0).view(64, -1))
    i = integers(64, 500)
    run = compiled(lambda w, i: F.embedding(i, w) + 1)
    assert torch.equal(run(table, i), F.embedding(i, table) + 1)
    for bad in (64, -1, 1 << 40, -(1 << 62)):
        i[77] = bad
        with pytest.raises(IndexError):
            run(table, i)


def test_positions_that_are_known_are_not_held_against_bounds() -> None:
    x, j = torch.randn(5, 7), integers(7, 5)
    for function, bounds in (
        (lambda x, j: x[torch.arange(5)] * 2, 0),
        (lambda x, j: x[torch.arange(-5, 0).flip(0)] * 2, 0),
        (lambda x, j: x[torch.arange(5), j], 1),
        (lambda x, j: x[j, j], 2),
    ):
        (kernel,), _ = kernels_of(program_of(function, [x, j]))
        assert len(kernel.bounds()) == bounds


def test_a_dimension_that_views_hide_is_left_to_aten() -> None:
    one, i = torch.randn(1, 4), torch.tensor([0, 3])
    run = compiled(lambda x, i: x[i])
    with pytest.raises(IndexError, match="index 3 is out of bounds for dimension 0 with size 1"):
        run(one, i)
    run = compiled(lambda x, i: x.expand(3, 4)[i % 3] + 1)
    assert torch.equal(run(one, i), one.expand(3, 4)[i % 3] + 1)


@pytest.mark.parametrize("name", ["full", "broadcast", "chain", "column", "nll_loss"])
def test_a_value_without_a_place_is_held_against_bounds(name: str) -> None:
    """What a kernel computes alike everywhere reads nothing by the position: ATen raises."""
    function: Callable[..., Any] = {
        "full": lambda x, i: torch.full((3,), 2.0)[i],
        "broadcast": lambda x, i: (x[:1] + torch.zeros(3)).gather(0, i),
        "chain": lambda x, i: torch.zeros_like(x).exp().add(1).mul(x[0]).index_select(0, i),
        "column": lambda x, i: (x[:, None] + torch.zeros(3, 3))[:, i],
        "nll_loss": lambda x, i: F.nll_loss(torch.zeros(2, 3), i),
    }[name]
    x, inside, outside = torch.randn(3), torch.tensor([0, 2]), torch.tensor([0, 5])
    run = compiled(function)
    assert torch.equal(run(x, inside), function(x, inside))
    with pytest.raises((IndexError, RuntimeError)) as expected:
        function(x, outside)
    with pytest.raises(expected.type, match="out of (bounds|range)"):
        run(x, outside)


def test_a_value_by_its_place_is_a_kernel() -> None:
    i = torch.tensor([0, 4, 1])
    agree(lambda x, i: (torch.cat([x, torch.zeros(3)])[i],), torch.randn(3), i)
    agree(lambda x, i: ((torch.zeros(5) + torch.arange(5)).exp()[i],), torch.randn(3), i)


def test_the_comparison_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathers, "integer", lambda t, index: gathers.E.const(1, "int64"))
    with pytest.raises(AssertionError):
        agree(lambda x, i: (x[i],), torch.randn(4, 5), torch.tensor([0, 3]))
