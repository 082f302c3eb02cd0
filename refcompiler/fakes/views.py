"""Views by rule: the sizes, strides and offset under which a tensor's memory is seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from specs import strides
from specs.shapes import wrap

#: Sizes, strides and offset in elements.
Seen = tuple[tuple[int, ...], tuple[int, ...], int]
_aten = torch.ops.aten

#: Each gets the tensor and the operator's other arguments. Bad ones raise ``ValueError`` or
#: ``IndexError``; None where no rule says it.
VIEWS: dict[Any, Callable[..., Seen | list[Seen] | None]] = {}


def view_rule(*functions: Any) -> Callable[[Callable], Callable]:
    def register(rule: Callable) -> Callable:
        for function in functions:
            VIEWS[function] = rule
        return rule

    return register


@view_rule(_aten.view.default, _aten._unsafe_view.default)
def view(t: Any, shape: Sequence[int]) -> Seen | None:
    size, count = list(shape), math.prod(t.shape)
    if any(n < -1 for n in size):
        return None
    if -1 in size:
        known = -math.prod(size)
        if size.count(-1) > 1 or not known or count % known:
            return None
        size[size.index(-1)] = count // known
    if not count or math.prod(size) != count:
        return None
    steps = strides.viewed(t.shape, t.stride(), size)
    return None if steps is None else (tuple(size), steps, t.storage_offset())


@view_rule(_aten.alias.default, _aten.detach.default)
def alias(t: Any) -> Seen:
    return tuple(t.shape), t.stride(), t.storage_offset()


@view_rule(_aten.permute.default)
def permute(t: Any, dims: Sequence[int]) -> Seen:
    order = [wrap(d, t.dim()) for d in dims]
    if sorted(order) != list(range(t.dim())):
        raise ValueError(f"{dims} is no order of {t.dim()} dimensions")
    size, steps = t.shape, t.stride()
    return tuple([size[d] for d in order]), tuple([steps[d] for d in order]), t.storage_offset()


@view_rule(_aten.transpose.int)
def transpose(t: Any, dim0: int, dim1: int) -> Seen:
    rank = t.dim()
    a, b = wrap(dim0, rank), wrap(dim1, rank)
    order = list(range(rank))
    if order:
        order[a], order[b] = b, a
    return permute(t, order)


@view_rule(_aten.t.default)
def t_(t: Any) -> Seen:
    if t.dim() > 2:
        raise ValueError("t() is for at most two dimensions")
    return permute(t, range(t.dim())[::-1])


@view_rule(_aten.expand.default)
def expand(t: Any, shape: Sequence[int]) -> Seen:
    old, steps = list(t.shape), list(t.stride())
    new = len(shape) - len(old)
    if new < 0:
        raise ValueError("expanded to fewer dimensions")
    sizes: list[int] = []
    found: list[int] = []
    for at in reversed(range(len(shape))):
        if at >= new:
            size, step = old[at - new], steps[at - new]
        else:
            size, step = 1, (sizes[-1] * found[-1] if sizes else 1)
        wanted = size if shape[at] == -1 and at >= new else shape[at]
        if wanted < 0 or (wanted != size and size != 1):
            raise ValueError(f"{size} does not expand to {wanted}")
        sizes.append(wanted)
        found.append(step if wanted == size else 0)
    return tuple(sizes[::-1]), tuple(found[::-1]), t.storage_offset()


@view_rule(_aten.slice.Tensor)
def slice_(t: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Seen:
    size, steps = list(t.shape), list(t.stride())
    if not size or step <= 0:
        raise ValueError("no such slice")
    at = wrap(dim, len(size))
    taken = range(size[at])[slice(start, end, step)]
    offset = t.storage_offset() + taken.start * steps[at]
    size[at] = len(taken)
    steps[at] *= step
    return tuple(size), tuple(steps), offset


@view_rule(_aten.select.int)
def select(t: Any, dim: int, index: int) -> Seen:
    size, steps = list(t.shape), list(t.stride())
    if not size:
        raise IndexError("a tensor without dimensions")
    at = wrap(dim, len(size))
    offset = t.storage_offset() + range(size[at])[index] * steps[at]
    del size[at], steps[at]
    return tuple(size), tuple(steps), offset


@view_rule(_aten.unsqueeze.default)
def unsqueeze(t: Any, dim: int) -> Seen:
    size, steps = list(t.shape), list(t.stride())
    at = wrap(dim, len(size) + 1)
    steps.insert(at, size[at] * steps[at] if at < len(size) else 1)
    size.insert(at, 1)
    return tuple(size), tuple(steps), t.storage_offset()


@view_rule(_aten.squeeze.default, _aten.squeeze.dim, _aten.squeeze.dims)
def squeeze(t: Any, dim: Any = None) -> Seen:
    size, steps = t.shape, t.stride()
    named = range(len(size)) if dim is None else [dim] if type(dim) is int else dim
    gone = {wrap(d, len(size)) for d in named}
    kept = [d for d in range(len(size)) if d not in gone or size[d] != 1]
    return tuple([size[d] for d in kept]), tuple([steps[d] for d in kept]), t.storage_offset()


@view_rule(_aten.split_with_sizes.default)
def split_with_sizes(t: Any, sizes: Sequence[int], dim: int = 0) -> list[Seen]:
    at = wrap(dim, t.dim())
    if sum(sizes) != t.shape[at] or min(sizes, default=-1) < 0:
        raise ValueError(f"{sizes} do not add up to {t.shape[at]}")
    pieces, start = [], 0
    for size in sizes:
        pieces.append(slice_(t, at, start, start + size))
        start += size
    return pieces


@view_rule(_aten.split.Tensor)
def split(t: Any, size: int, dim: int = 0) -> list[Seen]:
    length = t.shape[wrap(dim, t.dim())]
    if not length and size >= 0:
        return split_with_sizes(t, [0], dim)  # eager's only piece; torch 2.11's stand-in raises
    if size <= 0:
        raise ValueError("no pieces")
    whole, rest = divmod(length, size)
    return split_with_sizes(t, [size] * whole + [rest] * (rest > 0), dim)


@view_rule(_aten.unbind.int)
def unbind(t: Any, dim: int = 0) -> list[Seen]:
    return [select(t, dim, i) for i in range(t.shape[wrap(dim, t.dim())])]
