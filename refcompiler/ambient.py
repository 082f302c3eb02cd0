"""Autocast's state as a value: to compare, to restore, and to set after a graph."""

from __future__ import annotations

from typing import NamedTuple

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
