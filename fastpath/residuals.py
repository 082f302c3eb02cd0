"""The sum of a matrix product and a tensor of its shape, computed as the product is written.

A residual connection adds what a layer was given to what a linear layer makes of it. The vendor's
library adds a matrix to a product, and a bias, before the result is rounded: so the sum is rounded
once, where eager rounds the product and then the sum, and is nearer to the exact one. It saves
writing the product and reading it again, wherever the sum is written to memory in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch.fx import Node

from fastpath.gpu.lt import Problem
from fastpath.ir.types import name_of

LEAST = 16  # of a dimension: the side of the tensor cores' smallest block
WORTH = 1 << 24  # multiplications; below, a launch costs more than its work
_aten = torch.ops.aten
_PRODUCTS = (_aten.mm.default, _aten.addmm.default)
_VIEWS = (_aten.view.default, _aten._unsafe_view.default)
_HALVES = ("float16", "bfloat16")


def product_and_residual(
    left: torch.Tensor,
    right: torch.Tensor,
    residual: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """``left @ right + bias + residual``, of matrices; as a graph runs it uncompiled."""
    product = torch.mm(left, right) if bias is None else torch.addmm(bias, left, right)
    return product + residual


product_and_residual.reason = "the vendor's library, which adds the residual"  # type: ignore[attr-defined]


def fuse_residuals(
    graph: torch.fx.GraphModule,
    serves: Callable[[Problem], bool],
    others: Collection[str] = (),
    returned: int | None = None,
) -> int:
    """Rewrite the sums of ``graph`` (functional ATen) that are a product and a residual, and that
    are in memory in any case; returns how many.

    ``serves``: whether the library computes a problem; ``others`` names nodes that are no products
    of the vendor's; ``returned``: how many of the results the caller sees, if not all.
    """
    count = 0
    (output,) = graph.graph.find_nodes(op="output")
    results: Any = output.args[0]
    results = results if isinstance(results, (tuple, list)) else (results,)
    seen = {n for n in results[:returned] if isinstance(n, Node)}
    for node in reversed(list(graph.graph.nodes)):  # what reads a sum may be such a product
        if node.target is _aten.add.Tensor and not node.kwargs and _stored(node):
            for given, residual in (node.args, node.args[::-1]):
                product = _product(given, others)
                if product is None or not isinstance(residual, Node):
                    continue
                if _fuse(graph.graph, node, given, product, residual, serves, seen):
                    count += 1
                    break
    return count


def problem_of(
    left: Any, right: Any, bias: Any, residual: Any, out: Any, gelu: bool = False
) -> Problem | None:
    """The problem of matrices (tensors, or what has their shapes, strides and dtypes) that lie so;
    None where it is none of the library's."""
    given = [t for t in (left, right, bias, residual, out) if t is not None]
    numbers = [n for t in given for n in (*t.shape, *_strides(t))]
    dtypes = {t.dtype if isinstance(t.dtype, str) else name_of(t.dtype) for t in given}
    if any(type(n) is not int for n in numbers) or len(dtypes) != 1 or len(left.shape) != 2:
        return None
    dtype = dtypes.pop()
    (m, k), n = left.shape, right.shape[1]
    if dtype not in _HALVES or min(m, n, k) < LEAST or m * n * k < WORTH:
        return None
    if bias is not None and (tuple(bias.shape), _strides(bias)) != ((n,), (1,)):
        return None
    for t in (residual, out):
        if t is not None and (tuple(t.shape), _strides(t)) != ((m, n), (n, 1)):
            return None
    lies = _strides(left), _strides(right)
    found = Problem(dtype, m, n, k, *lies, bias is not None, residual is not None, gelu)
    return found if found.layouts() is not None else None


def _strides(t: Any) -> Any:
    return tuple(t.stride()) if isinstance(t, torch.Tensor) else tuple(t.strides)


def _stored(node: Node) -> bool:
    """Whether the sum is in memory even if a kernel that reads it computes it."""
    readers = list(node.users)
    if len(readers) > 1:
        return True
    while readers and all(r.target in _VIEWS for r in readers):
        readers = [user for reader in readers for user in reader.users]
    calls = (*_PRODUCTS, product_and_residual)
    return len(readers) > 1 or any(r.op == "output" or r.target in calls for r in readers)


def _product(node: Any, others: Collection[str]) -> Node | None:
    """The product that ``node`` is a view of, if nothing else reads it or a view on the way."""
    while isinstance(node, Node) and node.target in _VIEWS and len(node.users) == 1:
        node = node.args[0]
    if not isinstance(node, Node) or node.target not in _PRODUCTS or node.kwargs:
        return None
    return node if len(node.users) == 1 and node.name not in others else None


def _fuse(
    graph: torch.fx.Graph,
    node: Node,
    given: Any,
    product: Node,
    residual: Node,
    serves: Callable[[Problem], bool],
    seen: Collection[Node],
) -> bool:
    """``node`` is the sum of ``given``, which is the product or a view of it, and ``residual``."""
    *bias, left, right = product.args
    value, added, out = (n.meta["val"] for n in (product, residual, node))
    alike = added.shape == out.shape and added.is_contiguous() and out.is_contiguous()
    if not alike or added.dtype is not out.dtype or value.dtype is not out.dtype:
        return False
    one, other, row = (getattr(n, "meta", {}).get("val") for n in (left, right, *(bias or [None])))
    problem = problem_of(one, other, row, value, value)
    if problem is None or not serves(problem):
        return False
    shape = list(value.shape)
    with graph.inserting_before(node):
        if list(added.shape) != shape:
            residual = graph.call_function(_aten.view.default, (residual, shape))
            residual.meta["val"] = added.view(shape)
        fused = graph.call_function(product_and_residual, (left, right, residual, *bias))
        fused.meta["val"] = value
        made = fused
        if list(out.shape) != shape:  # as a sum's result, it is nobody's view
            view = _aten._unsafe_view.default if node in seen else _aten.view.default
            made = graph.call_function(view, (fused, list(out.shape)))
            made.meta["val"] = out
    node.replace_all_uses_with(made)
    graph.erase_node(node)
    while given is not product:
        given, unread = given.args[0], given
        graph.erase_node(unread)
    graph.erase_node(product)
    return True
