"""Masks of attention whose rows lie apart: laid anew, once for all layers that add one.

A bias that is learned for each head and looked up by the distance of positions has its heads last
in memory. Attention reads the masks of its rows as vectors, so one that lies otherwise left it to
ATen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from fastpath.making import called

_aten = torch.ops.aten
_ATTENTION = _aten._scaled_dot_product_flash_attention_for_cpu.default
_MASK = "attn_mask"
_DTYPES = (torch.float32, torch.float64)


def has_masks_apart(graph: GraphModule) -> bool:
    """Whether :func:`lay_masks` has anything to do."""
    return any(True for _ in _found(graph))


def lay_masks(graph: GraphModule) -> int:
    """Have the masks in ``graph`` (functional ATen, with fakes) lie along their rows; returns how
    many. What they are broadcast along stays so."""
    laid: dict[Node, Node] = {}
    for node, mask in list(_found(graph)):
        if mask not in laid:
            with graph.graph.inserting_before(node):
                once = mask
                for d, step in enumerate(mask.meta["val"].stride()):
                    if step == 0 and d + 1 < mask.meta["val"].dim():
                        once = called(graph.graph, _aten.slice.Tensor, (once, d, 0, 1), like=mask)
                options = {"memory_format": torch.contiguous_format}
                laid[mask] = called(graph.graph, _aten.clone.default, (once,), options, like=mask)
        node.kwargs = {**node.kwargs, _MASK: laid[mask]}
    return len(laid)


def _found(graph: GraphModule) -> Iterator[tuple[Node, Node]]:
    """Calls for which a mask lies otherwise than along its rows, and that mask: of the dtypes and
    sizes that :func:`fastpath.cpu.attention.attention` takes."""
    for node in graph.graph.find_nodes(op="call_function", target=_ATTENTION):
        mask: Any = node.kwargs.get(_MASK)
        if isinstance(mask, Node) and _apart(mask.meta["val"]):
            query: Any = node.args[0]
            if mask.meta["val"].dtype in _DTYPES and query.meta["val"].shape[-2] != 1:
                yield node, mask


def _apart(mask: torch.Tensor) -> bool:
    numbers = (*mask.shape, *mask.stride())
    if not mask.dim() or any(type(n) is not int for n in numbers) or 0 in mask.shape:
        return False
    return mask.shape[-1] > 1 and mask.stride(-1) != 1
