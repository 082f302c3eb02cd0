"""Rewrites the products of a graph that are computed by classes of rows."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from fastpath.ir.oddrows import way_of


def split_odd_rows(graph: torch.fx.GraphModule, others: Collection[str] = ()) -> int:
    """Have the products of ``graph`` (functional ATen) that :mod:`fastpath.ir.oddrows` is for
    computed so; returns how many. ``others`` names nodes that are no products of the vendor's."""
    count = 0
    for node in graph.graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default):
        way: Any = None if node.name in others else way_of(node)
        if way is not None:
            node.target = way
            count += 1
    return count
