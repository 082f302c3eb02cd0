"""Backends that compile ahead of time and run the graphs of forward and backward as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.graph import _BoxedCodeGen

from refcompiler.backends.registry import register_backend
from refcompiler.remade import made, maker


def _as_it_is(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    return graph.forward


def _freeing(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """As it is; each tensor is freed after its last use, inputs too."""
    graph.graph.set_codegen(_BoxedCodeGen())
    graph.recompile()
    return _boxed(graph)


@maker
def _boxed(graph: torch.fx.GraphModule) -> Callable[..., Any]:
    """``graph``, which takes a list, as it is."""
    forward = graph.forward

    def run(arguments: list[Any]) -> Any:
        return forward(arguments)

    run._boxed_call = True  # type: ignore[attr-defined]
    return made(run, _boxed, graph)


def _made(**options: Any) -> Callable[..., Any]:
    # Loaded when it is first asked for: functionalisation takes a while to import.
    from refcompiler.aot import aot_autograd

    return aot_autograd(
        fw_compiler=_as_it_is,
        bw_compiler=_freeing,
        inference_compiler=_as_it_is,
        eager_draws=True,
        **options,
    )


@register_backend(name="aot_eager", tags=("debug",))
def aot_eager(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """Functional ATen graphs of forward and backward, run node by node: eager's bits.

    Shows what AOT autograd alone does.
    """
    return _made(separate_reads=True, tangents_as_given=True, keeps_gaps=True)(graph, inputs)


@register_backend(name="aot_eager_decomp_partition", tags=("debug",))
def aot_eager_decomp_partition(
    graph: torch.fx.GraphModule, inputs: list[Any]
) -> Callable[..., Any]:
    """As ``aot_eager``, with core decompositions and the min-cut partitioner.

    Sums in decomposed operators may be rounded otherwise than eager's.
    """
    from refcompiler.aot.decompositions import core
    from refcompiler.aot.partition import min_cut_partition

    return _made(decompositions=core(), partition_fn=min_cut_partition)(graph, inputs)


def _alone(graph: torch.fx.GraphModule) -> list[torch.fx.Node]:
    from refcompiler.aot.alone import alone

    return alone(graph)


aot_eager.alone = aot_eager_decomp_partition.alone = _alone
aot_eager.takes_symbols = True
aot_eager_decomp_partition.takes_symbols = True
