"""Builtins that read the frame that calls them, which natively would be the interpreter's own.

A reader takes (machine, frame, function, args, kwargs) and answers like
:meth:`refcompiler.interpreter.machine.Machine.call`: with the value, or with CALLED.
"""

from __future__ import annotations

import _thread
import builtins
import importlib
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import CellType, CodeType, ModuleType, TracebackType
from typing import Any

from refcompiler.errors import UnsupportedError
from refcompiler.interpreter import recursion
from refcompiler.interpreter.callers import FUTURE_FLAGS
from refcompiler.interpreter.classes import build_class
from refcompiler.interpreter.frame import CALLED, UNSET, Frame
from refcompiler.interpreter.frames import INNER, FrameView, current_view, shown
from refcompiler.interpreter.tracebacks import Values, frame_object
from refcompiler.interpreter.tracing import set_trace_function
from refcompiler.interpreter.variables import frame_locals
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS

_NEEDS_CALL = 0x20 | 0x80 | 0x100 | 0x200  # generators and coroutines of every kind


def super_of(machine: Any, frame: Frame) -> tuple[Any, Any]:
    """The arguments of a ``super()`` without any: the ``__class__`` cell and the first local."""
    names = frame.program.names
    if frame.code.co_argcount == 0:
        raise RuntimeError("super(): no arguments")
    self = frame.fast[0]
    if type(self) is CellType and names[0] in frame.code.co_cellvars:
        self = machine.load_cell(self)
    if self is UNSET:
        raise RuntimeError("super(): arg[0] deleted")
    if "__class__" not in frame.code.co_freevars:
        raise RuntimeError("super(): __class__ cell not found")
    cls = machine.load_cell(frame.fast[names.index("__class__")])
    if cls is UNSET:
        raise RuntimeError("super(): empty __class__ cell")
    return cls, self


def _super(machine: Any, frame: Frame, function: Any, args: Any, kwargs: Any) -> Any:
    return function(*(args or super_of(machine, frame)), **kwargs)


def _locals(machine: Any, frame: Frame, function: Any, args: Any, kwargs: Any) -> Any:
    return function(*args, **kwargs) if args or kwargs else frame_locals(machine, frame)


def _dir(machine: Any, frame: Frame, function: Any, args: Any, kwargs: Any) -> Any:
    if args or kwargs:
        return function(*args, **kwargs)
    names = list(frame_locals(machine, frame).keys())
    names.sort()
    return names


# ---- code ------------------------------------------------------------------------------------


_SPACES = ("globals", "locals")
#: Whether ``eval`` and ``exec`` take them by name (3.13).
_SPACES_BY_NAME = "/, globals" in getattr(eval, "__text_signature__", "")


def _evaluate(machine: Any, frame: Frame, function: Any, args: Any, kwargs: Any) -> Any:
    """``eval`` and ``exec``: the code runs in a frame of its own."""
    if not args:
        return function(*args, **kwargs)
    source, *spaces = args
    if _SPACES_BY_NAME and kwargs and kwargs.keys().isdisjoint(_SPACES[: len(spaces)]):
        named = dict(kwargs)
        spaces += [named.pop(name, None) for name in _SPACES[len(spaces) :]]
        if not named.keys() - {"closure"}:
            args, kwargs = [source, *spaces], named
    if kwargs and (function is eval or kwargs.keys() != {"closure"}):
        return function(*args, **kwargs)  # which raises
    globals_, locals_ = (*spaces, None, None)[:2]
    if globals_ is None:
        globals_ = frame.globals
        if locals_ is None:
            locals_ = frame_locals(machine, frame)
    if locals_ is None:
        locals_ = globals_
    if isinstance(source, str | bytes) and len(args) <= 3:
        text = source.lstrip(" \t") if isinstance(source, str) else source.lstrip(b" \t")
        source = compile(
            text if function is eval else source,
            "<string>",
            "eval" if function is eval else "exec",
            frame.code.co_flags & FUTURE_FLAGS,
            True,
        )
    plain = type(source) is CodeType and not source.co_flags & _NEEDS_CALL
    plain = plain and not machine.native_calls
    if kwargs or len(args) > 3 or not plain or source.co_freevars or type(globals_) is not dict:
        return function(source, globals_, locals_, *args[3:], **kwargs)
    if not hasattr(type(locals_), "__getitem__"):
        return function(source, globals_, locals_)
    globals_.setdefault("__builtins__", frame.builtins)
    new = machine.module_frame(source, globals_, locals_)
    if function is exec:
        new.on_return = "exec"
    if machine.enters:  # another domain may keep the frame for later
        new.on_return = "exec once" if function is exec else "eval once"
        new.extra = new.program, source  # which holds the code while it runs
    machine.push(frame, new)
    return CALLED


# ---- the stack of frames ---------------------------------------------------------------------


