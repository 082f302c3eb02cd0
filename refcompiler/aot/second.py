"""Derivatives of gradients that are traced: the backward of a compiled backward, and so on.

Each reads what the forward has saved, and needs no input of the call. What it leads to does: leaves
are found by autograd's own graph, what is saved leads there itself, and of the others a call keeps
tensors of no elements that lead to them (:class:`Ends`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from refcompiler.aot.depends import Chain, Depends
from refcompiler.aot.kept import unpacked, versions_to_keep
from refcompiler.aot.remaining import CHANGED
from refcompiler.aot.twice import TWICE
from refcompiler.aot.wanted import is_asked

_task = torch._C._current_graph_task_id


class Ends(torch.autograd.Function):
    """``apply(*inputs)``: leads to these, for whoever has put ``gradients`` into its node."""

    @staticmethod
    def forward(ctx: Any, *inputs: torch.Tensor) -> torch.Tensor:
        ctx.gradients = None  # the backward under way, and what it brings
        ctx.count = len(inputs)
        ctx.set_materialize_grads(False)
        return torch.empty(0, device=inputs[0].device)

    @staticmethod
    def backward(ctx: Any, _: Any) -> Any:
        known, ctx.gradients = ctx.gradients, None
        if known is None or known[0] != _task():
            return (None,) * ctx.count
        return tuple(known[1])


def ends(places: Sequence[int], inputs: Sequence[Any]) -> list[tuple[list[int], torch.Tensor]]:
    """What leads to those at ``places`` that are no leaves, and which.

    Those with a hook each have their own, or that would be told of what has no gradient.
    """
    chosen = [n for n in places if inputs[n].grad_fn is not None]
    if not chosen:
        return []
    hooked = [n for n in chosen if inputs[n]._backward_hooks]
    groups = [[n] for n in hooked]
    if len(hooked) < len(chosen):
        groups.append([n for n in chosen if n not in hooked])
    with torch.enable_grad():
        return [(group, Ends.apply(*[inputs[n] for n in group])) for group in groups]


@dataclass
class Call:
    """A call whose gradients have derivatives.

    ``missing``: tangents that it is not given; ``values``: what its backward takes, tensors without
    a way on. ``leads``: tensors that lead to inputs, by number; ``ends``: as :func:`ends` says.
    ``results``: references to those with a tangent; ``node``: to the call's function of autograd.
    """

    program: Any
    missing: tuple[int, ...]
    values: list[Any]
    leads: Mapping[int, torch.Tensor]
    ends: Sequence[tuple[list[int], torch.Tensor]]
    results: Sequence[Any]
    node: Any

    def refuse(self, known: Depends | None, numbers: Sequence[int], frame: Any) -> None:
        """What comes back from derivatives to a result that somebody is told of goes past it.

        ``numbers``: the derivatives'. ``frame``: of what has begun the backward under way.
        """
        node = self.node()
        for n, (place, reference) in enumerate(self.results):
            if known is not None and not known.passes([n], numbers):
                continue
            t = reference()
            hooks = (
                t._backward_hooks if t is not None else node is not None and node.hooks.get(place)
            )
            if hooks or t is not None and (t.retains_grad or is_asked(t, frame)):
                raise RuntimeError(TWICE)


def reach(
    program: Any, edges: Sequence[Any], ends: Sequence[Any], arguments: Sequence[Any]
) -> dict[int, torch.Tensor] | None:
    """By number of an input that no ``ends`` lead to, a tensor that leads where it does.

    ``edges``: of those that are tensors, autograd's functions; ``arguments``: what the backward
    takes. None if it cannot be told of one.
    """
    chosen = {n for group, _ in ends for n in group}
    found: dict[int, torch.Tensor] = {}
    for n, (function, _) in zip(program.places, edges, strict=False):
        if function is None or n in chosen:
            continue
        t = getattr(function, "variable", None)
        t = arguments[program.kept_inputs[n]] if t is None and n in program.kept_inputs else t
        if t is None or not t.requires_grad:
            return None
        found[n] = t
    return found


class Derivative(torch.autograd.Function):
    """``apply(call, known, chain, numbers, plan, count, *values)``: the last of these, derivatives.

    ``numbers``: theirs; ``known``: of what they are. ``values``: what the ``count`` gradients were
    that derivatives before were given, without a way on; then what leads on, of which ``plan`` says
    to what: to an input or to a gradient, by number, or to several inputs, a list of these.
    """

    @staticmethod
    def forward(
        ctx: Any,
        call: Call,
        known: Depends | None,
        chain: Chain,
        numbers: Sequence[int],
        plan: Sequence[Any],
        count: int,
        *values: Any,
    ) -> Any:
        ctx.call, ctx.chain, ctx.numbers, ctx.plan = call, chain, numbers, plan
        ctx.known = known
        ctx.count, ctx.total = count, len(values)
        tensors = [t for t in (*call.values, *values[:count]) if isinstance(t, torch.Tensor)]
        ctx.save_for_backward(*tensors)
        ctx.versions = versions_to_keep(tensors)
        ctx.leads = values[count : len(values) - len(numbers)]
        ctx.set_materialize_grads(False)
        return tuple([t.detach() for t in values[len(values) - len(numbers) :]])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        call: Call = ctx.call
        call.refuse(ctx.known, ctx.numbers, sys._getframe(1).f_back)
        pairs = zip(ctx.numbers, gradients, strict=True)
        there = [(n, g) for n, g in pairs if g is not None]
        chain = (*ctx.chain, tuple([n for n, _ in there]))
        with torch._C._DisableAutocast(), torch.no_grad():
            compiled, reads = call.program.second_backward(call.missing, chain)
            values, laid = _read(ctx, reads, _wanted(ctx, len(reads)))
            laid += [g.detach().contiguous() for _, g in there]
            found = [*compiled([*values, *laid])]
        if torch.is_grad_enabled():
            known = {n: t for n, t in zip(ctx.plan, ctx.leads, strict=True) if type(n) is int}
            first = call.program.inputs
            count = len(call.program.differentiable) + sum(map(len, ctx.chain))
            before = [known.get(first + n) for n in range(count)]
            found = derive(call, chain, [*before, *[g for _, g in there]], laid, found)
        result: list[Any] = [None] * (ctx.total + 6)
        for at, (n, lead) in enumerate(zip(ctx.plan, ctx.leads, strict=True), 6 + ctx.count):
            if type(n) is int:
                result[at] = found[n]
            else:
                _bring(lead.grad_fn, [found[each] for each in n])
        return tuple(result)


def _wanted(node: Any, count: int) -> set[int]:
    """Which of ``count`` results of a backward lead on, or are to have derivatives."""
    if torch.is_grad_enabled():
        return set(range(count))
    return {each for n in node.plan for each in ([n] if type(n) is int else n)}


def _read(
    node: Any, reads: Sequence[Collection[int]], wanted: Collection[int]
) -> tuple[list[Any], list[Any]]:
    """The values of the call, and those behind them, that a derivative has saved.

    ``reads``: of each result, what it is computed of. What was written to is an error of a result
    that is ``wanted``; others are computed of what it holds.
    """
    values = [*node.call.values]
    places = [n for n, t in enumerate(values) if isinstance(t, torch.Tensor)]
    places += range(len(values), len(values) + node.count)
    own: set[int] = set().union(*[reads[n] for n in wanted if n < len(reads)])
    needed = {at for at, n in enumerate(places) if n in own}
    raw = node._raw_saved_tensors
    saved = unpacked(raw, needed, node.versions)
    saved = [*node.saved_tensors] if saved is None else saved
    read: set[int] = set().union(*reads)
    for at, (n, t) in enumerate(zip(places, saved)):
        if t is None and n in own:  # by then it was written to
            raise RuntimeError(CHANGED)
        if t is None and n in read:
            saved[at] = t = raw[at].data
        if n < len(values):
            values[n] = t
    return values, saved[len(saved) - node.count :]


_derivative: Callable[..., Any] = super(torch.autograd.Function, Derivative).apply


def _bring(node: Any, gradients: Sequence[Any]) -> None:
    """Put what comes to inputs into the node of their ends, in the backward under way."""
    known = node.gradients
    if known is None or known[0] != _task():
        node.gradients = _task(), [*gradients]
        return
    for n, gradient in enumerate(gradients):
        if gradient is not None:
            own = known[1][n]
            known[1][n] = gradient if own is None else own + gradient


def derive(
    call: Call, chain: Chain, cotangents: Sequence[Any], laid: Sequence[Any], found: Sequence[Any]
) -> list[Any]:
    """``found``, the gradients of a call or derivatives of those, each with the derivative it has.

    ``cotangents``: the gradients that these are of, first those of the results, as they came;
    ``laid``: those that derivatives were given, as they were computed with.
    """
    known: Depends | None = call.program.depends(call.missing, chain)
    numbers = [n for n, g in enumerate(found) if isinstance(g, torch.Tensor)]
    if known is not None:
        depending = known.depending(call.program.inputs, cotangents)
        numbers = [n for n in numbers if depending >> n & 1]
    hooks = [*[t for t in cotangents if t is not None], *call.leads.values()]
    node = call.node()
    apart = len(call.ends) > 1 or any(t._backward_hooks for t in hooks) or node and node.hooks
    result = [*found]
    # Each by itself, where a hook would be told of none by another's way.
    for group in [[n] for n in numbers] if apart else [numbers] if numbers else []:
        plan, leads = _leading(call, known, group, cotangents)
        values = [found[n] for n in group]
        with torch.enable_grad():
            made = _derivative(call, known, chain, group, plan, len(laid), *laid, *leads, *values)
        for n, g in zip(group, made, strict=True):
            result[n] = g
    return result


def _leading(
    call: Call, known: Depends | None, numbers: Sequence[int], cotangents: Sequence[Any]
) -> tuple[list[Any], list[torch.Tensor]]:
    """To what the derivatives with these ``numbers`` lead, and tensors that do."""
    wanted = sum(1 << n for n in numbers)

    def depend(masks: Mapping[int, int], n: int) -> bool:
        return bool(masks.get(n, 0) & wanted)

    first = call.program.inputs
    inputs = {} if known is None else known.inputs
    given = {} if known is None else known.gradients
    found: list[tuple[Any, torch.Tensor]] = [
        (n, t) for n, t in call.leads.items() if known is None or depend(inputs, n)
    ]
    for group, t in call.ends:
        if known is None or any(depend(inputs, n) for n in group):
            found.append((group, t))
    for n, t in enumerate(cotangents, first):
        if isinstance(t, torch.Tensor) and t.requires_grad and (known is None or depend(given, n)):
            found.append((n, t))
    return [to for to, _ in found], [t for _, t in found]


def second(
    call: Call,
    tangents: Sequence[Any],
    gradients: Sequence[Any],
) -> list[Any]:
    """``gradients`` of a call, as they are, with a derivative. ``tangents``: as they came."""
    program = call.program
    found, more = list(gradients[: program.inputs]), list(gradients[program.inputs :])
    for at, n in enumerate(program.reads):
        if found[n] is None:
            found[n], more[at] = more[at], None
    # The derivative is that of the sum of all parts, which autograd adds up: what comes back to one
    # of them comes back to each.
    return [*derive(call, (), tangents, (), found), *more]
