"""Beside torch.compile: what its modules save, its words, and our names under it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import nn

import refcompiler
from refcompiler import errors
from refcompiler.runtime import counters
from specs import docs

X = torch.ones(3)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    refcompiler.reset()
    torch._dynamo.reset()
    yield
    refcompiler.reset()
    torch._dynamo.reset()


def compile(model: Any, **said: Any) -> Any:
    return refcompiler.compile(model, backend="eager", **said)


# ---- modules -----------------------------------------------------------------------------------


class Versioned(nn.Module):
    """Tells which version of itself it is given to load."""

    _version = 7

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.seen: list[Any] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        self.seen.append(args[0].get("version"))
        super()._load_from_state_dict(state_dict, prefix, *args)


def test_a_compiled_module_keeps_names_and_loads_torch_compiles() -> None:
    theirs = torch.compile(nn.Sequential(Versioned(), nn.BatchNorm1d(3)), backend="eager")
    with torch.no_grad():
        theirs._orig_mod[0].weight.fill_(2.0)
    saved = theirs.state_dict()
    assert all(name.startswith("_orig_mod.") for name in saved)
    plain = nn.Sequential(Versioned(), nn.BatchNorm1d(3))
    ours = compile(plain)
    assert list(ours.state_dict()) == list(plain.state_dict())
    for given in (saved, theirs._orig_mod.state_dict()):
        plain[0].weight.data.fill_(1.0)
        assert not any(ours.load_state_dict(given))
        assert plain[0].weight.eq(2.0).all() and plain[0].seen.pop() == 7
    assert ours.load_state_dict({"_orig_mod.0.wrong": X}, strict=False).unexpected_keys == [
        "0.wrong"
    ]
    with pytest.raises(RuntimeError, match='Unexpected key.*"0.wrong"'):
        ours.load_state_dict({**saved, "_orig_mod.0.wrong": X})


def test_a_compiled_part_of_a_module_loads_torch_compiles() -> None:
    parts = {"part._orig_mod.weight": torch.full((3,), 5.0)}
    whole = nn.ModuleDict({"part": compile(Versioned())})
    assert list(whole.state_dict()) == ["part.weight"]
    assert not any(whole.load_state_dict(parts)) and whole["part"](X).eq(5.0).all()
    assert list(parts) == ["part._orig_mod.weight"]  # the caller's is not changed


class Slotted(nn.Module):
    __slots__ = ("scale",)

    def __init__(self) -> None:
        super().__init__()
        self.scale = 3.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


def test_slots_are_the_originals() -> None:
    module = Slotted()
    compiled = compile(module)
    assert compiled(X).eq(3).all() and compiled.scale == 3.0
    compiled.scale = 5.0
    assert module.scale == 5.0 and compiled(X).eq(5).all()
    del compiled.scale
    assert not hasattr(module, "scale")


# ---- our names under torch.compile -------------------------------------------------------------


def test_what_is_disabled_here_is_disabled_there() -> None:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return x + 10 * torch.compiler.is_compiling()

    @refcompiler.disable
    def whole(x: torch.Tensor) -> torch.Tensor:
        return inner(x) + torch.compiler.is_compiling()

    @refcompiler.disable(recursive=False)
    def frame(x: torch.Tensor) -> torch.Tensor:
        return inner(x) + torch.compiler.is_compiling()

    for front in (torch.compile, refcompiler.compile):
        assert front(lambda x: whole(x) * 2, backend="eager")(X).eq(2).all(), front
        assert front(lambda x: frame(x) * 2, backend="eager")(X).eq(22).all(), front


@pytest.mark.parametrize("model", [lambda x: x + 1, nn.Linear(3, 3)], ids=["function", "module"])
def test_what_is_compiled_here_is_inlined_there(model: Callable) -> None:
    ours = compile(model)
    both = torch.compile(lambda x: ours(x) * 2, backend="eager", fullgraph=True)
    assert both(X).equal(model(X) * 2)
    assert torch.compile(ours, backend="eager", fullgraph=True)(X).equal(model(X))
    assert refcompiler.counters()["captures"] == 0


def test_errors_are_what_handlers_for_torch_compile_catch() -> None:
    for name in ("GraphBreakError", "BackendError", "RecompileError", "UnsupportedError"):
        assert issubclass(getattr(errors, name), RuntimeError)


# ---- nested_compile_region -----------------------------------------------------------------------


def _regions(**said: Any) -> Callable:
    @refcompiler.nested_compile_region(**said)
    def region(x: torch.Tensor, n: int = 0) -> torch.Tensor:
        return x.sin() + n

    def f(x: torch.Tensor, different: int) -> torch.Tensor:
        for n in range(different):
            x = region(x, n)
        return region(region(x))

    return compile(f, fullgraph=True, dynamic=False)


def test_a_region_with_more_graphs_than_said_is_an_error() -> None:
    limited = _regions(max_reuse_entries=3)
    assert limited(X, 3).isfinite().all()
    with pytest.raises(errors.GraphBreakError, match="region has more than 3 different graphs"):
        limited(X, 4)


def test_a_regions_own_key_is_checked() -> None:
    assert _regions(reuse_hash_fn=lambda x, n=0: n)(X, 3).isfinite().all()
    with pytest.raises(errors.GraphBreakError, match="gives 1 for calls of .*region that differ"):
        _regions(reuse_hash_fn=lambda x, n=0: 1)(X, 2)
    with pytest.raises(errors.GraphBreakError, match="gives an int, not a str"):
        _regions(reuse_hash_fn=lambda x, n=0: "1")(X, 2)


def test_a_region_may_be_a_method() -> None:
    class Scale:
        by = 2.0

        def scaled(self, x: torch.Tensor) -> torch.Tensor:
            return x.sin() * self.by

    scale = Scale()
    region = refcompiler.nested_compile_region(scale.scaled)
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled = refcompiler.compile(
        lambda x: region(region(x)), fullgraph=True, backend=backend, dynamic=False
    )
    for scale.by in (2.0, 3.0):
        assert compiled(X).equal((X.sin() * scale.by).sin() * scale.by)
    assert len(graphs) == 2 and all(hasattr(graph, "region_0") for graph in graphs)


@pytest.mark.parametrize(
    "said, kind, text",
    [
        ({"options": {}}, errors.UnsupportedError, "options are torch's own"),
        ({"max_reuse_entries": 0}, TypeError, "takes a positive int, not 0"),
        ({"reuse_hash_fn": 3}, TypeError, "takes a function, not 3"),
    ],
)
def test_wrong_options_of_a_region(said: dict, kind: type, text: str) -> None:
    with pytest.raises(kind, match=text):
        refcompiler.nested_compile_region(torch.sin, **said)


# ---- what is told --------------------------------------------------------------------------------


def test_an_explanation_has_torchs_fields() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        torch._dynamo.graph_break()
        return x * 2

    (reason,) = refcompiler.explain(f)(X).break_reasons
    assert "graph_break" in reason.reason and reason.user_stack[-1].name.endswith("f")
    assert reason.user_stack[-1].line == "torch._dynamo.graph_break()"


def test_a_backward_that_falls_back_later_is_counted() -> None:
    class Report:
        fallback = None
        tell = None

    def backend(graph: Any, inputs: Any) -> Any:
        def run(*inputs: Any) -> Any:
            return graph.forward(*inputs)

        run.report = Report()
        return run

    made = []

    def remembered(graph: Any, inputs: Any) -> Any:
        made.append(backend(graph, inputs))
        return made[-1]

    refcompiler.compile(lambda x: x + 1, backend=remembered)(X)
    assert refcompiler.counters()["uncompiled"] == 0
    made[0].report.tell("its backward: why")
    assert refcompiler.counters()["uncompiled"] == 1
    assert "runs as it is: its backward: why" in counters.reasons("uncompiled")[0]


def test_the_writer_of_the_tables_says_what_it_takes(capsys: Any, tmp_path: Any) -> None:
    assert docs.main(["--help"]) == 0 and "specs.docs" in capsys.readouterr().out
    assert docs.main(["--chek"]) == 2 and "takes one folder" in capsys.readouterr().err
    assert docs.main([str(tmp_path), "--check"]) == 1 and not list(tmp_path.iterdir())
