"""The gelu of a product with a bias, computed by the vendor's own kernel as it writes its result.

cuBLAS has an epilogue for a bias and a gelu by the hyperbolic tangent, which ATen calls
``_addmm_activation``. It takes the sum before it is rounded, so its result is nearer to the exact
one, where that is rounded to 16 bits; of float32 it is an approximation by instructions of less
precision, and the gelu stays a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

_aten = torch.ops.aten
_VIEWS = {_aten.view.default, _aten._unsafe_view.default}
_HALVES = (torch.float16, torch.bfloat16)


def fuse_activations(graph: torch.fx.GraphModule, others: Collection[str] = ()) -> int:
    """Rewrite the products of ``graph`` (functional ATen) that such a gelu alone reads.

    ``others`` names nodes that are no products of the vendor's. Returns how many were rewritten.
    """
    count = 0
    for node in list(graph.graph.nodes):
        if node.target is _aten.gelu.default and node.kwargs.get("approximate") == "tanh":
            product = _product(node.args[0], others)
            if product is not None:
                _fuse(graph.graph, node, product)
                count += 1
    return count


def _product(node: Any, others: Collection[str]) -> torch.fx.Node | None:
    """The product that ``node`` is a view of, if nothing else reads it or a view on the way."""
    while isinstance(node, torch.fx.Node) and node.target in _VIEWS and len(node.users) == 1:
        node = node.args[0]
    if not isinstance(node, torch.fx.Node) or node.target is not _aten.addmm.default:
        return None
    if len(node.users) > 1 or node.name in others or node.kwargs:
        return None
    bias, value = node.args[0].meta["val"], node.meta["val"]
    if bias.dtype is not value.dtype or value.dtype not in _HALVES:
        return None
    alike = bias.dim() == 1 and bias.is_contiguous() and bias.shape[0] == value.shape[1]
    return node if alike else None


def _fuse(graph: torch.fx.Graph, node: torch.fx.Node, product: torch.fx.Node) -> None:
    with graph.inserting_before(product):
        fused = graph.call_function(
            _aten._addmm_activation.default, product.args, {"use_gelu": True}
        )
        fused.meta["val"] = product.meta["val"]
    product.replace_all_uses_with(fused)
    graph.erase_node(product)
    given = node.args[0]
    assert isinstance(given, torch.fx.Node)
    if given is not fused and any(user.op == "output" for user in node.users):
        given.target = _aten._unsafe_view.default  # as a gelu's result, it is nobody's view
    node.replace_all_uses_with(given)
    graph.erase_node(node)
