"""Backends by name: what each needs, and runtimes of other projects over exported programs."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import refcompiler
from refcompiler.backends import exported, registry
from refcompiler.errors import UnsupportedError
from refcompiler.runtime.counters import reasons
from specs.backends import BACKENDS

NEEDING = [row for row in BACKENDS if row.module]


@pytest.mark.parametrize("row", NEEDING, ids=lambda row: row.name)
def test_a_missing_package_is_one_line_that_says_what_to_install(
    row: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == row.module else find(n))
    for ask in (
        lambda: refcompiler.compile(torch.sin, backend=row.name),
        lambda: refcompiler.set_stance("default", force_backend=row.name),
    ):
        with pytest.raises(UnsupportedError) as error:
            ask()
        assert f"pip install {row.install}" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "raise ImportError('for torch 2.8')"], ids=["silent", "old"])
def test_a_package_that_registers_nothing_is_told(
    text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "torch_tensorrt.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_torch_backends", list)
    with pytest.raises(UnsupportedError, match="torch_tensorrt .*for torch 2"):
        refcompiler.lookup_backend("tensorrt")
    sys.modules.pop("torch_tensorrt", None)


def test_a_package_that_registers_with_torch_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def theirs(graph: Any, inputs: Any) -> Callable:
        return graph.forward

    monkeypatch.setitem(sys.modules, "torch_tensorrt", package := ModuleType("torch_tensorrt"))
    package.__spec__ = importlib.util.spec_from_loader("torch_tensorrt", None)
    registry.register_backend(theirs, "tensorrt")
    try:
        assert refcompiler.lookup_backend("tensorrt") is theirs
    finally:
        del registry._REGISTERED["tensorrt"], registry._TAGS["tensorrt"]


# ---- runtimes over exported programs -------------------------------------------------------------


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> Any:
    """The backend of a runtime that runs the exported program, and does ``request.param``."""

    def runtime(program: Any, inputs: Any) -> Callable:
        module = program.module()
        if request.param == "refuses":
            raise NotImplementedError("no\nrelu")
        if request.param == "reshapes":
            return lambda given: [value.reshape(-1) for value in module(*given)]
        return lambda given: [value.numpy() for value in module(*given)]

    refcompiler.reset()
    exported._backend("tried", runtime, "For this test.")
    yield refcompiler.lookup_backend("tried")
    del registry._REGISTERED["tried"], registry._TAGS["tried"]
    refcompiler.reset()


@pytest.mark.parametrize("backend", ["runs"], indirect=True)
def test_a_runtime_gives_eagers_values_gradients_and_mutations(backend: Callable) -> None:
    torch.manual_seed(0)
    module = nn.Linear(4, 3)
    x = torch.randn(2, 4)

    def f(x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        seen += 1
        return module(x).relu().t()

    found = []
    for call in (f, refcompiler.compile(f, backend=backend)):
        seen = torch.zeros(2)
        out = call(x, seen)
        out.sum().backward()
        found.append((out.detach(), out.stride(), seen, module.weight.grad))
        module.zero_grad()
    for eager, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, eager)
    assert refcompiler.counters()["uncompiled"] == 0


@pytest.mark.parametrize(
    "backend, why",
    [("refuses", "NotImplementedError: no relu"), ("reshapes", "results have the shapes")],
    indirect=["backend"],
)
def test_what_a_runtime_does_not_do_runs_as_it_is_and_says_why(backend: Any, why: str) -> None:
    x = torch.randn(2, 3)
    assert refcompiler.compile(lambda x: x.relu() + 1, backend=backend)(x).equal(x.relu() + 1)
    assert why in reasons("uncompiled")[0]


@pytest.mark.parametrize("row", [r for r in NEEDING if r.origin == "here"], ids=lambda r: r.name)
def test_a_runtime_that_is_installed(row: Any) -> None:
    pytest.importorskip(row.module)
    x = torch.randn(4, 8)

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * 2 + x).sum(-1)

    refcompiler.reset()
    torch.testing.assert_close(refcompiler.compile(f, backend=row.name)(x), f(x))
    assert refcompiler.counters()["uncompiled"] == 0
