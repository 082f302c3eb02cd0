"""Checkpointed regions of second runs, which a backward computes again and which write then.

In eager a call and its gradients with a graph share the tensors of a region: a backward that comes
to both computes it again once, and what it writes counts once. Here each run of the call's graph
has regions of its own, and the compiled backward too. So what is first in a backward writes, and
the others are given what was there before, and write nothing.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils.checkpoint import checkpoint

from refcompiler.aot.currents import restored
from refcompiler.aot.inputs import Runner
from refcompiler.reentrant import called

_task = torch._C._current_graph_task_id
#: What tensors held, by their numbers.
Values = dict[int, torch.Tensor]


class Recomputed:
    """Of one call. ``tensors``: what its regions write to."""

    def __init__(self, tensors: Sequence[torch.Tensor]):
        self.tensors = tensors
        self.task = -1
        self.known: dict[Any, Values] = {}  # by region, of the backward ``task``

    def before(self) -> Values:
        """What those held that regions have written to in the backward under way."""
        if self.task != _task():
            return {}
        found: Values = {}
        for values in self.known.values():
            for n, value in values.items():
                found.setdefault(n, value)
        return found

    @contextlib.contextmanager
    def standing(self, values: Values) -> Iterator[None]:
        """With these in the tensors, which are as before afterwards."""
        with restored([self.tensors[n] for n in values]):
            for n, value in values.items():
                self.tensors[n].data.copy_(value)
            yield

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """For a backward by itself in that under way, whose gradients have a graph."""
        with self.standing(self.before()):
            yield

    def regions(self, outer: tuple[int, ...] = ()) -> Mapping[Any, Callable[..., Any]]:
        """What stands for regions in a second run, or in the region ``outer`` of one."""
        numbers = itertools.count()

        def front_ends(_: Any, target: Any, graph: GraphModule, *tensors: Any) -> Any:
            return target(self._noting(graph, (*outer, next(numbers))), *tensors)

        def torchs(_: Any, target: Any, graph: GraphModule, *tensors: Any, **options: Any) -> Any:
            """That operator computes nothing again."""
            context = graph.meta.get("_checkpoint_context_fn")
            given = {"use_reentrant": False, **options}
            if context is not None:
                given["context_fn"] = context
            region = self._noting(graph, (*outer, next(numbers)))
            own = {*map(_memory, self.tensors)}
            saved = [n for n, t in enumerate(tensors) if _memory(t) not in own]
            return tuple(checkpoint(*called(region, tensors, saved), **given))

        operator = torch.ops.higher_order.tag_activation_checkpoint
        return {"checkpoint": front_ends, operator: torchs}

    def _noting(self, graph: GraphModule, key: tuple[int, ...]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            return Runner(graph, {}, {**self.regions(key)}).run(*given)

        ran = False

        def call(*given: Any) -> Any:
            nonlocal ran
            if not ran:  # as a part of the run, or of the region around it
                ran = True
                return run(*given)
            if self.task != _task():
                self.task, self.known = _task(), {}
            known = self.known.get(key)
            if known is not None:  # by another run
                with self.standing(known):
                    return run(*given)
            held = [t.detach().clone() for t in self.tensors]
            try:
                return run(*given)
            finally:  # which a recompute may leave with an error, when it has all that it wants
                pairs = enumerate(zip(self.tensors, held, strict=True))
                self.known[key] = {n: was for n, (t, was) in pairs if not torch.equal(t, was)}

        return call


def _memory(t: Any) -> int:
    return t.untyped_storage()._cdata if isinstance(t, torch.Tensor) else 0
