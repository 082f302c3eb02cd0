"""Single instructions run by CPython itself: for its error messages, and for what only it can make.

A message that differs between versions is asked for instead of being written down.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS


def _template(a: Any = None, b: Any = None, c: Any = None) -> None:
    pass


def instruction(opcode: str, arg: int, operands: int, names: Sequence[str] = ()) -> Callable:
    """A function that hands its arguments (at most three) to an instruction without caches.

    It returns what the instruction leaves on top. ``names`` are what the argument may index.
    """
    steps = [
        ("RESUME", 0),
        *(("LOAD_FAST", slot) for slot in range(operands)),
        (opcode, arg),
        ("RETURN_VALUE", 0),
    ]
    code = _template.__code__.replace(
        co_code=bytes(byte for name, number in steps for byte in (dis.opmap[name], number)),
        co_stacksize=operands + 2,
        co_linetable=b"",
        co_names=tuple(names),
    )
    return FunctionType(code, {"__name__": __name__, "__builtins__": BUILTINS}, argdefs=(None,) * 3)
