"""Matrix products as nodes of the loop IR, for kernels of ours in place of the vendor's.

``mm``, ``bmm``, ``addmm`` and ``baddbmm`` each become a :class:`~fastpath.ir.program.Product`,
which multiplies and adds up in float32, and an elementwise node that scales, adds and rounds it.
What follows is fused with that one, and what makes the operands with the product, by the rules that
hold for any reduction. Whether it is worth it is measured: :mod:`fastpath.gpu.tuning`.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import torch

from fastpath.ir import expr as E
from fastpath.ir.building import Building
from fastpath.ir.elementwise import apply
from fastpath.ir.expr import Expr
from fastpath.ir.index import ZERO, Index
from fastpath.ir.program import Position, Product, Tensor, Tile

LEAST = 16  # of a dimension: the side of the tensor cores' smallest block
WORTH = 1 << 24  # multiplications; below, a call costs more than its work
_aten = torch.ops.aten
_FIRST = {  # of the two operands, among the arguments
    _aten.mm.default: 0,
    _aten.bmm.default: 0,
    _aten.addmm.default: 1,
    _aten.baddbmm.default: 1,
}


def candidates(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """The products of a functional ATen graph that a kernel can compute."""
    return [node for node in graph.nodes if node.target in _FIRST and _fits(node)]


def sizes_of(node: torch.fx.Node) -> tuple[int, int, int, int]:
    """How many products, and their ``m``, ``n`` and ``k``: of ``[m, k] @ [k, n]``."""
    first = _FIRST[node.target]
    left, right = (a.meta["val"] for a in node.args[first : first + 2])
    m, k = left.shape[-2:]
    return math.prod(left.shape[:-2]), m, right.shape[-1], k


def _fits(node: torch.fx.Node) -> bool:
    first = _FIRST[node.target]
    operands = node.args[first : first + 2]
    tensors = [a.meta["val"] for a in operands if isinstance(a, torch.fx.Node)]
    if any(type(n) is not int for t in tensors for n in (*t.shape, *t.stride())):
        return False
    # Along an axis that an operand does not change with, nothing tells rows from products.
    if any(not s and n > 1 for t in tensors for n, s in zip(t.shape, t.stride())):
        return False
    dtype = node.meta["val"].dtype
    if len(tensors) != 2 or any(t.dtype is not dtype for t in tensors) or not _fast(dtype):
        return False
    count, m, n, k = sizes_of(node)
    return min(m, n, k) >= LEAST and count * m * n * k >= WORTH


def _fast(dtype: torch.dtype) -> bool:
    """Whether the tensor cores multiply it as eager does."""
    if dtype is torch.float32:
        return torch.backends.cuda.matmul.allow_tf32
    return dtype in (torch.float16, torch.bfloat16)


def product(lowering: Building, name: str, val: Any, bound: dict[str, Any], tile: Tile) -> Tensor:
    """The nodes of one product: ``bound`` are the operator's arguments by name."""
    added: Tensor | None = None
    left, right = [bound[key] for key in _operands(bound)]
    if "beta" in bound:
        added = bound["self"]
    *batch, m, k = left.shape
    n = right.shape[-1]
    space = (*batch, m, n, k)
    dtype = left.dtype

    def factors(index: Position) -> tuple[Expr, Expr]:
        *at, row, column, inner = index
        return left.read((*at, row, inner)), right.read((*at, inner, column))

    node = Product(lowering.fresh(name), space, factors, tile)
    raw = lowering.add(node)
    alpha, beta = bound.get("alpha", 1), bound.get("beta", 1)

    def finish(index: Position) -> Expr:
        value = raw.read((*index, ZERO))
        if alpha != 1:
            value = apply("mul", value, E.number(alpha, "float32"))
        if added is None or beta == 0:
            return value
        other = E.cast(added.read(_spread(added, index)), "float32")
        if beta != 1:
            other = apply("mul", other, E.number(beta, "float32"))
        return apply("add", value, other)

    result = lowering.output(val, finish, name)
    assert result.dtype == dtype
    node.own = result.node
    return result


def _operands(bound: dict[str, Any]) -> Collection[str]:
    for names in (("mat1", "mat2"), ("batch1", "batch2"), ("self", "mat2")):
        if names[0] in bound and names[1] in bound:
            return names
    raise AssertionError(f"no product: {sorted(bound)}")


def _spread(t: Tensor, index: Position) -> tuple[Index, ...]:
    """The position in ``t``, which is broadcast, of a position of the product."""
    own = index[len(index) - len(t.shape) :]
    return tuple(ZERO if size == 1 else i for size, i in zip(t.shape, own))
