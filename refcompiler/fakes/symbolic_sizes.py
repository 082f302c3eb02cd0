"""Sizes with symbols, and tensors that have them: what is certain whatever the symbols are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch

from refcompiler.fakes.results import Output, Result
from refcompiler.shapes.ranges import SIGNS

FLOATS = (torch.float32, torch.float64)
Sizes = Sequence[Any]  # ints and torch.SymInts


# ---- sizes --------------------------------------------------------------------------------------


def same(a: Any, b: Any) -> bool:
    """Whether two sizes are equal for all values of the symbols."""
    if type(a) is int and type(b) is int:
        return a == b
    if type(a) is type(b) and (a.node is b.node or a.node.expr == b.node.expr):
        return True
    return surely(sympy.Eq, a, b)  # a symbol may be known to be a number


def _expression(n: Any) -> Any:
    return sympy.Integer(n) if type(n) is int else n.node.expr


def surely(relation: Any, a: Any, b: Any) -> bool:
    """Whether ``relation`` (:class:`sympy.Eq` and such) of two sizes is certain."""
    node = next((n.node for n in (a, b) if type(n) is not int), None)
    if node is None:
        return bool(relation(a, b))
    know, left, right = node.shape_env.knowledge, _expression(a), _expression(b)
    known = know.compare(SIGNS[relation], left, right)
    if known is None and not (know.is_plain(left) and know.is_plain(right)):
        return relation(left, right) is sympy.true
    return known is True


def all_same(a: Sizes, b: Sizes) -> bool:
    return len(a) == len(b) and all(map(same, a, b))


def positive(sizes: Sizes) -> bool:
    """Whether no size depends on data or can be 0."""
    for n in sizes:
        if type(n) is int:
            if n < 1:
                return False
        elif n.node._hint is None or n.node.shape_env.knowledge.range_of(n.node.expr).low < 1:
            return False
    return True


def product(sizes: Sizes) -> Any:
    made: Any = 1
    for n in sizes:
        made = made * n
    return made


def contiguous_strides(sizes: Sizes, inner: Any = 1) -> list[Any]:
    steps: list[Any] = []
    for n in reversed(sizes):
        steps.insert(0, inner)
        inner = inner * n
    return steps


def is_dense(sizes: Sizes, strides: Sizes) -> bool:
    """Whether the dimensions lie inside each other without gaps."""
    wanted = contiguous_strides(sizes, strides[-1]) if len(sizes) else []
    return all_same(strides, wanted)


def is_contiguous(tensor: Any) -> bool:
    shape = tensor.shape
    return positive(shape) and all_same(tensor.stride(), contiguous_strides(shape))


# ---- results ------------------------------------------------------------------------------------


def new(like: Any, shape: Sizes, dtype: Any = None, steps: Sizes | None = None) -> Output:
    steps = tuple(contiguous_strides(shape) if steps is None else steps)
    return Output(tuple(shape), steps, 0, dtype or like.dtype, like.fake_device, -1, -1, 0)


def seen(tensor: Any, shape: Sizes, steps: Sizes, offset: Any) -> Output:
    """A view of the first tensor among the arguments."""
    place = tuple(shape), tuple(steps), offset
    return Output(*place, tensor.dtype, tensor.fake_device, -1, 0, 0)


def viewed(tensor: Any, shape: Sizes, steps: Sizes) -> Result:
    return result(seen(tensor, shape, steps, tensor.storage_offset()))


def result(*outputs: Output, kind: type | None = None) -> Result:
    return Result(kind, outputs)


def order_of(tensor: Any) -> list[int] | None:
    """Dimensions from the outermost in; None where strides do not say it for all symbols."""
    strides = tensor.stride()
    found: list[int] = []
    for d, step in enumerate(strides):
        if not surely(sympy.Gt, step, 0):
            return None
        at = 0
        while at < len(found) and surely(sympy.Gt, strides[found[at]], step):
            at += 1
        if any(not surely(sympy.Lt, strides[e], step) for e in found[at:]):
            return None
        found.insert(at, d)
    return found


def lying(shape: Sizes, order: Sequence[int]) -> list[Any]:
    """The strides of a tensor without gaps whose dimensions lie in an order."""
    steps: list[Any] = [None] * len(shape)
    inner: Any = 1
    for d in reversed(order):
        steps[d] = inner
        inner = inner * shape[d]
    return steps


def usable(*tensors: Any) -> bool:
    """On one device, read as they are, and not without elements."""
    device = tensors[0].fake_device
    return all(
        t.fake_device == device and not t.is_neg() and not t.is_conj() and positive(t.shape)
        for t in tensors
    )


def plain(*tensors: Any) -> bool:
    """Contiguous, on one device, and read as they are."""
    device = tensors[0].fake_device
    return all(
        t.fake_device == device and not t.is_neg() and not t.is_conj() and is_contiguous(t)
        for t in tensors
    )


def floats(*tensors: Any) -> bool:
    dtype = tensors[0].dtype
    return dtype in FLOATS and all(t.dtype is dtype for t in tensors) and plain(*tensors)
