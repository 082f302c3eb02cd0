"""Which tensors stand for views where ATen is called: as few Python calls as there can be.

A view of a view of a view is three calls, each of which costs as much as launching a kernel. What
ATen reads is only sizes, strides and an offset, which are known: it takes the node itself where the
view changes nothing, and one view of the node where several would be made. What is returned to the
caller is made as the program makes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import torch

from fastpath.ir.index import Number, contiguous_strides
from fastpath.ir.program import Computed, Node, Result, Scalar, Tensor
from fastpath.ir.size import Size

_aten = torch.ops.aten
_GEOMETRY = {
    _aten.detach.default,
    _aten.alias.default,
    _aten.view.default,
    _aten._unsafe_view.default,
    _aten.expand.default,
    _aten.permute.default,
    _aten.transpose.int,
    _aten.t.default,
    _aten.squeeze.default,
    _aten.squeeze.dim,
    _aten.squeeze.dims,
    _aten.unsqueeze.default,
    _aten.select.int,
    _aten.slice.Tensor,
    _aten.split.Tensor,
    _aten.split_with_sizes.default,
    _aten.unbind.int,
    _aten.diagonal.default,
}


def unchanged(t: Tensor) -> Tensor:
    """The tensor that ``t`` is the same part of, in the same order, nearest to the node."""
    nearest = t
    for base in _bases(t):
        if (base.shape, base.strides, base.offset) == (t.shape, t.strides, t.offset):
            nearest = base
    return nearest


def one_step(t: Tensor) -> bool:
    """Whether ``t``, made by several views, can be made of its node by one.

    Its place in the node's memory has to be known, or to be the node's own: where an input begins
    in its memory is the caller's affair.
    """
    bases, node = list(_bases(t)), t.node
    if len(bases) < 2 or bases[-1].replay is not None:
        return False
    if isinstance(node, Result) and (node.bits or node.call.single):
        return not node.bits
    return isinstance(node, Computed) or t.offset == bases[-1].offset


def turned(t: Tensor) -> bool:
    """Whether ``t`` is its node, a matrix, transposed: the view that costs least to make."""
    there, back = (*t.shape, *t.strides), (*t.node.shape[::-1], *t.node.strides[::-1])
    return len(t.shape) == 2 and not t.offset and there == back


def only_seen_as(node: Node, seen: Iterable[Tensor]) -> Tensor | None:
    """What ATen reads all of ``node`` as, in the order of its memory, if that is one geometry and
    not the node's own: its memory can be made so. ``seen``: what stands for it in calls."""
    found: Tensor | None = None
    for t in map(unchanged, seen):
        if found is not None and (t.shape, t.strides) != (found.shape, found.strides):
            return None
        found = t
        if t.offset or not views_of_shape(t) or t.strides != contiguous_strides(t.shape):
            return None
    if found is None or found.shape == node.shape:
        return None
    if math.prod(found.shape) != math.prod(node.shape):
        return None
    return found if node.strides == contiguous_strides(node.shape) else None


def views_of_shape(t: Tensor) -> bool:
    """Whether what ``t`` reads is what its node holds: views only say where points lie."""
    nearest = t
    for base in _bases(t):
        nearest = base
    return nearest.replay is None


def is_fixed(t: Tensor) -> bool:
    """Whether ``t`` is the same part of its node in each call, as no symbol says which."""
    if t.replay is None:
        return True
    if not all(isinstance(n, int) for n in (*t.shape, *t.strides, t.offset)):
        return False
    return all(map(_is_fixed, (*t.replay.arguments, *t.replay.keywords.values())))


def _is_fixed(value: object) -> bool:
    if isinstance(value, Tensor):
        return is_fixed(value)
    if isinstance(value, (tuple, list)):
        return all(map(_is_fixed, value))
    return not isinstance(value, (Size, Scalar))


def beginning(t: Tensor) -> Number | None:
    """How many elements behind its node's first ``t`` begins; None where only the call knows: an
    input may begin anywhere in its memory, and so may what an operator gives, but a view that only
    says where points lie, and begins with it, begins where it does."""
    if isinstance(t.node, Computed):
        return t.offset
    return 0 if not t.offset and views_of_shape(t) else None


def _bases(t: Tensor) -> Iterator[Tensor]:
    """What ``t`` is a view of, one after the other, while views only change where points lie."""
    while t.replay is not None and t.replay.target in _GEOMETRY:
        base = t.replay.arguments[0]
        if not isinstance(base, Tensor):
            return
        yield base
        t = base
