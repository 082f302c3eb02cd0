"""Tracebacks that show the user's frames instead of the interpreter's.

A traceback entry needs a frame object. A generator that never ran has one, without a caller. So for
each user frame that an exception passes, a generator is made from a copy of its code object that
begins where the user's instruction stands, with the values that the frame has then; its offset, its
line and its ``f_locals`` are the user's, so that even the carets are right.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from types import CellType, CodeType, FrameType, FunctionType, TracebackType
from typing import Any
from weakref import ref

from refcompiler.bytecode.decode import Program
from refcompiler.interpreter.callers import CALLERS
from refcompiler.interpreter.frame import UNSET
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS

_handled = sys.exception

_BEHIND = {(3, 11): 0, (3, 12): 0}.get(sys.version_info[:2], 2)  # bytes
_NOP = bytes((dis.opmap["NOP"], 0))
_GENERATOR = 0x20
_PLAIN = _GENERATOR | 0x01 | 0x02  # with slots of its own (CO_OPTIMIZED and CO_NEWLOCALS)


#: The user's code objects by the ids of their drivers (:mod:`refcompiler.interpreter.generators`).
DRIVERS: dict[int, CodeType] = {}
#: What made the code objects of frame objects, by their ids. They are kept with their programs.
MADE: dict[int, Shown] = {}
#: The same for the entries of functions (:mod:`refcompiler.interpreter.entries`).
ENTRIES: dict[int, CodeType] = {}
#: Before this a driver had not begun: an exception was thrown into it, and its line is right.
_STARTED = 6  # bytes of RETURN_GENERATOR, POP_TOP and RESUME


def _is_internal(entry: TracebackType, outermost: bool) -> bool:
    frame = entry.tb_frame
    if id(frame.f_code) in DRIVERS:
        return entry.tb_lasti + 2 >= _STARTED
    if id(frame.f_code) in CALLERS or id(frame.f_code) in ENTRIES:
        return True
    module = frame.f_globals.get("__name__")
    return type(module) is str and (
        module.startswith("refcompiler.") or (module == "torch.overrides" and outermost)
    )


def user_part(traceback: TracebackType | None) -> TracebackType | None:
    """``traceback`` without the entries that lie in this package.

    From an entry that was made for an interpreted frame on they have been dropped.
    """
    kept: list[TracebackType] = []
    clean: TracebackType | None = traceback  # the longest tail in which nothing is dropped
    entry = traceback
    while entry is not None and id(entry.tb_frame.f_code) not in MADE:
        if _is_internal(entry, not kept):
            clean = entry.tb_next
        else:
            kept.append(entry)
        entry = entry.tb_next
    for entry in reversed(_until(kept, clean)):
        clean = TracebackType(clean, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return clean


def _until(entries: list[TracebackType], end: TracebackType | None) -> list[TracebackType]:
    for i, entry in enumerate(entries):
        if entry is end:
            return entries[:i]
    return entries


def with_entry(frame: Any, traceback: TracebackType | None, values: Values) -> TracebackType:
    """``traceback`` with an entry for the interpreted ``frame`` put before it."""
    instruction = frame.program.instructions[max(frame.ip - 1, 0)]
    shown = frame_object(frame, instruction.offset, values)
    return TracebackType(traceback, shown, instruction.offset, instruction.line)


def without_values(
    traceback: TracebackType | None, known: dict[int, TracebackType] | None = None
) -> TracebackType | None:
    """A copy of ``traceback`` with frames that keep nothing alive.

    ``known`` are the copies of entries so far, by their ids: what they have in common stays common.
    """
    known = {} if known is None else known
    entries = []
    entry = traceback
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    made: TracebackType | None = None
    for entry in reversed(entries):
        if id(entry) in known:
            made = known[id(entry)]
            continue
        frame = entry.tb_frame
        if frame.f_locals:
            code = _stopped(frame.f_code, entry.tb_lasti, _PLAIN)
            frame = FunctionType(code, frame.f_globals)().gi_frame
        made = known[id(entry)] = TracebackType(made, frame, entry.tb_lasti, entry.tb_lineno)
    return made


def new_entries(error: BaseException, old: TracebackType | None) -> list[TracebackType] | None:
    """The entries that came before ``old``, outermost first, with frames that hold no values.

    None where ``old`` is no part of the traceback any more.
    """
    entries = []
    entry = without_values(error.__traceback__)
    actual = error.__traceback__
    while entry is not None and actual is not old:
        entries.append(entry)
        entry = entry.tb_next
        actual = actual.tb_next if actual is not None else None
    return entries if actual is old else None


def with_entries(
    traceback: TracebackType | None, entries: Sequence[TracebackType]
) -> TracebackType | None:
    """``traceback`` with copies of ``entries`` put before it."""
    for entry in reversed(entries):
        traceback = TracebackType(traceback, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return traceback


def with_final_values(
    frame: Any, index: int, traceback: TracebackType | None
) -> TracebackType | None:
    """``traceback``, which begins with an entry for ``frame``, when what it caught leaves it.

    ``index`` is the instruction that the frame stands at then.
    """
    known: Shown | None = frame.program.shown
    if traceback is None or known is None or id(traceback.tb_frame.f_code) not in known.made:
        return traceback
    shown = frame_object(frame, frame.program.instructions[index].offset, Values.FINAL)
    return TracebackType(traceback.tb_next, shown, traceback.tb_lasti, traceback.tb_lineno)


# ---- frame objects ---------------------------------------------------------------------------


class Values(Enum):
    """What the frame object of an interpreted frame shows of its values."""

    NONE = 0
    LIVE = 1  # what the frame has when it is asked: it goes on
    FINAL = 2  # what it has now, which stays alive as with CPython's: it was left


def frame_object(frame: Any, offset: int, values: Values) -> FrameType:
    """A frame object of ``frame`` as it is, at the instruction at ``offset``."""
    program, spaces = frame.program, frame.globals
    if program.shown is None:
        program.shown = Shown(program)
    known: Shown = program.shown
    if frame.mapping is not None or values is Values.LIVE:
        if "__builtins__" not in spaces:  # eval would put them there
            values = Values.NONE if frame.mapping is not None else Values.FINAL
        elif frame.mapping is not None:
            return eval(known.mapped(offset), spaces, frame.mapping).gi_frame
        elif offset >= known.room:
            live = LiveLocals(_Holder(known, frame))
            return eval(known.live(offset), spaces, live).gi_frame
        else:
            values = Values.FINAL
    if values is Values.NONE:
        return FunctionType(known.final(offset, ()), spaces)().gi_frame
    held: list[Any] = frame.fast
    shared: tuple[int, ...] = ()
    if known.cells:
        after = len(known.code.co_varnames)  # as in CPython, a closure's names come last
        shared = tuple([i for i in range(after, len(held)) if known.is_cell(held, i)])
        if offset < _room(_copy_cells(shared)):
            shared = ()
        held = [x if i in shared else known.value(held, i) for i, x in enumerate(held)]
    present = tuple([i for i, value in enumerate(held) if value is not UNSET and i not in shared])
    closure = tuple([held[i] for i in shared])
    made = FunctionType(known.final(offset, present, shared), spaces, None, None, closure)
    return made(*[held[i] for i in present]).gi_frame


def live_frame(shown: FrameType) -> Any:
    """The interpreted frame of a frame object that shows live values, if that still exists."""
    if shown.f_code.co_varnames != (_HOLDER,):
        return None
    live: Any = shown.f_locals
    return live.frame if type(live) is LiveLocals else None


class _Holder:
    """Keeps the values of a frame: what its frame object holds until it is cleared.

    Not the frame, whose stack may hold the exception that the frame object belongs to.
    """

    __slots__ = ("known", "fast", "frame", "__weakref__")

    def __init__(self, known: Shown, frame: Any):
        self.known, self.fast, self.frame = known, frame.fast, ref(frame)

    def items(self) -> dict[str, Any]:
        values = [self.known.value(self.fast, i) for i in range(len(self.fast))]
        named = zip(self.known.names, values, strict=True)
        return {name: value for name, value in named if value is not UNSET}


class LiveLocals(Mapping):
    """The locals of a frame that runs on, as its frame object's ``f_locals``.

    The code of the frame object begins with a look-up of the holder, which it keeps in a slot of
    its own: thus ``frame.clear()`` lets go of the values. What is in the slots CPython writes here.
    """

    __slots__ = ("_given", "_holder")

    def __init__(self, holder: _Holder):
        self._given: _Holder | None = holder
        self._holder = ref(holder)

    def __getitem__(self, name: str) -> Any:
        if name == _HOLDER and self._given is not None:
            given, self._given = self._given, None
            return given
        return self.copy()[name]

    def __setitem__(self, name: str, value: Any) -> None:
        """A slot's value: only the holder is in one."""

    def __delitem__(self, name: str) -> None:
        """A slot without a value."""

    def __iter__(self) -> Iterator[str]:
        return iter(self.copy())

    def __len__(self) -> int:
        return len(self.copy())

    def __repr__(self) -> str:
        return repr(self.copy())

    @property
    def frame(self) -> Any:
        holder = self._holder()
        return None if holder is None else holder.frame()

    def copy(self) -> dict[str, Any]:
        holder = self._holder()
        return {} if holder is None else holder.items()


