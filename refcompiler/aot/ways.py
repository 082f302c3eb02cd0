"""Calls with several ways from the results to the inputs, each a function of autograd of its own.

Autograd goes from a function to all that it was given, with or without a gradient, and frees what
it comes to. So one function for all results would take the losses of a generator and of a
discriminator past each other's inputs, whose own functions the other loss then finds freed, and
would call hooks there. Where that can be seen (an input that not all results lead to has a function
or a hook), a call has a function for each set of results that lead to the same inputs
(:class:`Results`), and one for each set of such inputs (:class:`Inputs`).

The backward is one still. Autograd runs what was made last first, so all results have theirs by the
time that it comes to the first of the inputs, which runs the backward for all. A result whose
gradient comes later (from functions that another thread or device made) has a run of its own.

A backward that is asked for some inputs frees in eager what is on the ways to these. Here it frees
nothing then, as it goes past what others need.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge

from refcompiler.aot.function import BOXED, Compiled, keeps_graph, with_state
from refcompiler.aot.gates import PROBE, with_hooks
from refcompiler.aot.kept import kept_by
from refcompiler.aot.ports import RESULT
from refcompiler.aot.program import Program
from refcompiler.aot.viewed import come
from refcompiler.aot.wanted import goes_to
from refcompiler.weak import Reference

_task = torch._C._current_graph_task_id
_TASKS = 8  # backwards within backwards of one call; what an error has left goes


@dataclass
class Ways:
    """``base``: numbers of the inputs that all results lead to, or none notices; ``tensors``: those
    of them that are no numbers. ``groups``: of the others, those that the same results lead to.
    ``ends``: of the results, those that lead to the same groups, and which; in eager the backward
    comes to the last of them first, and to all of one next to each other."""

    base: tuple[int, ...]
    tensors: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    ends: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]

    @classmethod
    def of(cls, program: Program, active: Sequence[int], inputs: Sequence[Any]) -> Ways:
        by_mask: dict[int, list[int]] = {}
        for n in active:
            by_mask.setdefault(program.partly[n], []).append(n)
        ends = {
            place: tuple([n for n, mask in enumerate(by_mask) if mask >> bit & 1])
            for bit, place in enumerate(program.results)
        }
        # Autograd runs what was made last first.
        places = sorted(ends, key=lambda n: program.turns.get(n, 0), reverse=True)
        parts = [(tuple(part), groups) for groups, part in itertools.groupby(places, ends.get)]
        base = tuple([n for n in range(len(inputs)) if n not in active])
        return cls(
            base,
            tuple([n for n in base if isinstance(inputs[n], torch.Tensor)]),
            tuple([tuple(sorted(group)) for group in by_mask.values()]),
            tuple(parts),  # type: ignore[arg-type]
        )


@dataclass
class _Task:
    """A backward under way: gradients of the results, then of the inputs."""

    given: list[Any]
    results: set[Any] = field(default_factory=set)  # whose functions have run
    waits: bool = True  # whether ``given`` has any that no run has had
    gradients: list[Any] | None = None
    left: int = 0  # functions of inputs that are to come for theirs


@dataclass
class _Unfreed:
    """What is kept of saved tensors for results whose gradients come later in the same backward."""

    tensors: Sequence[Any]
    spent: int

    def take(self, asked: int) -> Sequence[Any]:
        return self.tensors


class Whole(torch.autograd.Function):
    """The compiled function of a call, on the way of all results; the ``base`` inputs are its own.

    ``apply(into, program, inputs, *base, probe)``: itself and the results, in the list ``into``.
    """

    @staticmethod
    def forward(ctx: Any, into: list[Any], program: Any, inputs: Any, *base: Any) -> Any:
        results = Compiled.forward(ctx, program, *inputs)
        ctx.tasks = {}
        ctx.device = results[ctx.program.differentiable[0]].device
        into += ctx, results
        return _mark(ctx)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        return (None, None, None, *_gradients(ctx, ctx.plan.base), None)


class Inputs(torch.autograd.Function):
    """``apply(call, places, *inputs)``: those of one group, ``places`` among the call's."""

    @staticmethod
    def forward(ctx: Any, call: Any, places: Sequence[int], *inputs: Any) -> Any:
        ctx.call, ctx.places = call, places
        ctx.set_materialize_grads(False)
        return _mark(call)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        return (None, None, *_gradients(ctx.call, ctx.places))


class Results(torch.autograd.Function):
    """``apply(call, places, results, *marks)``: the results, which lead to the marks' functions."""

    boxed_grads_call = True

    @staticmethod
    def forward(
        ctx: Any, call: Any, places: Sequence[int], results: Sequence[Any], *marks: Any
    ) -> Any:
        ctx.call, ctx.results, ctx.marks = call, places, len(marks)
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        given: list[Any] = gradients[0] if BOXED else list(gradients)
        tasks, number = ctx.call.tasks, _task()
        task = tasks.get(number)
        if task is None:
            if len(tasks) == _TASKS:
                del tasks[next(iter(tasks))]
            task = tasks[number] = _Task([None] * ctx.call.program.outputs)
        for place, gradient in zip(ctx.results, given, strict=True):
            task.given[place] = gradient
        given.clear()
        task.results.add(ctx)
        task.waits = True
        return (None,) * (ctx.marks + 3)


with_hooks(Results)
with_state(Whole)

_whole = super(torch.autograd.Function, Whole).apply
_inputs = super(torch.autograd.Function, Inputs).apply
_results = super(torch.autograd.Function, Results).apply


