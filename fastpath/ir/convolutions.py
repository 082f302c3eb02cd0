"""Convolutions as products of the loop IR, for kernels of ours in place of the vendor's.

Each position of the result is a row and each of its channels a column of a product, whose terms go
over the window's positions and the image's channels. The image is read in place, element by element
of each window, and 0 where a window hangs over the edge: nothing is laid out for it first. What is
elementwise around it is fused as it is with any product, and whether it is worth it is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fastpath.ir import expr as E
from fastpath.ir.building import Building
from fastpath.ir.elementwise import NotLowered, apply
from fastpath.ir.expr import Expr
from fastpath.ir.index import ZERO
from fastpath.ir.pieces import TRUE, both, where_true, within
from fastpath.ir.program import Position, Product, Tensor, Tile

CONVOLUTION = torch.ops.aten.convolution.default


def possible(node: torch.fx.Node) -> bool:
    """Whether a kernel can compute it: an image's plain convolution, in one group."""
    image, weight, _, _, _, _, transposed, _, groups = node.args
    if transposed or groups != 1:
        return False
    tensors = [a.meta["val"] for a in (image, weight) if isinstance(a, torch.fx.Node)]
    if any(type(n) is not int for t in tensors for n in (*t.shape, *t.stride())):
        return False
    if any(not s and n > 1 for t in tensors for n, s in zip(t.shape, t.stride())):
        return False
    dtype, batched = node.meta["val"].dtype, tensors[0].dim() == tensors[1].dim()
    return len(tensors) == 2 and batched and all(t.dtype is dtype for t in tensors) and _fast(dtype)


def _fast(dtype: torch.dtype) -> bool:
    """Whether the tensor cores multiply it as eager does."""
    if dtype is torch.float32:
        return torch.backends.cudnn.allow_tf32
    return dtype in (torch.float16, torch.bfloat16)


def sizes_of(node: torch.fx.Node) -> tuple[int, int, int, int]:
    """One product, and its ``m``, ``n`` and ``k``: positions, channels, and terms of each."""
    weight, out = node.args[1].meta["val"], node.meta["val"]
    channels = weight.shape[0]
    return 1, out.numel() // max(channels, 1), channels, weight[0].numel() if channels else 0


def convolution(
    lowering: Building, name: str, val: Any, bound: dict[str, Any], tile: Tile
) -> Tensor:
    """The nodes of one convolution: ``bound`` are the operator's arguments by name."""
    image, weight, bias = bound["input"], bound["weight"], bound["bias"]
    batch, channels, *sizes = image.shape
    out, _, *window = weight.shape
    rank = len(sizes)
    stride, padding, dilation = (
        _per_dim(bound[key], rank) for key in ("stride", "padding", "dilation")
    )
    places = tuple(val.shape[2:])
    space = (batch, out, *places, *window, channels)  # as the result is gone through

    def factors(index: Position) -> tuple[Expr, Expr]:
        number, column, *rest = index
        at, inner, channel = rest[:rank], rest[rank : 2 * rank], rest[2 * rank]
        place, inside = [], TRUE
        for d in range(rank):
            i = at[d] * stride[d] + inner[d] * dilation[d] + -padding[d]
            inside = both(inside, within(i, 0, sizes[d]))
            place.append(i)

        def read() -> Expr:
            return image.read((number, channel, *place))

        element = where_true(inside, read, E.const(0, image.dtype))
        if element.op == "const":
            raise NotLowered("windows of which none reaches the image")
        return element, weight.read((column, channel, *inner))

    dims = range(rank + 2, 2 * rank + 3)
    node = Product(lowering.fresh(name), space, factors, tile, dims)
    raw = lowering.add(node)

    def finish(index: Position) -> Expr:
        value = raw.read((*index, *(ZERO for _ in dims)))
        if bias is None:
            return value
        return apply("add", value, E.cast(bias.read((index[1],)), "float32"))

    result = lowering.output(val, finish, name)
    node.own = result.node
    return result


def _per_dim(given: Sequence[int], rank: int) -> list[int]:
    sizes = list(given)
    return sizes * rank if len(sizes) == 1 else sizes
