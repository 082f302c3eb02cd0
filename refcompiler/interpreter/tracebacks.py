"""Tracebacks that show the user's frames instead of the interpreter's.

A traceback entry needs a frame object. For each user frame that an exception passes, a generator
that never runs is made from a copy of its code object, with the frame's variables for arguments:
its frame has no caller and holds what a debugger looks for. The entry gets the offset and line of
the user's instruction, so that even the carets are right.

The variables are those at the moment. A frame that handles the exception goes on, and CPython's
entry would change with it: ours forgets them when the exception has been handled, so that they live
no longer than the frame wants. In capture, whose values are not real, entries have none.
"""

from __future__ import annotations

import dis
from collections.abc import Sequence
from types import CellType, CodeType, FrameType, FunctionType, TracebackType
from typing import Any

from refcompiler.bytecode.decode import Program
from refcompiler.interpreter.frame import UNSET
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS

_GENERATOR_BODY = bytes(
    byte
    for name, arg in (("RETURN_GENERATOR", 0), ("POP_TOP", 0), ("RESUME", 0))
    for byte in (dis.opmap[name], arg)
)
_NOP = bytes((dis.opmap["NOP"], 0))
_OPTIMIZED, _NEWLOCALS, _GENERATOR = 0x01, 0x02, 0x20


#: The user's code objects by the ids of their drivers (:mod:`refcompiler.interpreter.generators`).
DRIVERS: dict[int, CodeType] = {}
#: Before this a driver had not begun: an exception was thrown into it, and its line is right.
_STARTED = len(_GENERATOR_BODY)


def _is_internal(entry: TracebackType, outermost: bool) -> bool:
    frame = entry.tb_frame
    if id(frame.f_code) in DRIVERS:
        return entry.tb_lasti + 2 >= _STARTED
    module = frame.f_globals.get("__name__")
    return type(module) is str and (
        module.startswith("refcompiler.") or (module == "torch.overrides" and outermost)
    )


def user_part(traceback: TracebackType | None) -> TracebackType | None:
    """``traceback`` without the entries that lie in this package."""
    kept: list[TracebackType] = []
    clean: TracebackType | None = traceback  # the longest tail in which nothing is dropped
    entry = traceback
    while entry is not None:
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


def with_entry(frame: Any, traceback: TracebackType | None, values: bool) -> TracebackType:
    """``traceback`` with an entry for the interpreted ``frame`` put before it."""
    instruction = frame.program.instructions[max(frame.ip - 1, 0)]
    shown = _frame_object(frame, values)
    return TracebackType(traceback, shown, instruction.offset, instruction.line)


def with_values_of(frame: Any, traceback: TracebackType | None) -> TracebackType | None:
    """``traceback`` with the values that ``frame`` has now in its first entry, if that is its."""
    if traceback is None or traceback.tb_frame.f_code not in frame.program.shown.values():
        return traceback
    shown = _frame_object(frame, True)
    return TracebackType(traceback.tb_next, shown, traceback.tb_lasti, traceback.tb_lineno)


def without_values(traceback: TracebackType | None) -> TracebackType | None:
    """A copy of ``traceback`` with frames that keep nothing alive."""
    entries = []
    entry = traceback
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    made: TracebackType | None = None
    for entry in reversed(entries):
        frame = entry.tb_frame
        if frame.f_locals:
            frame = FunctionType(_shown(frame.f_code), frame.f_globals)().gi_frame
        made = TracebackType(made, frame, entry.tb_lasti, entry.tb_lineno)
    return made


def new_entries(error: BaseException, old: TracebackType | None) -> list[TracebackType]:
    """The entries that came before ``old``, outermost first, with frames that hold no values."""
    entries = []
    entry = without_values(error.__traceback__)
    actual = error.__traceback__
    while entry is not None and actual is not old:
        entries.append(entry)
        entry = entry.tb_next
        actual = actual.tb_next if actual is not None else None
    return entries


def with_entries(
    traceback: TracebackType | None, entries: Sequence[TracebackType]
) -> TracebackType | None:
    """``traceback`` with copies of ``entries`` put before it."""
    for entry in reversed(entries):
        traceback = TracebackType(traceback, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return traceback


def _frame_object(frame: Any, values: bool) -> FrameType:
    program: Program = frame.program
    names: tuple[str, ...] = ()
    given: list[Any] = []
    flags = _OPTIMIZED | _NEWLOCALS | _GENERATOR
    if values:
        if frame.mapping is None:
            names, given = _variables(frame)
        elif frame.mapping is frame.globals:
            flags = _GENERATOR  # its variables are its globals
        elif type(frame.mapping) is dict:
            names = tuple(name for name in frame.mapping if type(name) is str)
            given = [frame.mapping[name] for name in names]
    key = flags, names
    shown = program.shown.get(key)
    if shown is None:
        shown = program.shown[key] = _shown(program.code, flags, names)
    return FunctionType(shown, frame.globals)(*given).gi_frame


def _variables(frame: Any) -> tuple[tuple[str, ...], list[Any]]:
    """The names and values of a function's variables that have a value."""
    code = frame.program.code
    first_cell = len(code.co_varnames)
    names, values = [], []
    for i, (name, value) in enumerate(zip(frame.program.names, frame.fast, strict=True)):
        if value is UNSET:
            continue
        if type(value) is CellType and (i >= first_cell or name in code.co_cellvars):
            try:
                value = value.cell_contents
            except ValueError:
                continue
        names.append(name)
        values.append(value)
    return tuple(names), values


def _shown(
    code: CodeType,
    flags: int = _OPTIMIZED | _NEWLOCALS | _GENERATOR,
    names: tuple[str, ...] = (),
) -> CodeType:
    padding = _NOP * ((len(code.co_code) - len(_GENERATOR_BODY)) // 2)
    return code.replace(
        co_code=_GENERATOR_BODY + padding,
        co_exceptiontable=b"",
        co_flags=flags,
        co_argcount=len(names),
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_nlocals=len(names),
        co_varnames=names,
        co_cellvars=(),
        co_freevars=(),
    )


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

    What it handled itself comes first in the chain, so ``handled`` goes to the chain's end.
    """
    if handled is None:
        return
    link: BaseException = error
    seen = set()
    while id(link) not in seen:
        if link is handled:
            return
        seen.add(id(link))
        if link.__context__ is None:
            chain(link, handled)
            return
        link = link.__context__


def entry_frames(error: BaseException) -> list[tuple[str, int, str]]:
    """(file, line, function) of each entry of the exception's traceback, outermost first."""
    found = []
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        found.append((code.co_filename, traceback.tb_lineno, code.co_name))
        traceback = traceback.tb_next
    return found
