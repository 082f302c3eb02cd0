"""Graphs with symbols under each backend, regions inside them, and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.fx.experimental.sym_node import SymNode

import fastpath
import refcompiler
from refcompiler.shapes import ShapeEnv
from tests.cpu.shapes.programs import compare, torchs_aot

SIZES = (6, 5, 9, 20)  # no other dimension has the size of the first


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    refcompiler.reset()


def _mixed(x: Any, y: Any) -> Any:
    b, t = x.shape
    return (x + y).view(b * t) * 2 + b, (x @ y.t()).relu(), b


def _prints(graph: Any, inputs: list[Any]) -> Any:
    """A backend of a user's that looks at what it is given."""
    for node in graph.graph.find_nodes(op="placeholder"):
        example = node.meta["example_value"]
        numbers = example.shape if isinstance(example, torch.Tensor) else (example,)
        for number in numbers:
            assert isinstance(number, int) or isinstance(number.node, SymNode), number
    assert all(node.meta for node in graph.graph.nodes if node.op == "call_method")
    assert [type(value) for value in inputs].count(torch.SymInt) == 2
    return graph.forward


_BACKENDS = ["eager", "reference", "fastpath", "aot_eager", torchs_aot, _prints]


@pytest.mark.parametrize("backend", ["eager", "fastpath"])
def test_results_of_operations_lie_as_they_do(backend: str) -> None:
    """An input that has a gradient function may be expanded, or a part: no copy has its strides."""
    leaf = torch.rand(3, requires_grad=True)
    seen = []

    def program(x: Any) -> Any:
        seen.append(x.stride())
        return (x > 0).all(), x.sum(0)

    compiled = refcompiler.compile(program, backend=backend, dynamic=True)
    for n in (4, 6):
        expanded = leaf.exp().expand(n, 3)
        assert seen.clear() is None and all(map(torch.equal, compiled(expanded), program(expanded)))
        assert seen[0] == seen[1] == (0, 1)
        part = torch.cat([leaf.exp()] * n).view(n, 3)[:, :2]
        torch.testing.assert_close(compiled(part), program(part))
    assert refcompiler.counters()["uncompiled"] == 0


@pytest.mark.parametrize("backend", _BACKENDS)
def test_one_capture(backend: Any) -> None:
    compiled = refcompiler.compile(_mixed, backend=backend, dynamic=True, fullgraph=True)
    count = 0
    for s in SIZES:
        x, y = torch.randn(s, s + 1), torch.randn(s, s + 1)
        for found, wanted in zip(compiled(x, y), _mixed(x, y), strict=True):
            torch.testing.assert_close(found, wanted)
            count += 1
    assert count == 3 * len(SIZES) and refcompiler.counters()["captures"] == 1


def test_gradients_and_floats() -> None:
    """Inductor's turn is in ``tests/slow``: it compiles C++."""
    gradients_and_floats(torchs_aot)


def gradients_and_floats(backend: Any) -> None:
    """One compilation of torch's has views, a product, a float and a backward pass."""
    weight = torch.randn((), requires_grad=True)

    def function(x: Any, y: Any, f: float) -> Any:
        return _mixed(x * weight * f, y)

    compiled = refcompiler.compile(function, backend=backend, dynamic=True, fullgraph=True)
    count = 0
    for s in SIZES:
        x, y = torch.randn(s, s + 1), torch.randn(s, s + 1)
        wanted, found = function(x, y, s / 7), compiled(x, y, s / 7)
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b)
            count += 1
        gradients = [torch.autograd.grad(out[0].sum(), weight)[0] for out in (found, wanted)]
        torch.testing.assert_close(*gradients)
    assert count == 3 * len(SIZES) and refcompiler.counters()["captures"] == 1


