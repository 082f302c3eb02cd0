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
from collections.abc import Callable, Collection, Mapping, Sequence
from types import FrameType
from typing import Any

import torch

from refcompiler.aot.batches import has_batch
from refcompiler.aot.gates import directly
from refcompiler.aot.kept import FREED
from refcompiler.aot.runs import Edge, Left, Level, Run, edge_of
from refcompiler.aot.toward import goes_everywhere
from refcompiler.weak import Reference

_task = torch._C._current_graph_task_id
_goes_to = torch._C._will_engine_execute_node
_keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph
_NOTHING = Left({})
#: In the place of a backward's number. Autograd comes first to what was made last, as each thread
#: counts it: what a device's thread made, gradients with a graph, may come behind the call.
_NEVER = (-1,)
_REFUSED = (
    "gradients with a graph, of gradients that have one and of results of the same compiled graph, "
    "have no derivative here, as a result that nobody has any more has a hook. Compute it "
    "uncompiled (torch.compiler.disable or backend='eager')"
)


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
        run, came = level.run, level.left()
        level.ran = _task()
        call = None if run.shown else run.call()
        if call is not None and not _merges(call, run, sys._getframe()):
            call = None
        later = [] if run.shown else [each for each in run.coming() if each.number < level.number]
        leaves = bool(later) or call is not None
        above = level, *level.above
        known = _inputs(ctx) if torch.is_grad_enabled() else None

        def back(given: Sequence[Any]) -> tuple[list[Any], Mapping[Edge, Any]]:
            return level.back(given, came, later, leaves)

        found, left = _sloped(run, known, cotangents, back, above, came)
        if not (torch.is_grad_enabled() or _keeps_graph()) and goes_everywhere():
            if all(g is not None for g in cotangents) and level.saves:
                ctx.level = None  # all has run, which a backward that is asked for some does not
        if later:
            level.leave(left, later)
        elif call is not None:
            _leave(call, run, left)
        return (None, None, *found, *(None,) * len(level.gradients))


directly(Slope)

_slope = super(torch.autograd.Function, Slope).apply


def gradients(
    run: Run, inputs: Sequence[Any], tangents: Sequence[Any], unwanted: Collection[int]
) -> list[Any] | None:
    """Those of the call's ``inputs`` but for the ``unwanted``, with a graph; then their parts.

    None: they cannot be as of one function.
    """
    with torch.enable_grad():
        own, ends = _closed(tangents)
        known = {n: inputs[n] for n in run.inputs}
        made = _level(run, known, ends, run.gradients(own, unwanted), {}, (), _NOTHING)
    return None if made is None else made[0]


def rest(run: Run, inputs: Sequence[Any] | None, tangents: Sequence[Any], came: Left) -> list[Any]:
    """The gradients of a call's ``inputs``, and their parts, behind those of a run.

    ``came``: what these have left. They have a graph where gradients are on; ``inputs``: None if
    they are not known.
    """

    def back(given: Sequence[Any]) -> tuple[list[Any], Mapping[Edge, Any]]:
        return run.rest(given, came.values), {}

    known = None if inputs is None else {n: inputs[n] for n in run.inputs}
    return _sloped(run, known, tangents, back, (), came)[0]


def _sloped(
    run: Run,
    inputs: Mapping[int, torch.Tensor] | None,
    tangents: Sequence[Any],
    back: Callable[[Sequence[Any]], tuple[list[Any], Mapping[Edge, Any]]],
    above: Sequence[Level],
    came: Left,
) -> tuple[list[Any], Left]:
    """Gradients that ``back(tangents)`` gives, as of one function if they have a graph, and what it
    leaves to others.

    ``inputs``: the call's that the ``run`` reads, by number, if they are known; ``above``: the
    levels that what was found is computed of, beside ``tangents``, what ``came``, and the run.
    """
    if not torch.is_grad_enabled():
        found, values = back(tangents)
        return found, Left(values)
    if inputs is not None and not run.shown and not has_batch(tangents):
        own, ends = _closed(tangents)
        made = _level(run, inputs, ends, *back(own), above, came)
        if made is not None:
            return made
    if came.levels or came.tangents:
        raise RuntimeError(_REFUSED)
    run.show()
    found, values = back(tangents)
    return found, Left(values)


def _closed(tangents: Sequence[Any]) -> tuple[list[Any], dict[Edge, torch.Tensor]]:
    """Others in their places, at which ways end, since the caller's lead on; and these by edges."""
    own = [t.detach().requires_grad_() if _tracked(t) else t for t in tangents]
    return own, {edge_of(t): g for t, g in zip(own, tangents, strict=True) if _tracked(t)}


def _level(
    run: Run,
    inputs: Mapping[int, torch.Tensor],
    tangents: Mapping[Edge, torch.Tensor],
    found: list[Any],
    values: Mapping[Edge, Any],
    above: Sequence[Level],
    came: Left,
) -> tuple[list[Any], Left] | None:
    """What was ``found`` as of one function, and what is left: ``values``; None: it cannot be.

    ``tangents``: the caller's, by the edges where ways end.
    """
    levels = tuple(sorted({*above, *came.levels}, key=lambda level: -level.number))
    ends = {**tangents, **came.tangents}
    for level in levels:
        ends |= level.tangents
    made = [t for t in found if t is not None and t.requires_grad]
    if not made:
        return found, Left(values, levels, ends)
    others = [t for t in values.values() if t.requires_grad]
    known = Level.of(run, levels, made, ends, others)
    if known is None:
        return None
    level, slots = known
    run.levels.append(weakref.ref(level))
    given = [inputs[n] for n, count in level.reads.items() for _ in range(count)]
    references = {n: (Reference(t), edge_of(t)) for n, t in inputs.items()}
    given += slots
    results = iter(_slope(level, references, *given, *[t.detach() for t in made]))
    call = run.call()
    if call is not None and call.pending is None:
        call.pending = _NEVER  # from now on it tells when it has run
    own = [next(results) if t is not None and t.requires_grad else t for t in found]
    return own, Left(values, (level, *levels))


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


def _merges(call: Any, run: Run, frame: FrameType) -> bool:
    """Whether the backward under way comes to the call yet (it may have), and not in stages, and no
    other ``run`` has left anything there.

    ``frame``: of the backward of a function, as autograd has called it.
    """
    if not _goes_to(call):
        return False
    if call.pending is not None and call.pending[0] == _task():
        return len(call.pending) > 1 and call.pending[1] is run
    gates = call.program.gates
    if gates is None:
        return True
    known = call.task
    if known is not None and known[0] == _task():
        return not known[1]
    return not gates.told(call, frame)


def _leave(call: Any, run: Run, left: Left) -> None:
    """Leave something for the call, where on a device another level may have before."""
    if call.pending is not None and call.pending[0] == _task():
        left = call.pending[2].with_(left)
    call.pending = _task(), run, left


def pending(call: Any) -> Any:
    """What levels have left for the call in the backward under way: a run, and what comes to what
    is between; None if there is nothing."""
    (task, *found), call.pending = call.pending, (_task(),)
    return found if found and task == _task() else None


def run_of(call: Any) -> Run | None:
    """The second run of a call, if there is one whose gradients may be made once more."""
    run: Run | None = None if call.second_run is None else call.second_run()
    return None if run is None or run.spent or run.shown else run


def _tracked(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad
