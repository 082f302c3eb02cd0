"""Makes the graph that fails smaller while it fails in the same way, before it becomes a case."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule

from conformance.faults.copies import copied
from conformance.faults.graphs import body, values_of

MOST_TRIES = 48
SECONDS = 60.0

Fails = Callable[[GraphModule, Sequence[Any]], bool]


def reduced(
    gm: GraphModule, args: Sequence[Any], fails: Fails, again: Callable[[], Any]
) -> tuple[GraphModule, Sequence[Any]]:
    """Fewer results, and nodes in whose places stand the values that they have in eager.

    ``again``: the context in which the graph runs. Each smaller one is taken if it ``fails``.
    """
    end = time.monotonic() + SECONDS
    tries = 0
    progress = True
    while progress:
        progress = False
        for made, given in _candidates(gm, args, again):
            tries += 1
            if tries > MOST_TRIES or time.monotonic() > end:
                return gm, args
            if fails(made, given):
                gm, args, progress = made, given, True
                break
    return gm, args


def _candidates(
    gm: GraphModule, args: Sequence[Any], again: Callable[[], Any]
) -> Iterator[tuple[GraphModule, Sequence[Any]]]:
    output = gm.graph.output_node()
    results = list(output.args[0])
    if len(results) > 1:
        for result in reversed(results):
            yield _pruned(gm, args, lambda graph, known, r=result: (known(r),))
    with again():
        values = values_of(gm, copied(args).args)
    if any(isinstance(n.meta.get("example_value"), torch.SymInt) for n in gm.graph.nodes):
        return  # a value in a node's place has no symbols for its sizes
    nodes = body(gm)
    for node in reversed(nodes[:-1]):
        if isinstance(values.get(node), torch.Tensor) and node.op != "get_attr":
            yield _given(gm, args, node, values[node])


def _pruned(gm: GraphModule, args: Sequence[Any], results: Any) -> tuple[GraphModule, list[Any]]:
    graph = Graph()
    known: dict[Any, Any] = {}
    graph.graph_copy(gm.graph, known)
    graph.output(results(graph, known.__getitem__))
    return _used(GraphModule(gm, graph), args)


def _given(
    gm: GraphModule, args: Sequence[Any], node: Any, value: torch.Tensor
) -> tuple[GraphModule, list[Any]]:
    """``node`` as one more input, behind the others."""
    graph = Graph()
    known: dict[Any, Any] = {}
    for old in gm.graph.find_nodes(op="placeholder"):
        known[old] = graph.node_copy(old)
    known[node] = graph.placeholder(f"{node.name}_given")
    result = None
    for old in gm.graph.nodes:
        if old.op == "output":
            result = graph.node_copy(old, known.__getitem__)
        elif old not in known:
            known[old] = graph.node_copy(old, known.__getitem__)
    assert result is not None
    return _used(GraphModule(gm, graph), [*args, value])


def _used(gm: GraphModule, args: Sequence[Any]) -> tuple[GraphModule, list[Any]]:
    """Without what leads to no result and writes to nothing, and without inputs nobody reads."""
    gm.graph.eliminate_dead_code()
    kept = []
    for node, arg in zip(gm.graph.find_nodes(op="placeholder"), args, strict=True):
        if node.users or isinstance(node.meta.get("example_value"), torch.SymInt):
            kept.append(arg)
        else:
            gm.graph.erase_node(node)
    gm.recompile()
    return gm, kept
