"""Compiles printed kernels with numba, once per machine, and binds them to the launcher."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from fastpath.cpu.launcher import WORK_PER_THREAD, bind, bind_sized, record_of
from fastpath.cpu.objects import address_of, is_kept, made_once
from fastpath.cpu.printer import Printed, print_kernel
from fastpath.cpu.server import compile_together
from fastpath.cpu.together import bind_together
from fastpath.schedule.alike import of_any_length
from fastpath.schedule.kernel import Kernel

ALIKE = 3  # kernels that differ in their lengths alone, of which one is made for any
_compiled: dict[tuple[str, str], int] = {}


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


def loaded(
    names: Mapping[str, Any], together: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> dict[str, Callable[..., None]]:
    """The callables of those of ``names`` that are kernels, compiled beside each other, and of
    those that run several of them ``together``."""
    kernels = {name: value for name, value in names.items() if isinstance(value, Later)}
    general = _general(list(kernels.values()))
    chosen = {name: general.get(_key(k.printed)) for name, k in kernels.items()}
    texts = [found[0] if found else kernels[name].printed for name, found in chosen.items()]
    different = {_key(printed): printed for printed in texts}
    missing = [key not in _compiled and not is_kept(key) for key in different]
    compile_together(list(different.values()), machine_code, missing)
    found = {name: kernel.run(chosen[name]) for name, kernel in kernels.items()}
    for name, several in together.items():
        parts = [(*record_of(found[one]), cast(int, kernels[one].kernel.work)) for one in several]
        found[name] = bind_together(parts)
    return found


def _general(kernels: Sequence[Later]) -> dict[tuple[str, str], tuple[Printed, int]]:
    """By their own texts, those for any length of kernels that differ in theirs alone, and it."""
    found: dict[tuple[str, str], tuple[Printed, int]] = {}
    alike: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for later in kernels:
        own = _key(later.printed)
        made = of_any_length(later.kernel) if own not in found else None
        if made is not None:
            printed = print_kernel(made[0])
            found[own] = printed, made[1]
            alike.setdefault(_key(printed), []).append(own)
    return {own: found[own] for group in alike.values() if len(group) >= ALIKE for own in group}


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
def compile_product(dtype: str) -> tuple[Callable[..., None], str]:
    """A callable of work, units and :data:`fastpath.cpu.gemm.ARGUMENTS`, and what it is."""
    from fastpath.cpu import gemm

    run = bind_sized(gemm.kernel(dtype), len(gemm.ARGUMENTS))
    return run, f"# {gemm.__name__}: products of {dtype} by tiles\n"


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


def _key(printed: Printed) -> tuple[str, str]:
    return printed.source, repr(sorted(printed.names.items()))


def machine_code(printed: Printed) -> int:
    """The address of a printed kernel's C function; equal texts are loaded once per process."""
    key = _key(printed)
    found = _compiled.get(key)
    if found is None:
        found = _compiled[key] = address_of(key, functools.partial(_compile, printed))
    return found


def is_made(printed: Printed) -> bool:
    """Whether some process has compiled it."""
    return is_kept(_key(printed))


def keep(printed: Printed) -> None:
    """Compile it for other processes, unless one of them has."""
    made_once(_key(printed), functools.partial(_compile, printed))


def warm() -> None:
    """Have ready what every compilation needs."""
    _compile(Printed("def kernel(addresses, begin, end):\n    pass\n"), "nothing")
    is_kept(())


@functools.cache
def signature() -> Any:
    from numba import types

    return types.void(types.int64, types.int64, types.int64)


def _compile(printed: Printed, symbol: str) -> bytes:
    from fastpath.cpu.codegen import compile_callback

    code = compile(printed.source, "<fastpath kernel>", "exec")
    scope = _environment(printed)
    exec(code, scope)
    return compile_callback(scope["kernel"], signature(), symbol)


def _environment(printed: Printed) -> dict[str, Any]:
    import numba
    import numpy as np

    from fastpath.cpu import access, maths

    numbers = {
        "u8": np.uint8,
        "i8": np.int8,
        "i16": np.int16,
        "i32": np.int32,
        "i64": np.int64,
        "f32": np.float32,
        "f64": np.float64,
    }
    scope: dict[str, Any] = {
        "m": maths,
        "int64": numba.int64,
        "address": access.address,
        "aligned_address": access.aligned_address,
        "drain": access.drain,
        "hidden": access.hidden,
        "call_kernel": access.call_kernel,
        "float_of": access.float_of,
        "place": access.place,
        "no_place": access.no_place,
        "report": access.report,
        "add_reordered": access.add_reordered,
        "mul_reordered": access.mul_reordered,
    }
    for name, (kind, *rest) in printed.names.items():
        if kind == "const":
            suffix, value = rest[0], cast(Any, rest[1])
            with np.errstate(over="ignore"):
                scope[name] = numbers[str(suffix)](value)
        else:
            scope[name] = getattr(access, str(kind))(*rest)
    return scope
