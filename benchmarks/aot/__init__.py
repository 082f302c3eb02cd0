"""AOT autograd beside torch's own: compiling, calls, and memory between forward and backward.

Both are given one graph of torch's front end and one compiler for ATen graphs, so what differs is
what AOT autograd does. Each part is a section: ``python -m benchmarks aot.compiling``,
``aot.calling``, ``aot.memory``; and ``aot.asked``, gradients by some leaves alone beside eager and
inductor. ``aot`` is all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch.utils import _pytree as pytree

from benchmarks.family_models import calls
from refcompiler.aot import aot_autograd

AGAINST = "torch's AOT autograd"
MODELS = ("mlp", "Bert", "GPT2", "Llama", "T5", "ViT")

Backend = Callable[[torch.fx.GraphModule, list[Any]], Callable[..., Any]]
Captured = tuple[str, torch.fx.GraphModule, list[Any]]


class Hundred(torch.nn.Module):
    """A hundred parameters in one product."""

    def __init__(self) -> None:
        super().__init__()
        self.factors = torch.nn.ParameterList([torch.nn.Parameter(torch.rand(8))] * 100)
        for n in range(100):
            self.factors[n] = torch.nn.Parameter(torch.rand(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for factor in self.factors:
            x = x * factor
        return x


@cache
def captured() -> list[Captured]:
    """Name, graph of torch's front end, example inputs; parameters are among the inputs."""
    return list(_captured())


def _captured() -> Iterator[Captured]:
    torch.manual_seed(0)
    small = torch.nn.Linear(4, 4)
    yield "a linear layer", *graph_of(small, {"input": torch.randn(2, 4)})
    yield "100 parameters", *graph_of(Hundred(), {"x": torch.rand(8)})
    for name in MODELS:
        _, model, inputs = next(iter(calls(name)))
        yield f"{name}, training", *graph_of(model.train(), inputs)


def graph_of(
    model: torch.nn.Module, inputs: dict[str, Any]
) -> tuple[torch.fx.GraphModule, list[Any]]:
    """The first graph of torch's front end and its inputs, which are leaves."""
    found: list[tuple[torch.fx.GraphModule, list[Any]]] = []

    def backend(graph: torch.fx.GraphModule, given: list[Any]) -> Any:
        found.append((graph, list(given)))
        return graph.forward

    torch.compiler.reset()
    torch.compile(model, backend=backend)(**inputs)
    (graph, given) = found[0]
    leaves = [_leaf(t) for t in given]
    return graph, leaves


def _leaf(t: torch.Tensor) -> torch.Tensor:
    """A leaf of the same kind: that an input is a parameter decides what compilers note of it."""
    made = t.detach().requires_grad_(t.requires_grad)
    return torch.nn.Parameter(made, t.requires_grad) if isinstance(t, torch.nn.Parameter) else made


def ours(compiler: Callable[..., Any], **options: Any) -> Backend:
    return aot_autograd(fw_compiler=compiler, **options)


def theirs(compiler: Callable[..., Any], **options: Any) -> Backend:
    from torch._dynamo.backends.common import aot_autograd as made

    return made(fw_compiler=compiler, **options)


def boxed(function: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    def run(given: list[Any]) -> Any:
        return function(*given)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def step(call: Callable[..., Any], inputs: Sequence[Any]) -> None:
    """Forward, and gradients of the first output that has one."""
    found = [t for t in pytree.tree_leaves(call(*inputs)) if isinstance(t, torch.Tensor)]
    output = next(t for t in found if t.requires_grad)
    wanted = [t for t in inputs if t.requires_grad]
    torch.autograd.grad(output, wanted, torch.ones_like(output), allow_unused=True)
