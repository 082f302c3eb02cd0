"""C code that runs while capturing must not run the user's Python behind the interpreter's back.

What that reads would be unguarded and what it writes lost. A profile function sees it begin.
Special methods lead into the interpreter (:mod:`refcompiler.capture.reentry`); other code ends the
graph.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FrameType, FunctionType
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor

from refcompiler.capture.kinds import CONSTANT_TYPES
from refcompiler.capture.signals import Again, Break, Restart
from refcompiler.interpreter.tracebacks import DRIVERS, ENTRIES

#: Packages whose Python code may run natively while capturing.
QUIET = frozenset(sys.stdlib_module_names) | {
    "torch",
    "refcompiler",
    "specs",
    "numpy",
    "sympy",
    "mpmath",
    "typing_extensions",
    "_distutils_hack",  # a finder of modules, which any first import asks
}
#: Those of them whose instances differ from call to call, or change: their methods are interpreted.
_CONTAINERS = frozenset(
    """
    _collections_abc _pydatetime _pydecimal _weakrefset argparse calendar collections configparser
    datetime decimal email fractions graphlib http ipaddress numbers os pathlib queue random
    statistics string textwrap types urllib uuid weakref xml zoneinfo
    """.split()
)
_HEAP_TYPE = 1 << 9
_OWN = "refcompiler."
#: Arguments of these types make no C function call Python code.
_SILENT = CONSTANT_TYPES | {FakeTensor, FunctionType, BuiltinFunctionType}


def is_quiet(function: FunctionType) -> bool:
    """A function of the standard library or of torch, whose effects nobody sees."""
    return (function.__module__ or "").partition(".")[0] in QUIET


class _Seen(BaseException):
    """The user's Python code is about to run natively."""

    def __init__(self, frame: FrameType):
        self.frame = frame
        self.codes = [frame.f_code]  # and those of the library's functions that call it
        back = frame.f_back
        while back is not None and not (back.f_globals.get("__name__") or "").startswith(_OWN):
            self.codes.append(back.f_code)
            back = back.f_back


def _is_import_of_library(frame: FrameType) -> bool:
    """What finds modules is asked for one that a library imports when it needs it first."""
    imported, back = False, frame.f_back
    while back is not None:
        name = back.f_globals.get("__name__") or ""
        if name.startswith("importlib._bootstrap"):
            imported = True
        elif imported:
            return name.partition(".")[0] in QUIET
        elif name.startswith(_OWN):
            return False
        back = back.f_back
    return False


def _spy(frame: FrameType, event: str, arg: Any) -> None:
    code = frame.f_code
    if event == "call" and id(code) not in DRIVERS and id(code) not in ENTRIES:
        module = frame.f_globals.get("__name__") or ""
        if module.partition(".")[0] not in QUIET and not module.startswith("namedtuple_"):
            if not _is_import_of_library(frame):
                raise _Seen(frame)
        elif code.co_argcount and module.partition(".")[0] in _CONTAINERS:
            receiver = frame.f_locals.get(code.co_varnames[0])
            if type(receiver).__flags__ & _HEAP_TYPE and _WATCHED.reentry.is_foreign(receiver):
                raise _Seen(frame)


class _Watched(threading.local):
    """What the C code that runs in a thread may call."""

    reentry: Any = None


_WATCHED = _Watched()


def is_watching() -> bool:
    """Whether C code runs in this thread that capture has called."""
    return sys.getprofile() is _spy


def natively(machine: Any, function: Callable, /, *args: Any, **kwargs: Any) -> Any:
    """``function(*args, **kwargs)``; capture ends before it if that runs the user's Python."""
    kind: Any = function
    users = issubclass(type(kind), type) and kind.__flags__ & _HEAP_TYPE
    if not kwargs and not users and type(getattr(function, "__self__", None)) in _SILENT:
        for value in args:
            if type(value) not in _SILENT:
                break
        else:
            return function(*args)
    if sys.getprofile() is not None:  # this one already, or one of the user's
        return function(*args, **kwargs)
    machine.acted = machine.steps
    collects = gc.isenabled()
    gc.disable()  # its callbacks are not the program's
    reentry = _WATCHED.reentry = machine.reentry
    reentry.install()
    sys.setprofile(_spy)
    try:
        return function(*args, **kwargs)
    except _Seen as signal:
        seen = signal
    finally:
        sys.setprofile(None)
        reentry.remove()
        _WATCHED.reentry = None  # it leads to all that the capture has seen
        if collects:
            gc.enable()
    try:
        if reentry.learn(seen.frame, seen.codes):
            raise Again
        name = getattr(function, "__qualname__", repr(type(function)))
        raise Restart(machine.steps, "c-function", f"{name} calls {seen.codes[0].co_qualname}")
    finally:
        del seen  # its traceback leads here, and from here to all that the callers hold


@contextlib.contextmanager
def interpreting() -> Iterator[None]:
    """C code called back into the interpreter: nothing runs unseen until it returns."""
    if sys.getprofile() is not _spy:
        yield
        return
    sys.setprofile(None)
    reentry = _WATCHED.reentry
    reentry.remove()
    try:
        yield
    finally:
        _WATCHED.reentry = reentry
        reentry.install()
        sys.setprofile(_spy)


class called_back:  # used as the function that it could be
    """As :func:`interpreting`, where C code has changed its own state already.

    An iterator in C that gets an error instead of an item is over, so a break in here is one
    before the instruction, in a new capture. (A generator that raises another error than it was
    given is in a cycle with the frames of both from Python 3.12 on: they would hold the user's
    objects until garbage is collected.)
    """

    __slots__ = ("machine", "inner")

    def __init__(self, machine: Any):
        self.machine = machine
        self.inner = interpreting()

    def __enter__(self) -> None:
        self.inner.__enter__()

    def __exit__(self, kind: Any, signal: BaseException | None, traceback: Any) -> None:
        self.inner.__exit__(kind, signal, traceback)
        if isinstance(signal, Break):
            raise Restart(self.machine.steps, signal.row, signal.context) from signal
