"""torch's dtypes by name, and back."""

from __future__ import annotations

import torch

_SUPPORTED = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
)
NAME = {dtype: str(dtype).removeprefix("torch.") for dtype in _SUPPORTED}
DTYPE = {name: dtype for dtype, name in NAME.items()}


def name_of(dtype: torch.dtype) -> str:
    """The dtype's name; dtypes that no kernel computes on get theirs too, and stay in calls."""
    return str(dtype).removeprefix("torch.")


def computable(dtype: torch.dtype) -> bool:
    return dtype in NAME
