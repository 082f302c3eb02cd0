"""The ``torch.autograd.Function`` around a compiled forward and a compiled backward."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from refcompiler.aot.batches import older
from refcompiler.aot.gates import directly, with_hooks
from refcompiler.aot.kept import FREED, set_versions
from refcompiler.aot.merged import pending, rest
from refcompiler.aot.observation import Layout
from refcompiler.aot.program import Program
from refcompiler.aot.refusing import check
from refcompiler.aot.second import Call, ends, reach, second
from refcompiler.aot.sparing import spare
from refcompiler.aot.toward import asks_for_some, goes_everywhere, unasked
from refcompiler.aot.twice import ASKS, derivable, once
from refcompiler.aot.viewed import come
from refcompiler.aot.wanted import inputs_of
from refcompiler.weak import Reference

_VERSION = operator.attrgetter("_version")
_is_view = torch.Tensor._is_view
_hooks = torch._C._autograd._top_saved_tensors_default_hooks
_transformed = torch._C._are_functorch_transforms_active
_ONCE = (
    "Trying to backward an extra time. You are only allowed to backward once on any region "
    "computed under selective activation checkpoint."
)


#: Whether the backward that runs now may run again.
keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph
_task = torch._C._current_graph_task_id
NOTHING: tuple[int, Sequence[Any]] = -1, ()
BOXED = hasattr(torch.autograd.Function, "boxed_grads_call")  # torch 2.11 has not


class Compiled(torch.autograd.Function):
    """``apply(program, *inputs)``: the first ``program.outputs`` results.

    ``apply((program, *tensors), *inputs)``: ``tensors`` are the caller's own, where for those that
    ``program.derivable.replaced`` says the inputs are others (detached, or without bits).
    """

    boxed_grads_call = True  # gradients come in a list, so that they can be freed

    @staticmethod
    def forward(ctx: Any, program: Any, *inputs: Any) -> Any:
        originals: Sequence[torch.Tensor] = ()
        if type(program) is tuple:
            program, *originals = program
        if program.repeated:
            inputs = inputs[: program.inputs]
        if program.draws:
            ctx.state = torch.get_rng_state()
        if program.open:
            ctx.ends = ends(program.open, inputs)
        results = program.forward([*inputs]) if program.boxed else program.forward(*inputs)
        if program.numbered:  # before anything is saved, which keeps its version
            set_versions(tuple([results[n] for n in program.numbered]), program.versions)
        count, end = program.outputs, program.end
        # A view of what the graph made could not be written to, as eager's result can.
        outputs = tuple(results[: count - program.counted] if program.counted else results[:count])
        if any(map(_is_view, outputs)):
            outputs = tuple([t.detach() if t._is_view() else t for t in outputs])
        kept = results[count:end]
        if type(kept) is not list:
            kept = [*kept]
        for n in program.own:
            kept[n] = kept[n].detach()
        known = None
        if _hooks(False) is None:
            try:
                ctx.versions = [*map(_VERSION, kept[: program.shared])]
                ctx.kept = known = kept
                if program.told_of is not None:
                    program.told_of.note(ctx, inputs, outputs)
            except RuntimeError:  # made in inference mode, which autograd refuses to save
                ctx.save_for_backward(*kept)
        else:
            for n in program.passing:
                kept[n] = kept[n].detach()
            if program.unhooked:
                ctx.currents = [kept[n] for n in program.unhooked]
                for n in program.unhooked:
                    kept[n] = None
            ctx.hooked_tensors = True
            ctx.saved_layouts = [t if t is None else Layout.of(t) for t in kept]
            ctx.save_for_backward(*kept)
        if program.numbers:
            ctx.numbers, known = results[end:], None
        ctx.program = program
        if program.derivable is not None:
            ctx.noted = program.derivable.note(inputs, originals, known)
        if program.derivable is not None or program.second_for is not None:
            ctx.returned = [*map(Reference, outputs)]
        if program.symbolic:
            tangents = program.tangents[: len(program.results)]
            layouts = [each or Layout.of(outputs[at]) for _, at, _, each in tangents]
            ctx.tangents = [
                (n, at, layout.stride, layout) for (n, at, _, _), layout in zip(tangents, layouts)
            ]
            ctx.tangents += program.tangents[len(tangents) :]  # of views, which know how they lie
        constant: Sequence[int] = program.constant
        ctx.materialize_grads = False  # as ``set_materialize_grads``, which is in Python
        if program.unseen and ctx.hooked_tensors:  # whose hooks may end the call behind this
            outputs = program.written(inputs, outputs)
            constant = [n for n in constant if outputs[n] is not None]
        if constant:
            ctx.mark_non_differentiable(*[outputs[n] for n in constant])
        return (*outputs, *results[count - program.counted : count]) if program.counted else outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        given: list[Any] = gradients[0] if BOXED else list(gradients)
        program: Program = ctx.program
        if program.viewed and len(given) == program.outputs:
            given += come(ctx)
        if program.refused:
            check(ctx, program.refused, program.asked(given), inputs_of(ctx), program.places)
        if ctx.joined is not None:
            ctx.joined.begin(given)
        merged = None if ctx.pending is None else pending(ctx)
        if merged is None and ctx.spared is not None and ctx.spared == _task():
            if all(g is None for g in given):
                return (None,) * (program.inputs + program.repeated + 1)
        absent = tuple(map(operator.is_, given, program.nothing))
        coming = program.comings.get(absent) or program.coming(absent)
        if coming.spared:
            spare(inputs_of(ctx), program.places, coming.spared)
        grows = torch.is_grad_enabled()  # create_graph
        known_task = ctx.task
        if known_task is not None and known_task[1] and known_task[0] == _task():  # in stages
            assert program.gates is not None
            if grows:
                return (None, *program.gates.last(ctx, given))
            program = program.gates.stages.rest
            coming = program.comings.get(absent) or program.coming(absent)
        unwanted: Sequence[int] = ()
        certain = program is ctx.program and not goes_everywhere()  # asked for certain gradients
        certain = certain and (program.part_for is not None or bool(program.partly))
        if certain and asks_for_some(program.gradients):
            unwanted = unasked(inputs_of(ctx), program.places)
            program = program.without(unwanted)
        if ctx.once:
            _passes_once(ctx, program.asked(given))
        frees = program.saves and not keeps_graph()
        if merged is not None and len(coming.missing) == len(program.differentiable):
            frees = False
        kept, versions = ctx.kept, ctx.versions
        left, spent = None, 0
        if (
            kept is None
            or ctx.hooked_tensors
            or [*map(_VERSION, kept[: len(versions)])] != versions
        ):
            if certain and not unwanted:
                unwanted = unasked(inputs_of(ctx), program.places)
                program = program.without(unwanted)
            if ctx.program.runs_nothing(ctx, given, unwanted):
                return (None,) * (program.inputs + program.repeated + 1)
            if unwanted:
                coming = program.coming(tuple(map(operator.is_, given, program.nothing)))
            arguments, left, spent = program.taken(ctx, program.asked(given))
            versions, ctx.unpacked = None, NOTHING
        elif frees and not ctx.numbers:
            arguments = kept
        else:
            arguments = [*ctx.numbers, *kept]
        if ctx.tellers and [*map(_VERSION, ctx.tellers)] != ctx.told:
            ctx.program.check_since(ctx, given)
        kept = None  # so that the backward frees what it has read
        if program.selective:
            _runs_once(ctx, program, program.asked(given))
        graph = None
        if grows or program.asking or merged is not None:
            graph = _Graph(ctx, program, arguments, given, unwanted)
        if frees:
            ctx.kept = None
            if ctx.hooked_tensors:
                ctx.maybe_clear_saved_tensors()
        casts = torch._C._is_any_autocast_enabled()
        if not casts and not _transformed() and not older() and coming.lie(given):
            missing = coming.missing
            arguments += coming.pick(given)
            known = program.compiled.get(missing)
        else:
            missing, known = program.take(ctx, arguments, given, casts)
        if frees and (missing or left or program.releases):
            whole: Program = ctx.program  # in stages, too: of what the others' ways need
            ctx.left = whole.left(missing, arguments, spent, versions) if missing else None
            if not missing and program.releases:
                ctx.noted = (), (), ()  # as what was saved it is needed no more
        if graph is not None:
            found = graph.gradients(missing, merged)
            if found is not None:
                return (None, *found)
        given.clear()
        if program.rewrites and ctx.joined is not None and ctx.joined.recomputed is not None:
            for n, value in ctx.joined.recomputed.before().items():
                arguments[program.numbers + program.currents[n]] = value.clone()
        call = known or program.backward_for(missing)
        if grows:
            assert graph is not None
            return (None, *graph.compiled(call, arguments))
        if casts:  # which are in the graph
            with torch._C._DisableAutocast():
                return (None, *call(arguments))
        return (None, *call(arguments))


def _passes_once(ctx: Any, asked: int) -> None:
    """Raise where one of the tangents ``asked`` that may come once has come before."""
    passing = asked & ctx.once
    if passing & ctx.gone:
        raise RuntimeError(FREED)
    if not keeps_graph():
        ctx.gone |= passing


def _runs_once(ctx: Any, program: Program, asked: int) -> None:
    """The same of what is under selective activation checkpoint."""
    before = ctx.asked
    if program.shares.once(asked, before):
        raise RuntimeError(_ONCE)
    ctx.asked = asked | before


class _Graph:
    """What a backward gives by autograd's own functions, and not by a compiled backward.

    That is one with a graph, one to which a gradient with a graph has brought what is between, and
    one of outputs for which nothing else has the derivative. ``taken``: what the forward saved.
    """

    def __init__(
        self,
        ctx: Any,
        program: Program,
        arguments: Sequence[Any],
        given: Sequence[Any],
        unwanted: Sequence[int],
    ):
        self.ctx, self.program, self.unwanted = ctx, program, unwanted
        self.taken, self.given = [*arguments], [*given]
        self.edges = inputs_of(ctx)
        self.last = [given[at] for at in program.differentiable]
        self.again, self.originals = program.derivable, None
        if self.again is not None:
            known = self.edges, ctx.noted, program.inputs, arguments
            self.originals = self.again.inputs(*known)
        #: What has a derivative, of all that the gradients are made of.
        self.read: Sequence[torch.Tensor] = ()
        self.grows = torch.is_grad_enabled()
        if self.grows:
            self.read = [*filter(_tracked, (*arguments, *given)), *_leaves(self.edges)]

    def gradients(self, missing: Sequence[int], merged: Any) -> Sequence[Any] | None:
        """Those of a second run; None where the compiled backward is to run."""
        if merged is not None:
            run, came = merged
            return rest(run, self.originals, self.last, came)
        program, again, originals = self.program, self.again, self.originals
        if self.grows and again is not None and originals is not None:
            joined = program.joined(self.ctx, self.taken)
            own = joined, program.results, self.unwanted
            return derivable(again, originals, self.last, self.ctx.state, *own)
        if missing and program.asking and program.runs_again(tuple(missing)):
            if self.grows or again is None or originals is None:
                raise RuntimeError(ASKS)
            how = self.last, self.ctx.state
            found = derivable(again, originals, *how, unwanted=self.unwanted)
            return [g if g is None else g.detach() for g in found]
        return None

    def compiled(self, call: Callable[..., Any], arguments: list[Any]) -> Sequence[Any]:
        """Those of the compiled backward, whose own derivative is compiled if it can be."""
        ctx, program = self.ctx, self.program
        with torch._C._DisableAutocast(), torch.no_grad():
            gradients = call(arguments)
        reached = None
        if program.second_for is not None:
            reached = reach(program, self.edges, ctx.ends, self.taken)
        if reached is None:
            return once(gradients, self.read)
        missing, laid = program.plainly(ctx, self.given)
        written = {} if program.gates is None else program.gates.written(ctx)
        results = [
            (at, written.get(program.new_values.get(at), ctx.returned[at]))
            for at in program.results
        ]
        values = [t.detach() if isinstance(t, torch.Tensor) else t for t in (*self.taken, *laid)]
        derived = Call(program, missing, values, reached, ctx.ends, results, weakref.ref(ctx))
        return second(derived, self.last, gradients)


def with_state(function: Any) -> None:
    """What most calls of a function around :class:`Compiled` have nothing for, as of its class."""
    node = function._backward_cls
    node.hooked_tensors = False  # whether hooks pack what is saved, which may lie otherwise
    node.kept = node.numbers = ()  # what the backward takes; None: it is freed
    node.versions = []  # of the first that are kept, which others may write to
    node.tellers = node.told = ()  # of writes to others that eager asks for, and their versions
    node.unpacked = NOTHING  # by hooks, in the stages of the backward with this number
    node.currents = ()  # where hooks have what is saved: what is not
    node.state = None  # of the generator that the forward draws from
    node.spent = 0  # tangents of what a backward has freed that raised
    node.left = None  # behind a backward of some outputs, for the others
    node.once = node.gone = 0  # tangents that may come once, and those of them that have
    node.asked = 0  # the tangents of backwards so far, where a part may run once
    node.ends = ()  # what leads to inputs that nothing keeps
    node.edges = None  # what gives autograd's functions of the inputs, if it is not their node
    node.task = None  # of gates: the backward under way, and whether it is in stages
    node.again = None  # of gates: the run of the graph that a backward with a graph goes through
    node.hooks = {}  # on results, by number
    node.spared = None  # the backward to which a port leads that brings nothing
    node.came = NOTHING  # to views, by their numbers, in the backward with this number
    node.pending = None  # what a backward brings to what is between, with the backward's number
    node.second_run = None  # a reference to that of the graph, if gradients with a graph are of it
    node.joined = None  # with the runs of the graph that gradients with a graph are computed by
    node.returned = ()  # what refers to results, as far as they are the caller's
    node.goes = None  # whether a backward goes to what a view leads to, if it is not their node
    node.of_result = None  # what gives autograd's function of a result, if it is not their node


with_hooks(Compiled)
with_state(Compiled)
directly(Compiled)

#: Without the question in Python whether a transformation of ``torch.func`` is under way.
apply: Callable[..., Any] = super(torch.autograd.Function, Compiled).apply


def _tracked(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _leaves(edges: Sequence[Any]) -> list[torch.Tensor]:
    """The leaves that gradients by ``edges`` reach, which may not be among what was saved."""
    found: dict[int, torch.Tensor] = {}
    seen = set()
    left = [node for node, _ in edges]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        left += [following for following, _ in node.next_functions]
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            found[id(leaf)] = leaf
    return list(found.values())
