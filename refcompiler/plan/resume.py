"""What is alive at a break, and how frames are made of it again."""

from __future__ import annotations

from collections.abc import Sequence
from types import GeneratorType
from typing import Any

from refcompiler.bytecode.decode import Program, slot_names
from refcompiler.bytecode.liveness import live_at
from refcompiler.capture.values import Lazy
from refcompiler.interpreter.frame import UNSET, Frame, is_mark
from refcompiler.interpreter.resumption import finalises, may_finalise


class FrameLayout:
    """The fixed part of one frame: where it stands, and which slots hold a value."""

    __slots__ = (
        "program",
        "globals",
        "builtins",
        "ip",
        "on_return",
        "kwnames",
        "slots",
        "stack",
        "extra",
        "key",
    )

    def __init__(self, frame: Frame, slots: tuple[int, ...], ip: int):
        self.program: Program = frame.program
        self.globals = frame.globals
        self.builtins = frame.builtins
        self.ip = ip
        self.on_return = frame.on_return
        self.kwnames = frame.kwnames
        self.slots = slots
        #: The marks, and None where a value completes it.
        self.stack = tuple(value if is_mark(value) else None for value in frame.stack)
        self.extra = len(extras_of(frame))
        self.key = (
            id(self.program),
            id(self.globals),
            ip,
            self.on_return,
            self.kwnames,
            slots,
            self.stack,
        )


class Layout:
    """The fixed part of a stack of frames, root first; ``size`` values complete it."""

    __slots__ = ("frames", "key", "size")

    def __init__(self, frames: list[FrameLayout]):
        self.frames = frames
        self.key = tuple(frame.key for frame in frames)
        self.size = sum(len(f.slots) + f.stack.count(None) + f.extra for f in frames)

    @property
    def title(self) -> str:
        frame = self.frames[-1]
        return f"{frame.program.code.co_qualname}:{frame.program.line_at(frame.ip)}"

    def labels(self) -> list[str]:
        """What the values are, for people: variables, and what else the frames hold."""
        found = []
        for frame in self.frames:
            code = frame.program.code
            names = slot_names(code)
            of = "" if frame is self.frames[-1] else f" of {code.co_qualname}"
            found += [f"{names[slot]}{of}" for slot in frame.slots]
            unnamed = frame.stack.count(None) + frame.extra
            found += [f"value {i} in {code.co_qualname}" for i in range(unnamed)]
        return found

    def frames_of(self, values: Sequence[Any]) -> Frame:
        """The innermost frame of the stack that ``values`` complete."""
        given = iter(values)
        back: Frame | None = None
        for layout in self.frames:
            frame = Frame(layout.program, layout.globals, layout.builtins, back)
            for slot in layout.slots:
                frame.fast[slot] = next(given)
            frame.stack = [next(given) if mark is None else mark for mark in layout.stack]
            if layout.extra:
                extra = tuple([next(given) for _ in range(layout.extra)])
                frame.extra = extra[0] if layout.on_return in SINGLE else extra
            frame.ip = layout.ip
            frame.on_return = layout.on_return
            frame.kwnames = layout.kwnames
            frame.depth = 0 if back is None else back.depth + 1
            back = frame
        assert back is not None
        return back


def describe(frames: list[Frame]) -> tuple[Layout, list[Any]]:
    """The layout of ``frames`` (root first) and the values that complete it.

    A local variable that nothing will read is left out.
    """
    layouts: list[FrameLayout] = []
    values: list[Any] = []
    for frame in frames:
        layout = _describe(frame, frame is not frames[-1], values)
        layouts.append(layout)
    return Layout(layouts), values


def describe_suspended(frame: Frame | None) -> tuple[Layout, list[Any]]:
    """As :func:`describe`, for the frame of a generator that has not ended."""
    assert frame is not None
    values: list[Any] = []
    return Layout([_describe(frame, frame.ip > 0, values)]), values


_KEPT = frozenset({GeneratorType, Lazy})


def _finalises(value: Any) -> bool:
    if type(value) is Lazy:  # what capture has advanced meanwhile stands for it
        value = value.value
        return may_finalise(value) or finalises(value)
    return finalises(value)


#: Ways to return whose frames keep one value; others keep a tuple of them, or nothing.
SINGLE = frozenset({"init"})


def extras_of(frame: Frame) -> tuple[Any, ...]:
    """What the frame keeps for the one it returns to."""
    if frame.extra is None:
        return ()
    return (frame.extra,) if frame.on_return in SINGLE else frame.extra


def _describe(frame: Frame, waits: bool, values: list[Any]) -> FrameLayout:
    # What waits may raise, or jump, from the instruction that called or yielded: one before.
    live = live_at(frame.program, frame.ip - waits)
    # A generator that nobody will read is closed when the frame drops it, not before.
    slots = tuple(
        [
            i
            for i, value in enumerate(frame.fast)
            if value is not UNSET and (i in live or (type(value) in _KEPT and _finalises(value)))
        ]
    )
    values += [frame.fast[i] for i in slots]
    values += [value for value in frame.stack if not is_mark(value)]
    values += extras_of(frame)
    return FrameLayout(frame, slots, frame.ip if waits else goes_on(frame))


_JUMPS = frozenset({"JUMP_FORWARD", "JUMP_BACKWARD"})


def goes_on(frame: Frame) -> int:
    """The instruction at which the frame goes on: behind a jump, where a loop begins again.

    The frame is the same on both sides of a jump, and so what comes from several of them, or from
    above, is one continuation.
    """
    program, ip = frame.program, frame.ip
    for _ in program.instructions:  # a loop of jumps alone has no other side
        if program.instructions[ip].name not in _JUMPS:
            return ip
        ip = program.values[ip]
    return frame.ip
