"""``torch.cond`` in a trace: its branches as functional graphs.

The node stays one over ATen graphs. In the backward a second one runs, whose branches compute the
branch again and then its gradients; an operand that one branch alone reads has a gradient of zeros
in the other, as in eager. Where a branch draws random numbers, it draws other ones when it is
computed again, as it does in eager.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from refcompiler.aot.functional import plain
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
        graphs, wanted = _both(ctx, given, len(operands))
        gradients: list[Any] = [None] * len(operands)
        if not wanted:
            return (None, None, None, *gradients)
        results = results_of(graphs[0])
        same_kinds(results, values_of(graphs[1]))
        found = emit(_operators.cond, [predicate, *graphs, (*operands, *tangents)], results)
        for n, gradient in zip(wanted, found, strict=True):
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


def _both(ctx: Any, given: Sequence[Any], count: int) -> tuple[list[GraphModule], list[int]]:
    """The graphs of both branches' gradients, and for which operands these are.

    Each lies as it is computed, if it does so in both, else as its operand.
    """

    def graphs(wanted: Sequence[int], lies: Collection[int]) -> tuple[list[GraphModule], list[int]]:
        known = [_Gradients(ctx, branch, count, wanted, lies) for branch in ctx.branches]
        made = [traced(each, given) for each in known]
        return made, [n for n in wanted if not all(n in each.absent for each in known)]

    found, wanted = graphs(ctx.wanted, ())
    if wanted and len(wanted) < len(ctx.wanted):
        found, wanted = graphs(wanted, ())
    strides = [[t.stride() for t in values_of(graph)] for graph in found]
    lies = {n for n, one, other in zip(wanted, *strides) if one != other}
    return graphs(wanted, lies) if lies else (found, wanted)


class _Gradients:
    """A branch's gradients for the operands ``wanted``, of ``count`` operands and then tangents.

    ``lies``: those whose gradients are to lie as they do; ``absent``: those that it does not read.
    """

    def __init__(
        self,
        ctx: Any,
        branch: GraphModule,
        count: int,
        wanted: Sequence[int],
        lies: Collection[int],
    ):
        self.ctx, self.branch, self.count = ctx, branch, count
        self.wanted, self.lies = wanted, lies
        self.absent: set[int] = set()

    def __call__(self, *given: Any) -> list[Any]:
        operands, tangents = list(given[: self.count]), given[self.count :]
        runner, wanted = self.ctx.runner, self.wanted
        with torch.enable_grad(), self.ctx.casts.again():
            for n in wanted:
                operands[n] = operands[n].detach().requires_grad_()
            results = Runner(self.branch, {}, runner.regions).run(*operands)
            pairs = [(r, t) for r, t in zip(results, tangents, strict=True) if r.requires_grad]
            inputs = [operands[n] for n in wanted]
            found: Sequence[Any] = [None] * len(inputs)
            if pairs:
                outputs, cotangents = zip(*pairs, strict=True)
                found = torch.autograd.grad(outputs, inputs, cotangents, allow_unused=True)
        self.absent = {n for n, g in zip(wanted, found, strict=True) if g is None}
        memory = memory_of(given)
        return [
            (like if n in self.lies else _apart)(operands[n], g, memory)
            for n, g in zip(wanted, found, strict=True)
        ]


def _apart(t: Any, gradient: Any, memory: Collection[int]) -> Any:
    if gradient is None:
        return torch.zeros_like(t)
    shared = plain(gradient).untyped_storage()._cdata in memory
    return gradient.clone() if shared else gradient


# ---- a look without a trace -------------------------------------------------------------------


def observed_cond(
    runner: Runner, target: Any, predicate: Any, yes: Any, no: Any, operands: Any
) -> Any:
    """Fakes like the branches' results."""
    return observed(
        operands, *[Runner(graph, {}, runner.regions).run(*operands) for graph in (yes, no)]
    )
