"""Ambient state and calling conventions of ``torch.compile``: grad mode, autocast, sizes, modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fastpath
from fastpath.report import Report


def run(function: Callable[..., Any], *inputs: Any, **options: Any) -> tuple[Any, list[Report]]:
    """The result of ``torch.compile`` with the backend, and a report per graph."""
    reports: list[Report] = []

    def backend(gm: torch.fx.GraphModule, examples: Any) -> Any:
        compiled = fastpath.backend(gm, examples)
        reports.append(compiled.report)
        return compiled

    torch._dynamo.reset()
    return torch.compile(function, backend=backend, **options)(*inputs), reports


def test_a_region_without_gradients() -> None:
    weight = torch.randn(4, requires_grad=True)

    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = torch.relu(x * weight)
        return y + 1

    x = torch.randn(3, 4)
    got, reports = run(program, x)
    torch.testing.assert_close(got, program(x))
    assert [r.fallback for r in reports] == [None]
    assert not got.requires_grad


def test_a_default_device_is_the_programs_alone() -> None:
    """What is computed while compiling, numbers and places, is on the CPU all the same."""
    x, image = torch.randn(40), torch.randn(1, 2, 5, 7)
    chances = torch.linspace(0, 1, 3000)

    def program(x: torch.Tensor, image: torch.Tensor, chances: torch.Tensor) -> Any:
        torch.manual_seed(3)
        sums = torch.add(x.bfloat16(), x.bfloat16(), alpha=0.3), x * 0.1
        sizes = F.interpolate(image, size=(9, 11)), F.interpolate(image, scale_factor=2)
        return *sums, *sizes, torch.bernoulli(chances), F.dropout(chances, 0.3)

    expected = program(x, image, chances)
    torch._dynamo.reset()
    torch.set_default_device("meta")
    try:
        got, reports = run(program, x, image, chances)
    finally:
        torch.set_default_device(None)
    for ours, eager in zip(got, expected, strict=True):
        torch.testing.assert_close(ours, eager)
    assert reports and all(r.fallback is None for r in reports)
    assert sum(r.kernels for r in reports) and not any(r.aten_calls for r in reports)


def test_training_keeps_its_gradients() -> None:
    layer = torch.nn.Linear(4, 3)
    x = torch.randn(2, 4)
    got, reports = run(lambda x: F.gelu(layer(x)).sum(), x)
    assert reports[0].fallback is None and reports[0].kernels >= 1 and not reports[0].backwards
    got.backward()
    (backward,) = reports[0].backwards
    assert backward.fallback is None and backward.kernels >= 1
    mine = layer.weight.grad.clone()
    layer.weight.grad = None
    F.gelu(layer(x)).sum().backward()
    torch.testing.assert_close(mine, layer.weight.grad)


def test_autocast_inside_the_graph() -> None:
    x, w = torch.randn(4, 8), torch.randn(8, 8)

    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ w
        return torch.softmax(y.float(), -1) * y

    with torch.no_grad():
        got, reports = run(program, x, w)
        torch.testing.assert_close(got, program(x, w))
    assert reports[0].fallback is None and reports[0].kernels >= 1


def test_symbolic_sizes_are_compiled_for_the_sizes_that_come() -> None:
    with torch.no_grad():
        got, reports = run(lambda x: torch.relu(x) * x.shape[0], torch.ones(5, 3), dynamic=True)
    torch.testing.assert_close(got, torch.full((5, 3), 5.0))
    assert reports and all(r.fallback is None and r.kernels >= 1 for r in reports)


def test_a_data_dependent_size_runs_the_graph_as_it_is() -> None:
    x = torch.tensor([1.0, 0.0, 2.0])
    graph = torch.fx.symbolic_trace(lambda x: torch.nonzero(x) + 1)
    with torch.no_grad():
        compiled = fastpath.compile_graph(graph, [x])
        assert torch.equal(compiled(x), torch.nonzero(x) + 1)
    assert compiled.report.fallback is not None


def test_a_custom_operator_is_called_once_a_call() -> None:
    calls = []

    @torch.library.custom_op("fastpath_tests::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x * 2

    twice.register_fake(torch.empty_like)
    with torch.no_grad():
        got, reports = run(lambda x: torch.relu(twice(x + 1)) - 1, torch.ones(3))
    torch.testing.assert_close(got, torch.full((3,), 3.0))
    assert len(calls) == 1
    assert reports[0].kernels == 2
    assert sum(reports[0].aten_calls.values()) == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_torchs_and_results_do_not_depend_on_them(threads: int) -> None:
    x = torch.randn(512, 1024)
    graph = torch.fx.symbolic_trace(lambda x: (torch.softmax(x, -1), x.sum(), x.sum(0)))
    before = torch.get_num_threads()
    with torch.no_grad():
        compiled = fastpath.compile_graph(graph, [x])
        reference = compiled(x)
        torch.set_num_threads(threads)
        try:
            got = compiled(x)
            assert torch.get_num_threads() == threads
        finally:
            torch.set_num_threads(before)
    for a, b in zip(got, reference, strict=True):
        assert torch.equal(a, b)


def test_many_python_threads_may_call_at_once() -> None:
    from concurrent.futures import ThreadPoolExecutor

    graph = torch.fx.symbolic_trace(lambda x: torch.relu(x * 2).sum(-1))
    with torch.no_grad():
        compiled = fastpath.compile_graph(graph, [torch.randn(256, 512)])
    inputs = [torch.full((256, 512), float(n)) for n in range(16)]
    with ThreadPoolExecutor(4) as pool:
        for n, out in enumerate(pool.map(compiled, inputs)):
            assert torch.equal(out, torch.full((256,), n * 2.0 * 512))


def test_the_wrapper_is_readable_source() -> None:
    graph = torch.fx.symbolic_trace(lambda x: torch.relu(x + 1))
    with torch.no_grad():
        compiled = fastpath.compile_graph(graph, [torch.randn(4)])
    assert compiled.source.startswith("def call(x0):")
    assert compiled.launches.startswith("def call(in0):") and "k0(in0_p, b0_p)" in compiled.launches
    assert "def kernel(addresses, begin, end):" in compiled.kernel_sources[0]
    assert fastpath.last_report() is compiled.report
    assert str(compiled.report).startswith("1 kernels for 2 ATen nodes")
