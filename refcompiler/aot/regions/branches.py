"""``torch.cond`` in a trace: its branches as functional graphs.

The node stays one over ATen graphs. In the backward a second one runs, whose branches compute the
branch again and then its gradients; an operand that a branch does not read has a gradient of zeros,
as in eager. Where a branch draws random numbers, it draws other ones when it is
computed again, as it does in eager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from refcompiler.aot.inputs import Runner
from refcompiler.aot.regions.inner import (
    Casts,
    Kept,
    continuous,
    differentiable,
    emit,
    like,
    memory_of,
    observed,
    once,
    plain_all,
    results_of,
    run,
    same_kinds,
    traced,
    values_of,
)

_operators = torch.ops.higher_order


def cond(runner: Runner, target: Any, predicate: Any, yes: Any, no: Any, operands: Any) -> Any:
    """Both branches are traced; which one runs is decided by the compiled graph's own values."""
    operands = tuple(operands)
    if not torch.is_grad_enabled() or not any(differentiable(t) for t in operands):
        return _chosen(runner, predicate, (yes, no), operands)
    return _Cond.apply(runner, (yes, no), predicate, *operands)


class _Cond(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, runner: Runner, branches: Any, predicate: Any, *operands: Any) -> Any:
        results = _chosen(runner, predicate, branches, operands)
        ctx.runner, ctx.branches, ctx.operands = runner, branches, Kept(operands)
        ctx.casts = Casts()
        ctx.wanted = [n for n, needed in enumerate(ctx.needs_input_grad[3:]) if needed]
        ctx.save_for_backward(predicate, *ctx.operands.tensors())
        ctx.mark_non_differentiable(*[t for t in results if not continuous(t)])
        return results

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:
        kept = ctx.saved_tensors  # which a checkpoint lets nobody ask for twice
        once((*kept, *tangents))
        predicate, *saved = kept
        operands = ctx.operands.filled(saved)
        given = plain_all((*operands, *tangents))
        graphs = [traced(_gradients(ctx, branch, len(operands)), given) for branch in ctx.branches]
        results = results_of(graphs[0])
        for graph in graphs:
            same_kinds(results, values_of(graph))
        found = emit(_operators.cond, [predicate, *graphs, (*operands, *tangents)], results)
        gradients: list[Any] = [None] * len(operands)
        for n, gradient in zip(ctx.wanted, found, strict=True):
            gradients[n] = gradient
        return (None, None, None, *gradients)


def _chosen(runner: Runner, predicate: Any, branches: Sequence, operands: Sequence) -> Any:
    if not isinstance(predicate, torch.Tensor):
        return Runner(branches[0 if predicate else 1], {}, runner.regions).run(*operands)
    given = plain_all(operands)
    graphs = [traced(run(runner, branch), given) for branch in branches]
    results = results_of(graphs[0])
    same_kinds(results, values_of(graphs[1]))
    return emit(_operators.cond, [predicate, *graphs, tuple(operands)], results)


def _gradients(ctx: Any, branch: GraphModule, count: int) -> Callable[..., Any]:
    """A branch's gradients for the operands that want one, of operands and then tangents."""
    runner, wanted = ctx.runner, ctx.wanted

    def function(*given: Any) -> list[Any]:
        operands, tangents = list(given[:count]), given[count:]
        with torch.enable_grad(), ctx.casts.again():
            for n in wanted:
                operands[n] = operands[n].detach().requires_grad_()
            results = Runner(branch, {}, runner.regions).run(*operands)
            pairs = [(r, t) for r, t in zip(results, tangents, strict=True) if r.requires_grad]
            inputs = [operands[n] for n in wanted]
            found: Sequence[Any] = [None] * len(inputs)
            if pairs:
                outputs, cotangents = zip(*pairs, strict=True)
                found = torch.autograd.grad(outputs, inputs, cotangents, allow_unused=True)
        return [like(t, g, memory_of(given)) for t, g in zip(inputs, found, strict=True)]

    return function


# ---- a look without a trace -------------------------------------------------------------------


def observed_cond(
    runner: Runner, target: Any, predicate: Any, yes: Any, no: Any, operands: Any
) -> Any:
    """Fakes like the branches' results."""
    return observed(
        operands, *[Runner(graph, {}, runner.regions).run(*operands) for graph in (yes, no)]
    )
