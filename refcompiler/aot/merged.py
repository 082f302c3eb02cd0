"""What comes back to a call by its results and by gradients with a graph, in one backward.

Eager computes such gradients of the very tensors between inputs and results, so a backward of both
(a loss of a score, and a penalty on the score's slope) adds up at each of these, first what comes
by the gradients, which were made later. The gradients here are of a second run of the graph, whose
tensors only it has. Their function of autograd (:class:`Slope`) brings what comes by them to the
tensors between. Where the same backward comes to the call, it goes on there, with what comes to the
results; else it goes on at once.
"""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from refcompiler.aot.gates import directly
from refcompiler.aot.kept import FREED
from refcompiler.aot.ports import Key
from refcompiler.aot.reads import Parts
from refcompiler.aot.stages import Cut
from refcompiler.reentrant import as_around

_task = torch._C._current_graph_task_id
_goes_to = torch._C._will_engine_execute_node
_keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph
_FUNCTION = torch.autograd.function.BackwardCFunction
_Edge = tuple[Any, int]


@dataclass
class Run:
    """A second run, of whose results ``gradients`` with a graph were made.

    ``call``: a reference to the call's function; ``results``: those with a tangent, in order;
    ``inputs``: the run's, None for what has no gradient; ``tangents``: those of the results that
    require gradients. ``named``: what the caller has of what the gradients depend on, and where
    that is in the run; ``between``: where else the gradients lead to what the results were made of.
    ``reads``: by input, how often it is read. ``repeated``: as a program has it.
    """

    call: Any
    gradients: list[torch.Tensor]
    results: list[_Edge]
    inputs: list[Any]
    tangents: list[torch.Tensor]
    named: dict[_Edge, torch.Tensor]
    between: list[_Edge]
    reads: dict[int, int]
    repeated: Sequence[int]

    def back(self, cotangents: Sequence[Any], merges: bool) -> list[Any]:
        """What comes back to the inputs, part by part, to the tangents and to what is named.

        ``merges``: the rest is for the call, else it comes to the inputs too.
        """
        there = [(t, g) for t, g in zip(self.gradients, cotangents, strict=True) if g is not None]
        roots = [(t.grad_fn, t.output_nr) for t, _ in there]
        ends = [*self.named, *(self.between if merges else ())]
        tangents = [tuple(get_gradient_edge(t)[:2]) for t in self.tangents]
        cut = [*ends, *[edge for edge in tangents if not hasattr(edge[0], "variable")]]
        handles = Cut._ending(dict.fromkeys(cut))
        try:
            parts, found = self._run(roots, [g for _, g in there], [*tangents, *ends])
        finally:
            for handle in handles:
                handle.remove()
        count = len(tangents) + len(self.named)
        if merges:
            left = zip(self.between, found[count:], strict=True)
            call = self.call()
            call.pending = _task(), self, {edge: g for edge, g in left if g is not None}
        split = [[*parts.found[n], *[None] * count][:count] for n, count in self.reads.items()]
        return [*[part for some in split for part in some], *found[:count]]

    def rest(self, given: Sequence[Any], between: Mapping[_Edge, Any]) -> list[Any]:
        """The gradients of the inputs, where results have the ``given``, and what is ``between``
        its own; then parts as a program has them."""
        roots = [(e, g) for e, g in zip(self.results, given, strict=True) if g is not None]
        roots += between.items()
        parts, found = self._run([e for e, _ in roots], [g for _, g in roots], [])
        whole: list[Any] = [None] * len(self.inputs)
        for n, g in zip(self.reads, found, strict=True):
            whole[n] = g
        return parts.instead(whole, self.repeated)

    def _run(
        self, roots: Sequence[_Edge], given: Sequence[Any], ends: Sequence[_Edge]
    ) -> tuple[Parts, list[Any]]:
        """The parts for inputs, and what comes to ``ends``; to the inputs, if there are none."""
        read = {n: self.inputs[n] for n in self.reads}
        outputs = [SimpleNamespace(grad_fn=node) for node, _ in roots]
        parts = Parts(outputs, read)
        wanted = [*[GradientEdge(*edge) for edge in ends], *map(get_gradient_edge, read.values())]
        with torch._C._DisableAutocast(), as_around():
            found = torch.autograd.grad(
                [GradientEdge(*edge) for edge in roots],
                wanted,
                [*given],
                retain_graph=True,
                create_graph=torch.is_grad_enabled(),
                allow_unused=True,
            )
        for handle in parts.handles:
            handle.remove()
        return parts, [*found[: len(ends)]] if ends else [*found]


