"""What comes back to a call by its results and by gradients with a graph, in one backward.

Eager computes such gradients of the very tensors between inputs and results, so a backward of both
(a loss of a score, and a penalty on the score's slope) adds up at each of these, first what comes
by the gradients, which were made later. The gradients here are of a second run of the graph, whose
tensors only it has (:mod:`refcompiler.aot.runs`). Their function of autograd (:class:`Slope`)
brings what comes by them to the tensors between. Where the same backward comes to the call, or to
gradients that were made before, it goes on there, with what comes to these; else by itself.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Collection, Mapping, Sequence
from types import FrameType
from typing import Any

import torch

from refcompiler.aot.batches import has_batch
from refcompiler.aot.gates import directly
from refcompiler.aot.kept import FREED
from refcompiler.aot.runs import Level, Run, edge_of
from refcompiler.aot.toward import goes_everywhere
from refcompiler.weak import Reference

_task = torch._C._current_graph_task_id
_goes_to = torch._C._will_engine_execute_node
_keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph


class Slope(torch.autograd.Function):
    """``apply(level, inputs, *ends, *gradients)``: the last tensors, as many as the level's.

    ``inputs``: the call's, by number, as references with autograd's functions.
    """

    @staticmethod
    def forward(ctx: Any, level: Level, inputs: Any, *tensors: torch.Tensor) -> Any:
        ctx.level, ctx.inputs = level, inputs
        ctx.materialize_grads = False  # as ``set_materialize_grads``, which is in Python
        found = tuple([t.detach() for t in tensors[len(tensors) - len(level.gradients) :]])
        level.node, level.made = weakref.ref(ctx), [*map(Reference, found)]
        return found

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        level: Level | None = ctx.level
        if level is None:
            raise RuntimeError(FREED)
        run = level.run
        call = None if run.shown else run.call()
        if call is not None and not _merges(call, sys._getframe()):
            call = None
        found, leaves = level.back(cotangents, call)
        if torch.is_grad_enabled():
            if leaves:
                run.show()
            else:
                above = level, *level.above
                found = _sloped(run, _inputs(ctx), cotangents, found, above)
        elif level.saves and not _keeps_graph() and all(g is not None for g in cotangents):
            if goes_everywhere():
                ctx.level = None  # all has run, which a backward that is asked for some does not
        return (None, None, *found, *(None,) * len(level.gradients))


directly(Slope)

_slope = super(torch.autograd.Function, Slope).apply


def gradients(
    run: Run, inputs: Sequence[Any], tangents: Sequence[Any], unwanted: Collection[int]
) -> list[Any]:
    """Those of the call's ``inputs`` but for the ``unwanted``, with a graph; then their parts."""
    with torch.enable_grad():
        found = run.gradients(tangents, unwanted)
    return _sloped(run, {n: inputs[n] for n in run.inputs}, tangents, found, ())


def _sloped(
    run: Run,
    inputs: Mapping[int, torch.Tensor] | None,
    tangents: Sequence[Any],
    found: list[Any],
    above: Sequence[Level],
) -> list[Any]:
    """``found``, gradients (and parts of them), as of one function, if that can be.

    ``inputs``: the call's that the ``run`` reads, by number, if they are known; ``above``: the
    levels that what was found is computed of, beside ``tangents`` and the run.
    """
    made = [t for t in found if t is not None and t.requires_grad]
    if not made:
        return found
    leads = [t for t in tangents if isinstance(t, torch.Tensor) and t.requires_grad]
    known = None
    if inputs is not None and not run.shown and not has_batch(tangents):
        known = Level.of(run, above, made, leads)
    if known is None or inputs is None:
        run.show()
        return found
    level, named = known
    run.levels.append(weakref.ref(level))
    ends = [inputs[n] for n, count in level.reads.items() for _ in range(count)]
    references = {n: (Reference(t), edge_of(t)) for n, t in inputs.items()}
    with torch.enable_grad():
        values = [t.detach() for t in made]
        results = iter(_slope(level, references, *ends, *leads, *named, *values))
    return [next(results) if t is not None and t.requires_grad else t for t in found]


def _inputs(ctx: Any) -> dict[int, torch.Tensor] | None:
    """Those of the call, if each leads where it led."""
    found = {}
    for n, (reference, edge) in ctx.inputs.items():
        t = reference()
        if t is None:
            t = getattr(edge[0], "variable", None)
        if t is None or edge_of(t) != edge:
            return None
        found[n] = t
    return found


def _merges(call: Any, frame: FrameType) -> bool:
    """Whether the backward under way comes to the call yet, and not in stages.

    ``frame``: of the backward of a function, as autograd has called it.
    """
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
    return not gates.told(call, frame)


def pending(call: Any) -> Any:
    """What levels have left for the call in the backward under way: a run, and what comes to what
    is between; None if there is nothing."""
    (task, *found), call.pending = call.pending, (_task(),)
    return found if found and task == _task() else None


def run_of(call: Any) -> Run | None:
    """The second run of a call, if there is one whose gradients may be made once more."""
    run: Run | None = None if call.second_run is None else call.second_run()
    return None if run is None or run.spent or run.shown else run