@pytest.mark.parametrize("backend", ["aot_eager", torchs_aot, _prints])
def test_an_operand_is_of_the_class_of_its_parts(backend: Any) -> None:
    """A whole number made of floats and truths; each part has a node of its own in the graph."""

    def function(x: Any, y: Any) -> Any:
        ratio = x.shape[0] / (x.shape[1] + 1)
        least = torch.sym_min(math.trunc(ratio * 3), math.floor(math.sqrt(x.shape[1])))
        return x * least + y * torch.sym_ite(ratio > 0.5, x.shape[0] % 7, x.shape[1])

    compiled = refcompiler.compile(function, backend=backend, dynamic=True, fullgraph=True)
    for s in SIZES:
        x, y = torch.randn(s, s + 3), torch.randn(s, s + 3)
        torch.testing.assert_close(compiled(x, y), function(x, y))


@pytest.mark.parametrize("backend", [torchs_aot, "fastpath"])
def test_sizes_that_depend_on_data(backend: Any) -> None:
    def function(x: Any) -> Any:
        n = (x > 0).sum().item()
        torch._check(n >= 0)
        torch._check(n <= 12, lambda: "too many")
        return torch.zeros(n) + 1, x * n, x[x > 0] * 2

    compiled = refcompiler.compile(function, backend=backend, dynamic=True, fullgraph=True)
    count = 0
    for s in (6, 3, 4):
        x = torch.arange(s * 2.0) - 3
        for found, wanted in zip(compiled(x), function(x), strict=True):
            torch.testing.assert_close(found, wanted)
            count += 1
    assert count == 9 and refcompiler.counters()["captures"] == 1
    with pytest.raises(RuntimeError, match="too many"):
        compiled(torch.ones(20))


def _exactly(x: Any, n: Any) -> Any:
    n = n.item()
    torch._check(n >= 3)
    torch._check(n <= 3)
    return x[:n] * n, torch.zeros(n)


def _parts(x: Any, n: Any) -> Any:
    n = n.item()
    torch._check(n >= 0)
    torch._check(n <= x.shape[0])
    return x.split([n, x.shape[0] - n])


@pytest.mark.parametrize("backend", ["aot_eager", "fastpath"])
@pytest.mark.parametrize("program", [_exactly, _parts])
def test_what_the_program_asserts_of_data_makes_no_constant(
    program: Callable, backend: str
) -> None:
    """Though the assertions leave one number only, it is looked at in each call."""
    compiled = refcompiler.compile(program, backend=backend, fullgraph=True)
    seen = set()
    for n, size in [(n, size) for n in (3, 0, 4) for size in (5, 0)]:
        x, number = torch.arange(float(size)), torch.tensor(n)
        try:
            wanted = program(x, number)
        except RuntimeError:
            seen.add(RuntimeError)
            with pytest.raises(RuntimeError):
                compiled(x, number)
        else:
            seen.add(len(wanted[0]))
            assert all(map(torch.equal, compiled(x, number), wanted))
    assert seen >= {RuntimeError, 0, 3}
    if backend == "aot_eager":
        assert refcompiler.counters()["uncompiled"] == 0


def test_a_float_that_torchs_compiler_decides_by_is_specialised(caplog: Any) -> None:
    def backend(graph: Any, inputs: list[Any]) -> Any:
        if any(node.target == "item" for node in graph.graph.nodes):
            raise ValueError("no numbers")
        return graph.forward

    compiled = refcompiler.compile(lambda x, f: x * f, backend=backend, dynamic=True)
    with caplog.at_level("INFO", logger="refcompiler.dynamic"):
        for f in (0.5, 2.5, 0.5):
            assert torch.equal(compiled(torch.ones(3), f), torch.ones(3) * f)
    assert refcompiler.counters()["captures"] == 2
    assert "floats are specialised" in caplog.text and "no numbers" in caplog.text


@pytest.mark.parametrize("backend", ["eager", "fastpath", torchs_aot])
def test_sizes_that_are_not_to_be_known(backend: Any) -> None:
    compiled = refcompiler.compile(lambda x: x * 2 + len(x), backend=backend)
    for s in (5, 1, 0, 7):
        x = torch.ones(s, 3)
        refcompiler.mark_unbacked(x, 0)
        torch.testing.assert_close(compiled(x), x * 2 + s)
    assert refcompiler.counters()["captures"] == 1


