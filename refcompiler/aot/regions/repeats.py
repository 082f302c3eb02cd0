"""``torch.while_loop`` in a trace: its test and its body as functional graphs.

The node stays one, under torch's own operator. Where there are gradients it is torch's operator
that keeps what each step gave, as many as there were, which is a number that only the run knows. In
the backward a ``scan`` goes through the steps from the last to the first and computes each again
from what it was given. Where a step draws random numbers, it draws other ones then, as in eager.

Where the test fails at once, what is carried is what it starts with, and so are the gradients:
torch 2.13 itself gives those of one step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule

from refcompiler.aot.inputs import DependsOnData, Runner
from refcompiler.aot.regions.inner import (
    Casts,
    Kept,
    alone,
    continuous,
    differentiable,
    emit,
    like,
    observed,
    once,
    plain_all,
    results_of,
    run,
    same_kinds,
    traced,
    values_of,
)
from refcompiler.aot.regions.loops import Backward, filled, looped
from refcompiler.shapes.env import ShapeEnv

_operators = torch.ops.higher_order


def while_loop(
    runner: Runner, target: Any, test: Any, body: Any, carried: Any, more: Any = ()
) -> Any:
    """Test and body are traced once."""
    operands = (*carried, *more)
    if torch.is_grad_enabled() and any(map(differentiable, operands)):
        return _Repeated.apply(runner, test, body, len(carried), *operands)
    given = plain_all(operands)
    graphs = traced(run(runner, test), given, False), traced(run(runner, body), given)
    same_kinds(given[: len(carried)], values_of(graphs[1]))
    results = results_of(graphs[1])
    return emit(target, [*graphs, tuple(carried), tuple(more)], results)


class _Repeated(torch.autograd.Function):
    """Besides what the program carries there is the number of the step, 0 before the first."""

    @staticmethod
    def forward(ctx: Any, runner: Runner, test: Any, body: Any, count: int, *operands: Any) -> Any:
        carried, more = operands[:count], operands[count:]

        def goes_on(number: Any, *given: Any) -> Any:
            return Runner(test, {}, runner.regions).run(*given)

        def step(number: Any, *given: Any) -> Any:
            return number + 1, *Runner(body, {}, runner.regions).run(*given)

        start = torch.zeros((), dtype=torch.int64, device=carried[0].device)
        given = plain_all((start, *operands))
        graphs = traced(goes_on, given, False), traced(step, given)
        same_kinds(given[: count + 1], values_of(graphs[1]))
        numbers, *steps = _kept(graphs, (start, *carried), more)
        results = tuple([_last(t, start) for t, start in zip(steps, carried, strict=True)])
        ctx.runner, ctx.body, ctx.count = runner, body, count
        ctx.operands, ctx.casts = Kept(operands), Casts()
        ctx.wanted = ctx.needs_input_grad[4:]
        ctx.save_for_backward(numbers[-1] > 0, *steps, *ctx.operands.tensors())
        ctx.mark_non_differentiable(*[t for t in results if not continuous(t)])
        return results

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:
        kept = ctx.saved_tensors  # which a checkpoint lets nobody ask for twice
        once((*kept, *tangents))
        count = ctx.count
        ran, *saved = kept
        operands = ctx.operands.filled(saved[count:])
        carried, more = operands[:count], operands[count:]
        over = [_given(t, steps) for t, steps in zip(carried, saved[:count], strict=True)]
        grows = [n for n, t in enumerate(carried) if continuous(t)]
        of_more = [n for n, wanted in enumerate(ctx.wanted[count:]) if wanted]
        starts = [like(carried[n], tangents[n], ()) for n in grows]
        starts += [torch.zeros_like(more[n]) for n in of_more]
        step = Backward(
            ctx.runner, ctx.body, (count, 0, len(more)), ctx.casts, grows, (), of_more, ()
        )
        backwards = [t.flip(0) for t in over]
        found = looped(_operators.scan, step.carrying, starts, backwards, more)
        found = [torch.where(ran, t, start) for t, start in zip(found, starts, strict=True)]
        gradients = [
            *filled(count, grows, found[: len(grows)]),
            *filled(len(more), of_more, found[len(grows) :]),
        ]
        wanted = zip(gradients, ctx.wanted, strict=True)
        return None, None, None, None, *[g if w else None for g, w in wanted]


def _kept(graphs: tuple[GraphModule, GraphModule], carried: Any, more: Any) -> Any:
    """What each step gave of ``carried``, one behind the other."""
    values = values_of(graphs[1])
    laps = _laps(values[0].fake_mode.shape_env)
    with alone(values):
        results = [torch.empty((laps, *t.shape), dtype=t.dtype, device=t.device) for t in values]
    target = _operators.while_loop_stack_output
    return emit(target, [*graphs, tuple(carried), tuple(more)], results)


def _laps(env: Any) -> Any:
    if env is None:
        raise DependsOnData("how often a loop runs")
    if isinstance(env, ShapeEnv):
        return env.laps()
    found = env.create_unbacked_symint()
    torch._check(found >= 1)
    return found


def _last(steps: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    """A result that lies as what is carried does, in memory of its own."""
    return like(start, steps[-1].clone(), ())


def _given(start: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    """What each step was given, from what each gave."""
    return torch.cat([start.unsqueeze(0), steps.narrow(0, 0, steps.shape[0] - 1)])


# ---- a look without a trace -------------------------------------------------------------------


def observed_loop(
    runner: Runner, target: Any, test: Any, body: Any, carried: Any, more: Any = ()
) -> Any:
    """Fakes like what is carried."""
    operands = (*carried, *more)
    return observed(operands, Runner(body, {}, runner.regions).run(*operands))
