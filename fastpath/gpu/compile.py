"""Compiles printed kernels with Triton, which needs no GPU for it, and binds them to a launch.

Equal texts are compiled once per process, and those of one program beside each other
(:mod:`fastpath.gpu.server`); Triton keeps machine code on disk as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from fastpath.gpu import build, launcher, server
from fastpath.gpu.build import ALIGNMENT
from fastpath.gpu.printer import HEADER, Printed
from fastpath.gpu.reach import WIDE, reach
from fastpath.gpu.tiling import tiling
from fastpath.gpu.vectors import print_kernel
from fastpath.ir.size import Assumptions, Number, Undecided, divides
from fastpath.schedule.kernel import Kernel
from specs.dtypes import BYTES

POINTER = {"bool": "i1", "uint8": "u8", "int8": "i8", "int16": "i16", "int32": "i32"}
POINTER |= {"int64": "i64", "float16": "fp16", "bfloat16": "bf16"}
POINTER |= {"float32": "fp32", "float64": "fp64"} | dict.fromkeys(BYTES, "u8")

_compiled: dict[tuple[Any, ...], Any] = {}
_Key = tuple[Any, ...]


def module_of(printed: Printed) -> Any:
    """The module of the kernel's text; ``getattr(module, printed.name)`` is the jitted function."""
    return build.module_of(HEADER + printed.source)


def _key(
    printed: Printed,
    dtypes: tuple[str, ...],
    capability: int,
    aligned: bool,
    device: int,
    whole: tuple[bool, ...],
) -> _Key:
    how = printed.warps, printed.stages, printed.wide, printed.registers, whole
    return printed.source, dtypes, capability, aligned, how, device


def _job(
    printed: Printed,
    dtypes: tuple[str, ...],
    capability: int,
    aligned: bool,
    whole: tuple[bool, ...] = (),
) -> dict[str, Any]:
    """The arguments of :func:`fastpath.gpu.build.build`."""
    signature = {f"p{n}": f"*{POINTER[dtype]}" for n, dtype in enumerate(dtypes)}
    signature |= {f"s{n}": "i64" for n in range(len(printed.arguments))}
    first = len(signature)
    kind = "i64" if printed.wide else "i32"
    signature |= {f"n{n}": kind for n in range(len(printed.sizes))}
    divisible = [first + n for n, is_whole in enumerate(whole) if is_whole]
    return {
        "text": HEADER + printed.source,
        "name": printed.name,
        "signature": signature,
        "divisible": [*range(len(dtypes) if aligned else 0), *divisible],
        "capability": capability,
        "warps": printed.warps,
        "stages": printed.stages,
        "registers": printed.registers,
    }


def machine_code(
    printed: Printed,
    dtypes: tuple[str, ...],
    capability: int,
    aligned: bool = True,
    *,
    device: int = 0,
    whole: tuple[bool, ...] = (),
) -> Any:
    """Triton's compiled kernel for buffers of ``dtypes`` and a GPU of ``capability`` (90 is 9.0).

    ``aligned``: every buffer begins at a multiple of :data:`ALIGNMENT` bytes; ``whole``: which of
    its sizes are multiples of it. Each ``device`` has its own: a kernel is loaded into one of them
    when it is first asked for its launch.
    """
    key = _key(printed, dtypes, capability, aligned, device, whole)
    found = _compiled.get(key)
    if found is None:
        found = _compiled[key] = build.build(**_job(printed, dtypes, capability, aligned, whole))
    return found


def _wide(kernel: Kernel, sizes: Assumptions) -> bool:
    """Whether places need 64 bits: in all calls, of which ``sizes`` then assumes that they do, or
    do not."""
    try:
        numbers = [*dict.fromkeys(reach(kernel, tiling(kernel)))]
    except Undecided:
        return True
    if any(isinstance(n, int) and n > WIDE for n in numbers):
        return True
    return not all(sizes.at_most(n, WIDE) for n in numbers if not isinstance(n, int))


class Pending:
    """What is compiled with the kernels of a program, and called as :meth:`run` gives it."""

    def key(self) -> _Key:
        """Of what is compiled: what is equal is compiled once."""
        raise NotImplementedError

    def job(self) -> dict[str, Any]:
        """The arguments of :func:`fastpath.gpu.build.build`."""
        raise NotImplementedError

    def run(self) -> Callable[..., Any]:
        raise NotImplementedError