def _getframe(machine: Any, frame: Frame, function: Any, args: Any, kwargs: Any) -> Any:
    view: Any = current_view(machine, frame)
    for _ in range(args[0] if args else 0):
        view = view.f_back
        if view is None:
            raise ValueError("call stack is not deep enough")
    return view


def _getframemodulename(machine: Any, frame: Frame, function: Any, args: Any, kwargs: Any) -> Any:
    view: Any = current_view(machine, frame)
    for _ in range(kwargs.get("depth", args[0] if args else 0)):
        view = view.f_back
        if view is None:
            return None
    return view.f_globals.get("__name__")


def _setrecursionlimit(machine: Any, frame: Frame, function: Any, args: Any, kwargs: Any) -> Any:
    if kwargs or len(args) != 1 or type(args[0]) is not int or not 0 < args[0] < 1 << 31:
        return function(*args, **kwargs)  # which complains
    recursion.set_limit(args[0], frame.depth)
    machine.limit = recursion.limit()
    return None


def _getrecursionlimit(machine: Any, frame: Frame, function: Any, args: Any, kwargs: Any) -> Any:
    return function(*args, **kwargs) if args or kwargs else recursion.limit()


_INTERPRET: list[Callable] = []


def set_interpret(interpret: Callable) -> None:
    """Tell what interprets a function from its beginning to its end."""
    _INTERPRET.append(interpret)


class _InThread:
    """What a thread that interpreted code starts runs: the same, interpreted."""

    def __init__(self, function: Any):
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _INTERPRET[0](self.function, *args, **kwargs)

    def __repr__(self) -> str:
        return repr(self.function)


def _start_thread(machine: Any, frame: Frame, function: Any, args: Any, kwargs: Any) -> Any:
    if not args or not callable(args[0]) or machine.native_calls:
        return function(*args, **kwargs)
    hooks: Any = sys.modules.get("threading")  # where it is refused, in the thread, nobody sees it
    if isinstance(hooks, ModuleType) and getattr(hooks, "getprofile", _no_hook)() is not None:
        raise UnsupportedError(
            "threading.setprofile: a thread whose frames the interpreter runs cannot be profiled; "
            "call threading.setprofile(None) before"
        )
    return function(_InThread(args[0]), *args[1:], **kwargs)


def _no_hook() -> None:
    """What a ``threading`` that is something else has set."""


def _exc_info(machine: Any, frame: Frame, function: Any, args: Any, kwargs: Any) -> Any:
    error = machine.handled()
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)


def _exception(machine: Any, frame: Frame, function: Any, args: Any, kwargs: Any) -> Any:
    return machine.handled()


def _warn(machine: Any, frame: Frame, function: Any, args: Any, kwargs: Any) -> Any:
    """``warnings.warn``: shown at the user's line, counted in the user's registry.

    One level up is the native caller, so CPython itself does it. More levels are counted here, as
    in its ``setup_context``.
    """
    names = ("message", "category", "stacklevel", "source")
    given: dict[str, Any] = dict(zip(names, args, strict=False), **kwargs)
    level, skipped = given.get("stacklevel", 1), given.pop("skip_file_prefixes", ())
    message: Any = given.get("message")
    category: Any = given.get("category")
    if isinstance(message, Warning):
        category = type(message)
    elif category is None:
        category = UserWarning
    if not (
        isinstance(level, int)
        and (level > 1 or skipped)
        and type(skipped) is tuple
        and all(isinstance(prefix, str) for prefix in skipped)
        and isinstance(category, type)
        and issubclass(category, Warning)
        and given.keys() <= set(names)
        and "message" in given
    ):
        return machine.natively(frame, function, args, kwargs)
    view: Any = current_view(machine, frame)
    every = _of_the_import_system(view)
    for _ in range(max(level, 2 if skipped else 1) - 1):
        view = view.f_back
        while view is not None and not every:
            if not (_of_the_import_system(view) or view.f_code.co_filename.startswith(skipped)):
                break
            view = view.f_back
        if view is None:
            break
    if view is None:
        globals_, filename, line = vars(sys), "sys", 1
    else:
        globals_, filename, line = view.f_globals, view.f_code.co_filename, view.f_lineno
    registry = globals_.setdefault("__warningregistry__", {})
    module = globals_.get("__name__") or "<string>"
    return warnings.warn_explicit(
        message, category, filename, line, module, registry, None, given.get("source")
    )


def _of_the_import_system(view: Any) -> bool:
    name = view.f_code.co_filename
    return "importlib" in name and "_bootstrap" in name


def _getattr(machine: Any, frame: Frame, function: Any, args: Any, kwargs: Any) -> Any:
    found = function(*args, **kwargs)
    if len(args) > 1 and type(args[1]) is str and args[1] in INNER:
        return shown(machine, found, args[0])
    return found


