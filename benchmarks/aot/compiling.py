"""Until forward and backward have run once; the graphs run as they are."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.aot import AGAINST, Backend, boxed, captured, ours, step, theirs
from benchmarks.harness import Row, alternate, one_thread

GOAL = 0.7
ROUNDS = 5


def rows() -> list[Row]:
    warnings.simplefilter("ignore")
    cases = captured()
    gc.freeze()  # else each collection goes through all that is imported
    with one_thread():
        return [compile_row(*each) for each in cases]


def compile_row(name: str, graph: torch.fx.GraphModule, inputs: list[Any]) -> Row:
    from functorch.compile import default_partition

    def as_it_is(made: torch.fx.GraphModule, given: Sequence[Any]) -> Any:
        return boxed(made.forward)

    backends = [ours(as_it_is), theirs(as_it_is, partition_fn=default_partition)]
    ways = [lambda backend=backend: _first_step(backend, graph, inputs) for backend in backends]
    for way in ways:
        way()
    row = alternate(
        f"compile and first step: {name}", *ways, against=AGAINST, goal=GOAL, rounds=ROUNDS
    )
    return row


def _first_step(backend: Backend, graph: torch.fx.GraphModule, inputs: list[Any]) -> float:
    gc.collect()
    start = time.thread_time()
    step(backend(graph, inputs), inputs)
    return time.thread_time() - start