def apart(program: Any, *inputs: Any) -> list[Any]:
    """As :data:`refcompiler.aot.function.apply`, with a function of autograd for each way."""
    own: Program = program[0] if type(program) is tuple else program
    active = tuple([n for n in own.partly if inputs[n].grad_fn or _is_hooked(inputs[n])])
    plan = own.ways.get(active)
    if plan is None:
        plan = own.ways[active] = Ways.of(own, active, inputs)
    made: list[Any] = []
    mark = _whole(made, program, inputs, *[inputs[n] for n in plan.base], PROBE)
    call, results = made[0], [*made[1]]
    marks = [_inputs(call, places, *[inputs[n] for n in places]) for places in plan.groups]
    call.plan, call.edges, call.of_result, call.goes = plan, _edges, _of_result, _goes
    call.groups = [each.grad_fn and weakref.ref(each.grad_fn) for each in marks]
    call.given = [Reference(inputs[n]) for places in plan.groups for n in places]
    call.finals = []
    for places, groups in plan.ends:
        # Detached, as what was saved must not keep the function that keeps it.
        given = tuple([results[n].detach() for n in places])
        found = _results(call, places, given, mark, *[marks[n] for n in groups])
        call.finals.append(weakref.ref(found[0].grad_fn))
        for n, t in zip(places, found, strict=True):
            results[n] = t
            if call.returned:
                call.returned[n] = Reference(t)
    return results


def _is_hooked(t: torch.Tensor) -> bool:
    return bool(t._backward_hooks or t._post_accumulate_grad_hooks)


def _mark(call: Any) -> torch.Tensor:
    """What leads to a function: of no elements, and where the results are, or another thread would
    run it."""
    return torch.empty(0, device=call.device)


def _gradients(call: Any, places: Sequence[int]) -> list[Any]:
    """Those of the inputs at ``places``, in the backward under way."""
    task: _Task = call.tasks[_task()]
    if task.waits:
        _run(call, task)
    assert task.gradients is not None
    found = [task.gradients[n] for n in places]
    for n in places:
        task.gradients[n] = None
    task.left -= 1
    if not task.left:
        del call.tasks[_task()]
    return found


def _run(call: Any, task: _Task) -> None:
    """The backward for the gradients that are there."""
    program: Program = call.program
    given, task.given, task.waits = task.given, [None] * program.outputs, False
    given += come(call)
    late = None
    if any(end not in task.results and goes_to(end) for end in _alive(call.finals)):
        left = call.left
        spent = program.asked(given) | (left.spent if left else 0)
        kept = left.tensors if left else kept_by(call)
        late = _Unfreed(kept, spent)
    known = call.kept, call.left, call.gone
    whole = _goes_everywhere(call, given)
    if not whole and call.kept is not None:  # the backward empties what it is given
        call.kept = [*call.kept]
    found = Compiled.backward(call, given) if BOXED else Compiled.backward(call, *given)
    gradients = found[1:]
    if not whole and not call.hooked_tensors:
        call.kept, call.left, call.gone = known
    elif late is not None and not keeps_graph():
        call.left = late
    if task.gradients is None:
        task.gradients = [*gradients]
        task.left = 1 * goes_to(call) + sum(map(goes_to, _alive(call.groups)))
        return
    for n, gradient in enumerate(gradients):
        if gradient is not None:
            before = task.gradients[n]
            task.gradients[n] = gradient if before is None else before + gradient


def _goes_everywhere(call: Any, given: Sequence[Any]) -> bool:
    """Whether the backward under way goes to all inputs that those results lead to which have a
    gradient."""
    plan, program = call.plan, call.program
    there = {n for n in program.results if given[n] is not None}
    views = zip(program.viewed, given[program.outputs :], strict=True)
    there.update(n for (kind, n), g in views if kind == RESULT and g is not None)
    parts = [part for places, part in plan.ends if not there.isdisjoint(places)]
    groups = {n for part in parts for n in part}
    *base, _ = call.next_functions  # the last is the probe's
    ends = [call] if any(node is not None for node, _ in base) else []
    return all(map(goes_to, (*ends, *_alive([call.groups[n] for n in groups]))))


def _edges(call: Any) -> list[Any]:
    """Of the inputs that are tensors, autograd's functions, as far as they are there."""
    plan: Ways = call.plan
    found = dict(zip(plan.tensors, call.next_functions, strict=False))
    given = iter(call.given)
    for places, reference in zip(plan.groups, call.groups, strict=True):
        node = reference and reference()
        tensors = [next(given)() for _ in places]
        if node is not None:
            found.update(zip(places, node.next_functions, strict=True))
            continue
        for n, t in zip(places, tensors, strict=True):
            tracked = t is not None and t.requires_grad
            found[n] = get_gradient_edge(t)[:2] if tracked else (None, 0)
    return [found[n] for n in sorted(found)]


def _of_result(call: Any, place: int) -> Any:
    plan: Ways = call.plan
    ends = zip(plan.ends, call.finals, strict=True)
    return next((final() for (places, _), final in ends if place in places), None)


def _goes(number: int, call: Any) -> bool:
    """Whether a backward that comes to a view goes on from what it is of, which runs the call's."""
    kind, n = call.program.viewed[number]
    if kind == RESULT:
        return True
    for places, reference in zip(call.plan.groups, call.groups, strict=True):
        if n in places:
            return any(map(goes_to, _alive([reference])))
    return goes_to(call)


def _alive(references: Sequence[Any]) -> list[Any]:
    return [node for each in references if each is not None and (node := each()) is not None]
