"""Capture: the first call under a backend that only runs the graph, caches emptied before each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch

import refcompiler
from benchmarks.harness import Row, alternate
from benchmarks.models import bert, gpt2

GOAL = 1 / 5


def rows() -> list[Row]:
    return [capture_row("GPT-2, 4 layers", *gpt2()), capture_row("BERT, 4 layers", *bert())]


def capture_row(
    name: str, model: torch.nn.Module, inputs: Mapping[str, torch.Tensor], rounds: int = 9
) -> Row:
    """Both first calls include one eager run of the model, which is the same for both."""

    def ours() -> float:
        return first_call(
            refcompiler.reset, lambda: refcompiler.compile(model, backend="eager"), inputs
        )

    def theirs() -> float:
        return first_call(
            torch.compiler.reset, lambda: torch.compile(model, backend="eager"), inputs
        )

    ours(), theirs()  # what is imported and built once per process is not capture
    return alternate(
        name, ours, theirs, against='`torch.compile(backend="eager")`', goal=GOAL, rounds=rounds
    )


def first_call(
    reset: Callable[[], object],
    compiled: Callable[[], Callable[..., object]],
    inputs: Mapping[str, torch.Tensor],
) -> float:
    """Seconds from asking for a compiled model to its first result, inference only."""
    reset()
    with torch.no_grad():
        start = time.perf_counter()
        compiled()(**inputs)
        return time.perf_counter() - start
