"""Matrix products whose rows are not aligned, padded: the vendor's fast kernels want whole vectors.

cuBLAS has kernels for the tensor cores' full speed only where each row of the operands and of the
result begins at a multiple of 16 bytes. A dimension that lies in a row and does not fill it is
padded with zeros, and the result is cut to size, which costs copies of the operands and the result
unless what makes or reads them takes care of it. Where only the result's rows would be more, these
are left out, and the last of them computed by themselves.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from fastpath.ir.oddrows import by_rows
from fastpath.making import called

ALIGNMENT = 16  # bytes
WORTH = 1 << 31  # multiplications; below, the copies cost more than the slower kernel
_aten = torch.ops.aten
PRODUCTS = {_aten.mm.default: 0, _aten.addmm.default: 1, _aten.bmm.default: 0}


def pad_products(graph: torch.fx.GraphModule, others: Collection[str] = ()) -> int:
    """Rewrite the products of ``graph`` (functional ATen) that padding helps; returns how many.

    ``others`` names nodes that are no products of the vendor's.
    """
    count = 0
    made = _Maker(graph.graph)
    for node in list(graph.graph.nodes):
        first = PRODUCTS.get(node.target)
        if first is not None and node.name not in others and _pad(made, node, first):
            count += 1
    return count


def is_padded(node: torch.fx.Node, operand: torch.fx.Node) -> bool:
    """Whether a product, ``node``, is computed of an operand that is padded."""
    missing = _missing(node)
    if missing is None:
        return False
    a, b = node.args[PRODUCTS[node.target] :][:2]
    of_left, of_right = missing["m"] + missing["k"], missing["k"] + missing["n"]
    return operand is a and of_left > 0 or operand is b and of_right > 0


def _missing(node: torch.fx.Node) -> dict[str, int] | None:
    """By how much each dimension of a product is padded, where one is."""
    first = PRODUCTS[node.target]
    a, b = node.args[first], node.args[first + 1]
    assert isinstance(a, torch.fx.Node) and isinstance(b, torch.fx.Node)
    left, right, out = a.meta["val"], b.meta["val"], node.meta["val"]
    if left.dtype not in (torch.float16, torch.bfloat16) or not _static(left, right):
        return None
    if not out.is_contiguous():  # the copy that cuts the result to size is
        return None
    step = ALIGNMENT // left.itemsize
    (m, k), n = left.shape[-2:], right.shape[-1]
    if left.shape[:-2].numel() * m * n * k < WORTH:
        return None
    # Of each matrix the dimension that lies in a row: its size decides where rows begin.
    wanted = {_inner(left, "m", "k"), _inner(right, "k", "n"), "n"}
    short = {name: -size % step for name, size in zip("mnk", (m, n, k))}
    missing = {name: short[name] if name in wanted else 0 for name in "mnk"}
    return missing if any(missing.values()) else None


def _pad(made: _Maker, node: torch.fx.Node, first: int) -> bool:
    missing = _missing(node)
    if missing is None:
        return False
    graph, out = made.graph, node.meta["val"]
    a, b = node.args[first], node.args[first + 1]
    assert isinstance(a, torch.fx.Node) and isinstance(b, torch.fx.Node)
    m, n = out.shape[-2:]
    if node.target is _aten.mm.default and not missing["m"] + missing["n"]:
        if _begin_alike(b.meta["val"]):
            _by_whole_vectors(made, node, a, b, missing["k"])
            return True
    if first == 0 and len(out.shape) == 2 and missing["m"] and not missing["n"] + missing["k"]:
        with graph.inserting_before(node):
            whole = made.padded(a, missing["m"], 0)
            rows = made.call(_aten.slice.Tensor, (whole, 0, 0, m))
            result = made.call(by_rows, (rows, b))
        node.replace_all_uses_with(result)
        graph.erase_node(node)
        return True
    with graph.inserting_before(node):
        operands = [
            made.padded(a, missing["m"], missing["k"]),
            made.padded(b, missing["k"], missing["n"]),
        ]
        others = list(node.args[:first])
        if first:  # what is added spreads over the padded result
            others[0] = made.spread(others[0], missing["m"], missing["n"])
        product = made.call(node.target, (*others, *operands), dict(node.kwargs))
        cut = product
        if missing["m"]:
            cut = made.call(_aten.slice.Tensor, (cut, out.dim() - 2, 0, m))
        if missing["n"]:
            cut = made.call(_aten.slice.Tensor, (cut, out.dim() - 1, 0, n))
        form = {"memory_format": torch.contiguous_format}
        result = made.call(_aten.clone.default, (cut,), form)
    node.replace_all_uses_with(result)
    graph.erase_node(node)
    return True


def _static(*tensors: torch.Tensor) -> bool:
    return all(type(n) is int for t in tensors for n in (*t.shape, *t.stride()))


def _by_whole_vectors(
    made: _Maker, node: torch.fx.Node, a: torch.fx.Node, b: torch.fx.Node, missing: int
) -> None:
    """Only the left operand's rows begin between vectors. As many terms as whole vectors have need
    no more than that it is padded; the others are a small product, to which these are added."""
    terms = b.meta["val"].shape[0]
    step = ALIGNMENT // b.meta["val"].itemsize
    first = terms // step * step
    with made.graph.inserting_before(node):
        whole = made.padded(a, 0, missing)
        parts = made.call(_aten.slice.Tensor, (whole, 1, first, first + step))
        others = made.padded(made.call(_aten.slice.Tensor, (b, 0, first, terms)), missing, 0)
        rest = made.call(_aten.mm.default, (parts, others))
        parts = made.call(_aten.slice.Tensor, (whole, 1, 0, first))
        rows = made.call(_aten.slice.Tensor, (b, 0, 0, first))
        result = made.call(_aten.addmm.default, (rest, parts, rows))
    node.replace_all_uses_with(result)
    made.graph.erase_node(node)


def _begin_alike(t: torch.Tensor) -> bool:
    """Whether the rows of the last dimension lie together and begin at vectors."""
    step = ALIGNMENT // t.itemsize
    return t.stride(-1) == 1 and all(n % step == 0 for n in t.stride()[:-1])


def _inner(t: torch.Tensor, rows: str, columns: str) -> str:
    return rows if t.stride(-2) == 1 and t.stride(-1) != 1 else columns


class _Maker:
    """Adds calls to a graph, with the fake results that the others of its nodes carry.

    What several products need padded alike, a gradient for example, is padded once.
    """

    def __init__(self, graph: torch.fx.Graph):
        self.graph = graph
        self.made: dict[tuple[torch.fx.Node, tuple[int, ...]], torch.fx.Node] = {}

    def call(
        self, target: Any, arguments: tuple[Any, ...], keywords: dict[str, Any] | None = None
    ) -> torch.fx.Node:
        return called(self.graph, target, arguments, keywords or {})

    def padded(self, node: torch.fx.Node, rows: int, columns: int) -> torch.fx.Node:
        """``node``, padded, its rows in memory where they were: a transposed one stays one."""
        if not (rows or columns):
            return node
        value = node.meta["val"]
        dim = value.dim()
        if dim > 1 and _inner(value, "rows", "columns") == "rows":
            return self.turned(self.padded(self.turned(node), columns, rows))
        amounts = [0, columns, 0, rows][: 2 * dim]
        key = (node, tuple(amounts))
        found = self.made.get(key)
        if found is None:
            found = self.call(_aten.constant_pad_nd.default, (node, amounts, 0))
            self.made[key] = found
        return found

    def turned(self, node: torch.fx.Node) -> torch.fx.Node:
        """The transposed matrices: of one that was turned already, the one it was made of."""
        dim = node.meta["val"].dim()
        if node.target is _aten.t.default:
            before = node.args[0]
            assert isinstance(before, torch.fx.Node)
            return before
        return self.call(_aten.transpose.int, (node, dim - 2, dim - 1))

    def spread(self, node: Any, rows: int, columns: int) -> torch.fx.Node:
        """``node``, which is added to each row or column, or to all, padded where it is not."""
        shape = node.meta["val"].shape
        high = shape[0] if len(shape) == 2 else 1
        wide = shape[-1] if len(shape) else 1
        return self.padded(node, rows if high > 1 else 0, columns if wide > 1 else 0)
