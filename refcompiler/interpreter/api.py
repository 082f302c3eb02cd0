"""The interpreter's front door: :func:`interpret`."""

from __future__ import annotations

import sys
from _thread import get_ident
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any

from refcompiler.errors import UnsupportedError
from refcompiler.interpreter.callers import CALLERS
from refcompiler.interpreter.current import CURRENT
from refcompiler.interpreter.entries import begin, end
from refcompiler.interpreter.frame import CALLED, Frame
from refcompiler.interpreter.introspection import FRAME_READERS, set_interpret
from refcompiler.interpreter.machine import RETURNS, Machine
from refcompiler.interpreter.registry import NATIVE_CODES
from refcompiler.interpreter.tracebacks import user_part
from refcompiler.interpreter.variables import frame_locals
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS

_getframe, _gettrace, _settrace = sys._getframe, sys.gettrace, sys.settrace
_monitoring: Any = getattr(sys, "monitoring", None)
#: From 3.12 on: the name of the tool that has the given number.
_get_tool = (lambda number: None) if _monitoring is None else _monitoring.get_tool
_WATCHERS = (0, 1)  # debuggers and coverage

#: The frame below the user's: it only receives the value.
_ROOT: CodeType = compile("", "<refcompiler>", "exec")


def interpret(fn: Callable, /, *args: Any, **kwargs: Any) -> Any:
    """``fn(*args, **kwargs)``, run by the interpreter together with the Python code it calls.

    ``fn`` is whatever can be called: a function, method, partial, class, an instance with
    ``__call__``, a builtin (which is called as it is). The call's value or exception is
    CPython's; a generator or coroutine function answers a generator or coroutine whose body is
    interpreted as it is driven. The machine is this call's own: calls nest, and threads may
    interpret at the same time.

    Errors: ``TypeError`` for what cannot be called, :class:`~refcompiler.errors.UnsupportedError`
    for bytecode that the interpreter does not run and while a trace function or a tool of
    ``sys.monitoring`` for debuggers or coverage is set,
    :class:`~refcompiler.errors.InternalError` for a bug of the interpreter; everything else is
    the user's own.
    """
    if not callable(fn):
        raise TypeError(
            f"interpret: an object of type {type(fn).__name__!r} is not callable; "
            "pass a function and its arguments"
        )
    if _gettrace() is not None:
        raise UnsupportedError(
            "interpret: a trace function (a debugger or coverage) would see the interpreter's "
            "frames instead of the program's; call sys.settrace(None) before, or use "
            "`refcompiler step`"
        )
    for number in _WATCHERS:
        if (tool := _get_tool(number)) is not None:
            raise UnsupportedError(
                f"interpret: {tool}, which watches by sys.monitoring, would see the interpreter's "
                f"frames instead of the program's; call sys.monitoring.free_tool_id({number}) "
                "before, or use `refcompiler step`"
            )
    native = _getframe(1)
    globals_ = native.f_globals
    globals_.setdefault("__builtins__", native.f_builtins)
    locals_ = _locals_of(native) if id(fn) in FRAME_READERS else globals_
    del native  # its variables are not this call's to keep
    machine = Machine()
    try:
        return call_on(machine, fn, args, kwargs, globals_, locals_)
    except BaseException as error:
        error.__traceback__ = user_part(error.__traceback__)
        raise
    finally:
        if machine.trace_function is not None:
            _settrace(machine.trace_function)  # what runs from now on is CPython's to trace


def _locals_of(native: FrameType) -> Any:
    """What ``locals()``, or ``exec`` or ``dir``, finds where ``interpret`` was called."""
    machine: Any = CURRENT.get(get_ident())
    if machine is not None and machine.frame is not None and id(native.f_code) in CALLERS:
        return frame_locals(machine, machine.frame)  # interpreted code called it
    return native.f_locals


def call_on(
    machine: Machine,
    fn: Any,
    args: Sequence,
    kwargs: Mapping,
    globals_: dict[str, Any],
    locals_: Any,
) -> Any:
    """Call ``fn`` to its end on ``machine``, which runs nothing yet.

    Builtins that ask who calls them (``exec``, ``type``) find ``globals_`` and ``locals_``.
    """
    root = machine.module_frame(_ROOT, globals_, locals_)
    before = begin(machine)
    try:
        return _called(machine, root, fn, args, kwargs)
    finally:
        end(before)


def _called(machine: Machine, root: Frame, fn: Any, args: Sequence, kwargs: Mapping) -> Any:
    found = machine.call(root, fn, args, kwargs)
    if found is CALLED:
        frame, machine.frame = machine.frame, None
        assert frame is not None
        frame.back = None
        found = machine.run(frame)
        if frame.on_return != "push":
            RETURNS[frame.on_return](machine, root, found, frame.extra)
            found = root.stack.pop()
    return found


#: Interpreted code that calls these gets an interpreter of its own, which runs natively.
NATIVE_CODES.update(id(function.__code__) for function in (interpret, call_on, _called))
set_interpret(interpret)
