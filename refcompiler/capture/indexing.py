"""Indices of tensors: what a program writes between brackets, as torch takes it."""

from __future__ import annotations

from typing import Any

import torch

from refcompiler.capture.arrays.array import Array
from refcompiler.capture.gathers import can_gather, gather, is_place
from refcompiler.capture.lookup import is_heap
from refcompiler.interpreter.frame import UNSET

_LEFT = -1  # an ellipsis is about all that are left
_ONE_DIMENSION = frozenset((int, slice, torch.SymInt))


def as_index(m: Any, value: Any) -> Any:
    """An operand of torch's, with objects that tell their number by Python code as that."""
    kind = type(value)
    if kind is tuple or kind is list or kind is slice:
        given = (value.start, value.stop, value.step) if kind is slice else value
        found = [as_index(m, item) for item in given]
        if all(a is b for a, b in zip(found, given, strict=True)):
            return value
        return slice(*found) if kind is slice else kind(found)
    if kind is Array:
        return value._tensor
    if is_heap(kind) and not issubclass(kind, torch.Tensor):
        if m.method_of(kind, "__index__") is not UNSET:
            return m.force(m.call_special(value, "__index__"))
    return value


def tensor_index(m: Any, tensor: Any, key: Any, reads: bool = False) -> tuple[Any, Any]:
    """``tensor[key]`` as another tensor and what is left of the key to index it with.

    ``select`` takes a symbol as a place where an index would ask for its number; torch itself
    selects by the numbers of a key first, whatever else is in it. ``reads``: the result is not
    written to, so that a tensor may say the place too.
    """
    key = as_index(m, key)
    parts = key if type(key) is tuple else (key,)
    placed = reads and any(map(is_place, parts)) and can_gather(m, tensor, parts)
    if m.recorder.kinds or not (placed or torch.SymInt in map(type, parts)):
        return tensor, key
    dims = [1 if placed and is_place(part) else _dimensions(part) for part in parts]
    if None in dims or dims.count(_LEFT) > 1:
        return tensor, key
    left = tensor.dim() - sum(n for n in dims if n is not None and n != _LEFT)
    if left < 0:
        return tensor, key  # torch has the words for it
    rest: list[Any] = []
    dim, whole = 0, tensor
    for part, n in zip(parts, dims, strict=True):
        assert n is not None
        if type(part) is torch.SymInt:
            if _is_outside(part, tensor.shape[dim]):
                return whole, key  # torch has the words for it
            tensor = tensor.select(dim, part)
        elif placed and is_place(part):
            tensor = gather(m, tensor, dim, part)
        elif part is None:  # its stride is that of the dimension that comes after it now
            tensor = tensor.unsqueeze(dim)
            rest.append(slice(None))
            dim += 1
        else:
            rest.append(part)
            dim += left if n == _LEFT else n
    return tensor, tuple(rest)


def _is_outside(place: torch.SymInt, size: Any) -> bool:
    """Of a known number: stand-ins of torch 2.11 do not ask."""
    return place.node.has_hint() and not (-size <= place and place < size)


def _dimensions(part: Any) -> int | None:
    """How many dimensions a part of a key is about; None: not known."""
    if type(part) in _ONE_DIMENSION:
        return 1
    if part is None:
        return 0
    if part is Ellipsis:
        return _LEFT
    if isinstance(part, torch.Tensor):
        return part.dim() if part.dtype in (torch.bool, torch.uint8) else 1
    if type(part) is list and all(type(item) is int for item in part):
        return 1
    return None
