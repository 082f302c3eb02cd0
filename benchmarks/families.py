"""Capture of many families of models: the first call, in a process that has seen none of it.

Each capture is made in a fork of a process that has imported everything and compiled one small
model with either compiler, so nothing of the model, and none of the operators' fake results, is
remembered, of either. The worst ratio comes first. What comes out must be what eager gives.
"""

from __future__ import annotations

import copy
import gc
import os
import pickle
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

import refcompiler
from benchmarks.family_models import BOTH, IMAGES, PLAIN, SOUND, TEXT, calls
from benchmarks.harness import Row, alternate, one_thread

GOAL = 1 / 5
ROUNDS = 5
AGAINST = '`torch.compile(backend="eager")`'
FAMILIES = [*TEXT, *BOTH, *IMAGES, *SOUND, *PLAIN]


class Capture(NamedTuple):
    """One first call: thread seconds, graphs, breaks, and how its result differs from eager's."""

    seconds: float
    graphs: int
    breaks: int
    difference: str


def rows() -> list[Row]:
    """A row for each family and way to call it, worst first, below one for all of them."""
    found = list(family_rows(FAMILIES))
    found.sort(key=lambda row: -row.ratio)
    return [summary(found), *found]


def family_rows(names: Iterable[str]) -> Iterator[Row]:
    warnings.simplefilter("ignore")
    with one_thread():
        prepare()
        for name in names:
            for title, model, inputs in calls(name):
                row = capture_row(f"{name}, {title}", model, inputs)
                print(f"{row.name}: {row.ratio:.3f}, {row.note}", file=sys.stderr, flush=True)
                yield row


def summary(found: list[Row]) -> Row:
    """The median of the ratios, and what is in one graph."""
    ratios = [row.ratio for row in found]
    low, high = min(ratios), max(ratios)
    ours, theirs = (statistics.median(times) for times in zip(*[(r.ours, r.theirs) for r in found]))
    graphs = [[int(part) for part in row.note.split(" ")[0].split("/")] for row in found]
    note = "/".join(str(sum(numbers)) for numbers in zip(*graphs, strict=True)) + " graphs"
    name = f"median of {len(found)} (least and most)"
    return Row(
        name, ours, theirs, statistics.median(ratios), low, high, ROUNDS, AGAINST, GOAL, note
    )


def capture_row(name: str, model: Any, inputs: dict[str, Any], rounds: int = ROUNDS) -> Row:
    expected = observed(model, copy.deepcopy(inputs))
    observed(model, copy.deepcopy(inputs))  # what eager makes once per process
    seen: dict[str, Capture] = {}

    def timed(compiler: str) -> float:
        seen[compiler] = forked(lambda: first_call(compiler, model, inputs, expected))
        return seen[compiler].seconds

    row = alternate(
        name,
        lambda: timed("ours"),
        lambda: timed("theirs"),
        against=AGAINST,
        goal=GOAL,
        rounds=rounds,
    )
    ours, theirs = seen["ours"], seen["theirs"]
    note = f"{ours.graphs}/{theirs.graphs} graphs, {ours.breaks}/{theirs.breaks} breaks"
    if ours.difference:
        note += f", DIFFERS FROM EAGER: {ours.difference}"
    return replace(row, note=note)


class Counting:
    """A backend that runs the graph as it is and counts."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, module: torch.fx.GraphModule, inputs: Any) -> Callable:
        self.graphs += 1
        return module.forward


def first_call(
    compiler: str, model: Any, inputs: dict[str, Any], expected: list[torch.Tensor]
) -> Capture:
    """To be called in a process of its own."""
    given, backend = copy.deepcopy(inputs), Counting()
    compiled = COMPILERS[compiler](model, backend)
    torch.manual_seed(1)
    with torch.no_grad():
        start = time.thread_time()
        result = compiled(**given)
        seconds = time.thread_time() - start
    if compiler == "ours":
        breaks = refcompiler.counters()["breaks"]
    else:
        breaks = sum(torch._dynamo.utils.counters["graph_break"].values())
    found = tensors((result, given))
    return Capture(seconds, backend.graphs, breaks, difference(found, expected))


def ours(model: Any, backend: Callable) -> Callable:
    return refcompiler.compile(model, backend=backend)


def theirs(model: Any, backend: Callable) -> Callable:
    return torch.compile(model, backend=backend)


COMPILERS = {"ours": ours, "theirs": theirs}


def prepare() -> None:
    """What is imported, built and tried out once per process is not capture."""
    layers = [torch.nn.Linear(4, 4) for _ in range(8)]  # as many as make a capture ask all it asks
    model = torch.nn.Sequential(*layers, torch.nn.GELU(), torch.nn.LayerNorm(4))
    with torch.no_grad():
        for compiler in COMPILERS.values():
            compiler(model, Counting())(torch.randn(2, 4))
    torch._dynamo.utils.counters.clear()
    refcompiler.reset()


def forked(call: Callable[[], Capture]) -> Capture:
    """What ``call`` gives in a copy of this process."""
    gc.collect()
    gc.freeze()  # the copy need not look at what it shares
    read, write = os.pipe()
    process = os.fork()
    if not process:
        try:
            answer: Any = call()
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(write, pickle.dumps(answer))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer = pickle.loads(pipe.read())
    os.waitpid(process, 0)
    if isinstance(answer, str):
        raise RuntimeError(answer)
    return answer


# ---- what a call shows --------------------------------------------------------------------------


def observed(model: Any, inputs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors that eager's result and the arguments hold afterwards."""
    torch.manual_seed(1)
    with torch.no_grad():
        return tensors((model(**inputs), inputs))


def tensors(value: Any) -> list[torch.Tensor]:
    """Those in a value; objects that pytree does not know, caches, give those in their fields."""
    found: list[torch.Tensor] = []
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            found.append(leaf)
        elif isinstance(getattr(leaf, "__dict__", None), dict) and not callable(leaf):
            found.extend(tensors(leaf.__dict__))
    return found


def difference(found: list[torch.Tensor], expected: list[torch.Tensor]) -> str:
    """How the tensors differ in values, dtype, size or strides; empty if they do not."""
    if len(found) != len(expected):
        return f"{len(found)} tensors, not {len(expected)}"
    for number, (a, b) in enumerate(zip(found, expected, strict=True)):
        kinds = [(t.dtype, tuple(t.shape), t.stride()) for t in (a, b)]
        if kinds[0] != kinds[1]:
            return f"tensor {number} is {kinds[0]}, not {kinds[1]}"
        if not torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True):
            return f"tensor {number} has other values"
    return ""