_HOLDER = ".holder"


class Shown:
    """The code objects that frame objects of one program are made from.

    Each becomes a generator at an offset, and never goes on.
    """

    __slots__ = ("code", "names", "cells", "codes", "made", "setup", "room")

    def __init__(self, program: Program):
        self.code, self.names = program.code, program.names
        self.cells = {*self.code.co_cellvars, *self.code.co_freevars}
        self.codes: dict[tuple, CodeType] = {}
        self.made: set[int] = set()  # their ids
        self.setup = _instruction("LOAD_NAME", len(self.code.co_names)) + _instruction(
            "STORE_FAST", 0
        )
        #: The bytes before the first offset at which a frame object can look up the holder.
        self.room = _room(self.setup)

    def is_cell(self, fast: list[Any], index: int) -> bool:
        return type(fast[index]) is CellType and self.names[index] in self.cells

    def value(self, fast: list[Any], index: int) -> Any:
        value = fast[index]
        if self.is_cell(fast, index):
            try:
                return value.cell_contents
            except ValueError:
                return UNSET
        return value

    def mapped(self, offset: int) -> CodeType:
        """For ``eval``; its names live in the mapping that is given there."""
        return self._code(offset, "mapped", _GENERATOR)

    def live(self, offset: int) -> CodeType:
        """The same for :class:`LiveLocals`."""
        return self._code(offset, "live", _GENERATOR, (_HOLDER,), 0, self.setup)

    def final(
        self, offset: int, present: tuple[int, ...], shared: tuple[int, ...] = ()
    ) -> CodeType:
        """Its arguments are the values of the slots ``present``, its closure those of ``shared``.

        A cell's content is what it is when the frame object is asked.
        """
        slots = tuple([self.names[i] for i in present])
        cells = tuple([self.names[i] for i in shared])
        setup = _copy_cells(shared)
        return self._code(offset, (present, shared), _PLAIN, slots, len(slots), setup, cells)

    def _code(self, offset: int, kind: Any, *rest: Any) -> CodeType:
        found = self.codes.get((offset, kind))
        if found is None:
            found = self.codes[offset, kind] = _stopped(self.code, offset, *rest)
            self.made.add(id(found))
            MADE[id(found)] = self
        return found


