"""``torch.Tensor(...)``, ``torch.FloatTensor(...)`` and their like, as the functions of today.

What is not known to mean the same ends the graph. Source of the rules: torch's documentation of
``torch.Tensor`` (sizes make an uninitialised tensor, a sequence or an array one of its contents).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from refcompiler.capture.arrays.array import Array
from refcompiler.capture.arrays.tensors import from_data
from refcompiler.capture.models.registry import model
from refcompiler.capture.numbers import leaves_of, shape_of
from refcompiler.capture.signals import Break

#: By name; None: the default dtype.
_DTYPES: dict[str, torch.dtype | None] = {
    "Tensor": None,
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "LongTensor": torch.int64,
    "IntTensor": torch.int32,
    "ShortTensor": torch.int16,
    "CharTensor": torch.int8,
    "ByteTensor": torch.uint8,
    "BoolTensor": torch.bool,
}


def _contents(dtype: torch.dtype) -> tuple[type, ...]:
    """The classes of numbers that such a tensor takes as they are."""
    if dtype.is_floating_point:
        return float, int, bool
    return (bool,) if dtype is torch.bool else (int, bool)


def _is_element(leaf: Any, dtype: torch.dtype) -> bool:
    """A number, or a tensor of one, that such a tensor takes as it is."""
    if isinstance(leaf, torch.Tensor):
        return leaf.dtype == dtype and not leaf.dim() and not leaf.requires_grad
    return type(leaf) in _contents(dtype)


def _constructor(name: str, known: torch.dtype | None) -> Callable:
    def construct(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> torch.Tensor:
        given = [m.force(a) for a in args]
        dtype = known or torch.get_default_dtype()
        elsewhere = torch.get_default_device().type != "cpu"
        if kwargs or elsewhere:
            raise Break("tensor-kind", f"construction of a {name}")
        if all(type(n) in (int, torch.SymInt) for n in given):
            return torch.empty(given or [0], dtype=dtype)
        (data, *rest) = given
        if not rest and type(data) is torch.Size:
            return torch.empty(data, dtype=dtype)
        if not rest and type(data) is Array:
            return from_data(m, data, dtype)
        if not rest and type(data) in (list, tuple):
            found = _forced(m, data)
            leaves = leaves_of(found) if shape_of(found) else []
            if leaves and all(type(n) in _contents(dtype) for n in leaves):
                return torch.tensor(found, dtype=dtype)
            if leaves and all(_is_element(n, dtype) for n in leaves):
                return m.force(m.invoke(frame, torch.tensor, [found], {"dtype": dtype}))
        raise Break("tensor-kind", f"construction of a {name}")

    return construct


def _forced(m: Any, data: Any) -> Any:
    data = m.force(data)
    return [_forced(m, item) for item in data] if type(data) in (list, tuple) else data


for _name, _dtype in _DTYPES.items():
    model(getattr(torch, _name))(_constructor(_name, _dtype))
