"""Compiles printed kernels with Triton, which needs no GPU for it, and binds them to a launch.

Equal texts are compiled once per process; Triton keeps machine code on disk as well.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from fastpath.gpu.printer import HEADER, Printed
from fastpath.gpu.vectors import print_kernel
from fastpath.schedule.kernel import Kernel

POINTER = {"bool": "i1", "uint8": "u8", "int8": "i8", "int16": "i16", "int32": "i32"}
POINTER |= {"int64": "i64", "float16": "fp16", "bfloat16": "bf16"}
POINTER |= {"float32": "fp32", "float64": "fp64"}
ALIGNMENT = 16  # bytes: of what a thread loads at once

_compiled: dict[tuple[Any, ...], Any] = {}


@functools.cache
def _folder() -> Path:
    """Where the modules' texts lie while the process lives: Triton reads a kernel from its file."""
    folder = tempfile.TemporaryDirectory(prefix="fastpath_triton_")
    _folders.append(folder)
    return Path(folder.name)


_folders: list[tempfile.TemporaryDirectory[str]] = []  # removed when the process ends


def module_of(printed: Printed) -> ModuleType:
    """The module of the kernel's text; ``getattr(module, printed.name)`` is the jitted function."""
    text = HEADER + printed.source
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    name = f"fastpath_kernel_{digest}"
    path = _folder() / f"{name}.py"
    if not path.exists():
        unfinished = path.with_suffix(f".{os.getpid()}_{threading.get_ident()}")
        unfinished.write_text(text)
        unfinished.replace(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    key = (printed.source, dtypes, capability, aligned, printed.warps, printed.stages, device)
    found = _compiled.get(key)
    if found is None:
        # Triton drops assertions otherwise; of integers that overflow nothing is asserted.
        asserts = "tl.device_assert(" in printed.source
        asserting = {"debug": True, "sanitize_overflow": False} if asserts else {}
        function = getattr(module_of(printed), printed.name)
        signature = {f"p{n}": f"*{POINTER[dtype]}" for n, dtype in enumerate(dtypes)}
        signature |= {f"s{n}": "i64" for n in range(len(printed.arguments))}
        hint: Any = [["tt.divisibility", ALIGNMENT]]
        attributes = {(n,): hint for n in range(len(dtypes))} if aligned else {}
        found = _compiled[key] = triton.compile(
            ASTSource(function, signature, {}, attributes),
            target=GPUTarget("cuda", capability, 32),
            # Each operation rounds for itself, as it does when eager runs them one by one.
            # Numbers below the least normal one are numbers, in what is compiled of libdevice too.
            options={
                "num_warps": printed.warps,
                "enable_fp_fusion": False,
                "enable_reflect_ftz": False,
                **asserting,
                **({} if printed.stages is None else {"num_stages": printed.stages}),
            },
        )
    return found


def compile_kernel(kernel: Kernel, device: int) -> tuple[Callable[..., None], str]:
    """A callable of the addresses of ``kernel.buffers``, in order, and the kernel's source.

    Behind the addresses it takes the numbers called ``kernel.arguments``, which this sets. It
    launches on the current stream of the CUDA device numbered ``device``, which has to be the
    current device when it is called.
    """
    printed = print_kernel(kernel)
    kernel.arguments = list(printed.arguments)
    major, minor = torch.cuda.get_device_capability(device)
    dtypes = tuple(b.dtype for b in kernel.buffers)

    def make(aligned: bool) -> Any:
        text = printed if aligned else print_kernel(kernel, aligned=False)
        return machine_code(text, dtypes, 10 * major + minor, aligned, device=device)

    with torch.cuda.device(device):  # into which it is loaded
        run = launch(make, len(dtypes), printed.programs, device, len(printed.arguments))
    return run, printed.source


def launch(
    make: Callable[[bool], Any], buffers: int, programs: int, device: int, numbers: int = 0
) -> Callable[..., None]:
    """The launch of the kernel that ``make(aligned)`` compiles; the one for addresses that are not
    aligned is compiled when such a call comes."""
    names = [f"p{n}" for n in range(buffers)]
    given = ", ".join([*names, *(f"s{n}" for n in range(numbers))])
    scope: dict[str, Any] = {
        "stream_of": torch._C._cuda_getCurrentRawStream,
        "aligned": _prepared(make(True)),
        "unaligned": lambda *arguments: _prepared_later(make, scope)(*arguments),
    }
    text = (
        f"def run({given}):\n"
        f"    launch = unaligned if ({' | '.join(names)}) & {ALIGNMENT - 1} else aligned\n"
        f"    launch({programs}, stream_of({device}), {given})\n"
    )
    exec(compile(text, "<fastpath launch>", "exec"), scope)
    run: Callable[..., None] = scope["run"]
    return run


def _prepared_later(make: Callable[[bool], Any], scope: dict[str, Any]) -> Callable[..., None]:
    found = scope["unaligned"] = _prepared(make(False))
    return found


def _prepared(kernel: Any) -> Callable[..., None]:
    """``launch(programs, stream, *addresses)`` of a compiled kernel."""
    start = kernel.run  # loads the machine code into the current device
    function, metadata = kernel.function, kernel.packed_metadata

    def launch(programs: int, stream: int, *addresses: int) -> None:
        start(programs, 1, 1, stream, function, metadata, None, None, None, *addresses)

    return launch
