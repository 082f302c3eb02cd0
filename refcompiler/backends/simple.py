"""Backends without code generation: ``eager``, and torch's ``inductor`` by its public entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from refcompiler.backends.registry import register_backend
from refcompiler.errors import UnsupportedError
from refcompiler.shapes.node import has_symbols


def torch_symbols(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
    """Loads torch's compiler, which takes its time."""
    from refcompiler.backends.symbols import TorchSymbols

    return TorchSymbols(graph, inputs)


@register_backend(name="eager", tags=("debug",))
def eager(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable:
    """Run the captured graph as it is: shows what capture alone does."""
    return graph.forward


@register_backend(name="inductor")
def inductor(graph: torch.fx.GraphModule, inputs: list[Any], **options: Any) -> Callable:
    """torch's own compiler."""
    try:
        from torch._inductor import compile as compile_graph
    except ImportError as error:
        raise UnsupportedError(f"backend 'inductor' needs torch's compiler: {error}") from error
    if not has_symbols(inputs):
        return compile_graph(graph, inputs, options=options or None)
    given = torch_symbols(graph, inputs)
    made = compile_graph(given.graph, given.inputs, options=options or None)
    given.learn()
    return made
