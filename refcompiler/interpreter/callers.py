"""What C code sees as its caller: a native frame with the user's name, file, line and globals.

C code that warns, makes a class, imports or asks who called it looks at the topmost native frame,
and Python code that C code calls looks at the one above its own. Without this it would be the
interpreter's. Deeper than that one, native code meets the interpreter's frames.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType, ModuleType
from typing import Any

from refcompiler.interpreter.frame import Frame
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS

FUTURE_FLAGS = 0x1FE0000  # CPython's PyCF_MASK: what a nested compilation inherits
_CALL = (lambda function, args, kwargs: function(*args, **kwargs)).__code__  # on one line

#: The ids of the code objects of such frames, which are kept with their programs.
CALLERS: set[int] = set()


def add_caller(frame: Frame) -> Any:
    """What calls native code for the instruction that ``frame`` runs.

    It is kept for as long as the program where the globals are those of a module. Other globals
    would outlive their namespace.
    """
    code, index = _code_of(frame), frame.ip
    builtins: Any = frame.globals.get("__builtins__")
    if type(builtins) is ModuleType:
        builtins = builtins.__dict__
    if builtins is not frame.builtins:
        return with_builtins_of(frame, FunctionType)(code, frame.globals)
    caller = FunctionType(code, frame.globals)
    module = sys.modules.get(frame.globals.get("__name__"))  # type: ignore[arg-type]
    if type(module) is ModuleType and module.__dict__ is frame.globals:
        frame.program.callers[index] = caller
    return caller


def _code_of(frame: Frame) -> CodeType:
    program, line = frame.program, frame.line
    found = program.caller_codes.get(line)
    if found is None:
        code = program.code
        found = program.caller_codes[line] = _CALL.replace(
            co_name=code.co_name,
            co_qualname=code.co_qualname,
            co_filename=code.co_filename,
            co_firstlineno=line,
            co_flags=_CALL.co_flags & ~FUTURE_FLAGS | code.co_flags & FUTURE_FLAGS,
        )
        CALLERS.add(id(found))
    return found


def call_below(views: Iterable[Any], function: Callable, argument: Any) -> Any:
    """``function(argument)`` with a native frame for each of the frames ``views``, innermost first.

    So C code that looks at the stack, like that which notes where a coroutine was made, finds what
    the frames show.
    """
    called: tuple[Any, tuple, dict] = function, (argument,), {}
    for view in views:
        code = view.f_code
        frame = _CALL.replace(
            co_name=code.co_name,
            co_qualname=code.co_qualname,
            co_filename=code.co_filename,
            co_firstlineno=view.f_lineno,
        )
        called = FunctionType(frame, view.f_globals), called, {}
    return called[0](*called[1])


def with_builtins_of(frame: Frame, function: Callable) -> Callable:
    """``function`` as called from a frame whose builtins are those of ``frame``."""
    as_any: Any = FunctionType(_WRAP, {"__builtins__": frame.builtins, "__name__": __name__})
    return as_any(function)


_WRAP = (lambda function: lambda *args, **kwargs: function(*args, **kwargs)).__code__

#: Where nothing is kept: its globals are no frame's.
NOBODY: Any = FunctionType(_CALL, {})
