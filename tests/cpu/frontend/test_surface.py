"""The public names: their rows, their parameters beside torch's, and ``export``."""

from __future__ import annotations

import importlib
import inspect
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import refcompiler
from refcompiler.errors import GraphBreakError, RecompileError, UnsupportedError
from specs.api import API


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    refcompiler.reset()
    yield
    refcompiler.reset()


#: What torch has since 2.13.
NEW = {"torch.compiler.set_default_backend", "torch.compiler.get_default_backend"}


def test_every_public_name_has_a_row_a_docstring_and_is_torchs_where_it_says_so() -> None:
    assert {row.name for row in API} == {*refcompiler.__all__} - {"__version__"}
    for row in API:
        assert inspect.getdoc(getattr(refcompiler, row.name)), row.name
        module, _, name = row.torch.rpartition(".")
        if row.torch and (row.torch not in NEW or torch.__version__ >= (2, 13)):
            assert name in dir(importlib.import_module(module)), row.torch


#: What torch's functions take that these do not; rows say why.
OTHER = {
    "compile": {"shapes_spec"},
    "lookup_backend": {"compiler_fn"},
    "substitute_in_graph": {"original_fn"},
    "explain": {"f", "extra_args", "extra_kwargs"},  # which are arguments of the call
}


def test_parameters_are_torchs() -> None:
    compared = 0
    for row in API:
        module, _, name = row.torch.rpartition(".")
        theirs = getattr(importlib.import_module(module), name, None) if module else None
        ours = getattr(refcompiler, row.name)
        if not callable(theirs) or not callable(ours) or row.name == "set_logs":
            continue
        left = set(inspect.signature(theirs).parameters) - set(inspect.signature(ours).parameters)
        assert left <= OTHER.get(row.name, set()), (row.name, left)
        compared += 1
    assert compared > 25


# ---- export --------------------------------------------------------------------------------------


def test_an_export_is_a_graph_guards_and_a_callable_that_never_captures_again() -> None:
    module, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(3, 4)
    found = refcompiler.export(module, (x,))
    assert [n.name for n in found.graph.graph.nodes][-3:] == ["linear", "relu", "output"]
    assert "TENSOR" in {guard.kind for guard in found.guards} and "def plan(" in found.source
    assert found(x).equal(module(x)) and refcompiler.counters()["captures"] == 1
    with pytest.raises(RecompileError, match=r"it was exported.*tensor input.*shape=\(2, 4\)"):
        found(x[:2])
    assert refcompiler.counters()["captures"] == 1


def test_an_export_of_any_size_with_named_arguments_and_a_backend() -> None:
    made: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        made.append(graph)
        return graph.forward

    def f(x: torch.Tensor, n: int = 2) -> torch.Tensor:
        return x * n + x.shape[0]

    found = refcompiler.export(f, (torch.ones(3),), {"n": 3}, dynamic=True, backend=backend)
    assert found(torch.ones(7), n=5).equal(f(torch.ones(7), 5)) and made == [found.graph]


@pytest.mark.parametrize(
    "call, kind, text",
    [
        (lambda: refcompiler.export(lambda x: 3, (torch.ones(2),)), GraphBreakError, "0 graphs"),
        (lambda: refcompiler.export(lambda: print(), ()), GraphBreakError, "builtins.print"),
        (lambda: refcompiler.export(3), TypeError, "not 3"),
        (lambda: refcompiler.export(torch.sin, torch.ones(2)), TypeError, "a tuple of arguments"),
        (lambda: refcompiler.export(torch.sin, dynamic=1), TypeError, "not 1"),
        (
            lambda: pickle.dumps(refcompiler.export(torch.sin, (torch.ones(2),))),
            UnsupportedError,
            "save_compiled_function",
        ),
        (
            lambda: refcompiler.mark_unbacked(torch.ones(2), 0, specialize_on=[bool]),
            UnsupportedError,
            "use mark_dynamic",
        ),
        (lambda: refcompiler.load_compiled_function(None), TypeError, "open for reading bytes"),
    ],
)
def test_what_is_not_here_is_told_in_one_line(call: Any, kind: type, text: str) -> None:
    with pytest.raises(kind, match=text):
        call()
