"""Marks on dimensions, of this project and of torch; ``dynamic_sources``; what the log says."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
import torch._dynamo.decorators

import refcompiler
from refcompiler.errors import ConstraintViolationError
from refcompiler.runtime import counters

BOTH = pytest.mark.parametrize("marks", [refcompiler, torch._dynamo.decorators])


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    refcompiler.reset()
    yield
    refcompiler.reset()


def twice(x: Any) -> Any:
    return x * 2, x.shape


def captures(function: Callable, *calls: Any, **options: Any) -> int:
    compiled = refcompiler.compile(function, backend="eager", **options)
    for x in calls:
        (found, shape), (wanted, sizes) = compiled(x), function(x)
        assert torch.equal(found, wanted) and shape == sizes
        assert all(type(n) is int for n in shape)
    return refcompiler.counters()["captures"]


@BOTH
def test_dynamic_from_the_start(marks: ModuleType) -> None:
    x = torch.ones(5, 4)
    marks.mark_dynamic(x, 0)
    assert captures(twice, x, torch.ones(7, 4), torch.ones(9, 4), dynamic=False) == 1
    assert captures(twice, torch.ones(7, 5), dynamic=False) == 2


@BOTH
def test_limits(marks: ModuleType) -> None:
    x = torch.ones(5, 4)
    marks.mark_dynamic(x, 0, min=3, max=8)
    assert captures(twice, x, torch.ones(8, 4), torch.ones(3, 4), dynamic=False) == 1
    assert captures(twice, torch.ones(9, 4), dynamic=False) == 2
    (reason,) = counters.reasons("recompiles")
    assert "x.shape[0]" in reason and "8" in reason


@BOTH
def test_a_marked_dimension_of_size_0_or_1_has_a_program_of_its_own(marks: ModuleType) -> None:
    compiled = refcompiler.compile(lambda x: x * 2 + x.shape[0], backend="eager")
    captures = []
    for size in (1, 5, 0, 7, 1, 0):
        x = torch.ones(size, 4)
        marks.mark_dynamic(x, 0)
        assert torch.equal(compiled(x), x * 2 + size)
        captures.append(refcompiler.counters()["captures"])
    assert captures == [1, 2, 3, 3, 3, 3]


@BOTH
def test_a_marked_dimension_that_becomes_a_constant_is_refused(marks: ModuleType) -> None:
    def function(x: Any) -> Any:
        return x * 2 if x.shape[0] == 5 else x

    x = torch.ones(5, 4)
    marks.mark_dynamic(x, 0)
    with pytest.raises(ConstraintViolationError, match=r"x.shape\[0\] is marked .* 5 at .*\.py:"):
        refcompiler.compile(function, backend="eager")(x)
    single = torch.ones(1, 4)
    marks.mark_dynamic(single, 0, min=1)
    with pytest.raises(ConstraintViolationError, match="0 and 1"):
        refcompiler.compile(function, backend="eager")(single)
    y = torch.ones(5, 4)
    marks.maybe_mark_dynamic(y, 0)
    assert torch.equal(refcompiler.compile(function, backend="eager")(y), y * 2)


@BOTH
def test_maybe_and_static(marks: ModuleType) -> None:
    x = torch.ones(5, 4)
    marks.maybe_mark_dynamic(x, 0)
    assert captures(twice, x, torch.ones(7, 4), dynamic=False) == 1
    refcompiler.reset()
    y, z = torch.ones(5, 4), torch.ones(6, 4)
    for t in (y, z):
        marks.mark_static(t, 0)
    assert captures(twice, y, torch.ones(5, 9), z, dynamic=True) == 2


@BOTH
def test_unbacked(marks: ModuleType) -> None:
    x = torch.ones(5, 4)
    marks.mark_unbacked(x, 0)
    assert captures(twice, x, torch.ones(1, 4), torch.ones(0, 4)) == 1

    def branch(x: Any) -> Any:
        return (x * 2 if x.shape[0] > 3 else x), x.shape

    assert captures(branch, x, torch.ones(7, 4)) >= 2
    assert refcompiler.counters()["breaks"] == 1


def test_wrong_marks_are_refused() -> None:
    with pytest.raises(IndexError, match="2 is no dimension"):
        refcompiler.mark_dynamic(torch.ones(2, 3), 2)
    with pytest.raises(ValueError, match="larger"):
        refcompiler.mark_dynamic(torch.ones(2, 3), 0, min=5, max=3)
    with pytest.raises(TypeError, match="expected a tensor"):
        refcompiler.mark_static([1], 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("named", ["x", "L['x']", "z,x", ".*x"])
def test_dynamic_sources(named: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(refcompiler.config, "dynamic_sources", named)
    assert captures(twice, torch.ones(5, 4), torch.ones(6, 7), dynamic=False) == 1


def test_the_log_names_dimensions_and_lines(caplog: Any) -> None:
    def function(x: Any, k: int) -> Any:
        return [x * k for _ in range(x.shape[0])]

    with caplog.at_level(logging.INFO, logger="refcompiler.dynamic"):
        refcompiler.compile(function, backend="eager", dynamic=True)(torch.ones(3, 4), 5)
    text = caplog.text
    assert "x.shape[0] becomes symbolic as s0 (3 here, dynamic=True) at" in text
    assert "k becomes symbolic as n0 (5 here, dynamic=True) at" in text
    assert "x.shape[0] is specialised to 3 at" in text and "test_marks.py" in text


@BOTH
def test_the_last_mark_of_what_has_two_is_dynamic(marks: ModuleType) -> None:
    x = torch.ones(5, 4)
    marks.mark_static(x)
    marks.mark_dynamic(x, 0)
    assert captures(twice, x, torch.ones(7, 4), torch.ones(7, 5), dynamic=True) == 2


@BOTH
def test_sizes_outside_the_limits_are_refused_with_the_line(marks: ModuleType) -> None:
    x = torch.ones(9, 4)
    marks.mark_dynamic(x, 0, min=3, max=8)
    with pytest.raises(
        ConstraintViolationError,
        match=r"x.shape\[0\] is 9 here, and marked as from 3 to 8 \(.*test_marks.py:\d+\)$",
    ):
        refcompiler.compile(twice, backend="eager")(x)


@BOTH
def test_what_torchs_compilers_are_told_to_expect(marks: ModuleType) -> None:
    seen: list[Any] = []

    def backend(graph: Any, inputs: list[Any]) -> Any:
        size = next(value for value in inputs if isinstance(value, torch.SymInt))
        env = size.node.shape_env
        seen.append((size.node.hint, dict(env.var_to_hint_override).get(size.node.expr)))
        return graph.forward

    for mark in (marks.mark_dynamic, marks.mark_unbacked):
        x = torch.ones(5, 4)
        mark(x, 0, hint_override=64)
        refcompiler.reset()
        assert torch.equal(refcompiler.compile(twice, backend=backend)(x)[0], x * 2)
    assert seen == [(5, 64), (None, 64)]


@BOTH
def test_limits_of_unbacked_sizes(marks: ModuleType) -> None:
    if "min" not in inspect.signature(marks.mark_unbacked).parameters:
        pytest.skip("torch 2.11 has no limits for unbacked sizes")

    def function(x: Any) -> Any:
        return (x * 2 if x.shape[0] > 1 else x), x.shape

    x = torch.ones(5, 4)
    marks.mark_unbacked(x, 0, min=2, max=8)
    assert captures(function, x, torch.ones(8, 4), torch.ones(2, 4)) == 1
    assert captures(function, torch.ones(1, 4)) == 2
    (reason,) = counters.reasons("recompiles")
    assert "x.shape[0] >= 2" in reason


@BOTH
def test_unbacked_sizes_of_one_name(marks: ModuleType) -> None:
    def function(x: Any, y: Any) -> Any:
        return x + y if x.shape[0] == y.shape[0] else x

    def pair(n: int, m: int) -> tuple[torch.Tensor, torch.Tensor]:
        made = torch.ones(n, 4), torch.ones(m, 4)
        for t in made:
            marks.mark_unbacked(t, 0, shape_id="batch")
        return made

    compiled = refcompiler.compile(function, backend="eager")
    calls = [pair(5, 5), pair(1, 1), pair(7, 7)]
    for x, y in calls:
        assert torch.equal(compiled(x, y), function(x, y))
    assert refcompiler.counters()["captures"] == 1 and refcompiler.counters()["breaks"] == 0
    match = r"y.shape\[0\] is 2 and x.shape\[0\] is 5, though both are 'batch'"
    with pytest.raises(ConstraintViolationError, match=match):
        compiled(*pair(5, 2))


@BOTH
def test_strictly_unbacked(marks: ModuleType) -> None:
    def function(x: Any) -> Any:
        return x + torch.ones(5, 4), x.shape

    x = torch.ones(5, 4)
    marks.mark_unbacked(x, 0, strict=True)
    with pytest.raises(ConstraintViolationError, match=r"x.shape\[0\] is marked .* makes it 5 at"):
        refcompiler.compile(function, backend="eager")(x)
    y = torch.ones(5, 4)
    marks.mark_unbacked(y, 0)
    assert torch.equal(refcompiler.compile(function, backend="eager")(y)[0], y + 1)


@BOTH
def test_static_in_compiled_code_and_classes(marks: ModuleType) -> None:
    def function(x: Any) -> Any:
        marks.mark_static(x, 0)
        return x * 2, x.shape

    calls = torch.ones(5, 4), torch.ones(5, 6), torch.ones(7, 4)
    assert captures(function, *calls, dynamic=True) == 2
    assert refcompiler.counters()["breaks"] == 0

    class Scaled(torch.nn.Module):
        def __init__(self, k: int):
            super().__init__()
            self.k = k

        def forward(self, x: Any) -> Any:
            return x * self.k, x.shape

    assert marks.mark_static(Scaled) is Scaled
    refcompiler.reset()
    for k in (3, 4):
        module = Scaled(k)
        found, _ = refcompiler.compile(module, backend="eager", dynamic=True)(torch.ones(2))
        assert torch.equal(found, torch.ones(2) * k)
    assert refcompiler.counters()["captures"] == 2


@pytest.mark.parametrize("named, expected", [("x:0", 2), ("L['x']:1", 2), ("x:0, x:1", 1)])
def test_dynamic_sources_of_one_dimension(named: str, expected: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(refcompiler.config, "dynamic_sources", named)
    calls = (torch.ones(5, 4), torch.ones(6, 4), torch.ones(6, 7))
    calls = calls if "0" in named else (calls[0], torch.ones(5, 7), calls[2])
    assert captures(twice, *calls, dynamic=False) == expected


@pytest.mark.parametrize("name", ["REFCOMPILER_DYNAMIC_SOURCES", "TORCH_COMPILE_DYNAMIC_SOURCES"])
def test_dynamic_sources_of_the_environment(name: str, monkeypatch: Any) -> None:
    monkeypatch.setenv(name, "x")
    assert type(refcompiler.config)().dynamic_sources == "x"


def test_errors_of_the_environment_name_the_variable(monkeypatch: Any) -> None:
    bad = {"DYNAMIC_SOURCES": "[", "UNBACKED_SOURCES": "(", "DYNAMIC_VALUES": "1,x"}
    bad |= {"FORCE_DISABLE_CACHES": "true", "CACHE_PROGRAMS": "no"}
    for name, value in bad.items():
        monkeypatch.delenv(f"REFCOMPILER_{name}", raising=False)
        for variable in (f"TORCH_COMPILE_{name}", f"REFCOMPILER_{name}"):
            monkeypatch.setenv(variable, value)
            with pytest.raises(ValueError, match=f"^{variable} takes .*{re.escape(value)}"):
                type(refcompiler.config)()
            monkeypatch.delenv(variable)
    monkeypatch.setenv("REFCOMPILER_CACHE_PROGRAMS", "0")
    monkeypatch.setenv("TORCH_COMPILE_FORCE_DISABLE_CACHES", "1")
    known = type(refcompiler.config)()
    assert (known.cache_programs, known.force_disable_caches) == (False, True)


FACTOR = 3


@pytest.mark.parametrize("named", [r"module.k,FACTOR", r"L\['module'\]\.k, G['FACTOR']"])
def test_sources_name_globals_closures_and_modules_too(named: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(refcompiler.config, "dynamic_sources", named)
    module = torch.nn.Module()
    module.k = 3  # type: ignore[assignment]

    def function(x: Any) -> Any:
        return x * module.k * FACTOR, x.shape  # type: ignore[operator]

    compiled = refcompiler.compile(function, backend="eager", dynamic=False)
    for k in (3, 4, 5):
        module.k = k  # type: ignore[assignment]
        monkeypatch.setitem(globals(), "FACTOR", k + 2)
        assert torch.equal(compiled(torch.ones(2))[0], torch.ones(2) * k * (k + 2))
    assert refcompiler.counters()["captures"] == 1


def test_the_log_tells_decisions_and_what_changed(caplog: Any) -> None:
    def function(x: Any) -> Any:
        return (x * 2 if x.shape[0] > 3 else x), x.shape

    with caplog.at_level(logging.INFO, logger="refcompiler.dynamic"):
        captures(function, torch.ones(5, 4), torch.ones(6, 4))
    assert "x.shape[0] becomes symbolic as s0 (6 here, it was 5 before) at" in caplog.text
    assert "decided that (x.shape[0] > 3) at" in caplog.text
    assert "test_marks.py:" in caplog.text


@BOTH
def test_conditions_with_programs_of_their_own(marks: ModuleType) -> None:
    graphs = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append([value for value in inputs if isinstance(value, torch.SymInt)])
        return graph.forward

    compiled = refcompiler.compile(lambda x: x.reshape(-1, 2, x.shape[1]) * 2, backend=backend)
    counts = []
    for n in (6, 8, 10, 8, 16, 32, 6, 48, 8):
        x = torch.randn(n, 4)
        special = [lambda n: n == 8, lambda n: n % 16 == 0]
        marks.mark_dynamic(x, 0, specialize_on=special)
        assert torch.equal(compiled(x), x.reshape(-1, 2, 4) * 2)
        counts.append(len(graphs))
    assert counts == [1, 2, 2, 2, 3, 3, 3, 3, 3]
    assert [len(values) for values in graphs] == [1, 0, 1]  # 8 is a constant


def test_conditions_are_functions() -> None:
    with pytest.raises(TypeError, match=r"specialize_on takes functions, not \[8\]"):
        refcompiler.mark_dynamic(torch.ones(8), 0, specialize_on=[8])  # type: ignore[list-item]


def test_unbacked_sources(monkeypatch: Any) -> None:
    monkeypatch.setattr(refcompiler.config, "unbacked_sources", "x:0, k")
    calls = [(torch.ones(n, 4), k) for n, k in ((5, 3), (1, 0), (0, 1), (7, -2))]
    found = refcompiler.compile(
        lambda x, k: (x * 2 + k, x.shape), backend="eager", dynamic=False, fullgraph=True
    )
    for x, k in calls:
        y, shape = found(x, k)
        assert torch.equal(y, x * 2 + k) and shape == x.shape
    assert counters.counters()["captures"] == 1
    decides = refcompiler.compile(
        lambda x: x + 1 if x.shape[0] > 3 else x, backend="eager", fullgraph=True
    )
    with pytest.raises(refcompiler.errors.GraphBreakError, match="data"):
        decides(torch.ones(5, 4))


@pytest.mark.parametrize("given, expected", [("111", 2), ("111, 5", 1), ("", 3)])
def test_dynamic_values(given: str, expected: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(refcompiler.config, "dynamic_values", given)

    def function(x: Any, k: int) -> Any:
        return x * k, x.shape

    compiled = refcompiler.compile(function, backend="eager", dynamic=False)
    calls = [(torch.ones(111, 4), 5), (torch.ones(9, 4), 5), (torch.ones(9, 4), 7)]
    for call in calls:
        wanted, found = function(*call), compiled(*call)
        assert torch.equal(wanted[0], found[0]) and wanted[1] == found[1]
    assert counters.counters()["captures"] == expected


def test_dynamic_values_are_ints() -> None:
    with pytest.raises(ValueError, match="dynamic_values takes ints and commas, not '1,x'"):
        refcompiler.config.dynamic_values = "1,x"
    assert refcompiler.config.dynamic_values == ""


@BOTH
def test_what_may_be_dynamic_weighs_more_than_static(marks: ModuleType) -> None:
    made = [torch.ones(n, 4) for n in (5, 7, 9)]
    for x in made:
        marks.maybe_mark_dynamic(x, 0)
        marks.mark_static(x, 0)
    assert captures(twice, *made, dynamic=False) == 1


@pytest.mark.parametrize(
    "named", ["L['m']._modules['inner']._parameters['weight']", "m.inner.weight"]
)
def test_sources_name_parameters_as_torch_does(named: str, monkeypatch: Any) -> None:
    class Outer(torch.nn.Module):
        def __init__(self, n: int):
            super().__init__()
            self.inner = torch.nn.Linear(4, n, bias=False)

        def forward(self, x: Any) -> Any:
            return x @ self.inner.weight.t()

    monkeypatch.setattr(refcompiler.config, "dynamic_sources", named)
    compiled = refcompiler.compile(lambda m, x: m(x), backend="eager")
    for n in (5, 6, 7):
        m, x = Outer(n), torch.ones(2, 4)
        assert torch.equal(compiled(m, x), m(x))
    assert refcompiler.counters()["captures"] == 1


class Scaled(torch.nn.Module):
    def forward(self, x: Any, k: int = 3) -> Any:
        return x * k


@pytest.mark.parametrize(
    ("named", "expected"),
    [("L['x']", 1), ("x", 1), ("L['k']", 1), ("k", 1), ("L['y']", 2), ("args", 2)],
)
def test_dynamic_sources_among_the_arguments_of_a_compiled_module(
    named: str, expected: int, monkeypatch: Any
) -> None:
    """By the names that ``forward`` gives them, as torch's."""
    monkeypatch.setattr(refcompiler.config, "dynamic_sources", named)
    compiled, x, y = refcompiler.compile(Scaled(), backend="eager"), torch.ones(5), torch.ones(7)
    first, then = ((x, 5), (x, 7)) if "k" in named else ((x, 5), (y, 5))
    for t, k in (first, then):
        assert torch.equal(compiled(t, k=k), t * k)
    assert refcompiler.counters()["captures"] == expected


