"""Small kernels that wait for nothing of each other are one launch, which all threads share."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch

import fastpath
import refcompiler
from fastpath.cpu.launcher import WORK_PER_THREAD, bind, record_of
from fastpath.cpu.together import bind_together, is_together, parts_of
from fastpath.schedule.together import FEW, LITTLE

LENGTHS = (5, 100, 4096, 300, 1, 16, 17, 1000)


def launches(compiled: Any) -> list[str]:
    lines = [line.strip() for line in compiled.launches.splitlines()]
    return [line for line in lines if line.startswith("k") and line[1].isdigit()]


def made(program: Any, *inputs: Any) -> Any:
    graph = torch.fx.symbolic_trace(program)
    return fastpath.compile_graph(graph, inputs)


def two_levels(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> Any:
    """What is computed of the last five waits for a sum of the first."""
    first = (a.abs() + 1).sum()
    return [t / first + (t.abs() + 1).sum() for t in (b, c, d, e, f)], first


@pytest.mark.parametrize("threads", [1, 2])
def test_kernels_that_do_not_wait_are_one_launch(threads: int) -> None:
    inputs = [torch.randn(n) for n in LENGTHS[:6]]
    with torch.no_grad():
        compiled = made(two_levels, *inputs)
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            for n in range(3):
                inputs = [torch.randn_like(t) + n for t in inputs]
                (found, first), (wanted, sum_) = compiled(*inputs), two_levels(*inputs)
                torch.testing.assert_close([*found, first], [*wanted, sum_])
        finally:
            torch.set_num_threads(before)
    lines = launches(compiled)
    assert fastpath.last_report().kernels > len(lines) and any("_to_" in line for line in lines)


def test_large_results_are_made_one_by_one() -> None:
    """Memory that all of them take at once would be more than what one takes after the other."""
    small = [torch.randn(64) for _ in range(2 * FEW)]
    with torch.no_grad():
        for inputs in (small, [torch.randn(LITTLE * 2) for _ in small]):
            graph = torch.fx.Graph()
            given = [graph.placeholder(f"x{n}") for n in range(len(inputs))]
            doubled = [graph.call_function(torch.mul, (t, t)) for t in given]
            sums = [graph.call_function(torch.sum, (t,)) for t in doubled]
            ends = [graph.call_function(torch.div, (t, s)) for t, s in zip(doubled, sums)]
            graph.output(tuple([graph.call_function(torch.sort, (t,)) for t in ends]))
            module = torch.fx.GraphModule({}, graph)
            compiled = fastpath.compile_graph(module, inputs)
            for ours, eagers in zip(compiled(*inputs), module(*inputs), strict=True):
                torch.testing.assert_close(ours[0], eagers[0])
            lines = launches(compiled)
            assert "_to_" in lines[0] and (len(lines) == 1) is (inputs is small), compiled.launches


@pytest.mark.parametrize("foreach", [True, False])
def test_a_step_of_an_optimizer(foreach: bool) -> None:
    ours, eagers = ([torch.nn.Parameter(torch.ones(n) * 0.5) for n in LENGTHS] for _ in range(2))
    steps = [torch.optim.AdamW(ps, lr=0.01, foreach=foreach) for ps in (ours, eagers)]
    step = refcompiler.compile(steps[0].step)
    for _ in range(4):
        for a, b in zip(ours, eagers, strict=True):
            a.grad = torch.randn_like(a)
            b.grad = a.grad.clone()
        step()
        steps[1].step()
        for a, b in zip(ours, eagers, strict=True):
            torch.testing.assert_close(a, b)
    assert refcompiler.counters()["graphs"] <= 2  # the first step makes the state
    assert fastpath.last_report().kernels >= len(LENGTHS)


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_each_unit_runs_once(threads: int) -> None:
    """Threads begin and end within kernels, each of which has other numbers of units."""
    kind = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_int64), ctypes.c_int64, ctypes.c_int64)

    @kind
    def kernel(words: Any, begin: int, end: int) -> None:
        counts = ctypes.cast(words[0], ctypes.POINTER(ctypes.c_int64))
        for unit in range(begin, end):
            counts[unit] += words[1]

    address = ctypes.cast(kernel, ctypes.c_void_p).value
    assert address is not None
    units, many = (3, 1, 0, 7, 64, 1), WORK_PER_THREAD
    works = (many, 10, 1, many * 2, many * 3, many)
    kernels = [
        (*record_of(bind(address, n, 1, 1, 10 + k)), work)
        for k, (n, work) in enumerate(zip(units, works, strict=True))
    ]
    run = bind_together(kernels)
    assert is_together(run) and not is_together(bind(address, 1, 1, 1))
    assert parts_of(run) == kernels
    counts = [torch.zeros(max(n, 1), dtype=torch.int64) for n in units]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        run(*[t.data_ptr() for t in counts])
    finally:
        torch.set_num_threads(before)
    for k, (n, count) in enumerate(zip(units, counts, strict=True)):
        assert count.tolist() == ([10 + k] * n or [0])
    with pytest.raises(TypeError, match="wrong number of addresses"):
        run(1)
