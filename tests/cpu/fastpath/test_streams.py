"""Results that go past the caches: which, to where, and that all of them arrives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import fastpath
from fastpath.schedule import streams
from fastpath.wrapper import realigned

CASES: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "ragged": (lambda x: x * 2 + 1, (torch.randn(70_003),)),
    "rows that start anywhere": (lambda x: x[:, 1:] * 3, (torch.randn(301, 260),)),
    "int64": (lambda x: x * x + 7, (torch.arange(50_001),)),
    "bool": (lambda x: x > 0, (torch.randn(100_003),)),
    "bfloat16": (lambda x: x * 2, (torch.randn(80_002).bfloat16(),)),
    "row": (lambda x: x / x.abs().sum(-1, keepdim=True), (torch.randn(200, 333),)),
    "transposed": (lambda x: x + x.t(), (torch.randn(321, 321),)),
}


CACHE = 3000


@pytest.fixture
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    if not streams.last_level_cache():
        pytest.skip("this machine has no streaming stores, or does not tell the size of its cache")
    monkeypatch.setattr(streams, "last_level_cache", lambda: CACHE)
    monkeypatch.setattr(streams, "LEAST", 1000)


def compiled(function: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    return fastpath.compile_graph(torch.fx.symbolic_trace(function), list(inputs))


@pytest.mark.parametrize("name", CASES)
def test_everything_arrives(name: str, small_cache: None) -> None:
    function, inputs = CASES[name]
    call = compiled(function, *inputs)
    (source,) = call.kernel_sources
    assert "_streamed_" in source
    found = call(*inputs)
    found = found[0] if isinstance(found, (list, tuple)) else found
    torch.testing.assert_close(found, function(*inputs))


def test_a_result_that_the_kernel_reads_back_is_not_streamed(small_cache: None) -> None:
    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.exp(torch.sin(x))
        return y, y / y.sum(-1, keepdim=True)

    x = torch.randn(200, 300)
    call = compiled(both, x)
    torch.testing.assert_close(tuple(call(x)), both(x))
    read = {
        line.split("load_float32_")[1][0]
        for line in call.kernel_sources[0].split("\n")
        if "load_float32_" in line
    }
    for buffer in read:
        assert f"store_streamed_float32_{buffer}" not in call.kernel_sources[0]


@pytest.mark.parametrize(
    ("inputs", "cache", "expected"),
    [(1, 1 << 20, False), (2, 1 << 20, True), (2, 5 << 19, False), (1, 1 << 19, True)],
)
def test_the_size_decides(
    inputs: int, cache: int, expected: bool, small_cache: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result of 256 KiB."""
    monkeypatch.setattr(streams, "last_level_cache", lambda: cache - 4)
    x, y = torch.randn(2, 1 << 16)
    call = compiled(lambda x, y: x * y, x, y) if inputs == 2 else compiled(lambda x: x * 2, x)
    assert ("_streamed_" in call.kernel_sources[0]) is expected


def test_what_the_graph_reads_again_stays(
    small_cache: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "last_level_cache", lambda: 1 << 20)
    x, y = torch.randn(2, 256, 256)
    call = compiled(lambda x, y: torch.mm(x * y, x) * y, x, y)
    first, *_, last = call.kernel_sources  # a product of ours is between them
    assert "_streamed_" not in first and "_streamed_" in last


def test_small_work_stays_in_the_caches() -> None:
    x = torch.randn(64, 64)
    assert "streamed" not in compiled(lambda x: x * 2, x).kernel_sources[0]


@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16, torch.float32, torch.int64])
def test_memory_is_realigned(dtype: torch.dtype) -> None:
    t = torch.empty(3, 5, dtype=dtype).t()
    moved = realigned(t)
    assert moved.data_ptr() % streams.STREAM_ALIGNMENT == 0
    assert (moved.shape, moved.stride(), moved.dtype) == (t.shape, t.stride(), t.dtype)
    moved.fill_(1)
    assert moved.sum() == 15


def test_misaligned_memory_is_moved_in_time(
    small_cache: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(5000)
    call = compiled(lambda x: x * 2, x)
    skewed: list[int] = []

    def skew(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
        skewed.append(1)
        return torch.empty(size[0] + 1, dtype=dtype)[1:]

    call.__globals__["forward"].__globals__["empty"] = skew
    found = call(x)
    found = found[0] if isinstance(found, (list, tuple)) else found
    assert skewed and torch.equal(found, x * 2)