class Slope(torch.autograd.Function):
    """``apply(run, count, *ends, *gradients)``: the last ``count`` of the tensors."""

    @staticmethod
    def forward(ctx: Any, run: Run, count: int, *tensors: torch.Tensor) -> Any:
        ctx.run, ctx.count = run, count
        ctx.set_materialize_grads(False)
        return tuple([t.detach() for t in tensors[len(tensors) - count :]])

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        run: Run | None = ctx.run
        if run is None:
            raise RuntimeError(FREED)
        call = run.call()
        found = run.back(cotangents, call is not None and _merges(call))
        if not _keeps_graph():
            ctx.run = None
        return (None, None, *found, *(None,) * ctx.count)


directly(Slope)


def _merges(call: Any) -> bool:
    """Whether the backward under way comes to the call yet, and not in stages."""
    if call.of_result is not None or not _goes_to(call):
        return False
    if call.pending is not None and call.pending[0] == _task():
        return False
    gates = call.program.gates
    if gates is None:
        return True
    known = call.task
    if known is not None and known[0] == _task():
        return not known[1]
    return not gates.told(call, sys._getframe(1))


def pending(call: Any) -> Any:
    """What :class:`Slope` has left for the call in the backward under way: a run, and what comes to
    what is between; None if there is nothing."""
    (task, *found), call.pending = call.pending, (_task(),)
    return found if found and task == _task() else None


def joined(
    call: Any,
    inputs: Sequence[Any],
    results: Sequence[torch.Tensor],
    tangents: Sequence[Any],
    found: Sequence[Any],
    own: Mapping[Key, torch.Tensor],
    named: Any,
    repeated: Sequence[int],
) -> list[Any] | None:
    """``found``, gradients (and parts of them), as of one function; None where that cannot be.

    ``inputs``, ``results``: of a run; ``own``: what it has of what the caller may have, and
    ``named(keys)`` what the caller has.
    """
    gradients = [t for t in found if t is not None and t.requires_grad]
    given = {n: t for n, t in enumerate(inputs) if isinstance(t, torch.Tensor) and t.requires_grad}
    edges: dict[_Edge, int] = {tuple(get_gradient_edge(t)[:2]): n for n, t in given.items()}
    leads = [t for t in tangents if isinstance(t, torch.Tensor) and t.requires_grad]
    stops = {node for node, _ in edges} | {get_gradient_edge(t).node for t in leads}
    inner = _nodes(results, stops)
    nodes = [*_nodes(gradients, stops | inner), *inner]
    if any(isinstance(node, _FUNCTION) or hasattr(node, "variable") for node in nodes):
        return None  # it may tell zeros from nothing, or is a leaf that is no input
    if any(t.grad_fn in inner or t.grad_fn in stops for t in gradients):
        return None
    between: dict[_Edge, None] = {}
    reads: Counter[int] = Counter()
    for node in nodes:
        for edge in node.next_functions:
            if edge in edges:
                reads[edges[edge]] += 1
            elif edge[0] in inner and node not in inner:
                between[edge] = None
    keys = {(t.grad_fn, t.output_nr): key for key, t in own.items() if t.grad_fn is not None}
    wanted = [keys[edge] for edge in between if edge in keys]
    known = named(wanted)
    if any(key not in known and call.hooks.get(key[1]) for key in wanted):
        return None  # they are told all the same
    outer = {edge: known[keys[edge]] for edge in between if keys.get(edge) in known}
    run = Run(
        weakref.ref(call),
        gradients,
        [(t.grad_fn, t.output_nr) for t in results],
        [given.get(n) for n in range(len(inputs))],
        leads,
        outer,
        [edge for edge in between if edge not in outer],
        dict(reads),
        repeated,
    )
    ends = [given[n] for n, count in reads.items() for _ in range(count)]
    values = [t.detach() for t in gradients]
    made = iter(Slope.apply(run, len(gradients), *ends, *leads, *outer.values(), *values))
    return [next(made) if t is not None and t.requires_grad else t for t in found]


def _nodes(tensors: Sequence[torch.Tensor], stops: Collection[Any]) -> set[Any]:
    """The functions that autograd comes to from ``tensors``, before it comes to ``stops``."""
    found: set[Any] = set()
    left = [t.grad_fn for t in tensors]
    while left:
        node = left.pop()
        if node is None or node in found or node in stops:
            continue
        found.add(node)
        left += [following for following, _ in node.next_functions]
    return found
