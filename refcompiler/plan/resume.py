"""What is alive at a break, and how frames are made of it again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from refcompiler.bytecode.decode import Program, slot_names
from refcompiler.bytecode.liveness import live_at
from refcompiler.capture.dropping import ends_tell, may_tell
from refcompiler.capture.values import Lazy
from refcompiler.guards.permanence import lasts
from refcompiler.interpreter.frame import UNSET, Frame, is_mark

GLOBALS = "the globals"  # among the labels


class Space(NamedTuple):
    """The globals of a frame among the values that complete its layout."""

    of: dict[str, Any]


class FrameLayout:
    """The fixed part of one frame: where it stands, and which slots hold a value.

    ``globals`` is None where a value completes it, since the globals may die before the layout.
    """

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

    def __init__(
        self,
        program: Program,
        globals_: dict[str, Any] | None,
        builtins: Any,
        ip: int,
        on_return: str,
        kwnames: Any,
        slots: tuple[int, ...],
        stack: tuple[Any, ...],
        extra: int,
    ):
        self.program = program
        self.globals = globals_
        self.builtins = builtins
        self.ip = ip
        self.on_return = on_return
        self.kwnames = kwnames
        self.slots = slots
        #: The marks, and None where a value completes it.
        self.stack = stack
        self.extra = extra
        self.key = (
            id(self.program),
            id(self.globals),
            ip,
            self.on_return,
            self.kwnames,
            slots,
            self.stack,
        )

    @property
    def shape(self) -> tuple[Any, ...]:
        """Of its key what is no object of this process."""
        return self.ip, self.on_return, self.kwnames, self.slots, self.stack, self.extra


class Layout:
    """The fixed part of a stack of frames, root first; ``size`` values complete it."""

    __slots__ = ("frames", "key", "size")

    def __init__(self, frames: list[FrameLayout]):
        self.frames = frames
        self.key = tuple(frame.key for frame in frames)
        self.size = sum(
            len(f.slots) + f.stack.count(None) + f.extra + (f.globals is None) for f in frames
        )

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
            if frame.globals is None:
                found.append(GLOBALS)
        return found

    def frames_of(self, values: Sequence[Any]) -> Frame:
        """The innermost frame of the stack that ``values`` complete."""
        given = iter(values)
        back: Frame | None = None
        for layout in self.frames:
            frame = Frame(layout.program, layout.globals or {}, layout.builtins, back)
            for slot in layout.slots:
                frame.fast[slot] = next(given)
            frame.stack = [next(given) if mark is None else mark for mark in layout.stack]
            if layout.extra:
                extra = tuple([next(given) for _ in range(layout.extra)])
                frame.extra = extra[0] if layout.on_return in SINGLE else extra
            if layout.globals is None:
                frame.globals = next(given)
            frame.ip = layout.ip
            frame.on_return = layout.on_return
            frame.kwnames = layout.kwnames
            frame.depth = 0 if back is None else back.depth + 1
            back = frame
        assert back is not None
        return back


def describe(
    frames: list[Frame], space: Callable[[dict[str, Any]], Any] = lambda found: found
) -> tuple[Layout, list[Any]]:
    """The layout of ``frames`` (root first) and the values that complete it.

    A local variable that nothing will read is left out. Globals that may die are among the values,
    as ``space`` of them, unless they are those of the first frame, for which all is compiled.
    """
    layouts: list[FrameLayout] = []
    values: list[Any] = []
    home = frames[0].globals
    for frame in frames:
        kept: Any = frame.globals
        given = kept is not home and not lasts(kept)
        layout = _describe(frame, frames, values, None if given else kept)
        if given:
            values.append(space(kept))
        layouts.append(layout)
    return Layout(layouts), values


def describe_suspended(frame: Frame | None) -> tuple[Layout, list[Any]]:
    """As :func:`describe`, for the frame of a generator that has not ended."""
    assert frame is not None
    values: list[Any] = []
    return Layout([_describe(frame, [frame], values, frame.globals, frame.ip > 0)]), values


#: Ways to return whose frames keep one value; others keep a tuple of them, or nothing.
SINGLE = frozenset({"init"})


def extras_of(frame: Frame) -> tuple[Any, ...]:
    """What the frame keeps for the one it returns to."""
    if frame.extra is None:
        return ()
    return (frame.extra,) if frame.on_return in SINGLE else frame.extra


def _describe(
    frame: Frame, frames: list[Frame], values: list[Any], globals_: Any, yielded: bool = False
) -> FrameLayout:
    # What waits may raise, or jump, from the instruction that called or yielded: one before.
    waits = yielded or frame is not frames[-1]
    live = live_at(frame.program, frame.ip - waits)
    # What tells of its end, such as a generator, ends when the frame drops it, not before.
    slots = tuple(
        [
            i
            for i, value in enumerate(frame.fast)
            if value is not UNSET and (i in live or ends_tell(value) or _is_given(value, frames))
        ]
    )
    values += [frame.fast[i] for i in slots]
    values += [value for value in frame.stack if not is_mark(value)]
    values += extras_of(frame)
    return FrameLayout(
        frame.program,
        globals_,
        frame.builtins,
        frame.ip if waits else goes_on(frame),
        frame.on_return,
        frame.kwnames,
        slots,
        tuple([value if is_mark(value) else None for value in frame.stack]),
        len(extras_of(frame)),
    )


def _is_given(value: Any, frames: list[Frame]) -> bool:
    """Whether ``value`` is an operand of what runs, which may ask to be told of its end."""
    if type(value) is Lazy:
        value = value.value
    if not may_tell(type(value)):
        return False
    for frame in frames:
        for item in frame.stack:
            if item is value or (type(item) is Lazy and item.value is value):
                return True
    for frame in frames[1:]:
        for item in frame.fast:
            if item is value or (type(item) is Lazy and item.value is value):
                return True
    return False


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
