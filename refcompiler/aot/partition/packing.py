"""Masks that a forward saves, as one byte an element: what a Bernoulli draw gives is 0 or 1.

Eager keeps the mask of a dropout in the type of the activations. As bytes it is the same numbers
in a quarter of the memory or half of it; the backward has the other type made when it needs it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.fx import Graph, Node

_aten = torch.ops.aten
_MASKS = {_aten.bernoulli.p, _aten.bernoulli.default}
_PACKED = "packed"  # in the meta of what is saved so


def packs(node: Node) -> bool:
    """Whether ``node`` can be saved as ``torch.bool`` and be had again in the same layout."""
    if node.target not in _MASKS:
        return False
    val = node.meta.get("val")
    if not isinstance(val, torch.Tensor) or val.dtype == torch.bool:
        return False
    return not val._has_symbolic_sizes_strides and val.is_contiguous()


def packed_of(saved: Iterable[Node], shown: Iterable[Any]) -> set[Node]:
    """Those of ``saved`` to pack: not what is given to the caller, and so is there anyway."""
    there = {node for node in shown if isinstance(node, Node)}
    return {node for node in saved if node not in there and packs(node)}


def pack(graph: Graph, made: Node) -> Node:
    return _as(graph, made, torch.bool)


def hold(holder: Node) -> None:
    """Make a placeholder, with the meta of a mask, take that mask packed."""
    holder.meta["val"] = holder.meta["val"].to(torch.bool)
    holder.meta[_PACKED] = True


def is_packed(holder: Node) -> bool:
    return _PACKED in holder.meta


def unpack(graph: Graph, holder: Node, mask: Node) -> Node:
    """What ``mask`` is, of the placeholder that holds it packed."""
    return _as(graph, holder, mask.meta["val"].dtype)


def _as(graph: Graph, node: Node, dtype: torch.dtype) -> Node:
    cast = graph.call_function(_aten._to_copy.default, (node,), {"dtype": dtype})
    cast.meta["val"] = node.meta["val"].to(dtype)
    return cast
