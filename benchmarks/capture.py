"""Capture: the first call under a backend that only runs the graph, caches emptied before each.

Capture is the work of one thread, and long enough to be interrupted by whatever else the machine
does. So this counts the processor time of that thread, with one thread for the eager run too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch

import refcompiler
from benchmarks.harness import Row, alternate, one_thread
from benchmarks.models import bert, gpt2

GOAL = 1 / 5
SYMBOLS_GOAL = 2.0


def rows() -> list[Row]:
    with one_thread():
        return [
            capture_row("GPT-2, 4 layers", *gpt2()),
            capture_row("BERT, 4 layers", *bert()),
            symbols_row("GPT-2, 4 layers, sizes as symbols", *gpt2()),
        ]


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


def symbols_row(
    name: str, model: torch.nn.Module, inputs: Mapping[str, torch.Tensor], rounds: int = 9
) -> Row:
    """A first call under ``dynamic=True`` and one under ``dynamic=False``, both of this project."""

    def call(dynamic: bool) -> float:
        return first_call(
            refcompiler.reset,
            lambda: refcompiler.compile(model, backend="eager", dynamic=dynamic),
            inputs,
        )

    call(True), call(False)
    against = "the same with constant sizes"
    return alternate(
        name,
        lambda: call(True),
        lambda: call(False),
        against=against,
        goal=SYMBOLS_GOAL,
        rounds=rounds,
    )


def first_call(
    reset: Callable[[], object],
    compiled: Callable[[], Callable[..., object]],
    inputs: Mapping[str, torch.Tensor],
) -> float:
    """Processor seconds from asking for a compiled model to its first result, inference only."""
    reset()
    with torch.no_grad():
        start = time.thread_time()
        compiled()(**inputs)
        return time.thread_time() - start
