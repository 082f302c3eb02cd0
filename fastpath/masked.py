"""Sums over what a mask picks, without picking it: the gradient of what a mask assigns.

``x[mask] = value`` of a value that is spread over the rows brings back the sum of the gradient's
rows at the mask. Written down, these are picked first, so many as only the mask's data say, and a
graph with sizes that nobody knows is none for kernels. Zeros in the places of the others add
nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from fastpath.making import called

_aten = torch.ops.aten
_SUMS = (_aten.sum.dim_IntList, _aten.sum.default)


def sum_masked(graph: GraphModule) -> int:
    """Rewrite the sums in ``graph`` (functional ATen, with fakes); returns how many masks."""
    count = 0
    for node in graph.graph.find_nodes(op="call_function", target=_aten.index.Tensor):
        count += _rewritten(graph.graph, node)
    if count:
        graph.recompile()
    return count


def _rewritten(graph: Graph, node: Node) -> bool:
    x, indices = node.args
    assert isinstance(x, Node) and isinstance(indices, list | tuple)
    given = [n for n, index in enumerate(indices) if index is not None]
    if len(given) != 1 or not node.users:
        return False
    (at,) = given
    mask: Any = indices[at]
    value: Any = mask.meta["val"]
    if value.dtype != torch.bool or value.dim() == 0:
        return False
    sums = [_summed(user, node, at) for user in node.users]
    if None in sums:
        return False
    rank, depth = x.meta["val"].dim(), value.dim()
    with graph.inserting_before(node):
        others = called(graph, _aten.logical_not.default, (mask,), like=node)
        for _ in range(rank - depth - at):
            others = called(graph, _aten.unsqueeze.default, (others, -1), like=node)
        whole = called(graph, _aten.masked_fill.Scalar, (x, others, 0), like=node)
    for user, dims in zip(list(node.users), sums, strict=True):
        _sum(graph, user, whole, at, depth, dims or [])
        graph.erase_node(user)
    graph.erase_node(node)
    return True


def _summed(user: Node, node: Node, at: int) -> list[int] | None:
    """The dimensions that ``user`` sums over, if these have the one of the rows picked."""
    if user.target not in _SUMS or user.args[0] is not node:
        return None
    rank = node.meta["val"].dim()
    dims: Any = user.args[1] if len(user.args) > 1 else None
    found = sorted(d % rank for d in dims or range(rank))
    return found if at in found else None


def _sum(graph: Graph, user: Node, whole: Node, at: int, depth: int, dims: list[int]) -> None:
    """What ``user`` gives, of all rows."""
    wanted: list[int] = []
    for d in dims:
        wanted += [d] if d < at else [*range(at, at + depth)] if d == at else [d + depth - 1]
    with graph.inserting_before(user):
        total = called(graph, _aten.sum.dim_IntList, (whole, wanted), user.kwargs, user)
        if len(user.args) > 2 and user.args[2]:
            for d in dims:
                total = called(graph, _aten.unsqueeze.default, (total, d), like=user)
    user.replace_all_uses_with(total)
