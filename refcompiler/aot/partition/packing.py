"""Masks that a forward saves, as one byte an element: what a Bernoulli draw gives is 0 or 1.

Eager keeps the mask of a dropout in the type of the activations. As bytes it is the same numbers
in a quarter of the memory or half of it; the backward has the other type made when it needs it.
Not for a product with the mask, or with the mask divided by a number as dropout does: that takes
the bytes, and the other type of them is never there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch.fx import Graph, Node

_aten = torch.ops.aten
_MASKS = {_aten.bernoulli.p, _aten.bernoulli.default}
_QUOTIENTS = {_aten.div.Scalar, _aten.div.Tensor}
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


@dataclass(frozen=True)
class Product:
    """``other`` times ``mask``, in the place that it has there, and times ``factor`` if any."""

    other: Node
    mask: Node
    first: bool  # whether the mask is the first of the two
    factor: float | None

    def made(self, graph: Graph, node: Node, other: Node, holder: Node) -> Node:
        """What ``node`` is, of what is made for ``other`` and of the mask's bytes.

        The same bits: a product with 0 or 1 is exact.
        """
        factors = (holder, other) if self.first else (other, holder)
        made = graph.call_function(_aten.mul.Tensor, factors)
        made.meta = dict(node.meta)
        if self.factor is not None:
            made = graph.call_function(_aten.mul.Tensor, (made, self.factor))
            made.meta = dict(node.meta)
        return made


def product(node: Node, held: Collection[Node], there: Collection[Node]) -> Product | None:
    """What ``node`` is, if it is a product with one of the masks ``held``, in the mask's type.

    ``there``: what is made already.
    """
    if node.target is not _aten.mul.Tensor or len(node.args) != 2:
        return None
    for first, (factor, other) in ((False, node.args[::-1]), (True, node.args)):
        if not isinstance(factor, Node) or not isinstance(other, Node):
            continue
        if factor in there and factor not in held:
            continue
        mask: Any = factor
        divisor: Any = None
        if factor.target in _QUOTIENTS and len(factor.args) == 2 and not factor.kwargs:
            mask, divisor = factor.args
            if type(divisor) not in (int, float):
                continue
        if mask not in held or other in held:
            continue
        vals = [each.meta.get("val") for each in (mask, factor, other, node)]
        dtype = mask.meta["val"].dtype
        if not dtype.is_floating_point or any(getattr(v, "dtype", None) != dtype for v in vals):
            continue
        return Product(other, mask, first, _quotient(dtype, divisor))
    return None


def _quotient(dtype: torch.dtype, divisor: Real | None) -> float | None:
    """1 by ``divisor`` as it is rounded in ``dtype``."""
    if divisor is None:
        return None
    with torch.utils._python_dispatch._disable_current_modes():
        return float(torch.ones((), dtype=dtype, device="cpu").div(divisor).item())
