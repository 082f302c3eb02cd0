"""What users say about single functions, through this package or through ``torch.compiler``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import refcompiler
from refcompiler.runtime.counters import reasons


@pytest.fixture(autouse=True)
def _fresh() -> None:
    refcompiler.reset()


def counted(function: Callable, *args: Any, fullgraph: bool = False) -> tuple[Any, int, int]:
    """The second call's result, and the graphs and breaks of both calls together."""
    refcompiler.reset()
    compiled = refcompiler.compile(function, backend="eager", fullgraph=fullgraph)
    compiled(*args)
    found = compiled(*args)
    counters = refcompiler.counters()
    return found, counters["graphs"], counters["breaks"]


NAMESPACES = pytest.mark.parametrize("say", [refcompiler, torch.compiler], ids=["ours", "torch"])
X = torch.arange(3.0)


@NAMESPACES
def test_disable(say: Any) -> None:
    ran = []

    @say.disable
    def inner(x: torch.Tensor) -> torch.Tensor:
        ran.append(say.is_compiling())
        return x * 2

    found, graphs, breaks = counted(lambda x: inner(x + 1) - 1, X)
    assert torch.equal(found, (X + 1) * 2 - 1)
    assert (graphs, breaks, ran) == (2, 1, [False, False])
    assert reasons("breaks")[0].row == "disabled-function"


@NAMESPACES
def test_disable_with_a_reason_is_shown(say: Any) -> None:
    inner = say.disable(lambda x: x * 2, reason="it talks to a robot")
    counted(lambda x: inner(x + 1) - 1, X)
    assert "it talks to a robot" in str(reasons("breaks")[0])


def test_disable_only_this_frame() -> None:
    seen: list[bool] = []

    def callee(x: torch.Tensor) -> torch.Tensor:
        seen.append(refcompiler.is_compiling())
        return x.sin() + 1

    def outer(x: torch.Tensor) -> torch.Tensor:
        seen.append(refcompiler.is_compiling())
        return callee(x) * 2

    for recursive, graphs, compiling in ((True, 1, False), (False, 2, True)):
        seen.clear()
        disabled = refcompiler.disable(outer, recursive=recursive)
        found = counted(lambda x, disabled=disabled: disabled(x + 1), X)
        assert torch.equal(found[0], outer(X + 1))
        assert found[1:] == (graphs, 1)
        assert seen[:2] == [False, compiling]
    seen.clear()
    refcompiler.disable(outer, recursive=False)(X)  # outside of compiled code: as it is
    assert seen == [False, False]


def test_what_a_disabled_frame_calls_is_compiled_whatever_was_captured_before() -> None:
    seen: list[bool] = []

    class Scale:
        def __init__(self, x: torch.Tensor):
            seen.append(refcompiler.is_compiling())
            self.by = x.cos()

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.by

    def callee(x: torch.Tensor) -> torch.Tensor:
        seen.append(refcompiler.is_compiling())
        return x.sin()

    def outer(x: torch.Tensor) -> torch.Tensor:
        return Scale(x)(callee(x))

    counted(callee, X)  # whose code is known from here on
    disabled = refcompiler.disable(outer, recursive=False)
    for _ in range(2):
        refcompiler.reset()
        seen.clear()
        found = counted(lambda x: disabled(x) + 1, X)
        assert torch.equal(found[0], outer(X) + 1)
        assert found[1] == 4 and seen[:2] == [True, True]  # callee, __init__, __call__, + 1


