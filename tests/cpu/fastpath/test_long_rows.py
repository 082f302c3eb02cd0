"""Reductions of long rows, several at a time, and of columns, by wide strips."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fastpath

#: Programs, and how many of a row's four accumulators its kernel has.
ROWS: dict[str, tuple[Callable[[torch.Tensor], Any], int]] = {
    "sum": (lambda x: x.sum(-1), 1),
    "mean": (lambda x: x.mean(-1, keepdim=True) + 1, 1),
    "two of them": (lambda x: (x.sum(-1), x.amax(-1)), 2),
    "squares": (lambda x: (x * x).sum(-1).sqrt(), 1),
    "any": (lambda x: (x > 3).any(-1), 1),
}
#: Each program in float32, each other dtype in a program of another kind.
TYPED = [(name, torch.float32) for name in ROWS]
TYPED += [("sum", torch.int64), ("squares", torch.float64), ("two of them", torch.int32)]
TYPED += [("any", torch.float64)]


def compiled(function: Callable[..., Any], *inputs: torch.Tensor) -> tuple[Any, list[str]]:
    call: Any = fastpath.compile_graph(torch.fx.symbolic_trace(function), list(inputs))
    assert call.report.fallback is None and not call.report.aten_calls, call.report
    return call, call.kernel_sources


def made(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator, dtype=dtype)
    return torch.randint(-9, 9, shape, generator=generator, dtype=dtype)


@pytest.mark.parametrize(("name", "dtype"), TYPED)
def test_rows(name: str, dtype: torch.dtype) -> None:
    function, count = ROWS[name]
    x = made((64, 300), dtype, 1)
    call, (source,) = compiled(function, x)
    assert len(set(re.findall(r"acc_\d+", source))) == 4 * count
    for seed in (1, 2):
        x = made((64, 300), dtype, seed)
        if seed == 2 and dtype.is_floating_point:
            x[7, 5], x[21, 299], x[63, 0] = float("nan"), float("inf"), float("-inf")
        torch.testing.assert_close(call(x), function(x), equal_nan=True, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("shape", [(66, 300), (32, 300), (64, 60)])
def test_rows_that_go_one_by_one(shape: tuple[int, ...]) -> None:
    """Of another number, few, short."""
    x = made(shape, torch.float32, 3)
    call, (source,) = compiled(lambda x: x.sum(-1), x)
    assert len(set(re.findall(r"acc_\d+", source))) == 1
    torch.testing.assert_close(call(x), x.sum(-1), rtol=1e-5, atol=1e-4)


def test_scans_go_beside_each_other() -> None:
    """As many rows as divide theirs; bits are eager's, as each row is added up in its order."""
    programs: dict[str, tuple[Callable[[torch.Tensor], Any], int]] = {
        "sum": (lambda x: x.cumsum(-1), 1),
        "what surrounds it": (lambda x: (x * 2 + 1).cumprod(-1).abs() + x, 1),
        "extrema and places": (lambda x: (x.cummax(-1)[0], x.cummax(-1)[1]), 3),
        "in place": (lambda x: x.clone().cumsum_(-1), 1),
    }
    for name, shape, rows in (
        ("sum", (64, 70), 4),
        ("sum", (2, 51, 65), 3),
        ("what surrounds it", (64, 300), 4),
        ("extrema and places", (66, 64), 3),
        ("in place", (34, 100), 2),
        ("sum", (67, 100), 1),
        ("sum", (32, 100), 1),
        ("sum", (64, 60), 1),
    ):
        function, count = programs[name]
        x = made(shape, torch.float32, 4)
        call, (source,) = compiled(function, x)
        assert len(set(re.findall(r"acc_\d+", source))) == rows * count, (name, shape)
        for seed in (5, 6):
            x = made(shape, torch.float32, seed)
            if seed == 6:
                x[0, 5], x[1, 20], x[-1, 0] = float("nan"), float("inf"), float("-inf")
            expected, found = function(x), call(x)
            many = isinstance(expected, tuple)
            for a, b in zip(*(found, expected) if many else ((found,), (expected,)), strict=True):
                assert a.dtype == b.dtype and a.stride() == b.stride()
                torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def test_rows_of_differences_share_what_they_read() -> None:
    x, y = made((32, 64), torch.float32, 3), made((48, 64), torch.float32, 4)

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x[:, None] - y[None]).square().sum(-1)

    call, (source,) = compiled(program, x, y)
    assert len(set(re.findall(r"acc_\d+", source))) == 4
    torch.testing.assert_close(call(x, y), program(x, y), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dim", [0, 1])
def test_threads_change_no_bit(dim: int) -> None:
    x = made((640, 1000), torch.float32, 4)
    call, _ = compiled((lambda x: x.sum(0)) if dim == 0 else (lambda x: x.sum(-1)), x)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(call(x))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(found[0], other) for other in found[1:])