class Later(Pending):
    """A kernel that is printed and not compiled yet, for the CUDA device numbered ``device``.

    What it relies on of sizes that calls choose, it adds to ``sizes``.
    """

    def __init__(self, kernel: Kernel, device: int, sizes: Assumptions):
        self.kernel, self.device = kernel, device
        if kernel.product is None:
            kernel.wide = _wide(kernel, sizes)
        self.printed = print_kernel(kernel)
        if not kernel.wide and not all(sizes.at_most(n, WIDE) for n in self.printed.sizes):
            kernel.wide = True  # a size that it is given itself is greater
            self.printed = print_kernel(kernel)
        kernel.arguments, kernel.sizes = [*self.printed.arguments], [*self.printed.sizes]
        # Whole vectors are worth a program of their own, and what it is not for another one.
        whole = divides if sizes.again else lambda of, size: sizes.multiple(size, of)
        self.whole = tuple([whole(ALIGNMENT, size) for size in self.printed.sizes])
        major, minor = torch.cuda.get_device_capability(device)
        self.capability = 10 * major + minor
        self.dtypes = tuple(b.dtype for b in kernel.buffers)

    def key(self) -> _Key:
        return _key(self.printed, self.dtypes, self.capability, True, self.device, self.whole)

    def job(self) -> dict[str, Any]:
        return _job(self.printed, self.dtypes, self.capability, True, self.whole)

    def programs(self, number: Callable[[Number], str]) -> str:
        """How many run, as Python; ``number`` prints sizes."""
        return tiling(self.kernel).programs_text(number)

    def run(self) -> Callable[..., None]:
        """A callable of the addresses of the kernel's buffers, in order.

        Behind the addresses it takes the numbers called ``kernel.arguments`` and ``kernel.sizes``,
        and before them, if the kernel is sized, how many programs run. It launches on the current
        stream of the device, which has to be the current device when it is called.
        """
        kernel, printed, device = self.kernel, self.printed, self.device

        def make(aligned: bool) -> Any:
            text = printed if aligned else print_kernel(kernel, aligned=False)
            assert text.sizes == printed.sizes, "kernels of one launch are given other numbers"
            return machine_code(
                text, self.dtypes, self.capability, aligned, device=device, whole=self.whole
            )

        with torch.cuda.device(device):  # into which it is loaded
            count, programs = len(printed.arguments), None if kernel.sized else printed.programs
            return launch(make, len(self.dtypes), programs, device, count, len(printed.sizes))


def _ready() -> None:
    """Load what this process needs of Triton, beside others that compile; once."""
    from triton.runtime import driver

    build.prepare()
    _ = driver.active.utils  # which a compiler makes, if it is not in the cache


def loaded(names: Mapping[str, Any]) -> dict[str, Callable[..., Any]]:
    """The launches of those of ``names`` that are kernels, compiled beside each other."""
    kernels = {name: value for name, value in names.items() if isinstance(value, Pending)}
    missing = {k.key(): k for k in kernels.values() if k.key() not in _compiled}
    server.compile_together([k.job() for k in missing.values()], _ready)
    return {name: kernel.run() for name, kernel in kernels.items()}


def launch(
    make: Callable[[bool], Any],
    buffers: int,
    programs: int | None,
    device: int,
    numbers: int = 0,
    sizes: int = 0,
) -> Callable[..., None]:
    """The launch of the kernel that ``make(aligned)`` compiles; the one for addresses that are not
    aligned is compiled when such a call comes. Without ``programs`` each call says how many."""
    names = [f"p{n}" for n in range(buffers)]
    every = [*names, *(f"s{n}" for n in range(numbers)), *(f"n{n}" for n in range(sizes))]
    given = ", ".join(every)
    count, taken = ("programs", f"programs, {given}") if programs is None else (programs, given)
    scope: dict[str, Any] = {
        "__name__": __name__,
        "stream_of": torch._C._cuda_getCurrentRawStream,
        "unaligned": lambda *arguments: _prepared_later(make, scope)(*arguments),
    }
    aligned = launcher.call_text(
        make(True), "aligned", str(count), f"stream_of({device})", every, scope
    )
    # One frame: what the call of another one would cost is a tenth of a launch.
    text = (
        f"def run({taken}):\n"
        + ("    if not programs: return\n" if programs is None else "")
        + f"    if ({' | '.join(names)}) & {ALIGNMENT - 1}:\n"
        f"        unaligned({count}, stream_of({device}), {given})\n"
        f"    else:\n"
        f"        {aligned}\n"
    )
    exec(compile(text, "<fastpath launch>", "exec"), scope)
    run: Callable[..., None] = scope["run"]
    return run


def _prepared_later(make: Callable[[bool], Any], scope: dict[str, Any]) -> Callable[..., None]:
    found = scope["unaligned"] = _prepared(make(False))
    return found


def _prepared(kernel: Any) -> Callable[..., None]:
    """``launch(programs, stream, *addresses)`` of a compiled kernel."""
    start, function, metadata = launcher.loaded(kernel)

    def launch(programs: int, stream: int, *addresses: int) -> None:
        start(programs, 1, 1, stream, function, metadata, None, None, None, *addresses)

    return launch
