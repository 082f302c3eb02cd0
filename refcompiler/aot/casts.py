"""Casts of autocast while a graph is traced."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import torch

Casts = Sequence[tuple[str, torch.dtype]]  # the dtypes of autocast, by device


@contextlib.contextmanager
def cached_casts() -> Iterator[None]:
    """Under autocast eager casts a parameter once, and its gradients are summed before the cast.

    A trace turns that off.
    """
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(True)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)


@contextlib.contextmanager
def casting(casts: Mapping[str, torch.dtype]) -> Iterator[None]:
    """Autocast on for these devices, and off for the others."""
    with contextlib.ExitStack() as stack:
        for device in ("cpu", "cuda"):
            dtype = casts.get(device)
            stack.enter_context(torch.autocast(device, dtype, enabled=dtype is not None))
        yield
