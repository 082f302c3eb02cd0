"""Matrix products as nodes of the loop IR, for kernels of ours in place of the vendor's.

``mm``, ``bmm``, ``addmm`` and ``baddbmm`` each become a :class:`~fastpath.ir.program.Product`,
which multiplies and adds up in float32, and an elementwise node that scales, adds and rounds it.
What follows is fused with that one, and what makes the operands with the product, by the rules that
hold for any reduction. Whether it is worth it is measured (:mod:`fastpath.gpu.tuning`), but for
products of few rows, which are as long as their launches.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import torch

from fastpath.ir import convolutions
from fastpath.ir import expr as E
from fastpath.ir.building import Building
from fastpath.ir.convolutions import CONVOLUTION, convolution
from fastpath.ir.elementwise import apply
from fastpath.ir.expr import Expr
from fastpath.ir.index import ZERO, Index
from fastpath.ir.oddrows import way_of
from fastpath.ir.program import Position, Product, Tensor, Tile

LEAST = 16  # of a dimension: the side of the tensor cores' smallest block
WORTH = 1 << 24  # multiplications; below, a call costs more than its work
LARGE = 1 << 31  # multiplications that are worth padded operands, and so a kernel of ours
ODD_ROWS = Tile(128, 256, 64, 8, 3)  # of 14 that were measured on an H200
VECTOR = 16  # bytes
FEW_ROWS, FEW_COLUMNS, FEW_STEPS = 16, 1024, 4096  # measured on an H200
_aten = torch.ops.aten
_FIRST = {  # of the two operands, among the arguments
    _aten.mm.default: 0,
    _aten.bmm.default: 0,
    _aten.addmm.default: 1,
    _aten.baddbmm.default: 1,
}


def candidates(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """The products and convolutions of a functional ATen graph that a kernel can compute."""
    kinds = (*_FIRST, CONVOLUTION)
    return [node for node in graph.nodes if node.target in kinds and _fits(node)]


def of_few_rows(graph: torch.fx.Graph) -> dict[str, Tile]:
    """The products of few rows with elementwise work behind them, by their nodes' names.

    They take as long as their weights take to be read, whoever reads them, so that what a kernel of
    ours saves is a launch, which is as long. That holds where there are columns enough for many
    programs, each of which goes along all of ``k``.
    """
    found = {}
    for node in graph.nodes:
        if node.target in _FIRST and _possible(node) and _worked_on(node):
            count, m, n, k = sizes_of(node)
            if count == 1 and 1 < m <= FEW_ROWS and n >= FEW_COLUMNS and LEAST <= k <= FEW_STEPS:
                width = 32 if n < 8192 else 64 if n < 16384 else 128
                warps, stages = (2, 5) if width == 32 else (4, 5 if width == 64 else 4)
                found[node.name] = Tile(FEW_ROWS, width, 128, warps, stages)
    return found


def of_odd_rows(graph: torch.fx.Graph) -> dict[str, Tile]:
    """The large products of 16-bit numbers whose results' rows do not begin at vectors, but the
    operands' do, by their nodes' names.

    The vendor's fast kernels store vectors: one would have to compute a wider result, to be copied,
    which takes half as long again. A kernel of ours stores what it computes meanwhile.
    """
    found = {}
    for node in graph.nodes:
        if node.target in _FIRST and _possible(node) and node.meta["val"].itemsize == 2:
            count, m, n, k = sizes_of(node)
            out, step = node.meta["val"], VECTOR // 2
            odd = out.is_contiguous() and n % step != 0
            first = _FIRST[node.target]
            operands = [a.meta["val"] for a in node.args[first : first + 2]]
            if way_of(node) is not None and not _worked_on(node):
                continue  # the vendor's kernel is fast for parts of it
            if odd and count * m * n * k >= LARGE and all(_begin(t, step) for t in operands):
                found[node.name] = ODD_ROWS
    return found


def _begin(t: torch.Tensor, step: int) -> bool:
    """Whether each row begins at a multiple of ``step`` elements."""
    *outer, high, wide = t.stride()
    rest = high if wide == 1 else wide
    return 1 in (high, wide) and all(s % step == 0 for s in (*outer, rest))


def _worked_on(node: torch.fx.Node) -> bool:
    """Whether something elementwise is computed of what it gives."""
    views = (_aten.view.default, _aten._unsafe_view.default)
    users = list(node.users)
    while users:
        user = users.pop()
        if user.target in views:
            users += user.users
        elif torch.Tag.pointwise in getattr(user.target, "tags", ()):
            return True
    return False


def sizes_of(node: torch.fx.Node) -> tuple[int, int, int, int]:
    """How many products, and their ``m``, ``n`` and ``k``: of ``[m, k] @ [k, n]``."""
    if node.target is CONVOLUTION:
        return convolutions.sizes_of(node)
    first = _FIRST[node.target]
    left, right = (a.meta["val"] for a in node.args[first : first + 2])
    m, k = left.shape[-2:]
    return math.prod(left.shape[:-2]), m, right.shape[-1], k


def _fits(node: torch.fx.Node) -> bool:
    possible = convolutions.possible if node.target is CONVOLUTION else _possible
    if not possible(node):
        return False
    count, m, n, k = sizes_of(node)
    return min(m, n, k) >= LEAST and count * m * n * k >= WORTH


def _possible(node: torch.fx.Node) -> bool:
    first = _FIRST[node.target]
    operands = node.args[first : first + 2]
    tensors = [a.meta["val"] for a in operands if isinstance(a, torch.fx.Node)]
    if any(type(n) is not int for t in tensors for n in (*t.shape, *t.stride())):
        return False
    # Along an axis that an operand does not change with, nothing tells rows from products.
    if any(not s and n > 1 for t in tensors for n, s in zip(t.shape, t.stride())):
        return False
    dtype = node.meta["val"].dtype
    return len(tensors) == 2 and all(t.dtype is dtype for t in tensors) and _fast(dtype)


def _fast(dtype: torch.dtype) -> bool:
    """Whether the tensor cores multiply it as eager does."""
    if dtype is torch.float32:
        return torch.backends.cuda.matmul.allow_tf32
    return dtype in (torch.float16, torch.bfloat16)


def product(lowering: Building, name: str, val: Any, bound: dict[str, Any], tile: Tile) -> Tensor:
    """The nodes of one product: ``bound`` are the operator's arguments by name."""
    if "dilation" in bound:
        return convolution(lowering, name, val, bound, tile)
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