def test_disable_of_modules_methods_and_classes() -> None:
    class Twice(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    @refcompiler.disable
    class Thrice(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 3

    first, second = refcompiler.disable(Twice()), Thrice()
    for module, factor in ((first, 2), (second, 3)):
        found, graphs, breaks = counted(lambda x, m=module: m(x + 1) - 1, X)
        assert torch.equal(found, (X + 1) * factor - 1)
        assert (graphs, breaks) == (2, 1)


def test_a_disabled_function_is_not_compiled() -> None:
    inner = refcompiler.disable(lambda x: x * 2)
    assert refcompiler.compile(inner, backend="eager") is inner


@NAMESPACES
def test_allow_in_graph(say: Any) -> None:
    def opaque(x: torch.Tensor, k: int) -> torch.Tensor:
        for _ in range(k):
            x = x + 1
        return x

    say.allow_in_graph(opaque)
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable:
        graphs.append(graph)
        return graph.forward

    found = refcompiler.compile(lambda x: opaque(x, 3) * 2, backend=backend)(X)
    assert torch.equal(found, (X + 3) * 2)
    (graph,) = graphs
    assert [n.target for n in graph.graph.nodes if n.op == "call_function"][:1] == [opaque]
    assert sum(n.op.startswith("call") for n in graph.graph.nodes) == 2


@NAMESPACES
def test_assume_constant_result(say: Any) -> None:
    calls = []

    @say.assume_constant_result
    def scale(k: int) -> float:
        calls.append(k)
        return k * 0.5

    @say.assume_constant_result
    def table() -> torch.Tensor:
        calls.append("table")
        return torch.ones(3)

    found, graphs, breaks = counted(lambda x: x * scale(3) + table(), X)
    assert torch.equal(found, X * 1.5 + 1)
    assert (graphs, breaks, calls) == (1, 0, [3, "table"])


def test_substitute_in_graph() -> None:
    import zlib

    @refcompiler.substitute_in_graph(zlib.adler32, skip_signature_check=True)
    def adler32(data: bytes, value: int = 1) -> int:
        low, high = value & 0xFFFF, value >> 16
        for byte in data:
            low = (low + byte) % 65521
            high = (high + low) % 65521
        return high << 16 | low

    assert adler32(b"abc") == zlib.adler32(b"abc")
    found, graphs, breaks = counted(lambda x: x * zlib.adler32(b"abc"), X, fullgraph=True)
    assert torch.equal(found, X * zlib.adler32(b"abc"))
    assert (graphs, breaks) == (1, 0)
    with pytest.raises(ValueError, match="already"):
        refcompiler.substitute_in_graph(zlib.adler32)(lambda data, value=1: 0)


def test_torch_s_substitutes_are_used() -> None:
    import binascii

    @torch.compiler.substitute_in_graph(binascii.crc_hqx, skip_signature_check=True)
    def crc_hqx(data: bytes, crc: int) -> int:
        return len(data) + crc

    found, graphs, breaks = counted(lambda x: x + binascii.crc_hqx(b"abc", 1), X)
    assert torch.equal(found, X + 4)
    assert (graphs, breaks) == (1, 0)


def test_wrong_uses_are_one_clear_line() -> None:
    wrong = [
        lambda: refcompiler.disable(3),
        lambda: refcompiler.disable(print, recursive="no"),
        lambda: refcompiler.allow_in_graph(3),
        lambda: refcompiler.assume_constant_result(3),
        lambda: refcompiler.substitute_in_graph(3),
        lambda: refcompiler.substitute_in_graph(math.comb)(3),
        lambda: refcompiler.substitute_in_graph(math.comb)(lambda one: 0),
        lambda: refcompiler.nested_compile_region(3),
        lambda: refcompiler.explain(3),
        lambda: refcompiler.explain(dict),
    ]
    for use in wrong:
        with pytest.raises(TypeError) as caught:
            use()
        assert "\n" not in str(caught.value) and str(caught.value)


@NAMESPACES
def test_questions_about_capture(say: Any) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + say.is_compiling() + 2 * say.is_dynamo_compiling() + 4 * say.is_exporting()

    assert torch.equal(f(X), X)
    found, graphs, breaks = counted(f, X)
    assert torch.equal(found, X + 3) and (graphs, breaks) == (1, 0)


@NAMESPACES
def test_a_backend_is_told_that_it_compiles(say: Any) -> None:
    """As torch 2.13's: while it compiles, and not while what it made runs."""
    told = torch.__version__ >= (2, 13)
    for compile in (torch.compile, refcompiler.compile):
        seen: list[Any] = []

        def backend(graph: Any, inputs: Any, seen: list[Any] = seen) -> Any:
            def run(*given: Any) -> Any:
                seen.append(say.is_compiling())
                return graph.forward(*given)

            seen.append((say.is_compiling(), say.is_dynamo_compiling()))
            if len(inputs) > 1:
                raise ValueError("as some do")
            return run

        compiled = compile(lambda *given: sum(given), backend=backend)
        compiled(X)
        with pytest.raises(RuntimeError, match="as some do"):
            compiled(X, X + 1)
        here = (told or compile is not torch.compile, False)
        assert seen == [here, False, here] and not say.is_compiling()


def test_explain() -> None:
    def inner(x: torch.Tensor) -> torch.Tensor:
        print("a line")
        return x * 2

    def f(x: torch.Tensor) -> torch.Tensor:
        return inner(x.sin() + 1).relu()

    refcompiler.compile(f, backend="eager")
    explanation = refcompiler.explain(f)(X)
    assert (explanation.graph_count, explanation.graph_break_count) == (2, 1)
    assert explanation.op_count == 4
    assert explanation.ops_per_graph[0] == ["sin", "add"]
    (reason,) = explanation.break_reasons
    assert reason.row == "io"
    assert [name.rpartition(".")[2] for _, _, name in reason.stack] == ["f", "inner"]
    assert {guard.kind for guard in explanation.out_guards} >= {"TENSOR", "AMBIENT"}
    text = str(explanation)
    assert "Graphs: 2, operations: 4, graph breaks: 1" in text
    assert explanation.compile_times.startswith("2 captures, with the call: 0.")
    assert "Break 1: io" in text and "test_marks.py" in text


def test_explain_of_a_module_changes_nothing() -> None:
    module = torch.nn.Linear(3, 3)
    before = dict(module.__dict__)
    explanation = refcompiler.explain(module)(X)
    assert (explanation.graph_count, explanation.graph_break_count) == (1, 0)
    assert module.__dict__ == before
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        refcompiler.explain(module)(torch.ones(4))
