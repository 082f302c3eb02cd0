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
    script gives) and options. ``compile`` is the front end's own."""

    frontend: str
    compile: Callable[..., Any]
    model: Any
    backend: Any
    options: Mapping[str, Any]


@contextlib.contextmanager
def compiling(made: Callable[[Asked], Any]) -> Iterator[None]:
    """``torch.compile`` and ``refcompiler.compile`` give what ``made`` gives."""
    ours = importlib.import_module("refcompiler")
    with (
        mock.patch.object(torch, "compile", _patched(torch.compile, "torch", "inductor", made)),
        mock.patch.object(ours, "compile", _patched(ours.compile, "refcompiler", "fastpath", made)),
    ):
        yield


def _patched(
    compile: Callable[..., Any], frontend: str, default: str, made: Callable[[Asked], Any]
) -> Callable[..., Any]:
    @functools.wraps(compile)
    def patched(model: Any = None, *, backend: Any = None, **options: Any) -> Any:
        if model is None:
            return functools.partial(patched, backend=backend, **options)
        return made(Asked(frontend, compile, model, backend or default, options))

    return patched


def run_script(path: Path, arguments: Sequence[str]) -> None:
    """As ``python path arguments`` does, in this process."""
    folder = str(path.resolve().parent)
    with (
        mock.patch.object(sys, "argv", [str(path), *arguments]),
        mock.patch.object(sys, "path", [folder, *sys.path]),
    ):
        runpy.run_path(str(path), run_name="__main__")
