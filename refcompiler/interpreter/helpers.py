"""Python functions that the interpreter runs in place of C code that would call Python code.

Their frames lie on the stack like the program's own and are what a snapshot finds there, but no
traceback shows them. Their code may use the names of this module and nothing else.
"""

from __future__ import annotations

import dis
from types import FunctionType
from typing import Any

from refcompiler.bytecode.decode import decode
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS


def hidden(function: FunctionType) -> FunctionType:
    """Decorator: no traceback shows the frames of ``function``."""
    decode(function.__code__).hidden = True
    return function


def _reraising(function: FunctionType) -> FunctionType:
    """``raise`` does not touch the exception's traceback and context."""
    body = bytearray(function.__code__.co_code)
    at = next(i for i in range(0, len(body), 2) if body[i] == dis.opmap["RAISE_VARARGS"])
    body[at : at + 2] = dis.opmap["RERAISE"], 0
    function.__code__ = function.__code__.replace(co_code=bytes(body))
    return function


@hidden
@_reraising
def throw(error: Any) -> Any:
    """What stands on a generator's frame into which ``error`` is thrown."""
    raise error