def test_strides_that_change_by_themselves_become_symbols() -> None:
    """As for torch.compile: sizes stay constants, and each case compiles twice."""
    cases: dict[str, Callable] = {
        "a column": lambda n: torch.arange(2.0 * n).reshape(2, n)[:, :1],
        "columns": lambda n: torch.arange(2.0 * n).reshape(2, n)[:, :3],
        "one column": lambda n: torch.arange(4.0 * n).reshape(4, n)[:, 0],
        "steps": lambda n: torch.arange(60.0)[::n][:3],
        "in the middle": lambda n: torch.arange(6.0 * n).reshape(2, n, 3)[:, 1],
        "an offset": lambda n: torch.arange(60.0)[n : n + 6],
    }

    def function(x: Any) -> Any:
        return (x * 2).sum(-1), x.clone(), x.stride(), x.is_contiguous()

    counted = 0
    for name, make in cases.items():
        graphs: list[int] = [0, 0]
        for which, package in enumerate((torch, refcompiler)):
            package.compiler.reset() if package is torch else refcompiler.reset()

            def backend(graph: Any, inputs: Any, which: int = which, graphs: Any = graphs) -> Any:
                graphs[which] += 1
                return graph.forward

            compiled = package.compile(function, backend=backend)
            for n in (5, 7, 4, 11, 8, 9):
                found, wanted = compiled(make(n)), function(make(n))
                assert [str(part) for part in found] == [str(part) for part in wanted]
                assert found[1].stride() == wanted[1].stride()
                counted += 1
        assert graphs[0] == graphs[1] == (1 if name == "an offset" else 2), name
    assert counted == 72
