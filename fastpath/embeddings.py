"""Gradients of embeddings on a device, without sorting what was looked up.

Eager's kernels sort the positions by the rows they read, in some twenty launches, and add up each
row's in turn. Here each position adds to its row, in float32. Of 16-bit numbers the rows are not
all there in float32 if there are more of them than positions: a row's sum is that of one of its
positions, whichever comes last, and goes to a row of zeros. The sums are in any order, as those of
``index_add`` are on a device, so that none of this is for deterministic mode.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch.fx import Graph, Node

from fastpath.making import called

_aten = torch.ops.aten
_EMBEDDING = _aten.embedding_dense_backward.default
_HALVES = (torch.float16, torch.bfloat16)
_PLACES = (torch.int32, torch.int64)


def sum_embeddings(graph: torch.fx.GraphModule) -> int:
    """Rewrite the gradients of embeddings in ``graph`` (functional ATen), but for those that are
    scaled by how often a row is read; returns how many."""
    if torch.are_deterministic_algorithms_enabled():
        return 0
    found = [n for n in graph.graph.find_nodes(op="call_function", target=_EMBEDDING) if _ours(n)]
    for node in found:
        mode: Any = _value(node)
        with graph.graph.inserting_before(node), mode.fake_mode:
            made = _summed(graph.graph, node)
        node.replace_all_uses_with(made)
        graph.graph.erase_node(node)
    return len(found)


def _ours(node: Node) -> bool:
    if len(node.args) != 5 or node.kwargs or node.args[4]:
        return False
    gradient, places, out = (_value(a) for a in (*node.args[:2], node))
    laid = (*gradient.shape, *gradient.stride(), *places.shape, *places.stride())
    numbers = (*laid, *node.args[2:4])
    if not all(isinstance(n, int) for n in numbers) or not gradient.numel() or not out.numel():
        return False
    if gradient.shape[:-1] != places.shape or places.dtype not in _PLACES:
        return False
    return gradient.dtype in (*_HALVES, torch.float32) and out.is_contiguous()


def _value(node: Any) -> torch.Tensor:
    found: torch.Tensor = node.meta["val"]
    return found


def _summed(graph: Graph, node: Node) -> Node:
    gradient, places, rows, left_out, _ = node.args
    given = _value(gradient)
    width = given.shape[-1]
    count, dtype, device = math.prod(given.shape[:-1]), given.dtype, given.device
    call = functools.partial(called, graph)
    single, whole = ({"dtype": d, "device": device} for d in (torch.float32, torch.int64))
    source = _as(call, gradient, torch.float32, (count, width))
    at = row = _as(call, places, torch.int64, (count,))
    if left_out >= 0:
        kept = call(_aten.view.default, (call(_aten.ne.Scalar, (row, left_out)), (count, 1)))
        zero = call(_aten.full.default, ((), 0.0), single)
        source = call(_aten.where.self, (kept, source, zero))
    few = dtype in _HALVES and count < rows
    if few:  # which position has the sum of a row
        none = call(_aten.full.default, ((rows,), 0), whole)
        last = call(_aten.scatter.src, (none, 0, row, call(_aten.arange.default, (count,), whole)))
        at = call(_aten.index.Tensor, (last, [row]))
    nothing = call(_aten.full.default, ((count if few else rows, width), 0.0), single)
    sums = call(_aten.index_add.default, (nothing, 0, at, source))
    if few:
        sums = _as(call, call(_aten.index.Tensor, (sums, [at])), dtype, (count, width))
        out = call(_aten.full.default, ((rows, width), 0.0), {"dtype": dtype, "device": device})
        return call(_aten.index_put.default, (out, [row], sums))
    return _as(call, sums, dtype, (rows, width))


def _as(call: Any, node: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> Node:
    """``node`` with another dtype and shape, as far as it has not."""
    if _value(node).dtype is not dtype:
        node = call(_aten._to_copy.default, (node,), {"dtype": dtype})
    if tuple(_value(node).shape) != shape:
        try:
            node = call(_aten.view.default, (node, shape))
        except (RuntimeError, ValueError):  # its rows lie apart
            form = {"memory_format": torch.contiguous_format}
            node = call(_aten.view.default, (call(_aten.clone.default, (node,), form), shape))
    found: Node = node
    return found
