"""Which machine runs in a thread, for C code that calls back."""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable
from typing import Any

from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS

#: The machine of each thread in which Python code that C code calls is interpreted.
CURRENT: dict[int, Any] = {}


def aside(function: Callable, *args: Any) -> Any:
    """``function(*args)``, which is the interpreter's own business: all of it runs natively."""
    thread = get_ident()
    machine = CURRENT.pop(thread, None)
    try:
        return function(*args)
    finally:
        if machine is not None:
            CURRENT[thread] = machine
