"""What checks of rules of ``specs/ahead.py`` share: a rule is kept, and broken once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from refcompiler.aot import aot_autograd

Without = Callable[[pytest.MonkeyPatch], None]


@dataclass
class Check:
    run: Callable[[], None]
    without: Without


class Checks(dict[str, Check]):
    """Those of one file, by their rules; what it decorates becomes one of them."""

    def __call__(
        self, rule: str, without: Without
    ) -> Callable[[Callable[[], None]], Callable[[], None]]:
        def add(run: Callable[[], None]) -> Callable[[], None]:
            self[rule] = Check(run, without)
            return run

        return add


def fails_without(run: Callable[[], None], without: Without, patch: pytest.MonkeyPatch) -> None:
    """A check fails where what keeps its rule is taken away: it looks at that."""
    without(patch)
    with pytest.raises((AssertionError, RuntimeError, pytest.fail.Exception)):
        run()


def raw(program: Callable[..., Any], *examples: Any) -> tuple[Any, list[Any]]:
    """``program`` compiled without the front end, and the graphs that were compiled."""
    graphs: list[Any] = []
    made = aot_autograd(fw_compiler=lambda graph, inputs: graphs.append(graph) or graph.forward)
    return made(torch.fx.symbolic_trace(program), list(examples)), graphs