def _traceback(machine: Any, frame: Frame, function: Any, args: Any, kwargs: Any) -> Any:
    """``TracebackType(...)`` of the view of an interpreted frame: with a frame object like it."""
    given = dict(zip(("tb_next", "tb_frame", "tb_lasti", "tb_lineno"), args, strict=False))
    twice = given.keys() & kwargs.keys()
    given.update(kwargs)
    view = given.get("tb_frame")
    if type(view) is not FrameView or twice or len(args) > len(given):
        return function(*args, **kwargs)
    given["tb_frame"] = frame_object(view._frame, max(view.f_lasti, 0), Values.LIVE)
    return function(**given)


def _settrace(machine: Any, frame: Frame, function: Any, args: Any, kwargs: Any) -> Any:
    if kwargs or len(args) != 1 or not machine.enters:
        return _trace(machine, frame, function, args, kwargs)
    if args[0] is None:
        function(None)  # C code may have set another
    return set_trace_function(machine, frame, args[0])


def _gettrace(machine: Any, frame: Frame, function: Any, args: Any, kwargs: Any) -> Any:
    if args or kwargs or not machine.enters:
        return function(*args, **kwargs)
    return machine.trace_function


def _trace(machine: Any, frame: Frame, function: Any, args: Any, kwargs: Any) -> Any:
    """A trace function would see the interpreter's frames instead of the user's."""
    if args and args[0] is not None:
        raise UnsupportedError(
            f"sys.{function.__name__}: frames that the interpreter runs cannot be traced; run what "
            "is to be traced natively"
        )
    return function(*args, **kwargs)


def _breakpoint(machine: Any, frame: Frame, function: Any, args: Any, kwargs: Any) -> Any:
    """``breakpoint()``: the hook is interpreted, as is what it sets a trace function for."""
    hook = getattr(sys, "breakpointhook", None) if function is breakpoint else function
    if hook is None:
        return machine.natively(frame, function, args, kwargs)  # which complains
    if hook is not sys.__breakpointhook__:
        return machine.call(frame, hook, args, kwargs)
    named = "" if sys.flags.ignore_environment else os.environ.get("PYTHONBREAKPOINT", "")
    if named.startswith("."):  # relative to nothing, which CPython warns of
        return machine.natively(frame, function, args, kwargs)
    place, dot, name = (named or "pdb.set_trace").rpartition(".")
    try:
        hook = getattr(importlib.import_module(place if dot else "builtins"), name)
    except Exception:  # there is none ("0"), or CPython says what is wrong
        return machine.natively(frame, function, args, kwargs)
    return machine.call(frame, hook, args, kwargs)


def _monitor(machine: Any, frame: Frame, function: Any, args: Any, kwargs: Any) -> Any:
    """``set_events`` and ``set_local_events`` of ``sys.monitoring``, for the same reason."""
    if len(args) > 1 and isinstance(args[-1], int) and args[-1]:
        raise UnsupportedError(
            f"sys.monitoring.{function.__name__}: frames that the interpreter runs cannot be "
            "monitored; run what is to be monitored natively"
        )
    return function(*args, **kwargs)


Reader = Callable[[Any, Frame, Any, Sequence, Mapping], Any]

_READERS: list[tuple[Any, Reader]] = [
    (super, _super),
    (locals, _locals),
    (vars, _locals),
    (getattr, _getattr),
    (dir, _dir),
    (eval, _evaluate),
    (exec, _evaluate),
    (builtins.__build_class__, build_class),
    (sys.exc_info, _exc_info),
    (sys.exception, _exception),
    (sys._getframe, _getframe),
    (sys.getrecursionlimit, _getrecursionlimit),
    (sys.setrecursionlimit, _setrecursionlimit),
    (sys.settrace, _settrace),
    (sys.gettrace, _gettrace),
    (sys.setprofile, _trace),
    (breakpoint, _breakpoint),
    (sys.__breakpointhook__, _breakpoint),
    (TracebackType, _traceback),
    (warnings.warn, _warn),
]

if (_function := getattr(sys, "_getframemodulename", None)) is not None:  # from 3.12 on
    _READERS.append((_function, _getframemodulename))

if (_monitoring := getattr(sys, "monitoring", None)) is not None:  # from 3.12 on
    _READERS += [(_monitoring.set_events, _monitor), (_monitoring.set_local_events, _monitor)]
    for _name in ("_settraceallthreads", "_setprofileallthreads"):
        _READERS.append((getattr(sys, _name), _trace))

for _name in ("start_new_thread", "start_new", "start_joinable_thread"):
    if hasattr(_thread, _name):
        _READERS.append((getattr(_thread, _name), _start_thread))

#: By identity, so that looking up asks nothing of the callable.
FRAME_READERS: dict[int, Reader] = {id(function): reader for function, reader in _READERS}
