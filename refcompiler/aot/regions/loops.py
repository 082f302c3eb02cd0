"""``scan`` and ``map`` over a dimension in a trace: one step as a functional graph.

The node stays one, under torch's own operators. In the backward a second one runs: that of ``scan``
goes through the steps from the last to the first, computes each again from what it carried and
drew, which the forward has kept, and adds up the gradients of what all steps read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from refcompiler.aot.inputs import Runner
from refcompiler.aot.regions.drawn import Drawing, Drawn, check
from refcompiler.aot.regions.inner import (
    Casts,
    Kept,
    alone,
    continuous,
    differentiable,
    emit,
    like,
    memory_of,
    observed,
    once,
    plain_all,
    run,
    same_kinds,
    traced,
    values_of,
)

_operators = torch.ops.higher_order
_Values = Sequence[Any]


def scan(
    runner: Runner, target: Any, step: GraphModule, init: _Values, xs: _Values, rest: _Values = ()
) -> Any:
    groups = tuple(init), tuple(xs), tuple(rest)
    if not _wants_gradients(groups):
        return looped(_operators.scan, run(runner, step), *groups)
    return _Loop.apply(runner, step, [len(g) for g in groups], *[t for g in groups for t in g])


def mapped(runner: Runner, target: Any, step: GraphModule, xs: _Values, rest: _Values = ()) -> Any:
    groups: tuple[_Values, _Values, _Values] = (), tuple(xs), tuple(rest)
    if not _wants_gradients(groups):
        return looped(_operators.map_impl, run(runner, step), *groups)
    return _Loop.apply(runner, step, [len(g) for g in groups], *[t for g in groups for t in g])


def _wants_gradients(groups: Sequence[_Values]) -> bool:
    return torch.is_grad_enabled() and any(differentiable(t) for g in groups for t in g)


def looped(
    target: Any,
    step: Callable[..., Any],
    init: _Values,
    xs: _Values,
    rest: _Values,
    again: bool = False,
) -> Any:
    """The node of a loop over ``xs``; ``again``: the steps will be computed once more."""
    carried, over, more = plain_all(init, True), plain_all(xs), plain_all(rest, True)
    with alone(over):
        slices = [t.detach()[0] for t in over]
    graph = traced(step, [*carried, *slices, *more])
    if again:
        check(graph)
    values, count = values_of(graph), len(carried)
    same_kinds(carried, values[:count])
    length = over[0].shape[0]
    with alone(over):
        results = [
            torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device)
            for t in values[:count]
        ]
        for t in values[count:]:
            results.append(torch.empty((length, *t.shape), dtype=t.dtype, device=t.device))
    groups = [list(init)] if target is _operators.scan else []
    return emit(target, [graph, *groups, list(xs), tuple(rest)], results)


class _Loop(torch.autograd.Function):
    """Without anything that is carried a ``map``, which has no order, else a ``scan``."""

    @staticmethod
    def forward(ctx: Any, runner: Runner, step: Any, counts: Sequence[int], *given: Any) -> Any:
        init, xs, rest = _split(given, counts)

        drawing = Drawing()

        def keeping(*operands: Any) -> list[Any]:
            before = [t.clone() for t in operands[: len(init)]]
            with drawing:
                found = Runner(step, {}, runner.regions).run(*operands)
            return [*found, *before, *drawing.found]

        target = _operators.scan if init else _operators.map_impl
        found = looped(target, keeping, init, xs, rest, again=True)
        drawn = len(drawing.found)
        results = found[: len(found) - len(init) - drawn]
        carried = found[len(results) :][: len(init)]
        kept = Kept([*carried, *xs, *rest, *found[len(found) - drawn :]])
        ctx.runner, ctx.step, ctx.counts, ctx.kept = runner, step, counts, kept
        ctx.casts = Casts()
        ctx.wanted = _split(ctx.needs_input_grad[3:], counts)
        ctx.save_for_backward(*kept.tensors())
        ctx.mark_non_differentiable(*[t for t in results if not continuous(t)])
        return results

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:
        kept = ctx.saved_tensors  # which a checkpoint lets nobody ask for twice
        once((*kept, *tangents))
        carried, xs, more = _split(ctx.kept.filled(kept), ctx.counts)
        rest, drawn = more[: ctx.counts[2]], more[ctx.counts[2] :]
        ends, stacked = tangents[: len(carried)], tangents[len(carried) :]
        grows = [n for n, t in enumerate(carried) if continuous(t)]
        of_xs, of_rest = ([n for n, w in enumerate(g) if w] for g in ctx.wanted[1:])
        outputs = [n for n, t in enumerate(stacked) if continuous(t)]
        over = [*carried, *xs, *[stacked[n] for n in outputs], *drawn]
        places = grows, of_xs, of_rest, outputs
        step = Backward(ctx.runner, ctx.step, ctx.counts, ctx.casts, *places, len(drawn))
        if not carried:
            found = looped(_operators.map_impl, step.alone, (), over, rest)
            by_xs, by_rest = found[: len(of_xs)], [t.sum(0) for t in found[len(of_xs) :]]
            by_init: Sequence[Any] = ()
        else:
            starts = [like(carried[n][0], ends[n], ()) for n in grows]
            starts += [torch.zeros_like(rest[n]) for n in of_rest]
            backwards = [t.flip(0) for t in over]
            found = looped(_operators.scan, step.carrying, starts, backwards, rest)
            by_init, by_rest = found[: len(grows)], found[len(grows) : len(starts)]
            by_xs = [t.flip(0) for t in found[len(starts) :]]
        init = filled(len(carried), grows, by_init)
        return (
            *(None, None, None),
            *[g if w else None for g, w in zip(init, ctx.wanted[0], strict=True)],
            *filled(len(xs), of_xs, by_xs),
            *filled(len(rest), of_rest, by_rest),
        )


class Backward:
    """The gradients of one step, which is computed again, with ``drawn`` kept results of draws.

    ``grows``, ``of_xs``, ``of_rest``: places, among what is carried, gone over and read by all, of
    what has a gradient; ``outputs``: places of results that have one.
    """

    def __init__(
        self,
        runner: Runner,
        step: GraphModule,
        counts: Sequence[int],
        casts: Casts,
        grows: Sequence[int],
        of_xs: Sequence[int],
        of_rest: Sequence[int],
        outputs: Sequence[int],
        drawn: int = 0,
    ):
        self.drawn = drawn
        self.runner, self.step, self.counts, self.casts = runner, step, counts, casts
        self.grows, self.of_xs, self.of_rest, self.outputs = grows, of_xs, of_rest, outputs

    def alone(self, *given: Any) -> list[torch.Tensor]:
        """Of what is gone over and what all read."""
        count = self.counts[1] + len(self.outputs) + self.drawn
        over, rest = given[:count], given[count:]
        inputs, found = self._gradients([], over, rest)
        return [like(t, g, memory_of(given)) for t, g in zip(inputs, found, strict=True)]

    def carrying(self, *given: Any) -> list[torch.Tensor]:
        """Carries gradients: of what the step carried, and sums of what all steps read."""
        sums = len(self.grows) + len(self.of_rest)
        count = sums + sum(self.counts[:2]) + len(self.outputs) + self.drawn
        carried, over, rest = given[:sums], given[sums:count], given[count:]
        inputs, found = self._gradients(carried[: len(self.grows)], over, rest)
        memory = memory_of(given)
        first, last = len(self.grows), len(self.grows) + len(self.of_xs)
        laid = [like(t, g, memory) for t, g in zip(inputs[:last], found[:last], strict=True)]
        added = [
            total.clone() if g is None else like(total, total + g, memory)
            for total, g in zip(carried[first:], found[last:], strict=True)
        ]
        return [*laid[:first], *added, *laid[first:]]

    def _gradients(self, ends: _Values, over: _Values, rest: _Values) -> tuple[list, Sequence]:
        """What the gradients are for, and they."""
        carried, xs, more = _split(over, self.counts)
        tangents, drawn = more[: len(self.outputs)], more[len(self.outputs) :]
        rest = list(rest)
        with torch.enable_grad(), self.casts.again():
            inputs = []
            for group, places in ((carried, self.grows), (xs, self.of_xs), (rest, self.of_rest)):
                for n in places:
                    group[n] = group[n].detach().requires_grad_()
                    inputs.append(group[n])
            with Drawn(drawn):
                results = Runner(self.step, {}, self.runner.regions).run(*carried, *xs, *rest)
            count = len(carried)
            pairs = [(results[n], g) for n, g in zip(self.grows, ends, strict=True)]
            pairs += [(results[count + n], g) for n, g in zip(self.outputs, tangents, strict=True)]
            pairs = [(t, g) for t, g in pairs if t.requires_grad]
            if not pairs:
                return inputs, [None] * len(inputs)
            outputs, cotangents = zip(*pairs, strict=True)
            return inputs, torch.autograd.grad(outputs, inputs, cotangents, allow_unused=True)


def _split(values: _Values, counts: Sequence[int]) -> tuple[list, list, list]:
    first, second = counts[0], counts[0] + counts[1]
    return list(values[:first]), list(values[first:second]), list(values[second:])


def filled(count: int, places: Sequence[int], values: _Values) -> list[Any]:
    found: list[Any] = [None] * count
    for n, value in zip(places, values, strict=True):
        found[n] = value
    return found


# ---- a look without a trace -------------------------------------------------------------------


def observed_scan(
    runner: Runner, target: Any, step: GraphModule, init: _Values, xs: _Values, rest: _Values = ()
) -> Any:
    found = Runner(step, {}, runner.regions).run(*init, *[t[0] for t in xs], *rest)
    length, count = xs[0].shape[0], len(init)
    stacked = [t.new_empty((length, *t.shape)) for t in found[count:]]
    return observed((*init, *xs, *rest), [*found[:count], *stacked])


def observed_map(
    runner: Runner, target: Any, step: GraphModule, xs: _Values, rest: _Values = ()
) -> Any:
    return observed_scan(runner, target, step, (), xs, rest)
