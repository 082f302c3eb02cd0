"""The part of a graph that a product's kernel computes, as a graph of its own to be measured, with
what is computed beside that where the vendor multiplies."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence, Set
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from fastpath.ir.lower import Lowering
from fastpath.ir.program import Pointwise, Program
from fastpath.schedule.cluster import Cluster, Fusion
from fastpath.schedule.cost import own_cost
from fastpath.target import GPU


def parts_of(lowering: Lowering, program: Program) -> dict[str, set[Node]]:
    """For each product of the program, by its node's name, the nodes that its kernel computes."""
    fusion = Fusion(program, again=GPU.recomputed, run=GPU.run, whole=GPU.whole)
    found: dict[str, set[Node]] = {}
    for cluster in fusion.clusters:
        if cluster.product is not None:
            nodes = _computed(cluster, fusion.roots.roots, lowering.origin)
            found[lowering.origin[cluster.product].name] = _between(nodes)
    return found


def with_readers(
    part: set[Node], kernels: Mapping[Node, Sequence[set[Node]]], products: Set[Node]
) -> set[Node]:
    """``part``, and what the kernels that compute some of it without a kernel of the product's
    compute beside: a sum with a residual, say, costs the norm that reads it less than a kernel of
    its own. ``part`` alone if there would be more ``products`` in it.

    ``kernels``: by nodes, all that those kernels compute which compute it, in the graph without
    such of products.
    """
    wider = part.union(*(kernel for node in part for kernel in kernels.get(node, ())))
    if len(wider) == len(part):
        return part
    found = _between(wider)
    return part if any(node in products for node in found - part) else found


def kernels_of(lowering: Lowering, program: Program) -> dict[Node, list[set[Node]]]:
    """For each node that kernels of the program compute, all that these do."""
    fusion = Fusion(program, again=GPU.recomputed, run=GPU.run, whole=GPU.whole)
    found: dict[Node, list[set[Node]]] = {}
    for cluster in fusion.clusters:
        if cluster.call is None:
            nodes = _computed(cluster, fusion.roots.roots, lowering.origin)
            for node in nodes:
                found.setdefault(node, []).append(nodes)
    return found


def _computed(cluster: Cluster, roots: Collection[Any], origin: dict[Any, Node]) -> set[Node]:
    """What the members of a cluster and what is computed within them is lowered from."""
    found: set[Node] = set()
    seen: set[Any] = set()
    stack: list[Any] = list(cluster.members)
    while stack:
        step = stack.pop()
        if step in seen:
            continue
        seen.add(step)
        found.add(origin[step])
        for e in own_cost(step.value)[1]:
            if isinstance(e.args[0], Pointwise) and e.args[0] not in roots:
                stack.append(e.args[0])
    return found


def _between(nodes: set[Node]) -> set[Node]:
    """``nodes`` and all that lies on a way from one of them to another, views above all, and the
    single results of those that have several."""
    order = {node: n for n, node in enumerate(next(iter(nodes)).graph.nodes)}
    last = max(order[node] for node in nodes)
    below = set(nodes)
    for node in sorted(nodes, key=order.__getitem__):
        stack = [node]
        while stack:
            for user in stack.pop().users:
                if user not in below and order[user] < last:
                    below.add(user)
                    stack.append(user)
    above = set(nodes)
    stack = list(nodes)
    while stack:
        for given in stack.pop().all_input_nodes:
            if given in below and given not in above:
                above.add(given)
                stack.append(given)
    for node in list(above):
        above.update(user for user in node.users if user.target is operator.getitem)
    return above


def extracted(part: Collection[Node]) -> tuple[GraphModule, dict[Node, Node]] | None:
    """The nodes as a graph whose inputs are what they take from others, and where each is in it.

    Its outputs are what others take of them. None where an input or an output is no tensor.
    """
    order = {node: n for n, node in enumerate(next(iter(part)).graph.nodes)}
    graph = Graph()
    there: dict[Node, Node] = {}
    nodes = sorted(part, key=order.__getitem__)
    for node in nodes:
        for given in node.all_input_nodes:
            if given in there or given in part:
                continue
            if not isinstance(given.meta.get("val"), torch.Tensor):
                return None
            there[given] = graph.placeholder(f"given_{len(there)}")
            there[given].meta["val"] = given.meta["val"]
    outputs = []
    for node in nodes:
        there[node] = graph.node_copy(node, there.__getitem__)
        if any(user not in part for user in node.users):
            outputs.append(there[node])
    if not all(isinstance(node.meta.get("val"), torch.Tensor) for node in outputs):
        return None
    graph.output(tuple(outputs))
    return GraphModule({}, graph), there


def text_of(graph: Graph) -> str:
    """All that how long it takes depends on: the same for equal parts of one graph, or of two."""
    names = {node: f"v{n}" for n, node in enumerate(graph.nodes)}
    lines = []
    for node in graph.nodes:
        arguments = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: names[n])
        val = node.meta.get("val")
        kind = ""
        if isinstance(val, torch.Tensor):
            kind = f" {val.dtype} {tuple(val.shape)} {val.stride()}"
        lines.append(
            f"{names[node]} = {node.target if node.op != 'placeholder' else ''}{arguments}{kind}"
        )
    return "\n".join(lines)
