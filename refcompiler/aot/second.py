"""Second derivatives that are traced: the backward of a compiled backward, compiled.

It reads what the forward has saved, and needs no input of the call. What it leads to does: leaves
are found by autograd's own graph, what is saved leads there itself, and of the others a call keeps
a tensor of no elements that leads to them (:class:`Ends`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from refcompiler.aot.twice import THRICE, once

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


def ends(places: Sequence[int], inputs: Sequence[Any]) -> Any:
    """What leads to those at ``places`` that are no leaves, and which; None if all are.

    Also where one has a hook, which would be told of what has no gradient.
    """
    chosen = [n for n in places if inputs[n].grad_fn is not None]
    if not chosen or any(inputs[n]._backward_hooks for n in chosen):
        return None
    with torch.enable_grad():
        return chosen, Ends.apply(*[inputs[n] for n in chosen])


def reach(
    program: Any, edges: Sequence[Any], ends: Any, arguments: Sequence[Any]
) -> list[Any] | None:
    """By input: a tensor that leads where it does, the number that it has in ``ends``, or None.

    ``edges``: of those that are tensors, autograd's functions; ``arguments``: what the backward
    takes. None if it cannot be told of one.
    """
    chosen = ends[0] if ends is not None else ()
    found: list[Any] = []
    leading = dict(zip(program.places, edges, strict=False))
    for n in range(program.inputs):
        function, _ = leading.get(n, (None, 0))
        if function is None:
            found.append(None)
        elif n in chosen:
            found.append(chosen.index(n))
        else:
            t = getattr(function, "variable", None)
            t = arguments[program.kept_inputs[n]] if t is None and n in program.kept_inputs else t
            if t is None or not t.requires_grad or t._backward_hooks:
                return None  # a hook would be told of what has no gradient
            found.append(t)
    return [*found, ends and ends[1]]


class Second(torch.autograd.Function):
    """``apply(program, reached, missing, places, count, *saved, *tensors)``: the last, gradients.

    ``saved``: the ``count`` arguments of the backward; ``tensors``: what leads to inputs and what
    the tangents are, then the gradients of the inputs at ``places``.
    """

    @staticmethod
    def forward(
        ctx: Any,
        program: Any,
        reached: Sequence[Any],
        missing: tuple[int, ...],
        places: Sequence[int],
        count: int,
        *values: Any,
    ) -> Any:
        ctx.program, ctx.missing, ctx.places = program, missing, places
        ctx.count, ctx.total = count, len(values)
        ctx.known = [None if isinstance(t, torch.Tensor) else (t,) for t in values[:count]]
        ctx.save_for_backward(*[t for t in values[:count] if isinstance(t, torch.Tensor)])
        #: Where what comes back to each input goes: to an argument, or into the node of the ends.
        *ctx.targets, last = reached
        ctx.ends = last.grad_fn if last is not None else None
        #: What a third derivative, which there is not, would lead to.
        ctx.read = [t for t in values[count : len(values) - len(places)] if _tracked(t)]
        ctx.set_materialize_grads(False)
        return tuple([t.detach() for t in values[len(values) - len(places) :]])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        saved = iter(ctx.saved_tensors)
        program = ctx.program
        arguments = [next(saved) if known is None else known[0] for known in ctx.known]
        pairs = zip(ctx.places, gradients, strict=True)
        there = [(n, g.contiguous()) for n, g in pairs if g is not None]
        with torch._C._DisableAutocast(), torch.no_grad():
            call = program.second_backward(ctx.missing, tuple([n for n, _ in there]))
            found = [*call([*arguments, *[g for _, g in there]])]
        if torch.is_grad_enabled():  # of which there is no derivative
            read = [*ctx.read, *[g for _, g in there if g.requires_grad]]
            found = once(found, read, THRICE)
        result: list[Any] = [None] * (ctx.total + 5)
        at = 5 + ctx.count
        known: list[Any] | None = None
        if ctx.ends is not None:
            before = ctx.ends.gradients
            known = [None] * ctx.ends.count
            if before is not None and before[0] == _task():
                known = before[1]
            ctx.ends.gradients = _task(), known
        for target, gradient in zip(ctx.targets, found, strict=False):
            if type(target) is int:
                assert known is not None
                if gradient is not None:
                    own = known[target]
                    known[target] = gradient if own is None else own + gradient
            elif target is not None:
                result[at] = gradient
                at += 1
        at += ctx.ends is not None
        tangents = found[program.inputs :]
        result[at : at + len(tangents)] = tangents
        return tuple(result)


def _tracked(t: Any) -> bool:
    return isinstance(t, torch.Tensor) and t.requires_grad


_second: Callable[..., Any] = super(torch.autograd.Function, Second).apply


def second(
    program: Any,
    reached: Sequence[Any],
    arguments: Sequence[Any],
    missing: tuple[int, ...],
    laid: Sequence[Any],
    tangents: Sequence[Any],
    gradients: Sequence[Any],
) -> list[Any]:
    """``gradients`` of a call, as they are, with a derivative.

    ``arguments``: what the forward has saved; ``laid``: the tangents as the backward takes them,
    and ``tangents`` as they came.
    """
    found = list(gradients[: program.inputs])
    for n, more in zip(program.reads, gradients[program.inputs :], strict=True):
        if more is not None:
            found[n] = more if found[n] is None else found[n] + more
    places = tuple([n for n, g in enumerate(found) if isinstance(g, torch.Tensor)])
    leads = [t for t in reached if isinstance(t, torch.Tensor)]
    saved = [t.detach() if isinstance(t, torch.Tensor) else t for t in (*arguments, *laid)]
    targets = [True if isinstance(t, torch.Tensor) else t for t in reached[:-1]]
    known = program, [*targets, reached[-1]], missing, places, len(saved)
    with torch.enable_grad():
        made = _second(*known, *saved, *leads, *tangents, *[found[n] for n in places])
    for n, g in zip(places, made, strict=True):
        found[n] = g
    return [*found, *[None] * program.repeated]
