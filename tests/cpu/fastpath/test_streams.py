"""Results that go past the caches: which, to where, and that all of them arrives."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fastpath
from fastpath.cpu import codegen, machine
from fastpath.cpu.codegen import ask
from fastpath.cpu.printer import Printed
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

    def skew(size: Any, stride: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        skewed.append(1)
        return torch.empty(size[0] + 1, dtype=dtype, device=device)[1:]

    call.__globals__["forward"].__globals__["empty"] = skew
    found = call(x)
    found = found[0] if isinstance(found, (list, tuple)) else found
    assert skewed and torch.equal(found, x * 2)


_PLACES = torch.randint(0, 90, (70,))
ASKED: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "halves": (lambda x: F.silu(x[:, :333]) * x[:, 333:], (torch.randn(50, 666),)),
    "rows backwards": (lambda x: x.flip(0) * 2, (torch.randn(70, 130),)),
    "rows by number": (lambda t, i: t[i] + 1, (torch.randn(90, 64), _PLACES)),
    "transposed": (lambda x, y: x + y.t(), (torch.randn(130, 140), torch.randn(140, 130))),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_is_asked_for_ahead(name: str, small_cache: None) -> None:
    function, inputs = ASKED[name]
    call = compiled(function, *inputs)
    (source,) = call.kernel_sources
    assert "ask_" in source
    for factor in (1, -1):
        given = (inputs[0] * factor, *inputs[1:])
        found = call(*given)
        torch.testing.assert_close(found, function(*given))


def test_what_is_asked_for_is_asked_of_rows_that_there_are(small_cache: None) -> None:
    """Of the last rows none is further on: their integers are not read, nor is one refused."""
    table = torch.randn(90, 64)
    call = compiled(lambda t, i: t[i] + 1, table, _PLACES)
    memory = torch.full((71,), 1 << 60)
    memory[:70] = _PLACES
    assert torch.equal(call(table, memory[:70]), table[_PLACES] + 1)
    memory[69] = 90
    with pytest.raises(IndexError, match="index 90 is out of bounds"):
        call(table, memory[:70])


def test_nothing_is_asked_for_that_caches_hold() -> None:
    function, inputs = ASKED["halves"]
    (source,) = compiled(function, *inputs).kernel_sources
    assert "ask_" not in source


#: Reductions that wait for memory, and how often their text asks for what lies behind a vector.
WAITING: dict[str, tuple[Callable[..., torch.Tensor], tuple[int, ...], int]] = {
    "rows": (lambda x: x.sum(-1), (64, 300), 4),
    "few rows": (lambda x: x.amax(-1), (3, 1001), 1),
    "columns": (lambda x: x.sum(0), (33, 700), 8),
    "squares in columns": (lambda x: (x * x - x).exp().sum(0), (21, 2500), 4),
    "everything": (lambda x: x.sum(), (41, 257), 1),
    "along neither": (lambda x: x[:, ::2].sum(-1), (64, 600), 0),
    "what is stored": (lambda x: x.cumsum(-1), (64, 300), 0),
}


@pytest.mark.parametrize("name", WAITING)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_what_is_asked_for_on_the_way(name: str, dtype: torch.dtype, small_cache: None) -> None:
    function, shape, count = WAITING[name]
    x = torch.randint(-9, 9, shape).to(dtype)
    call = compiled(function, x)
    assert "".join(call.kernel_sources).count("load_asked_") == count
    before = torch.get_num_threads()
    try:
        for threads, sign in ((1, 1), (2, -1), (3, 1)):
            torch.set_num_threads(threads)
            found = call(x * sign)
            found = found[0] if isinstance(found, (list, tuple)) else found
            torch.testing.assert_close(found, function(x * sign), rtol=1e-4, atol=1e-3)
    finally:
        torch.set_num_threads(before)


_MEMORY = {"load_asked": 0, "store": 1, "load": 2}
_COPY = """\
def kernel(addresses, begin, end):
    p0 = address(addresses, 0)
    p1 = address(addresses, 1)
    for a in range(begin, end):
        store_float32_1(p1, a, load_asked_float32_0(p0, a) + load_float32_2(p1, a))
"""


def test_each_vector_asks_for_one_further_on(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []

    def recorded(text: str) -> str:
        texts.append(ask(text))
        return texts[-1]

    monkeypatch.setattr(codegen, "ask", recorded)
    names = {f"{what}_float32_{n}": (what, "float32", n) for what, n in _MEMORY.items()}
    machine._compile(Printed(_COPY, dict(names)), "symbol")
    (text,) = texts
    further = re.findall(r"getelementptr i8, ptr (%[\w.]+), i64 2048\n.*llvm.prefetch.*\n.*", text)
    loads = re.findall(r"= load <\d+ x float>, ptr (%[\w.]+)", text)
    assert further and set(further) < set(loads) and len(loads) == 2 * len(further)
