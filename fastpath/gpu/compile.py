"""Compiles printed kernels with Triton, which needs no GPU for it, and binds them to a launch.

Equal texts are compiled once per process, and those of one program beside each other
(:mod:`fastpath.gpu.server`); Triton keeps machine code on disk as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from fastpath.gpu import build, server
from fastpath.gpu.build import ALIGNMENT
from fastpath.gpu.printer import HEADER, Printed
from fastpath.gpu.vectors import print_kernel
from fastpath.schedule.kernel import Kernel

POINTER = {"bool": "i1", "uint8": "u8", "int8": "i8", "int16": "i16", "int32": "i32"}
POINTER |= {"int64": "i64", "float16": "fp16", "bfloat16": "bf16"}
POINTER |= {"float32": "fp32", "float64": "fp64"}

_compiled: dict[tuple[Any, ...], Any] = {}
_Key = tuple[Any, ...]


def module_of(printed: Printed) -> Any:
    """The module of the kernel's text; ``getattr(module, printed.name)`` is the jitted function."""
    return build.module_of(HEADER + printed.source)


def _key(
    printed: Printed, dtypes: tuple[str, ...], capability: int, aligned: bool, device: int
) -> _Key:
    return printed.source, dtypes, capability, aligned, printed.warps, printed.stages, device


def _job(printed: Printed, dtypes: tuple[str, ...], capability: int, aligned: bool) -> dict:
    """The arguments of :func:`fastpath.gpu.build.build`."""
    signature = {f"p{n}": f"*{POINTER[dtype]}" for n, dtype in enumerate(dtypes)}
    signature |= {f"s{n}": "i64" for n in range(len(printed.arguments))}
    return {
        "text": HEADER + printed.source,
        "name": printed.name,
        "signature": signature,
        "aligned": len(dtypes) if aligned else 0,
        "capability": capability,
        "warps": printed.warps,
        "stages": printed.stages,
    }


def machine_code(
    printed: Printed,
    dtypes: tuple[str, ...],
    capability: int,
    aligned: bool = True,
    *,
    device: int = 0,
) -> Any:
    """Triton's compiled kernel for buffers of ``dtypes`` and a GPU of ``capability`` (90 is 9.0).

    ``aligned``: every buffer begins at a multiple of :data:`ALIGNMENT` bytes. Each ``device`` has
    its own: a kernel is loaded into one of them when it is first asked for its launch.
    """
    key = _key(printed, dtypes, capability, aligned, device)
    found = _compiled.get(key)
    if found is None:
        found = _compiled[key] = build.build(**_job(printed, dtypes, capability, aligned))
    return found


class Later:
    """A kernel that is printed and not compiled yet, for the CUDA device numbered ``device``."""

    def __init__(self, kernel: Kernel, device: int):
        self.kernel, self.device = kernel, device
        self.printed = print_kernel(kernel)
        kernel.arguments = list(self.printed.arguments)
        major, minor = torch.cuda.get_device_capability(device)
        self.capability = 10 * major + minor
        self.dtypes = tuple(b.dtype for b in kernel.buffers)

    def key(self) -> _Key:
        return _key(self.printed, self.dtypes, self.capability, True, self.device)

    def job(self) -> dict[str, Any]:
        return _job(self.printed, self.dtypes, self.capability, True)

    def run(self) -> Callable[..., None]:
        """A callable of the addresses of the kernel's buffers, in order.

        Behind the addresses it takes the numbers called ``kernel.arguments``. It launches on the
        current stream of the device, which has to be the current device when it is called.
        """
        kernel, printed, device = self.kernel, self.printed, self.device

        def make(aligned: bool) -> Any:
            text = printed if aligned else print_kernel(kernel, aligned=False)
            return machine_code(text, self.dtypes, self.capability, aligned, device=device)

        with torch.cuda.device(device):  # into which it is loaded
            count = len(printed.arguments)
            return launch(make, len(self.dtypes), printed.programs, device, count)


def loaded(names: Mapping[str, Any]) -> dict[str, Callable[..., None]]:
    """The launches of those of ``names`` that are kernels, compiled beside each other."""
    kernels = {name: value for name, value in names.items() if isinstance(value, Later)}
    missing = {k.key(): k for k in kernels.values() if k.key() not in _compiled}
    server.compile_together([k.job() for k in missing.values()])
    return {name: kernel.run() for name, kernel in kernels.items()}


def launch(
    make: Callable[[bool], Any], buffers: int, programs: int, device: int, numbers: int = 0
) -> Callable[..., None]:
    """The launch of the kernel that ``make(aligned)`` compiles; the one for addresses that are not
    aligned is compiled when such a call comes."""
    names = [f"p{n}" for n in range(buffers)]
    given = ", ".join([*names, *(f"s{n}" for n in range(numbers))])
    scope: dict[str, Any] = {
        "__name__": __name__,
        "stream_of": torch._C._cuda_getCurrentRawStream,
        "unaligned": lambda *arguments: _prepared_later(make, scope)(*arguments),
    }
    scope |= _parts(make(True), "aligned")
    # One frame: what the call of another one would cost is a tenth of a launch.
    text = (
        f"def run({given}):\n"
        f"    if ({' | '.join(names)}) & {ALIGNMENT - 1}:\n"
        f"        unaligned({programs}, stream_of({device}), {given})\n"
        f"    else:\n"
        f"        aligned({programs}, 1, 1, stream_of({device}), aligned_code, aligned_metadata,"
        f" None, None, None, {given})\n"
    )
    exec(compile(text, "<fastpath launch>", "exec"), scope)
    run: Callable[..., None] = scope["run"]
    return run


def _prepared_later(make: Callable[[bool], Any], scope: dict[str, Any]) -> Callable[..., None]:
    found = scope["unaligned"] = _prepared(make(False))
    return found


def _parts(kernel: Any, name: str) -> dict[str, Any]:
    """What starts a compiled kernel and what it is given; loads it into the current device."""
    start = kernel.run
    return {
        name: start,
        f"{name}_code": kernel.function,
        f"{name}_metadata": kernel.packed_metadata,
    }


def _prepared(kernel: Any) -> Callable[..., None]:
    """``launch(programs, stream, *addresses)`` of a compiled kernel."""
    start, function, metadata = _parts(kernel, "").values()

    def launch(programs: int, stream: int, *addresses: int) -> None:
        start(programs, 1, 1, stream, function, metadata, None, None, None, *addresses)

    return launch
