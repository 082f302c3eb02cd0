"""Views of tensors with symbolic sizes, by rules that decide nothing of the symbols."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch

from refcompiler.fakes.results import Result
from refcompiler.fakes.symbolic_sizes import (
    Sizes,
    positive,
    product,
    result,
    same,
    seen,
    surely,
    viewed,
)

_aten = torch.ops.aten


def _can_view(tensor: Any) -> bool:
    return _has_plain_views(tensor) and positive(tensor.shape)


def _has_plain_views(tensor: Any) -> bool:
    if tensor.is_conj() or tensor.is_neg() or tensor._is_zerotensor():  # so is its view
        return False
    return not torch.is_inference_mode_enabled()  # a view of one from before is none of that mode


def _view(tensor: Any, shape: Sizes) -> Result | None:
    if not _can_view(tensor):
        return None
    sizes, given, strides = list(shape), tensor.shape, tensor.stride()
    unknown = [i for i, n in enumerate(sizes) if type(n) is int and n == -1]
    count = product(given)
    if unknown:
        known = product([n for i, n in enumerate(sizes) if i not in unknown])
        if len(unknown) > 1 or not positive([known]):
            return None
        sizes[unknown[0]] = count // known
    if not positive(sizes) or not same(product(sizes), count):
        return None
    steps = _restrided(given, strides, sizes)
    return None if steps is None else viewed(tensor, sizes, steps)


def _restrided(given: Sizes, strides: Sizes, sizes: Sizes) -> list[Any] | None:
    """The strides of a view in other sizes; None where it is not certain that there is one.

    Source: ``torch.Tensor.view``: dimensions that lie inside each other without gaps are one.
    """
    if not len(given):
        return [1] * len(sizes)
    steps: list[Any] = [1] * len(sizes)
    at = len(sizes)
    inner, count, made = strides[-1], 1, 1
    for d in reversed(range(len(given))):
        count = count * given[d]
        if d and (same(given[d - 1], 1) or same(strides[d - 1], count * inner)):
            continue
        while at and (same(sizes[at - 1], 1) or not same(made, count)):
            at -= 1
            steps[at] = made * inner
            made = made * sizes[at]
        if not same(made, count):
            return None
        inner, count, made = strides[d - 1], 1, 1
    return None if at else steps


def _transpose(tensor: Any, a: int, b: int) -> Result | None:
    rank = tensor.dim()
    if not _can_view(tensor) or not (-rank <= a < rank and -rank <= b < rank):
        return None
    order = list(range(rank))
    order[a], order[b] = order[b], order[a]
    shape, strides = tensor.shape, tensor.stride()
    return viewed(tensor, [shape[i] for i in order], [strides[i] for i in order])


def _unsqueeze(tensor: Any, dim: int) -> Result | None:
    rank = tensor.dim()
    if not _can_view(tensor) or not -rank - 1 <= dim <= rank:
        return None
    dim += (rank + 1) if dim < 0 else 0
    shape, strides = list(tensor.shape), list(tensor.stride())
    step = 1 if dim == rank else shape[dim] * strides[dim]
    return viewed(tensor, [*shape[:dim], 1, *shape[dim:]], [*strides[:dim], step, *strides[dim:]])


def _permute(tensor: Any, order: Sequence[int]) -> Result | None:
    rank = tensor.dim()
    places = [d + rank if d < 0 else d for d in order]
    if not _can_view(tensor) or sorted(places) != list(range(rank)):
        return None
    shape, strides = tensor.shape, tensor.stride()
    return viewed(tensor, [shape[d] for d in places], [strides[d] for d in places])


def _expand(tensor: Any, shape: Sizes) -> Result | None:
    rest = len(shape) - tensor.dim()
    if not _can_view(tensor) or rest < 0:
        return None
    sizes, steps = list(shape), [0] * rest + list(tensor.stride())
    if not positive(sizes[:rest]) or any(type(n) is int and n == 1 for n in sizes[:rest]):
        return None
    for i, n in enumerate(tensor.shape, rest):
        if (type(sizes[i]) is int and sizes[i] == -1) or same(sizes[i], n):
            sizes[i] = n
        elif type(n) is int and n == 1 and positive(sizes[i : i + 1]):
            steps[i] = 0
        else:
            return None
    return viewed(tensor, sizes, steps)


def _alias(tensor: Any) -> Result | None:
    return viewed(tensor, tensor.shape, tensor.stride()) if _can_view(tensor) else None


def _piece(tensor: Any, dim: int, start: Any, size: Any, step: int = 1) -> Any:
    sizes, strides = list(tensor.shape), list(tensor.stride())
    offset = tensor.storage_offset() + start * strides[dim]
    sizes[dim], strides[dim] = size, strides[dim] * step
    return seen(tensor, sizes, strides, offset)


#: What says that a slice goes to the end.
_MOST = 2**63 - 1


def _end(n: Any, size: Any) -> Any:
    """Where a slice begins or ends; None where that depends on the symbols."""
    if type(n) is int and n >= _MOST:
        return size
    if type(n) is int and n < 0:
        n = n + size
    if surely(sympy.Ge, n, size):
        return size
    return n if surely(sympy.Ge, n, 0) and surely(sympy.Le, n, size) else None


def _slice(tensor: Any, dim: int = 0, start: Any = 0, end: Any = None, step: int = 1) -> Any:
    rank = tensor.dim()
    if not _can_view(tensor) or not -rank <= dim < rank or type(step) is not int or step < 1:
        return None
    dim += rank if dim < 0 else 0
    size = tensor.shape[dim]
    first = _end(0 if start is None else start, size)
    last = size if end is None else _end(end, size)
    if first is None or last is None:
        return None
    length = last - first if step == 1 else (last - first + (step - 1)) // step
    return result(_piece(tensor, dim, first, length, step)) if positive([length]) else None


def _select(tensor: Any, dim: int, index: Any) -> Result | None:
    rank = tensor.dim()
    if not _can_view(tensor) or not -rank <= dim < rank:
        return None
    sizes, strides = list(tensor.shape), list(tensor.stride())
    dim += rank if dim < 0 else 0
    if type(index) is int and index < 0:
        index = index + sizes[dim]
    if not (surely(sympy.Ge, index, 0) and surely(sympy.Lt, index, sizes[dim])):
        return None
    offset = tensor.storage_offset() + index * strides[dim]
    del sizes[dim], strides[dim]
    return result(seen(tensor, sizes, strides, offset))


def _squeeze(tensor: Any, dim: int) -> Result | None:
    rank = tensor.dim()
    if not _can_view(tensor) or not -rank <= dim < rank:
        return None
    sizes, strides = list(tensor.shape), list(tensor.stride())
    if same(sizes[dim], 1):
        del sizes[dim], strides[dim]
    elif not surely(sympy.Ge, sizes[dim], 2):
        return None
    return viewed(tensor, sizes, strides)


def _split(tensor: Any, size: Any, dim: int = 0) -> Result | None:
    rank = tensor.dim()
    if not _has_plain_views(tensor) or not -rank <= dim < rank:
        return None
    length = tensor.shape[dim]
    if type(length) is int and not length and (positive([size]) or type(size) is int and not size):
        return Result(list, (_piece(tensor, dim, 0, 0),))  # eager's; torch 2.11's stand-in raises
    if type(size) is not int or type(length) is not int or size < 1:
        return None
    whole, rest = divmod(length, size)
    return _split_with_sizes(tensor, [size] * whole + [rest] * (rest > 0), dim)


def _split_with_sizes(tensor: Any, sizes: Sizes, dim: int = 0) -> Result | None:
    rank = tensor.dim()
    if not _can_view(tensor) or not -rank <= dim < rank or not positive(sizes):
        return None
    dim += rank if dim < 0 else 0
    starts: list[Any] = [0]
    for n in sizes:
        starts.append(starts[-1] + n)
    if not same(starts[-1], tensor.shape[dim]):
        return None
    return Result(list, tuple([_piece(tensor, dim, a, n) for a, n in zip(starts, sizes)]))


VIEWS: dict[Any, Callable[..., Result | None]] = {
    _aten.view.default: _view,
    _aten._unsafe_view.default: _view,
    _aten.transpose.int: _transpose,
    _aten.unsqueeze.default: _unsqueeze,
    _aten.permute.default: _permute,
    _aten.expand.default: _expand,
    _aten.alias.default: _alias,
    _aten.detach.default: _alias,
    _aten.slice.Tensor: _slice,
    _aten.select.int: _select,
    _aten.squeeze.dim: _squeeze,
    _aten.split.Tensor: _split,
    _aten.split_with_sizes.default: _split_with_sizes,
}
