"""Rewrites the products of a graph that are computed by classes of rows."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from fastpath.ir.oddrows import by_terms, way_of
from fastpath.padding import PRODUCTS, is_padded

_TURNED = (torch.ops.aten.t.default, torch.ops.aten.transpose.int, torch.ops.aten.permute.default)


def split_odd_rows(graph: torch.fx.GraphModule, others: Collection[str] = ()) -> int:
    """Have the products of ``graph`` (functional ATen) that :mod:`fastpath.ir.oddrows` is for
    computed so; returns how many. ``others`` names nodes that are no products of the vendor's."""
    count = 0
    found: dict[torch.fx.Node, Any] = {}
    for node in graph.graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default):
        way: Any = None if node.name in others else way_of(node)
        if way is not None:
            found[node] = way
    for node, way in found.items():
        if way is by_terms and _is_padded(node.args[0], others):
            continue  # whose rows begin at vectors then
        node.target = way
        count += 1
    return count


def _is_padded(operand: Any, others: Collection[str]) -> bool:
    """Whether another product has the same matrix padded, turned."""
    turned = [user for user in operand.users if user.target in _TURNED]
    return any(
        user.target in PRODUCTS and user.name not in others and is_padded(user, view)
        for view in turned
        for user in view.users
    )
