"""Entry: one call of what is already compiled, so mostly guards and launch.

The first rows run a small graph; the others have a backend whose graphs do nothing, so that what is
measured is the way in and out. With one thread for both: 4,096 elements are not worth a second one,
and waiting for it would cost more than everything that is measured here.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

import refcompiler
from benchmarks.harness import Row, compare, one_thread
from benchmarks.models import bert, gpt2

GOAL = 0.5
NOTHING = "`torch.compile`, the same"


def relu_of_sum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * y + x)


class Layers(torch.nn.Module):
    """``count`` linear layers of 4 features, one after the other: two parameters each."""

    def __init__(self, count: int):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(count)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def rows() -> list[Row]:
    with one_thread():
        return graph_rows() + function_rows() + module_rows() + shape_rows() + model_rows()


def graph_rows() -> list[Row]:
    torch.manual_seed(0)
    x, y = torch.randn(64, 64), torch.randn(64, 64)
    ours = refcompiler.compile(relu_of_sum)
    theirs = torch.compile(relu_of_sum)
    mixed = torch.compile(relu_of_sum, backend="fastpath")
    torch.testing.assert_close(ours(x, y), relu_of_sum(x, y))
    name = "`relu(x * y + x)`, 64 x 64, 1 thread"
    return [
        compare(
            name,
            lambda: ours(x, y),
            lambda: theirs(x, y),
            against="`torch.compile`",
            goal=GOAL,
            rounds=51,
        ),
        compare(name, lambda: ours(x, y), lambda: mixed(x, y), against="torch's entry, `fastpath`"),
        compare(name, lambda: ours(x, y), lambda: relu_of_sum(x, y), against="eager"),
    ]


def nothing(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable:
    """A backend whose compiled graphs give the same tensors at each call."""
    (output,) = graph.graph.find_nodes(op="output")
    answer = tuple([torch.zeros(1) for _ in output.args[0]])
    return lambda *given: answer


def both(
    model: Any,
    calls: Callable[[Any], object],
    name: str,
    goal: float | None,
    *,
    loose: bool = False,
    dynamic: bool | None = None,
) -> Row:
    """``calls`` with ``model`` compiled by each, after one round of calls that compiles.

    ``loose``: in the stance in which only the guards that tell plans apart are checked.
    """
    refcompiler.reset()
    torch.compiler.reset()
    ours = refcompiler.compile(model, backend=nothing, dynamic=dynamic)
    theirs = torch.compile(model, backend=nothing, dynamic=dynamic)
    calls(ours)
    calls(theirs)
    if refcompiler.counters()["fallbacks"] or not refcompiler.counters()["captures"]:
        raise RuntimeError(f"{name}: nothing was compiled")
    with contextlib.ExitStack() as stances:
        if loose:
            for module in (refcompiler, torch.compiler):
                stances.enter_context(module.set_stance("default", skip_guard_eval_unsafe=True))
        return compare(
            name,
            lambda: calls(ours),
            lambda: calls(theirs),
            against=NOTHING,
            goal=goal,
            clock=time.thread_time,
        )


def function_rows() -> list[Row]:
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    name = "two tensors, no operation"
    unsafe = f"{name}, `skip_guard_eval_unsafe`"
    return [
        both(relu_of_sum, lambda way: way(x, y), name, 0.35),
        both(relu_of_sum, lambda way: way(x, y), unsafe, None, loose=True),
    ]


def module_rows() -> list[Row]:
    model, x = Layers(50), torch.randn(4, 4)
    rows = []
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            name = f"100 parameters, no operation, {'with' if grad else 'without'} gradients"
            rows.append(both(model, lambda way: way(x), name, 0.7))
    return rows


def shape_rows() -> list[Row]:
    model, inputs = Layers(4), [torch.randn(n, 4) for n in (2, 3, 5, 7)]

    def calls(way: Callable) -> None:
        for x in inputs:
            way(x)

    return [
        both(model, calls, "4 shapes in turns, the first and a dynamic plan", 0.5),
        both(model, calls, "4 shapes in turns, a plan for each", 0.5, dynamic=False),
    ]


def model_rows() -> list[Row]:
    models = {"GPT-2": gpt2(), "BERT": bert()}
    with torch.no_grad():
        return [model_row(name, *models[name]) for name in models]


def model_row(name: str, model: torch.nn.Module, inputs: Mapping[str, torch.Tensor]) -> Row:
    return both(model, lambda way: way(**inputs), f"{name}, 4 layers, no operation", None)