@pytest.mark.parametrize(
    ("rows", "columns"), [(1, 1030), (7, 4100), (8, 100), (8, 1030), (29, 100)]
)
def test_columns(rows: int, columns: int) -> None:
    def function(x: torch.Tensor) -> Any:
        return x.sum(0), (x * 2 - 1).amax(0), x.exp().sum(0)

    x = made((rows, columns), torch.float32, 5)
    call, _ = compiled(function, x)
    for factor in (1, -1):
        torch.testing.assert_close(
            tuple(call(x * factor)), function(x * factor), rtol=1e-5, atol=1e-4
        )


#: Programs that go down columns, shapes, and how many strips of 256 a thread takes at once.
STRIPS: dict[str, tuple[Callable[[torch.Tensor], Any], tuple[int, ...], int]] = {
    "as many as there are": (lambda x: x.sum(0), (9, 1000), 16),
    "more than are taken": (lambda x: x.sum(0), (9, 9001), 16),
    "of each matrix": (lambda x: x.sum(1), (3, 10, 1100), 16),
    "of two sums": (lambda x: (x.sum(0), (x * x).sum(0)), (9, 5000), 8),
    "gone through again": (lambda x: x.softmax(0), (40, 3001), 8),
    "the more, the fewer": (lambda x: x.var(0), (200, 700), 2),
    "too long for that": (lambda x: x.softmax(0), (600, 700), 1),
    "in their order": (lambda x: x.cummax(0)[0], (30, 700), 16),
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, torch.float32) for name in STRIPS]
    + [
        (name, torch.float64)
        for name in ("more than are taken", "of two sums", "gone through again")
    ],
)
def test_strips(name: str, dtype: torch.dtype) -> None:
    function, shape, most = STRIPS[name]
    x = made(shape, dtype, 6)
    call, (source,) = compiled(function, x)
    found = re.findall(r"several = min\(.*, (\d+)\)", source)
    most = most * 4 // x.itemsize
    assert found == ([str(most)] if most > 1 else [])
    before = torch.get_num_threads()
    try:
        for threads, factor in ((1, 1), (2, -1), (3, 1)):
            torch.set_num_threads(threads)
            result, expected = call(x * factor), function(x * factor)
            result = result if isinstance(expected, torch.Tensor) else tuple(result)
            torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-4)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("reducing", [False, True])
def test_programs_longer_than_the_interpreter_may_recurse(reducing: bool) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        for n in range(400):
            x = x * 1.0078125 + 0.5 if n % 2 else x.relu() - 0.5
            if reducing and n % 100 == 99:
                x = x - x.amax(-1, keepdim=True)
        return x

    x = made((8, 64), torch.float32, 7)
    call, sources = compiled(function, x)
    assert 1 < len(sources) < 100
    for given in (x, -x):
        torch.testing.assert_close(call(given), function(given), rtol=1e-4, atol=1e-4)
