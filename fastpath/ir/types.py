"""torch's dtypes by name, and back."""

from __future__ import annotations

import functools

import torch

from specs.dtypes import BYTES

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
#: Those that a kernel reads and writes: the ones that it computes on, and floats of one byte.
DTYPE = {name: dtype for dtype, name in NAME.items()}
DTYPE |= {name: getattr(torch, name) for name in BYTES}


def name_of(dtype: torch.dtype) -> str:
    """The dtype's name; dtypes that no kernel computes on get theirs too, and stay in calls."""
    return str(dtype).removeprefix("torch.")


def computable(dtype: torch.dtype) -> bool:
    return dtype in NAME


@functools.cache
def saturates() -> bool:
    """Whether eager makes the largest float8_e4m3fn of what is larger, as torch 2.13 does, not nan
    as torch 2.11."""
    return not torch.tensor(1e9, device="cpu").to(torch.float8_e4m3fn).float().isnan().item()


def castable(dtype: torch.dtype) -> bool:
    """Whether kernels cast from it and to it."""
    return dtype in DTYPE.values()
