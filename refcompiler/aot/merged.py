"""What comes back to a call by its results and by gradients with a graph, in one backward.

Eager computes such gradients of the very tensors between inputs and results, so a backward of both
(a loss of a score, and a penalty on the score's slope) adds up at each of these, first what comes
by the gradients, which were made later. The gradients here are of a second run of the graph, whose
tensors only it has. Their function of autograd (:class:`Slope`) brings what comes by them to the
tensors between. Where the same backward comes to the call, it goes on there, with what comes to the
results; else it goes on at once.
"""

from __future__ import annotations

import itertools
import sys
import weakref
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from refcompiler.aot.batches import has_batch
from refcompiler.aot.gates import directly
from refcompiler.aot.kept import FREED
from refcompiler.aot.ports import Key
from refcompiler.aot.reads import Parts, saves
from refcompiler.aot.stages import Cut
from refcompiler.aot.wanted import asked, caller
from refcompiler.reentrant import as_around

_task = torch._C._current_graph_task_id
_goes_to = torch._C._will_engine_execute_node
_keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph
_FUNCTION = torch.autograd.function.BackwardCFunction
_Edge = tuple[Any, int]
#: In the place of a backward's number. Autograd comes first to what was made last, as each thread
#: counts it: what a device's thread made, gradients with a graph, may come behind the call.
_NEVER = (-1,)


@dataclass
class Run:
    """A second run, of whose results ``gradients`` with a graph were made.

    All are edges of autograd's graph, since a write to a tensor would give it another one.
    ``call``: a reference to the call's function; ``results``: those with a tangent, in order;
    ``inputs``: by number, of ``count``; ``tangents``: those of the results that require gradients.
    ``named``: where in the run that is of which the caller has his own; ``between``: where else the
    gradients lead to what the results were made of. ``reads``: by input, how often it is read;
    ``repeated``: as a program has it. ``saves``: whether the gradients have saved anything.
    """

    call: Any
    gradients: list[_Edge]
    results: list[_Edge]
    count: int
    tangents: list[_Edge]
    named: list[_Edge]
    between: list[_Edge]
    inputs: dict[int, _Edge]
    reads: dict[int, int]
    repeated: Sequence[int]
    saves: bool
    lead: Any  # has what comes to results go to the call's, by hooks that it returns
    leading: Sequence[Any] = ()  # these
    shown: bool = False  # whether there are gradients with a graph of what it has brought

    def back(self, cotangents: Sequence[Any], merges: bool) -> list[Any]:
        """What comes back to the inputs, part by part, to the tangents and to what is named.

        ``merges``: the rest is for the call, else it comes to the inputs too.
        """
        there = [(e, g) for e, g in zip(self.gradients, cotangents, strict=True) if g is not None]
        roots, given = [edge for edge, _ in there], [g for _, g in there]
        ends = [*self.named, *(self.between if merges else ())]
        handles = Cut._ending(dict.fromkeys(ends))
        try:
            # The call goes on with what is between, or autograd comes there itself.
            keeps = merges or self.shown or _keeps_graph()
            parts, found, _ = self._run(roots, given, [*self.tangents, *ends], keeps)
        finally:
            for handle in handles:
                handle.remove()
        count = len(self.tangents) + len(self.named)
        if merges:
            left = zip(self.between, found[count:], strict=True)
            call = self.call()
            call.pending = _task(), self, {edge: g for edge, g in left if g is not None}
        split = [[*parts.found[n], *[None] * count][:count] for n, count in self.reads.items()]
        return [*itertools.chain.from_iterable(split), *found[:count]]

    def rest(self, given: Sequence[Any], between: Mapping[_Edge, Any]) -> list[Any]:
        """The gradients of the inputs, where results have the ``given``, and what is ``between``
        its own; then parts as a program has them."""
        roots = [(e, g) for e, g in zip(self.results, given, strict=True) if g is not None]
        roots += between.items()
        ends = [edge for edge, _ in roots]
        keeps = self.shown or _keeps_graph()
        parts, _, found = self._run(ends, [g for _, g in roots], [], keeps)
        whole: list[Any] = [None] * self.count
        for n, g in zip(self.reads, found, strict=True):
            whole[n] = g
        return parts.instead(whole, self.repeated)

    def _run(
        self, roots: Sequence[_Edge], given: Sequence[Any], ends: Sequence[_Edge], keeps: bool
    ) -> tuple[Parts, Sequence[Any], Sequence[Any]]:
        """The parts for inputs, what comes to ``ends``, and to the inputs."""
        read = {n: GradientEdge(*self.inputs[n]) for n in self.reads}
        for handle in self.leading:
            handle.remove()
        outputs = [SimpleNamespace(grad_fn=node) for node, _ in roots]
        parts = Parts(outputs, read)
        wanted = [*[GradientEdge(*edge) for edge in ends], *read.values()]
        with torch._C._DisableAutocast(), as_around():
            found = torch.autograd.grad(
                [GradientEdge(*edge) for edge in roots],
                wanted,
                [*given],
                retain_graph=keeps or torch.is_grad_enabled(),
                create_graph=torch.is_grad_enabled(),
                allow_unused=True,
            )
        for handle in parts.handles:
            handle.remove()
        self.shown = self.shown or torch.is_grad_enabled()
        if self.shown:
            self.leading = self.lead()
        return parts, found[: len(ends)], found[len(ends) :]


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
        found = run.back(cotangents, call is not None and not run.shown and _merges(call))
        if run.saves and not _keeps_graph() and all(g is not None for g in cotangents):
            if all(inputs is not None and not inputs for inputs in asked(caller())):
                ctx.run = None  # all has run, which a backward that is asked for some does not
        return (None, None, *found, *(None,) * ctx.count)


