"""Loops of few elements as whole vectors, of which the last overlaps the one before it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fastpath
from fastpath.cpu import short


@pytest.fixture(autouse=True)
def without_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short, "lanes", lambda: 8)


def compiled(function: Callable[..., Any], *inputs: torch.Tensor) -> tuple[list[Any], str]:
    """The results, and the kernels' sources."""
    with torch.no_grad():
        run: Any = fastpath.compile_graph(torch.fx.symbolic_trace(function), list(inputs))
        found = run(*inputs)
    assert run.report.fallback is None and not run.report.aten_calls, run.report
    return list(found), "".join(run.kernel_sources)


def rows(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    x = torch.arange(torch.Size(shape).numel()).mul(37).remainder(101).sub(50).reshape(shape)
    return x > 0 if dtype is torch.bool else (x / 16 if dtype.is_floating_point else x).to(dtype)


def of_numbers(count: int) -> Callable[[Any], list[Any]]:
    def program(x: Any) -> list[Any]:
        return [
            *(x.any(-1), x.sum((-1, -3)), (x * 2 - 1).amin((-1, 0)), torch.relu(x + 1)),
            *(torch.softmax(x, -1), F.layer_norm(x, (count,))),
        ]

    return program


def of_integers(x: Any) -> list[Any]:
    return [x.sum(-1), x.amax(-1), x.any(-1), x.prod(-1), x.sum((0, 2)), x * 3 + 1]


@pytest.mark.parametrize("count", [3, 7, 13, 31, 33])
def test_rows_of_any_length(count: int) -> None:
    x, program = rows(torch.float32, 6, 5, count), of_numbers(count)
    for a, b in zip(compiled(program, x)[0], program(x), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int8], ids=str)
def test_rows_of_any_dtype(dtype: torch.dtype) -> None:
    x = rows(dtype, 6, 5, 13)
    program = of_numbers(13) if dtype.is_floating_point else of_integers
    for a, b in zip(compiled(program, x)[0], program(x), strict=True):
        torch.testing.assert_close(a, b)


def test_what_is_stored_is_computed_twice() -> None:
    x, w = rows(torch.float32, 40, 13), rows(torch.float32, 13)
    (found,), source = compiled(lambda x, w: [(x + w).relu()], x, w)
    assert torch.equal(found, (x + w).relu())
    assert "range(0, 8)" in source and "range(5, 13)" in source


def test_what_is_added_up_counts_once() -> None:
    x = torch.ones(40, 13)
    (total, double), source = compiled(lambda x: [x.sum(-1), (x * 2).sum(-1)], x)
    assert torch.equal(total, torch.full((40,), 13.0))
    assert torch.equal(double, torch.full((40,), 26.0))
    assert "lane + 5" in source and "(lane >= 3)" in source
    (product,), _ = compiled(lambda x: [(x * 2).prod(-1)], x)
    assert torch.equal(product, torch.full((40,), 2.0**13))


def test_a_nest_adds_up_lanes_first() -> None:
    x = torch.ones(4, 36, 8).permute(0, 2, 1)  # a loop of 8 within one of 36
    (total,), source = compiled(lambda x: [x.sum((1, 2))], x[:, ::2])
    assert torch.equal(total, torch.full((4,), 4 * 36.0))
    image = torch.randn(3, 8, 6, 6).contiguous(memory_format=torch.channels_last)
    (normal,), source = compiled(lambda x: [F.group_norm(x, 1)], image)
    torch.testing.assert_close(normal, F.group_norm(image, 1))
    nested = torch.randn(3, 8, 6, 16)[..., :8]
    (normal,), source = compiled(lambda x: [F.layer_norm(x, (8, 6, 8))], nested)
    torch.testing.assert_close(normal, F.layer_norm(nested, (8, 6, 8)))
    assert len(re.findall(r"range\(12\)", source)) == 2 and "scratch_float32_8" in source


def test_what_is_written_where_it_is_read_is_computed_once() -> None:
    def program(x: Any) -> Any:
        return x.mul_(2).add_(1)

    x = rows(torch.float32, 40, 13)[:, :13]
    expected = x * 2 + 1
    y = torch.cat((x, x), 1)[:, :13]  # rows with gaps: loops of 13
    run: Any = fastpath.compile_graph(torch.fx.symbolic_trace(program), [y])
    run(y)
    assert torch.equal(y, expected)
    assert "range(5, 13)" not in "".join(run.kernel_sources)
