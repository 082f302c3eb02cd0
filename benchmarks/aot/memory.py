"""Bytes between forward and backward, counted in a step that runs operator by operator."""

from __future__ import annotations

import functools
import gc
import math
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.aot import AGAINST, Backend, Captured, captured, graph_of, ours, step, theirs
from benchmarks.family_models import calls
from benchmarks.harness import Row, one_thread
from refcompiler.aot.partition import min_cut_partition
from refcompiler.backends.ahead import _freeing

GOAL = 1.0
#: Shares of the bytes that could be saved beyond what cannot be computed again.
BUDGETS = (0.75, 0.5, 0.25, 0.0)
BUDGETED = ("Bert", "GPT2")
#: So many times the examples and their lengths: with little input, the gradients of all parameters,
#: which are there together in the end, are more than what is saved.
LARGER = (8, 6)


def rows() -> list[Row]:
    warnings.simplefilter("ignore")
    with one_thread():
        found = [memory_rows(*each) for each in captured()]
        found += [budget_rows(*each) for each in map(_larger, BUDGETED)]
    return [row for rows in found for row in rows]


def _larger(name: str) -> Captured:
    _, model, inputs = next(iter(calls(name)))
    larger = {key: t.repeat(*LARGER) for key, t in inputs.items()}
    return f"{name}, {LARGER[0] * LARGER[1]} times the input", *graph_of(model.train(), larger)


class Peak(TorchDispatchMode):
    """Counts the bytes of memory that operators' results hold, now and at most.

    Not that of ``inputs``, which views of them hold too.
    """

    def __init__(self, inputs: Sequence[torch.Tensor] = ()) -> None:
        super().__init__()
        self.now = self.most = 0
        self.known = {t.untyped_storage()._cdata for t in inputs}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for t in pytree.tree_leaves(found):
            if isinstance(t, torch.Tensor):
                self.count(t.untyped_storage())
        return found

    def count(self, memory: torch.UntypedStorage) -> None:
        key, size = memory._cdata, memory.nbytes()
        if key in self.known:
            return
        self.known.add(key)
        self.now += size
        self.most = max(self.most, self.now)

        def freed() -> None:
            self.known.discard(key)
            self.now -= size

        weakref.finalize(memory, freed)


def memory_rows(name: str, graph: torch.fx.GraphModule, inputs: list[Any]) -> list[Row]:
    """Bytes that a forward saves, and the most that a step holds, by the min-cut partitioners."""
    from functorch.compile import min_cut_rematerialization_partition

    ways = (
        ours(_freeing, partition_fn=min_cut_partition),
        theirs(_freeing, partition_fn=min_cut_rematerialization_partition),
    )
    return _rows(f"min-cut: {name}", *(_figures(way, graph, inputs) for way in ways))


def budget_rows(name: str, graph: torch.fx.GraphModule, inputs: list[Any]) -> list[Row]:
    """The same with less and less memory for what is saved."""
    import torch._functorch.config as config
    from functorch.compile import min_cut_rematerialization_partition

    found = memory_rows(name, graph, inputs)
    for budget in BUDGETS:
        cut = functools.partial(min_cut_partition, activation_memory_budget=budget)
        mine = _figures(ours(_freeing, partition_fn=cut), graph, inputs)
        with config.patch(activation_memory_budget=budget):
            way = theirs(_freeing, partition_fn=min_cut_rematerialization_partition)
            other = _figures(way, graph, inputs)
        # Shares of another whole: draws are never repeated by ours.
        found += _rows(f"budget {budget}: {name}", mine, other, saved=None)
    return found


def _figures(backend: Backend, graph: torch.fx.GraphModule, inputs: list[Any]) -> tuple[int, int]:
    """Bytes saved, and at most in a step."""
    call = backend(graph, inputs)
    step(call, inputs)
    saved = _saved(call, inputs)
    gc.collect()
    with Peak(inputs) as peak:
        with torch.autograd.set_multithreading_enabled(False):
            step(call, inputs)
    return saved, peak.most


def _rows(
    title: str, mine: tuple[int, int], other: tuple[int, int], saved: float | None = GOAL
) -> list[Row]:
    """``saved``: the goal for bytes saved."""
    rows = []
    parts = ("saved", saved), ("at most in a step", GOAL)
    for (what, goal), a, b in zip(parts, mine, other, strict=True):
        ratio = a / b if b else (math.inf if a else 1.0)
        name = f"bytes {what}, {title}"
        rows.append(Row(name, a, b, ratio, ratio, ratio, 1, AGAINST, goal, unit="B"))
    return rows


def _saved(call: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> int:
    """Bytes that a forward keeps alive for the backward, besides its inputs."""
    known = {t.untyped_storage()._cdata for t in inputs}
    kept: dict[int, int] = {}

    def pack(t: torch.Tensor) -> torch.Tensor:
        memory = t.untyped_storage()
        if memory._cdata not in known:
            kept[memory._cdata] = memory.nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        found = call(*inputs)
    del found
    return sum(kept.values())