directly(Slope)

_slope = super(torch.autograd.Function, Slope).apply


def _merges(call: Any) -> bool:
    """Whether the backward under way comes to the call yet (it may have), and not in stages."""
    if not _goes_to(call):
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
    originals: Sequence[Any],
    inputs: Sequence[Any],
    results: Sequence[torch.Tensor],
    tangents: Sequence[Any],
    found: Sequence[Any],
    own: Mapping[Key, torch.Tensor],
    named: Any,
    repeated: Sequence[int],
    lead: Any,
) -> list[Any] | None:
    """``found``, gradients (and parts of them), as of one function; None where that cannot be.

    ``originals``: the call's inputs; ``inputs``: those of a run, whose ways end there; ``results``:
    of the run; ``own``: what it has of what the caller may have; ``named(keys)``: what he has.
    """
    if has_batch(tangents):
        return None
    gradients = [t for t in found if t is not None and t.requires_grad]
    given = {n: t for n, t in enumerate(inputs) if isinstance(t, torch.Tensor) and t.requires_grad}
    edges = {_edge(t): n for n, t in given.items()}
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
        [_edge(t) for t in gradients],
        [_edge(t) for t in results],
        len(inputs),
        [_edge(t) for t in leads],
        [*outer],
        [edge for edge in between if edge not in outer],
        {n: edge for edge, n in edges.items()},
        dict(reads),
        repeated,
        saves(nodes[: len(nodes) - len(inner)]),
        lead,
    )
    if call.pending is None:
        call.pending = _NEVER  # from now on it tells when it has run
    ends = [originals[n] for n, count in reads.items() for _ in range(count)]
    values = [t.detach() for t in gradients]
    made = iter(_slope(run, len(gradients), *ends, *leads, *outer.values(), *values))
    return [next(made) if t is not None and t.requires_grad else t for t in found]


def _edge(t: torch.Tensor) -> _Edge:
    if not t.requires_grad:
        return None, 0
    edge = get_gradient_edge(t)
    return edge.node, edge.output_nr


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
