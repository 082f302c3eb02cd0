"""Sums of products, computed by the products themselves.

What a weight that is used more than once has as its gradient is a sum of as many products, and so
is the gradient of what several layers read. Each product after the first adds to what is there as
it stores its result: else all of them are in memory until one kernel adds them up.
"""

from __future__ import annotations

from typing import Any

import torch

_aten = torch.ops.aten
_ADDING = {_aten.mm.default: _aten.addmm.default, _aten.bmm.default: _aten.baddbmm.default}
_PRODUCTS = {*_ADDING, *_ADDING.values()}
_VIEWS = {_aten.view.default, _aten._unsafe_view.default, _aten.t.default}
_VIEWS |= {_aten.transpose.int, _aten.permute.default}
_FLOATS = (torch.float32, torch.float64)


def has_sums_of_products(graph: torch.fx.GraphModule) -> bool:
    """Whether :func:`accumulate_products` has anything to look at."""
    return any(
        all(_product(a) is not None for a in node.args)
        for node in graph.graph.find_nodes(op="call_function", target=_aten.add.Tensor)
    )


def accumulate_products(graph: torch.fx.GraphModule) -> int:
    """Rewrite the sums in ``graph`` (functional ATen) of two products that nothing else reads, or
    of equal views of such; returns how many. A product is computed no later than it was."""
    place = {node: n for n, node in enumerate(graph.graph.nodes)}
    count = 0
    for node in list(graph.graph.find_nodes(op="call_function", target=_aten.add.Tensor)):
        if len(node.args) != 2 or node.kwargs or node.args[0] is node.args[1]:
            continue
        found = [_product(a) for a in node.args]
        if None in found:
            continue
        first, second = sorted(found, key=lambda each: place[each[0]])
        (base, before), (last, behind) = first, second
        if last.target not in _ADDING or not _alike(base, last) or before != behind:
            continue
        if behind and any(user.op == "output" for user in node.users):
            continue  # a sum is nobody's view
        with graph.graph.inserting_before(last):
            summed = graph.graph.call_function(_ADDING[last.target], (base, *last.args))
        summed.meta.update(last.meta)
        place[summed] = place[last]
        rest, top = node.args[found.index(first)], node.args[found.index(second)]
        node.replace_all_uses_with(top if behind else summed)
        graph.graph.erase_node(node)
        for view in (rest,) if behind else (rest, top):
            while view is not base and view is not last:
                view, above = view.args[0], view
                graph.graph.erase_node(above)
        last.replace_all_uses_with(summed)
        graph.graph.erase_node(last)
        count += 1
    return count


def _product(node: Any) -> Any:
    """The product that ``node`` is, or a view of, and the views, if nothing else reads any. Those
    that undo each other are none."""
    views, top = [], node
    while isinstance(node, torch.fx.Node) and node.target in _VIEWS and len(node.users) == 1:
        views.append((node.target, node.args[1:], tuple(sorted(node.kwargs.items()))))
        node = node.args[0]
    if not isinstance(node, torch.fx.Node) or node.target not in _PRODUCTS or node.kwargs:
        return None
    if len(node.users) != 1:
        return None
    return node, [] if _alike(node, top) else views


def _alike(a: torch.fx.Node, b: torch.fx.Node) -> bool:
    """Whether their values lie in memory alike, as what adds to memory needs."""
    x, y = a.meta["val"], b.meta["val"]
    same = x.shape == y.shape and x.stride() == y.stride() and x.dtype is y.dtype
    return same and x.dtype in _FLOATS
