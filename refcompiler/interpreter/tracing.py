"""Trace functions (``sys.settrace``): called with the interpreted frames and their events.

While one is set the frames run instruction by instruction, and the events are CPython's: ``call``
and ``return`` also where a generator is resumed and suspended, ``line`` where the line changes or
control jumps back, ``exception`` where one is raised or passes, ``opcode`` where the frame asks for
it. As in CPython a trace function is not traced, and one that raises is not set any more.
"""

from __future__ import annotations

import dis
import sys
from typing import Any

from refcompiler.bytecode.decode import Program
from refcompiler.interpreter.frame import CALLED, Frame
from refcompiler.interpreter.frames import LocalTrace, current_view
from refcompiler.interpreter.helpers import hidden
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS

_LEAVES = frozenset({"RETURN_VALUE", "RETURN_CONST", "YIELD_VALUE"})
_NOP = dis.opmap["NOP"]
_Lines = tuple[tuple[int, int | None], ...]  # offsets with their lines
_CATCHES_NOTHING = 4  # of RESUME's argument (3.13)
_YIELD_TELLS = (3, 12, 3) <= sys.version_info < (3, 13)  # there YIELD_VALUE's is how deep it lies
_RESUMED = 3  # what of RESUME's argument says where it stands


def run_traced(machine: Any, frame: Frame) -> None:
    """Run ``frame`` until it is another frame's turn, or no trace function is set."""
    ops, values = frame.ops, frame.values
    while frame is machine.frame and machine.tracer is not None:
        index = frame.ip
        frame.ip = index + 1
        if not frame.program.hidden:
            _before(machine, frame, index)
        ops[index](machine, frame, values[index])


def _before(machine: Any, frame: Frame, index: int) -> None:
    """The events of the instruction at ``index``, which is about to run."""
    instruction = frame.program.instructions[index]
    local = frame.trace
    if instruction.name == "RESUME":
        _call(machine, frame)
        if frame.trace is not None:
            begins = not instruction.arg & _RESUMED
            frame.trace.line, frame.trace.index = -1 if begins else instruction.line, index
        return
    if local is None:
        return
    lines = frame.program.lines
    if lines is None:
        lines = frame.program.lines = _lines(frame.program)
    back = index < local.index
    jumped = index != local.index + 1
    for offset, line in lines[index][jumped]:
        if line is not None and (line != local.line or back) and local.lines:
            _event_at(machine, frame, "line", offset, line)
        local.line = line
    local.index = index
    if local.opcodes:
        _local(machine, frame, "opcode", None)
    if instruction.name in _LEAVES:
        _local(machine, frame, "return", frame.stack[-1])


def _call(machine: Any, frame: Frame) -> None:
    found = _fire(machine, frame, machine.tracer, "call", None)
    if found is not None:
        if frame.trace is None:
            frame.trace = LocalTrace()
        frame.trace.function = found


def _event_at(machine: Any, frame: Frame, event: str, offset: int, line: int) -> None:
    frame.trace.at = offset, line
    try:
        _local(machine, frame, event, None)
    finally:
        frame.trace.at = None


def _lines(program: Program) -> list[tuple[_Lines, _Lines]]:
    """What control reaches with each instruction, that itself last. Its line may be None.

    Before that are those of instructions that do nothing, which the decoder leaves out: a line like
    ``try:`` has no other. The first of the pair is for control that comes from the instruction
    before, the second for control that jumps there.
    """
    code = program.code
    labels = {*dis.findlabels(code.co_code)}  # type: ignore[arg-type]  # bytes, it says
    line_at = {at: line for start, end, line in code.co_lines() for at in range(start, end, 2)}
    found: list[tuple[_Lines, _Lines]] = []
    begin = 0
    for instruction in program.instructions:
        offset = instruction.offset
        between = range(begin, offset, 2)
        passed = [at for at in between if code.co_code[at] == _NOP]
        first = next((at for at in between if at in labels), offset)
        reached = [(at, line_at.get(at)) for at in (*passed, offset)]
        found.append((tuple(reached), tuple([place for place in reached if place[0] >= first])))
        begin = max(begin, offset + 2)
    return found


def trace_thrown(machine: Any, frame: Frame, error: BaseException) -> None:
    """The suspended ``frame`` goes on with ``error``.

    A generator that can catch nothing where it stands is closed without running (3.12.3).
    """
    if type(error) is GeneratorExit and _catches_nothing(frame):
        frame.trace = None
        return
    _call(machine, frame)


def _catches_nothing(frame: Frame) -> bool:
    if _YIELD_TELLS:
        suspended = frame.program.instructions[frame.ip - 1]
        return suspended.name == "YIELD_VALUE" and suspended.arg == 1
    resume = frame.program.instructions[frame.ip]
    return resume.name == "RESUME" and bool(resume.arg & _CATCHES_NOTHING)


def trace_raised(machine: Any, frame: Frame, error: BaseException, traceback: Any) -> None:
    """``error`` was raised in ``frame``, or comes to it."""
    if frame.trace is not None:
        _local(machine, frame, "exception", (type(error), error, traceback))


def trace_left(machine: Any, frame: Frame, index: int) -> None:
    """An exception leaves ``frame``, which stands at the instruction ``index``."""
    if frame.trace is not None:
        instruction = frame.program.instructions[index]
        _event_at(machine, frame, "return", instruction.offset, instruction.line)


def _local(machine: Any, frame: Frame, event: str, argument: Any) -> None:
    local = frame.trace
    if local.function is None or machine.tracer is None:
        return
    found = _fire(machine, frame, local.function, event, argument)
    if found is not None:
        local.function = found


def _fire(machine: Any, frame: Frame, function: Any, event: str, argument: Any) -> Any:
    """Call ``function``, and keep what it does out of what ``frame`` is about to do."""
    kept = machine.frame, machine.reraised, machine.passing, machine.yielded, machine.delegates
    machine.tracer = None
    machine.yielded = machine.delegates = False
    view = current_view(machine, frame)
    try:
        found = machine.invoke(frame, function, (view, event, argument))
    except BaseException:
        machine.trace_function = None
        if frame.trace is not None:
            frame.trace.function = None
        raise
    finally:
        machine.frame, machine.reraised, machine.passing, machine.yielded, machine.delegates = kept
        machine.tracer = machine.trace_function
    return found


def set_trace_function(machine: Any, frame: Frame, function: Any) -> Any:
    """What ``sys.settrace`` does for ``frame``; None, or CALLED if a frame was pushed.

    A trace function that sets another is still not traced.
    """
    inside = machine.trace_function is not None and machine.tracer is None
    machine.trace_function = function
    if inside:
        return None
    machine.tracer = function
    if frame.trace is None or function is None:
        return None
    frame.trace.line, frame.trace.index = frame.line, frame.ip - 1  # this line has begun
    machine.push(frame, machine.make_frame(_nothing, (), {}))  # whoever comes back to it traces it
    return CALLED


@hidden
def _nothing() -> None:
    pass
