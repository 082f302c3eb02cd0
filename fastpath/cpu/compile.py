"""Kernels as callables: printed, compiled beside each other, and bound to the launcher."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from fastpath.cpu.launcher import WORK_PER_THREAD, bind, bind_sized, record_of
from fastpath.cpu.machine import is_made, key_of, machine_code
from fastpath.cpu.printer import Printed, print_kernel
from fastpath.cpu.server import compile_together
from fastpath.cpu.together import bind_together
from fastpath.schedule.alike import of_any_length
from fastpath.schedule.kernel import Kernel

ALIKE = 3  # kernels that differ in their lengths alone, of which one is made for any


def threads_for(kernel: Kernel) -> int:
    """The most threads that the kernel's work is worth, torch's own limit aside."""
    assert isinstance(kernel.units, int) and isinstance(kernel.work, int)
    return max(1, min(kernel.units, kernel.work // WORK_PER_THREAD))


class Later:
    """A kernel that is printed and not compiled yet."""

    def __init__(self, kernel: Kernel):
        self.kernel, self.printed = kernel, print_kernel(kernel)
        kernel.sizes = self.printed.sizes
        self.addresses = len(kernel.buffers) + bool(kernel.bounds())

    def run(self, general: tuple[Printed, int] | None = None) -> Callable[..., None]:
        """What :func:`compile_kernel` gives; ``general``: the text for any length, and the length
        that is meant."""
        kernel = self.kernel
        if kernel.sized:
            return bind_sized(machine_code(self.printed), self.addresses + len(kernel.sizes))
        assert isinstance(kernel.units, int)
        printed, *lengths = general or (self.printed,)
        code, threads = machine_code(printed), threads_for(kernel)
        return bind(code, kernel.units, threads, self.addresses, *lengths)


class LaterByHand:
    """A kernel that is written by hand, and not compiled yet.

    ``run`` gives what the program is to name. ``printed``: its text, unless it is written in
    LLVM's language: then ``run`` compiles it.
    """

    def __init__(self, run: Callable[[], Any], printed: Printed | None = None):
        self.run, self.printed = run, printed


def loaded(
    names: Mapping[str, Any], together: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> dict[str, Callable[..., None]]:
    """The callables of those of ``names`` that are kernels, compiled beside each other, and of
    those that run several of them ``together``."""
    kernels = {name: value for name, value in names.items() if isinstance(value, Later)}
    by_hand = {name: value for name, value in names.items() if isinstance(value, LaterByHand)}
    general = _general(kernels)
    chosen = {name: general.get(name) for name in kernels}
    texts = [found[0] if found else kernels[name].printed for name, found in chosen.items()]
    texts += [each.printed for each in by_hand.values() if each.printed is not None]
    different = {key_of(printed): printed for printed in texts}
    missing = [not is_made(printed) for printed in different.values()]
    found: dict[str, Any] = {}

    def meanwhile() -> None:
        found.update({name: each.run() for name, each in by_hand.items() if each.printed is None})

    compile_together(list(different.values()), machine_code, missing, meanwhile)
    found |= {name: each.run() for name, each in by_hand.items() if each.printed is not None}
    found |= {name: kernel.run(chosen[name]) for name, kernel in kernels.items()}
    for name, several in together.items():
        parts = [(*record_of(found[one]), cast(int, kernels[one].kernel.work)) for one in several]
        found[name] = bind_together(parts)
    return found


def _general(kernels: Mapping[str, Later]) -> dict[str, tuple[Printed, int]]:
    """By name, the text for any length of kernels that differ in theirs alone, and the length.

    Several of one text, as that of whole blocks is, may have other lengths.
    """
    texts: dict[tuple[str, str], Printed | None] = {}
    alike: dict[tuple[str, str], dict[tuple[str, str], list[str]]] = {}
    for name, later in kernels.items():
        own = key_of(later.printed)
        if own not in texts:
            made = of_any_length(later.kernel)
            texts[own] = None if made is None else print_kernel(made)
        printed = texts[own]
        if printed is not None:
            alike.setdefault(key_of(printed), {}).setdefault(own, []).append(name)
    found: dict[str, tuple[Printed, int]] = {}
    for group in alike.values():
        for own, names in group.items() if len(group) >= ALIKE else ():
            for name in names:
                printed, lane = texts[own], kernels[name].kernel.lane
                assert printed is not None and lane is not None and isinstance(lane.extent, int)
                found[name] = printed, lane.extent
    return found


def compile_kernel(kernel: Kernel) -> tuple[Callable[..., None], str]:
    """A callable of the addresses of ``kernel.buffers``, in order, and the kernel's source.

    A kernel with positions that are data takes one address more, of two words of 64 bits. The first
    is not 0 afterwards if a position was none. Then the kernel of :func:`finder` puts there which
    of ``kernel.bounds()`` it is beyond, from 1 on, and which integer it is.
    One whose sizes each call chooses (``kernel.sized``) takes its work and its units before them,
    and the values of ``kernel.sizes``, which this sets, behind them.
    """
    later = Later(kernel)
    return later.run(), later.printed.source


@functools.cache
def product_kernel(dtype: str) -> Callable[..., None]:
    """A callable of work, units and :data:`fastpath.cpu.gemm.ARGUMENTS`."""
    from fastpath.cpu import gemm

    return bind_sized(gemm.kernel(dtype), len(gemm.ARGUMENTS))


def compile_product(dtype: str) -> tuple[LaterByHand, str]:
    """What becomes :func:`product_kernel`, and what it is."""
    from fastpath.cpu import gemm

    title = f"# {gemm.__name__}: products of {dtype} by tiles\n"
    return LaterByHand(functools.partial(product_kernel, dtype)), title


def printed_kernel(printed: Printed, addresses: int) -> tuple[LaterByHand, str]:
    """What becomes a callable of work, units and so many numbers, and the kernel's source."""

    def run() -> Callable[..., None]:
        return bind_sized(machine_code(printed), addresses)

    return LaterByHand(run, printed), printed.source


@dataclass
class PrintedFinder:
    """A kernel as it leaves word of a position that there is not; it is slower.

    ``names``: as :class:`Printed` has them. ``addresses``: of the callable, with its sizes;
    ``units`` of work, None where each call chooses them.
    """

    source: str
    names: dict[str, tuple[object, ...]]
    addresses: int
    units: int | None

    def loaded(self) -> Callable[..., None]:
        """Compiled, unless it is already."""
        code = machine_code(Printed(self.source, self.names))
        if self.units is None:
            return bind_sized(code, self.addresses)
        return bind(code, self.units, 1, self.addresses)


def printed_finder(kernel: Kernel) -> PrintedFinder:
    """What :func:`finder` compiles."""
    printed, addresses = print_kernel(kernel, finding=True), len(kernel.buffers) + 1
    if kernel.sized:
        assert printed.sizes == kernel.sizes
        return PrintedFinder(printed.source, printed.names, addresses + len(printed.sizes), None)
    assert isinstance(kernel.units, int)
    return PrintedFinder(printed.source, printed.names, addresses, kernel.units)


def finder(kernel: Kernel) -> Callable[..., None]:
    """The kernel as it leaves word of a position that there is not; it is slower."""
    return printed_finder(kernel).loaded()
