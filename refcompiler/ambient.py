"""Global state of torch that capture sets: autocast, and the stack of function transformations."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch


class Autocast(NamedTuple):
    """For each device type whether autocast is on and to which dtype; the cache; the nesting."""

    enabled: tuple[tuple[str, bool, torch.dtype], ...]
    cache: bool
    nesting: int

    @staticmethod
    def now() -> Autocast:
        nesting = torch.autocast_increment_nesting() - 1
        torch.autocast_decrement_nesting()
        devices = tuple(
            [
                (device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
                for device in ("cpu", "cuda")
            ]
        )
        return Autocast(devices, torch.is_autocast_cache_enabled(), nesting)

    def set(self) -> None:
        for device, enabled, dtype in self.enabled:
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)
        torch.set_autocast_cache_enabled(self.cache)
        nesting = torch.autocast_increment_nesting()
        while nesting < self.nesting:
            nesting = torch.autocast_increment_nesting()
        while nesting > self.nesting:
            nesting = torch.autocast_decrement_nesting()
        if nesting == 0:
            torch.clear_autocast_cache()


@contextlib.contextmanager
def outside_transformations() -> Iterator[None]:
    """Without the function transformations (vmap, grad) that are active: what is made is plain."""
    functorch: Any = torch._C._functorch
    layers = []
    try:
        while functorch.peek_interpreter_stack() is not None:
            layers.append(functorch.pop_dynamic_layer_stack())
        yield
    finally:
        while layers:
            functorch.push_dynamic_layer_stack(layers.pop())
