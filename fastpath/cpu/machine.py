"""Machine code of printed kernels: made with numba, once per machine, and found by their texts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

from fastpath.cpu.objects import address_of, is_kept, made_once
from fastpath.cpu.printer import Printed
from refcompiler.importing import importing

_compiled: dict[tuple[str, str], int] = {}


def key_of(printed: Printed) -> tuple[str, str]:
    """What determines a printed kernel."""
    return printed.source, repr(sorted(printed.names.items()))


def machine_code(printed: Printed) -> int:
    """The address of a printed kernel's C function; equal texts are loaded once per process."""
    key = key_of(printed)
    found = _compiled.get(key)
    if found is None:
        found = _compiled[key] = address_of(key, functools.partial(_compile, printed))
    return found


def is_made(printed: Printed) -> bool:
    """Whether this process, or another one on this machine, has compiled it."""
    return key_of(printed) in _compiled or is_kept(key_of(printed))


def keep(printed: Printed) -> None:
    """Compile it for other processes, unless one of them has."""
    made_once(key_of(printed), functools.partial(_compile, printed))


def warm() -> None:
    """Have ready what every compilation needs."""
    _compile(Printed("def kernel(addresses, begin, end):\n    pass\n"), "nothing")
    is_kept(())


@functools.cache
def signature() -> Any:
    from numba import types

    return types.void(types.int64, types.int64, types.int64)


@functools.cache
def _compiler() -> Callable[..., bytes]:
    """``compile_callback``, with all that numba loads at its first use."""
    with importing():
        from fastpath.cpu import codegen, maths

        _ = maths
        codegen.ready()
    return codegen.compile_callback


def _compile(printed: Printed, symbol: str) -> bytes:
    compile_callback = _compiler()
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
