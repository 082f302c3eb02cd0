"""Runs a script with something else in the place of its calls of ``compile``."""

from __future__ import annotations

import contextlib
import functools
import importlib
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch


@dataclass(frozen=True)
class Asked:
    """A call of ``compile``: of which front end, for what, with which backend (a name, or what the
    script gives) and options. ``fronts``: each front end's own ``compile``, by its name."""

    frontend: str
    fronts: Mapping[str, Callable[..., Any]]
    model: Any
    backend: Any
    options: Mapping[str, Any]

    @property
    def compile(self) -> Callable[..., Any]:
        return self.fronts[self.frontend]


_DEFAULTS = {"torch": "inductor", "refcompiler": "fastpath"}


@contextlib.contextmanager
def compiling(made: Callable[[Asked], Any]) -> Iterator[None]:
    """``torch.compile`` and ``refcompiler.compile`` give what ``made`` gives."""
    ours = importlib.import_module("refcompiler")
    fronts = {"torch": torch.compile, "refcompiler": ours.compile}
    with (
        mock.patch.object(torch, "compile", _patched(fronts, "torch", made)),
        mock.patch.object(ours, "compile", _patched(fronts, "refcompiler", made)),
    ):
        yield


def _patched(
    fronts: Mapping[str, Callable[..., Any]], frontend: str, made: Callable[[Asked], Any]
) -> Callable[..., Any]:
    @functools.wraps(fronts[frontend])
    def patched(model: Any = None, *, backend: Any = None, **options: Any) -> Any:
        if model is None:
            return functools.partial(patched, backend=backend, **options)
        return made(Asked(frontend, fronts, model, backend or _DEFAULTS[frontend], options))

    return patched


def run_script(path: Path, arguments: Sequence[str]) -> None:
    """As ``python path arguments`` does, in this process."""
    folder = str(path.resolve().parent)
    with (
        mock.patch.object(sys, "argv", [str(path), *arguments]),
        mock.patch.object(sys, "path", [folder, *sys.path]),
    ):
        runpy.run_path(str(path), run_name="__main__")
