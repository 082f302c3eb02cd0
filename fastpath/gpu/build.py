"""Machine code from a kernel's text, with Triton alone: what a process without torch can do too."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

ALIGNMENT = 16  # bytes: of what a thread loads at once
DEPENDENT = 90  # the first capability with programmatic dependent launches
NARROWING = 89  # the first one that converts to floats of one byte
NARROW = "\nNARROW = tl.constexpr(True)\n"
EARLY = "\nEARLY = tl.constexpr(True)\n"  # what its kernels' texts say of it, at their ends


@functools.cache
def folder() -> Path:
    """Where the modules' texts lie while the process lives: Triton reads a kernel from its file."""
    made = tempfile.TemporaryDirectory(prefix="fastpath_triton_")
    _folders.append(made)
    return Path(made.name)


_folders: list[tempfile.TemporaryDirectory[str]] = []  # removed when the process ends


def module_of(text: str) -> ModuleType:
    """The module of that text; the same name for the same text, in every process."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    name = f"fastpath_kernel_{digest}"
    path = folder() / f"{name}.py"
    if not path.exists():
        unfinished = path.with_suffix(f".{os.getpid()}_{threading.get_ident()}")
        unfinished.write_text(text)
        unfinished.replace(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def prepare() -> None:
    """Load what every kernel needs of Triton, and what it is found by in the cache.

    With Triton 3.6 a kernel's key has the constants of the functions that it calls, of those alone
    whose own keys were asked for before. So all are asked for here, in one order, in whichever
    process: else only the first kernel that a process compiles is found by another.
    """
    from triton.backends.nvidia.compiler import get_ptxas_version
    from triton.runtime.cache import triton_key

    from fastpath.gpu import maths

    triton_key()
    for function in vars(maths).values():
        _ = getattr(function, "cache_key", None)
    with contextlib.suppress(Exception):  # a version of it is asked of a program
        get_ptxas_version(DEPENDENT)


def build(
    text: str,
    name: str,
    signature: Mapping[str, str],
    divisible: Sequence[int],
    capability: int,
    warps: int,
    stages: int | None,
    registers: int | None = None,
) -> Any:
    """Triton's compiled kernel: the function ``name`` of the module ``text``.

    ``signature``: the types of its arguments, in Triton's words; ``divisible``: the places of
    addresses and sizes that are multiples of :data:`ALIGNMENT`. ``capability``: of the GPU, 90 is
    9.0. ``registers``: of a thread, at most.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    # Triton drops assertions otherwise; of integers that overflow nothing is asserted.
    prepare()
    asserts = "tl.device_assert(" in text
    asserting = {"debug": True, "sanitize_overflow": False} if asserts else {}
    hint: Any = [["tt.divisibility", ALIGNMENT]]
    attributes = {(n,): hint for n in divisible}
    early = capability >= DEPENDENT
    if early:
        text += EARLY
    if capability >= NARROWING:
        text += NARROW
    return triton.compile(
        ASTSource(getattr(module_of(text), name), dict(signature), {}, attributes),
        target=GPUTarget("cuda", capability, 32),
        # Each operation rounds for itself, as it does when eager runs them one by one.
        # Numbers below the least normal one are numbers, in what is compiled of libdevice too.
        options={
            "num_warps": warps,
            "enable_fp_fusion": False,
            "enable_reflect_ftz": False,
            "launch_pdl": early,
            **asserting,
            **({} if stages is None else {"num_stages": stages}),
            **({} if registers is None else {"maxnreg": registers}),
        },
    )
