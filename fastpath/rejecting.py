"""Positions that are data and that there are not: the error that eager raises for them."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

from fastpath.device import Device
from fastpath.ir.expr import Bounds
from fastpath.schedule.kernel import Kernel


class Rejecting:
    """A kernel whose positions are data. ``printed``: the text that finds which, for the cache."""

    printed: Any = None

    def __init__(self, kernel: Kernel, device: Device):
        self.kernel, self.device = kernel, device

    def find(self, *addresses: int) -> None:
        """Run the kernel as it leaves word of a position that there is not."""
        self.finder()(*addresses)

    def finder(self) -> Callable[..., None]:
        return self.device.finder(self.kernel)

    def texts(self) -> Any:
        """What :meth:`finder` compiles."""
        from fastpath.cpu.compile import printed_finder

        return printed_finder(self.kernel)

    def bounds(self) -> list[Bounds]:
        """What its positions are held against, each once."""
        return self.kernel.bounds()


class RejectingCall(Rejecting):
    """A kernel that is written by hand, which always leaves word: ``texts`` of it."""

    def __init__(self, texts: Any, limits: list[Bounds]):
        self._texts, self._limits = texts, limits

    def finder(self) -> Callable[..., None]:
        found: Callable[..., None] = self._texts.loaded()
        return found

    def texts(self) -> Any:
        return self._texts

    def bounds(self) -> list[Bounds]:
        return self._limits


def reject(kernel: Any, extents: Sequence[int], outside: Any, *addresses: int) -> None:
    """Raise as eager does for the position that a kernel met and that does not exist.

    ``kernel`` is a :class:`Rejecting`, or what a package has of it. ``addresses`` are the kernel's
    arguments: it runs again, and says which position it is. ``extents`` are those of its bounds in
    this call.
    """
    kernel.find(*addresses)
    number, value = outside
    found, extent = kernel.bounds()[number - 1], extents[number - 1]
    message = found.message.replace("{value}", str(value)).replace("{extent}", str(extent))
    raise getattr(builtins, found.error)(message)
