"""The time of a call, with compiled graphs that cost nothing: the same results every time."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from benchmarks.aot import AGAINST, boxed, captured, ours, step, theirs
from benchmarks.harness import Row, alternate, calls_to_fill, one_thread, time_of

GOAL = 0.6
ROUNDS = 7


def rows() -> list[Row]:
    warnings.simplefilter("ignore")
    with one_thread():
        return [call_row(*each) for each in captured()]


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


def call_row(name: str, graph: torch.fx.GraphModule, inputs: list[Any]) -> Row:
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

    title = f"forward and backward, graphs that cost nothing: {name}"
    other = timed(made[1])
    row = alternate(title, timed(made[0]), other, against=AGAINST, goal=GOAL, rounds=ROUNDS * 3)
    least = alternate(name, timed(bare(made[0], inputs)), other, against=AGAINST, rounds=ROUNDS * 3)
    beyond = (row.ratio - least.ratio) / (1 - least.ratio)
    note = f"an autograd.Function that does nothing: {least.ratio:.2f}; beyond it: {beyond:.2f}"
    return replace(row, note=note)


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