def test_the_fast_path_has_one_program_for_all_combinations() -> None:
    compiled = refcompiler.compile(lambda x: x * 2 + len(x), backend="fastpath", dynamic=True)
    for s in (3, 5, 3, 5, 7):
        x = torch.randn(s, 4)
        torch.testing.assert_close(compiled(x), x * 2 + s)
        report = fastpath.last_report()
        assert report is not None and report.fallback is None and report.kernels == 1
    assert refcompiler.counters()["captures"] == 1


def test_the_report_says_what_runs_as_it_is() -> None:
    def turned(x: torch.Tensor) -> torch.Tensor:  # in place, of which no graph with symbols is made
        return x.clone().t_() * 2

    compiled = refcompiler.compile(turned, backend="fastpath", dynamic=True)
    for s in range(2, 20):
        x = torch.ones(s, 30)
        torch.testing.assert_close(compiled(x), turned(x))
    report = fastpath.last_report()
    assert report is not None and report.runtime_fallbacks == 2
    assert "more than 16 combinations of sizes" in report.reasons["sizes"]


REGIONS: dict[str, Callable] = {
    "autocast": lambda x: _autocast(x),
    "in place": lambda x: x.clone().mul_(x.shape[0])[1:].add_(1),
}


def _autocast(x: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x.t()


@pytest.mark.parametrize("name", REGIONS)
def test_modes_and_writes(name: str) -> None:
    calls = [(torch.randn(s, 4),) for s in SIZES]
    compare(REGIONS[name], [*calls, *calls], dynamic=True)
    assert refcompiler.counters()["breaks"] == 0


def test_what_torchs_compiler_decides_is_guarded() -> None:
    from refcompiler.backends.symbols import TorchSymbols

    env = ShapeEnv()
    size = env.size(6)
    graph = torch.fx.Graph()
    graph.placeholder("s0").meta["example_value"] = size
    graph.output((graph.call_function(torch.ones, (2,)),))
    given = TorchSymbols(torch.fx.GraphModule({}, graph), [size])
    (theirs,) = given.inputs
    assert theirs.node.shape_env is not env and theirs.node.hint == 6
    assert bool(theirs > 4) and bool(theirs % 3 == 0) and not bool(theirs == 8)
    given.learn()
    found = [str(relation.condition) for relation in env.relations]
    assert (
        len(found) == 3
        and "> 4" in found[0]
        and "% 3" in str(found[1]).replace("Mod(s0, 3)", "% 3")
    )


@pytest.mark.parametrize("decides", [False, True])
def test_floats_that_torchs_compilers_would_take_for_real_numbers(decides: bool) -> None:
    """Of these, the graph has the very number, for later calls too."""
    seen: list[bool] = []

    def counting(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        seen.append(any(node.target == "item" for node in graph.graph.nodes))
        return graph.forward

    def function(x: torch.Tensor, v: float) -> torch.Tensor:
        return x * ((v + 1) // 3.0) if decides else x * ((v + 1) / 3.0 - v)

    compiled = refcompiler.compile(function, backend=counting, dynamic=True)
    x = torch.ones(3)
    numbers = (7.5, 8.5, -4.0, math.inf, -1.0)
    for v in numbers:
        found, expected = compiled(x, v), function(x, v)
        torch.testing.assert_close(found, expected, equal_nan=True)
        assert torch.equal(
            torch.signbit(found.nan_to_num(0)), torch.signbit(expected.nan_to_num(0))
        )
    if decides:
        assert len(seen) == len(numbers) and not any(seen)
    else:
        assert seen == [True]


@pytest.mark.parametrize("backend", [torchs_aot, "fastpath"])
def test_sizes_that_are_computed_with_floats(backend: Any) -> None:
    """Which are sums and products of real numbers to torch's compilers."""
    programs: list[Callable] = [
        lambda x, n: torch.arange(float(n)) + x,
        lambda x, n: torch.arange(1.0, n * 1.5, 2) + x,
        lambda x, n: torch.zeros(int((n + 0.5) * 2 - 1.5)) + x,
    ]
    for program in programs:
        refcompiler.reset()
        compiled = refcompiler.compile(program, backend=backend)
        for n in (5, 7, 12, 9):
            assert torch.equal(compiled(torch.ones(1), n), program(torch.ones(1), n))
        assert refcompiler.counters()["captures"] == 2