def _stopped(
    code: CodeType,
    offset: int,
    flags: int,
    slots: tuple[str, ...] = (),
    arguments: int = 0,
    setup: bytes = b"",
    cells: tuple[str, ...] = (),
) -> CodeType:
    """A copy of ``code`` that becomes a generator at ``offset``, with other slots."""
    return code.replace(
        co_code=_becomes_generator(len(code.co_code), offset, setup),
        co_exceptiontable=b"",
        co_flags=flags,
        co_names=(*code.co_names, _HOLDER),
        co_argcount=arguments,
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_nlocals=len(slots),
        co_varnames=slots,
        co_cellvars=(),
        co_freevars=cells,
        co_stacksize=max(1, code.co_stacksize),
    )


def _becomes_generator(size: int, offset: int, setup: bytes) -> bytes:
    """``size`` bytes that run ``setup`` and make a generator, whose frame is at ``offset``.

    Where its first RESUME is (3.13: just behind it) CPython says that the frame of a generator is
    that was dropped before it began, and only behind a RESUME do trace functions and callbacks see
    a frame.
    """
    start = setup + _instruction("RETURN_GENERATOR", 0)
    room = offset - _BEHIND - len(start)
    code = start + _NOP * (room // 2) + _instruction("RESUME", 0)
    return code + _NOP * ((size - len(code)) // 2)


def _room(setup: bytes) -> int:
    """The bytes before the first offset at which a frame object can have run ``setup``."""
    return len(setup) + len(_instruction("RETURN_GENERATOR", 0)) + _BEHIND


def _copy_cells(shared: tuple[int, ...]) -> bytes:
    return _instruction("COPY_FREE_VARS", len(shared)) if shared else b""


def _instruction(name: str, arg: int) -> bytes:
    prefix = _instruction("EXTENDED_ARG", arg >> 8) if arg > 255 else b""
    return prefix + bytes((dis.opmap[name], arg & 255))


def chain(error: BaseException, handled: BaseException | None) -> None:
    """Set ``__context__`` as ``raise`` does while ``handled`` is handled: without a cycle."""
    if handled is None or handled is error:
        return
    link = handled
    seen = set()
    while link.__context__ is not None and id(link) not in seen:
        if link.__context__ is error:
            link.__context__ = None
            break
        seen.add(id(link))
        link = link.__context__
    error.__context__ = handled


def chain_native(error: BaseException, handled: BaseException | None) -> None:
    """The same for an exception that native code raised, which knows of its own handling only.

    What it handled itself comes first in the chain, so ``handled`` goes to the chain's end, or
    before what native code around the interpreter handles.
    """
    if handled is None:
        return
    outer = _handled()
    link: BaseException = error
    seen = set()
    while id(link) not in seen:
        if link is handled:
            return
        seen.add(id(link))
        if link.__context__ is None or link.__context__ is outer is not handled:
            chain(link, handled)
            return
        link = link.__context__


def has_context(error: BaseException, handled: BaseException | None) -> bool:
    """Whether :func:`chain_native` has nothing to do."""
    if handled is None:
        return True
    link: BaseException | None = error
    seen = set()
    while link is not None and id(link) not in seen:
        if link is handled:
            return True
        seen.add(id(link))
        link = link.__context__
    return False


def entry_frames(error: BaseException) -> list[tuple[str, int, str]]:
    """(file, line, function) of each entry of the exception's traceback, outermost first."""
    found = []
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        found.append((code.co_filename, traceback.tb_lineno, code.co_name))
        traceback = traceback.tb_next
    return found
