"""What is run: a script, or a function and its calls. Both take ``compile`` as it is given."""

from __future__ import annotations

import ast
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from conformance.compilers import CompilerName
from conformance.execute import cotangent, snapshot_tensors
from conformance.scripts import Asked, compiling, run_script

#: What a call of ``compile`` in the program gives.
Made = Callable[[Asked], Any]


@dataclass(frozen=True)
class Script:
    """A script as it is; its calls of compile say the backend, unless somebody else does."""

    path: Path
    arguments: tuple[str, ...] = ()

    def run(self, made: Made) -> None:
        with compiling(made):
            try:
                run_script(self.path, self.arguments)
            except SystemExit as stop:
                if stop.code not in (None, 0):
                    raise

    def __str__(self) -> str:
        return " ".join([str(self.path), *self.arguments])


@dataclass(frozen=True)
class Calls:
    """A function and its calls, one after the other. What has a gradient is sent one."""

    function: Callable[..., Any]
    calls: Sequence[Sequence[Any]]
    compiler: CompilerName
    backward: bool = True

    def run(self, made: Made) -> None:
        name = self.compiler
        f = made(Asked(name.frontend, _fronts(), self.function, name.backend, {}))
        for given in self.calls:
            try:
                out = f(*given)
            except Exception:  # which is what the call came to, and was seen
                continue
            roots = [t for t in snapshot_tensors(out) if t.requires_grad and t.is_floating_point()]
            if roots and self.backward:
                torch.autograd.backward(roots, [cotangent(t) for t in roots])

    def __str__(self) -> str:
        return getattr(self.function, "__qualname__", type(self.function).__qualname__)


@dataclass(frozen=True)
class Named:
    """``module:callable`` and its calls, as Python expressions: imported where it runs."""

    path: str
    calls: tuple[str, ...]
    compiler: CompilerName

    def run(self, made: Made) -> None:
        module_name, _, attribute = self.path.partition(":")
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        value: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            value = getattr(value, part)
        names = {**vars(importlib.import_module(module_name)), "torch": torch}
        given = [_arguments(text, names) for text in self.calls or ("",)]
        Calls(value, given, self.compiler).run(made)

    def __str__(self) -> str:
        return " ".join([self.path, *map(repr, self.calls)])


Program = Script | Calls | Named


def _arguments(text: str, names: dict[str, Any]) -> Sequence[Any]:
    """``"torch.ones(3), 2"`` -> the two values."""
    if not text.strip():
        return ()
    ast.parse(f"({text},)", mode="eval")
    return eval(f"({text},)", names)


def _fronts() -> dict[str, Callable[..., Any]]:
    return {
        "torch": torch.compile,
        "refcompiler": importlib.import_module("refcompiler").compile,
    }
