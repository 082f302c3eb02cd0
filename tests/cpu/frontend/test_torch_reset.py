"""``torch.compiler.reset`` forgets what was compiled here, too."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import refcompiler
from refcompiler.runtime import torch_reset
from refcompiler.runtime.at_import import when_loaded


class Counted:
    """A backend that counts its graphs."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        self.graphs += 1
        return graph.forward


def test_it_begins_anew() -> None:
    """Each size had its program, and the limit was reached: afterwards one is compiled again."""
    backend = Counted()
    run = refcompiler.compile(
        lambda x: x * 2 + x.shape[0], backend=backend, dynamic=False, recompile_limit=2
    )
    with pytest.warns(UserWarning, match="compiles no more"):
        for n in (3, 4, 5, 6):
            assert torch.equal(run(torch.ones(n)), torch.full((n,), 2.0 + n))
    assert backend.graphs == 2
    torch.compiler.reset()
    for n in (7, 7):
        assert torch.equal(run(torch.ones(n)), torch.full((n,), 2.0 + n))
    assert backend.graphs == 3 and refcompiler.counters()["graphs"] == 3


def test_a_program_may_ask_for_it() -> None:
    backend = Counted()

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch.compiler.reset()
        return y * 2

    run = refcompiler.compile(program, backend=backend)
    for times in (1, 2):
        assert torch.equal(run(torch.ones(2)), torch.full((2,), 4.0))
        assert backend.graphs == 2 * times


def test_each_torch_is_told_once() -> None:
    import torch._dynamo

    heard = torch._dynamo.reset
    torch_reset.follow_torch(lambda: None)
    assert torch._dynamo.reset is heard


def test_a_module_is_listened_to_behind_its_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loaded_late.py").write_text("first = 1\nlast = 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    heard: list[Any] = []
    for _ in range(2):
        when_loaded("loaded_late", "last", lambda module: heard.append(module.last))
    assert heard == []
    monkeypatch.setitem(sys.modules, "loaded_late", importlib.import_module("loaded_late"))
    assert heard == [2]
    when_loaded("loaded_late", "last", lambda module: heard.append(module.first))
    assert heard == [2, 1]
