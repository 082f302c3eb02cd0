"""Fake stand-ins for a graph's inputs, and which inputs there are kernels for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from refcompiler.aot.inputs import Unsupported


def check(tensors: Sequence[Any], what: str) -> None:
    """Raise :class:`Unsupported` unless all are plain strided CPU tensors of fixed sizes."""
    for t in tensors:
        if isinstance(t, torch.SymInt) or isinstance(t, (int, float, bool)):
            raise Unsupported(f"{what} is a number: dynamic shapes are not compiled yet")
        if not isinstance(t, torch.Tensor):
            raise Unsupported(f"{what} is a {type(t).__name__}, not a tensor")
        if not isinstance(t, FakeTensor) and type(t) not in (torch.Tensor, torch.nn.Parameter):
            raise Unsupported(f"{what} is a tensor subclass ({type(t).__name__})")
        if t.device.type != "cpu":
            raise Unsupported(f"{what} is on {t.device.type}: only CPU kernels exist yet")
        if t.layout is not torch.strided or t.is_quantized or t.is_nested:
            raise Unsupported(f"{what} is not a strided tensor")
        if t.is_conj() or t.is_neg():
            raise Unsupported(f"{what} has a conjugate or negative bit")
        sizes = (*t.shape, *t.stride())
        if any(isinstance(n, torch.SymInt) for n in sizes):
            raise Unsupported(f"{what} has a symbolic size: dynamic shapes are not compiled yet")


def fake_like(mode: FakeTensorMode, t: torch.Tensor) -> torch.Tensor:
    """A leaf of ``mode`` with the size, strides, offset, dtype and gradient flag of ``t``."""
    with mode, torch.inference_mode(False), torch.no_grad():
        offset = t.storage_offset()
        if isinstance(offset, torch.SymInt):
            raise Unsupported("an input has a symbolic offset")
        size, stride = tuple(t.shape), tuple(t.stride())
        extent = 0 if 0 in size else 1 + sum((n - 1) * s for n, s in zip(size, stride))
        fake = torch.empty(offset + extent, dtype=t.dtype, device=t.device)
        fake = fake.as_strided(size, stride, offset).detach()
    if t.requires_grad:
        fake.requires_grad_()
    return fake
