"""Python functions that C code calls: interpreted where nobody else gets to see them.

``map`` and ``filter`` give their function away (``copy``, ``pickle``), so theirs runs natively, as
does any other function that is handed to C code.
"""

from __future__ import annotations

import functools
from types import FunctionType, MethodType
from typing import Any

from refcompiler.interpreter.frame import Frame
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS

_PYTHON = (FunctionType, MethodType)


class Callback:
    """What C code calls in place of ``function``, while the call that it serves runs."""

    __slots__ = ("machine", "function")

    def __init__(self, machine: Any, function: Any):
        self.machine, self.function = machine, function

    def __call__(self, *args: Any) -> Any:
        machine = self.machine
        if machine.frame is None:  # the interpreter was asked to call a builtin
            from refcompiler.interpreter.api import call_on

            return call_on(machine, self.function, args, {})
        return machine.invoke(machine.frame, self.function, args)


def _keyed(machine: Any, frame: Frame, function: Any, args: Any, kwargs: Any) -> Any:
    """``sorted``, ``min`` and ``max``: the key function."""
    if type(kwargs.get("key")) in _PYTHON and not machine.native_calls:
        kwargs = {**kwargs, "key": Callback(machine, kwargs["key"])}
    return function(*args, **kwargs)


def _reduce(machine: Any, frame: Frame, function: Any, args: Any, kwargs: Any) -> Any:
    if args and type(args[0]) in _PYTHON and not machine.native_calls:
        args = (Callback(machine, args[0]), *args[1:])
    return function(*args, **kwargs)


#: For :data:`refcompiler.interpreter.introspection.FRAME_READERS`.
CALLERS = [(sorted, _keyed), (min, _keyed), (max, _keyed), (functools.reduce, _reduce)]
