"""The overhead of a call, with compiled graphs that cost nothing: the same results every time.

A function of autograd with the same inputs and results that does nothing stands between both: its
time is the engine's, which goes from parameter to parameter whatever is compiled. What a call takes
beyond it is the overhead of ahead-of-time compilation, which the goal is for. A row each.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from benchmarks.aot import AGAINST, boxed, captured, ours, step, theirs
from benchmarks.harness import Row, calls_to_fill, one_thread, quartiles, time_of

GOAL = 0.6
ROUNDS = 7


def rows() -> list[Row]:
    warnings.simplefilter("ignore")
    with one_thread():
        return [row for each in captured() for row in call_rows(*each)]


class Constant:
    """A compiler of graphs that compute once, and then give the same results for nothing.

    Outputs are other objects each time, since autograd writes into them.
    """

    def __init__(self, outputs: int):
        self.outputs = outputs

    def __call__(self, graph: torch.fx.GraphModule, given: Sequence[Any]) -> Any:
        results: list[Any] = []
        holders = graph.graph.find_nodes(op="placeholder")
        is_backward = any(str(node.target).startswith("tangents") for node in holders)
        count = 0 if is_backward else self.outputs

        def run(*inputs: Any) -> list[Any]:
            if not results:
                with torch.no_grad():
                    results.extend(graph.forward(*inputs))
            return [t.detach() for t in results[:count]] + results[count:]

        return boxed(run)


def call_rows(name: str, graph: torch.fx.GraphModule, inputs: list[Any]) -> list[Row]:
    from functorch.compile import default_partition

    (output,) = graph.graph.find_nodes(op="output")
    compiler = Constant(len(pytree.tree_leaves(output.args[0])))
    made = (
        ours(compiler)(graph, inputs),
        theirs(compiler, partition_fn=default_partition)(graph, inputs),
    )

    def timed(call: Callable[..., Any]) -> Callable[[], float]:
        step(call, inputs)
        way = _way(call, inputs)
        number = calls_to_fill(way, 0.02, time.thread_time)
        return lambda: time_of(way, number, time.thread_time)

    ways = timed(made[0]), timed(made[1]), timed(bare(made[0], inputs))
    taken: list[list[float]] = [[], [], []]
    for turn in range(ROUNDS * 3):
        for which in (0, 2, 1) if turn % 2 == 0 else (1, 2, 0):
            taken[which].append(ways[which]())
    mine, other, least = taken
    title = f"forward and backward, graphs that cost nothing: {name}"
    whole = _row(title, mine, other)
    share = statistics.median(least) / whole.theirs
    whole = replace(whole, note=f"an autograd.Function that does nothing: {share:.2f}")
    beyond = [[t - c for t, c in zip(times, least)] for times in (mine, other)]
    return [whole, replace(_row(f"overhead of a call: {name}", *beyond), goal=GOAL)]


def _row(title: str, mine: list[float], other: list[float]) -> Row:
    a, b = statistics.median(mine), statistics.median(other)
    low, high = quartiles(sorted(x / y for x, y in zip(mine, other, strict=True)))
    return Row(title, a, b, a / b, low, high, len(mine), AGAINST)


def _way(call: Callable[..., Any], inputs: Sequence[Any]) -> Callable[[], Any]:
    """As :func:`step`, and nothing besides: what it looks for is found before."""
    found = call(*inputs)
    place = next(n for n, t in enumerate(found) if isinstance(t, torch.Tensor) and t.requires_grad)
    wanted, tangent = [t for t in inputs if t.requires_grad], torch.ones_like(found[place])

    def way() -> Any:
        return torch.autograd.grad(call(*inputs)[place], wanted, tangent, allow_unused=True)

    return way


def bare(call: Callable[..., Any], inputs: Sequence[Any]) -> Callable[..., Any]:
    """A function of autograd with the inputs and results of ``call``, and nothing to do."""
    results = [t for t in pytree.tree_leaves(call(*inputs)) if isinstance(t, torch.Tensor)]
    first = next(t for t in results if t.requires_grad)
    wanted = [t for t in inputs if t.requires_grad]
    found = iter(torch.autograd.grad(first, wanted, torch.ones_like(first), allow_unused=True))
    gradients = tuple([next(found) if t.requires_grad else None for t in inputs])
    constant = [t.detach() for t in results if not t.requires_grad]
    values = tuple([t.detach() for t in results if t.requires_grad])

    class Bare(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *given: Any) -> Any:
            ctx.set_materialize_grads(False)
            return tuple([t.detach() for t in values])

        @staticmethod
        def backward(ctx: Any, *given: Any) -> Any:
            return gradients

    apply = super(torch.autograd.Function, Bare).apply  # as quickly as it can be called
    return lambda *given: (*apply(*given), *constant)
