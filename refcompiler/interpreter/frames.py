"""The stack of frames as a program sees it: objects like CPython's for interpreted frames.

A view reads the frame it belongs to. Its ``f_back`` leads through interpreted frames, generators
that delegate, and the native frames between two runs of the interpreter.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping
from types import (
    AsyncGeneratorType,
    CodeType,
    CoroutineType,
    FrameType,
    GeneratorType,
)
from typing import Any
from weakref import ref

from refcompiler.interpreter.binding import SUSPENDS
from refcompiler.interpreter.callers import CALLERS
from refcompiler.interpreter.frame import UNSET, Frame
from refcompiler.interpreter.generators import Activation
from refcompiler.interpreter.registry import native
from refcompiler.interpreter.tracebacks import DRIVERS, ENTRIES, MADE, live_frame
from refcompiler.interpreter.variables import visible_locals
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS

_native_frame = sys._getframe
#: Where a generator that was not started stands: at what made it, or after that (3.13).
_MADE_BEFORE = int(sys.version_info >= (3, 13))


#: Where a walk goes on outside of a run: a native frame, and the machine and interpreted frame
#: that the next run outwards was at when it called.
Outside = tuple[FrameType | None, Any, Frame | None]


class LocalTrace:
    """How one frame is traced, and where it stood last."""

    __slots__ = ("function", "lines", "opcodes", "line", "index", "at")

    def __init__(self) -> None:
        self.function: Any = None
        self.lines, self.opcodes = True, False
        self.line: int | None = -1
        self.index = -1
        self.at: tuple[int, int] | None = None  # offset and line that are being reached


#: By the attributes of a frame object that say how it is traced: those of :class:`LocalTrace`.
_TRACES = {"f_trace": "function", "f_trace_lines": "lines", "f_trace_opcodes": "opcodes"}


@native
class FrameView:
    """A frame object for an interpreted frame. ``outside`` is what called the run it is in.

    ``driver`` is the native frame of the generator whose frame it is.
    """

    __slots__ = (
        "_machine",
        "_frame",
        "_outside",
        "_driver",
        "__weakref__",
    )

    def __init__(self, machine: Any, frame: Frame, outside: Outside | None, driver: Any):
        self._machine, self._frame, self._outside = machine, frame, outside
        self._driver = driver

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return FrameType

    @property
    def __module__(self) -> str:  # type: ignore[override]
        raise AttributeError("'frame' object has no attribute '__module__'")

    def __repr__(self) -> str:
        code = self.f_code
        return (
            f"<frame at {id(self):#x}, file {code.co_filename!r}, line {self.f_lineno}, "
            f"code {code.co_name}>"
        )

    @property
    def f_code(self) -> CodeType:
        return self._frame.code

    @property
    def f_globals(self) -> dict[str, Any]:
        return self._frame.globals

    @property
    def f_builtins(self) -> dict[str, Any]:
        return self._frame.builtins

    @property
    def f_lineno(self) -> int:
        frame = self._frame
        if frame.trace is not None and frame.trace.at is not None:
            return frame.trace.at[1]
        return frame.line if frame.ip else frame.code.co_firstlineno

    @property
    def f_lasti(self) -> int:
        frame = self._frame
        if frame.trace is not None and frame.trace.at is not None:
            return frame.trace.at[0]
        instructions = frame.program.instructions
        if frame.ip:
            return instructions[frame.ip - 1].offset
        if frame.code.co_flags & SUSPENDS:  # the call that made the generator ended here
            made = next(i for i, ins in enumerate(instructions) if ins.name == "RETURN_GENERATOR")
            return instructions[made + _MADE_BEFORE].offset
        return -1

    @property
    def f_locals(self) -> Any:
        return visible_locals(self._machine, self._frame)

    @property
    def f_trace(self) -> Any:
        return self._trace.function

    @property
    def f_trace_lines(self) -> bool:
        return self._trace.lines

    @property
    def f_trace_opcodes(self) -> bool:
        return self._trace.opcodes

    @property
    def _trace(self) -> LocalTrace:
        return self._frame.trace or LocalTrace()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in FrameView.__slots__:
            object.__setattr__(self, name, value)
            return
        native = _native_frame()
        setattr(native, name, value)  # which complains about other names, types and values
        native.f_trace = None
        frame = self._frame
        if frame.trace is None:
            frame.trace = LocalTrace()
            if frame.ip:  # the line that it is in has begun
                frame.trace.line, frame.trace.index = frame.line, frame.ip - 1
        setattr(frame.trace, _TRACES[name], value)

    def __delattr__(self, name: str) -> None:
        delattr(_native_frame(), name)  # which complains, or sets f_trace to None
        if self._frame.trace is not None:
            self._frame.trace.function = None

    @property
    def f_back(self) -> Any:
        outside = self._outside
        if outside is None:
            return None
        if self._frame.back is not None:
            return view_of(self._machine, self._frame.back, outside)
        return _outward(*outside)

    def clear(self) -> None:
        """Drop the values of a frame that has finished; a suspended one is closed (3.11, 3.12)."""
        frame = self._frame
        if _run_of(frame) is not None:
            raise RuntimeError("cannot clear an executing frame")
        if self._driver is None and frame.code.co_flags & SUSPENDS:
            self._driver = _suspended_driver(frame)
        if self._driver is not None:
            self._driver.clear()  # which finalises the generator, or complains
        frame.fast[:] = [UNSET] * len(frame.fast)
        frame.stack.clear()


@native
class NativeView:
    """A native frame with interpreted ones below it: only ``f_back`` is another."""

    __slots__ = ("_native", "_outside")

    def __init__(self, native: FrameType, outside: Outside):
        object.__setattr__(self, "_native", native)
        object.__setattr__(self, "_outside", outside)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return FrameType

    @property
    def __module__(self) -> str:  # type: ignore[override]
        raise AttributeError("'frame' object has no attribute '__module__'")

    def __repr__(self) -> str:
        return repr(self._native)

    def __eq__(self, other: object) -> bool:
        return other is self._native or type(other) is NativeView and other._native is self._native

    def __hash__(self) -> int:
        return hash(self._native)

    @property
    def f_back(self) -> Any:
        return _outward(*self._outside)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._native, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._native, name)


FrameView.__name__ = NativeView.__name__ = "frame"  # what error messages show


def view_of(machine: Any, frame: Frame, outside: Outside | None, driver: Any = None) -> FrameView:
    """The one view of ``frame`` as long as somebody holds it."""
    found = None if frame.view is None else frame.view()
    if found is None:
        if driver is None and frame.code.co_flags & SUSPENDS and outside is not None:
            driver = _driver_of(frame, outside[0])
        found = FrameView(machine, frame, outside, driver)
        frame.view = ref(found)
        return found
    found._outside = outside
    return found


def _driver_of(frame: Frame, native: FrameType | None) -> FrameType | None:
    """What drives ``frame`` from a native frame a little further out than ``native``."""
    while native is not None and id(native.f_code) not in DRIVERS:
        native = native.f_back
    return native if native is not None and native.f_locals[_HIDDEN].frame is frame else None


def _suspended_driver(frame: Frame) -> FrameType | None:
    """What drives ``frame``, which is suspended and has been seen in a traceback only."""
    for activation in gc.get_referrers(frame):
        if isinstance(activation, Activation):
            for holder in gc.get_referrers(activation):
                for kind, attribute in _GENERATORS.items():
                    if type(holder) is kind:
                        return getattr(holder, attribute)
    return None


_GENERATORS = {
    GeneratorType: "gi_frame",
    CoroutineType: "cr_frame",
    AsyncGeneratorType: "ag_frame",
}


def current_view(machine: Any, frame: Frame) -> FrameView:
    """The view of the frame that executes."""
    native: Any = _native_frame()
    while native is not None:
        if _is_run(native) and native.f_locals["self"] is machine:
            return view_of(machine, frame, _outside(native))
        native = native.f_back
    return view_of(machine, frame, (_native_frame(1), machine, None))  # stepped, not run


def innermost(machine: Any, frame: Frame, count: int) -> list[Any]:
    """The views of ``frame``, which executes, and of its callers: ``count`` at most."""
    found: list[Any] = []
    view: Any = current_view(machine, frame)
    while view is not None and len(found) < count:
        found.append(view)
        view = view.f_back
    return found


_RUN_CODES: list[CodeType] = []
_HIDDEN = ".0"  # how a driver calls what it drives


def set_run_code(code: CodeType) -> None:
    """Tell which native frames are runs of the interpreter."""
    _RUN_CODES.append(code)


def _is_run(native: FrameType) -> bool:
    return native.f_code is _RUN_CODES[0]


def _outside(run: FrameType) -> Outside:
    known = run.f_locals
    return run.f_back, known["self"], known["saved"]


def _outward(native: FrameType | None, machine: Any, current: Frame | None) -> Any:
    """The next frame that a program may see, from ``native`` on outwards."""
    while native is not None:
        if _is_run(native):
            other = native.f_locals["self"]
            if other is not machine:  # this run is the innermost of its machine
                machine, current = other, other.frame
            if current is not None:
                return view_of(machine, current, _outside(native))
            _, machine, current = _outside(native)
        elif id(native.f_code) in DRIVERS:
            activation = native.f_locals[_HIDDEN]
            if activation.delegates and activation.frame is not None:
                outside = native.f_back, machine, current
                return view_of(machine, activation.frame, outside, native)
        elif not _is_internal(native):
            if _has_run(native):
                return NativeView(native, (native.f_back, machine, current))
            return native
        native = native.f_back
    return None


def _is_internal(native: FrameType) -> bool:
    if id(native.f_code) in CALLERS or id(native.f_code) in ENTRIES:
        return True
    module = native.f_globals.get("__name__")
    return type(module) is str and module.startswith("refcompiler.")


def _has_run(native: FrameType | None) -> bool:
    while native is not None and not _is_run(native):
        native = native.f_back
    return native is not None


def _run_of(frame: Frame) -> FrameType | None:
    """The native frame of the run in which ``frame`` executes, or None."""
    machine = saved = None
    native: FrameType | None = _native_frame(1)
    while native is not None:
        if _is_run(native):
            other = native.f_locals["self"]
            current = saved if other is machine else other.frame
            while current is not None:
                if current is frame:
                    return native
                current = current.back
            _, machine, saved = _outside(native)
        native = native.f_back
    return None


def native_depth(known: Mapping[int, int] = {}) -> int:
    """How deep the native stack is: the recursion limit counts interpreted frames on top of it.

    ``known`` has the depths of some frames, by their ids.
    """
    depth = 0
    native: FrameType | None = _native_frame(1)
    while native is not None:
        if known and id(native) in known:
            return depth + known[id(native)]
        depth, native = depth + 1, native.f_back
    return depth


#: Attributes that would show a driver of a generator, the entry of a function, or the frame object
#: made for a traceback, and its code.
INNER = frozenset(
    [
        "tb_frame",
        "f_code",
        "__code__",
        *(f"{kind}_{what}" for kind in ("gi", "cr", "ag") for what in ("frame", "code")),
    ]
)


def shown(machine: Any, value: Any, owner: Any) -> Any:
    """What ``owner``, a generator or traceback, answers for its frame or code: the user's own."""
    if type(value) is FrameType:
        if id(value.f_code) in DRIVERS:  # of a traceback: one that an exception was thrown into
            activation = value.f_locals.get(_HIDDEN)
            frame = None if activation is None else activation.frame
            return value if frame is None else view_of(machine, frame, None, value)
        frame = live_frame(value)
        if frame is None:
            return value
        run = _run_of(frame)
        return view_of(machine, frame, None if run is None else _outside(run))
    if type(value) is CodeType:
        found = DRIVERS.get(id(value)) or ENTRIES.get(id(value))
        if found is None:
            made = MADE.get(id(value))
            return value if made is None else made.code
        return found
    return value
