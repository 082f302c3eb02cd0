"""Decoding of a code object into instructions that need no further looking up, in one pass.

Source of the rules: CPython's documentation of ``dis`` and of ``codeobject.co_lines``, and
Objects/exception_handling_notes.txt.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, NamedTuple

from refcompiler.bytecode.forms import (
    COMPARISON,
    CONSTANT,
    EXTENDED_ARG,
    NAME,
    NOTHING,
    OPCODES,
    SLOT,
    TARGET,
    Raw,
    slot_names,
)
from refcompiler.errors import UnsupportedError
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS


#: How what handles an exception begins in an ``except``, ``finally``, ``with`` or ``async for``.
_RUNS_CODE = frozenset({"PUSH_EXC_INFO", "END_ASYNC_FOR"})


class Instruction(NamedTuple):
    """``arg`` is the plain argument, ``value`` what it stands for (a name, constant, target).

    The names are those of :mod:`refcompiler.bytecode.forms`; an instruction that was written as
    two has one ``offset`` with its second half.
    """

    name: str
    arg: int
    value: Any
    offset: int
    line: int


class Handler(NamedTuple):
    """An exception-table entry: instructions ``start <= i < end`` unwind to ``target``."""

    start: int
    end: int
    target: int
    depth: int
    lasti: bool


@dataclass(eq=False)
class Program:
    """A decoded code object. ``names`` are the slots of the frame: locals, cells, free variables.

    ``ops`` and ``values`` are parallel to ``instructions``; ``ops`` is filled by the interpreter.
    """

    code: CodeType
    instructions: list[Instruction]
    handlers: list[Handler]
    names: tuple[str, ...]
    values: list[Any]
    ops: Any = None  # a list, once resolved
    parameters: Any = None  # see refcompiler.interpreter.binding
    fused: Any = None  # see refcompiler.interpreter.fusion
    entering: Any = None  # see refcompiler.capture.entering
    lines: Any = None  # see refcompiler.interpreter.tracing
    hidden: bool = False  # see refcompiler.interpreter.helpers
    shown: Any = None  # see refcompiler.interpreter.tracebacks
    callers: Any = None  # see refcompiler.interpreter.callers
    caller_codes: dict[int, CodeType] = field(default_factory=dict)
    driver: CodeType | None = None  # see refcompiler.interpreter.generators
    live: list[frozenset[int]] | None = None  # see liveness.live_at

    def handler_at(self, index: int) -> Handler | None:
        """The innermost exception-table entry that covers instruction ``index``."""
        for handler in self.handlers:
            if handler.start <= index < handler.end:
                return handler
        return None

    def user_handler_at(self, index: int) -> Handler | None:
        """The innermost one around instruction ``index`` that runs code of the program's.

        The others only clean up, and the exception passes: what is at the end of an ``except``
        clause, around a comprehension that is inlined, around the body of each generator (3.12).
        """
        while (handler := self.handler_at(index)) is not None:
            if self._runs_code(handler):
                return handler
            index = handler.target
        return None

    def has_user_handlers(self) -> bool:
        """Whether :meth:`user_handler_at` finds one anywhere."""
        return any(map(self._runs_code, self.handlers))

    def _runs_code(self, handler: Handler) -> bool:
        return self.instructions[handler.target].name in _RUNS_CODE

    def line_at(self, index: int) -> int:
        return self.instructions[min(index, len(self.instructions) - 1)].line


def _varint(data: Iterator[int]) -> int:
    byte = next(data)
    value = byte & 63
    while byte & 64:
        byte = next(data)
        value = value << 6 | byte & 63
    return value


def exception_table(code: CodeType) -> Iterator[tuple[int, int, int, int, bool]]:
    """Entries (start, end, target, depth, lasti) in bytes, in the table's order."""
    data = iter(code.co_exceptiontable)
    while True:
        try:
            start = _varint(data) * 2
        except StopIteration:
            return
        length = _varint(data) * 2
        target = _varint(data) * 2
        flags = _varint(data)
        yield start, start + length, target, flags >> 1, bool(flags & 1)


_COMPARISONS = dis.cmp_op
_ASKS = "TO_BOOL" in dis.opmap  # a TO_BOOL before a test has nothing left to do, unless jumped to


#: By identity: equal code objects may differ in their file, and hashing one is slow.
_PROGRAMS: dict[int, Program] = {}
#: The tuples among the constants of their code.
_TUPLES: dict[int, tuple] = {}


def decode(code: CodeType) -> Program:
    """The program of ``code``, which is kept until :func:`forget_program`."""
    program = _PROGRAMS.get(id(code))
    if program is None:
        program = _PROGRAMS[id(code)] = _decode(code)
        _TUPLES.update({id(c): c for c in code.co_consts if type(c) is tuple})
    return program


def forget_program(code: CodeType) -> None:
    _PROGRAMS.pop(id(code), None)
    for constant in code.co_consts:
        _TUPLES.pop(id(constant), None)


def is_literal(value: tuple) -> bool:
    """Whether this tuple is a constant of decoded code, and so the same object in each call."""
    return id(value) in _TUPLES


_new: Any = tuple.__new__  # past the constructor in Python, since there are many instructions

#: How the last instruction of code leaves it.
_ENDS = ("RETURN_", "RAISE_", "RERAISE", "JUMP_", "INTERPRETER_EXIT")


def _decode(code: CodeType) -> Program:
    try:
        instructions, index_of = _instructions(code)
    except (IndexError, KeyError, ValueError) as error:
        raise UnsupportedError(
            f"{code.co_qualname}: the bytecode cannot be read ({error}); "
            "recompile the function's source"
        ) from error
    if not instructions:
        raise UnsupportedError(
            f"{code.co_qualname} has no bytecode; recompile the function's source"
        )
    if not instructions[-1].name.startswith(_ENDS):
        raise UnsupportedError(
            f"{code.co_qualname}: the bytecode runs past its end; recompile the function's source"
        )

    def index(offset: int) -> int:
        while offset not in index_of:  # an end may point past the last instruction or at a cache
            if offset > len(code.co_code):
                return len(instructions)
            offset += 2
        return index_of[offset]

    handlers = [
        Handler(index(start), index(stop), index(target), depth, lasti)
        for start, stop, target, depth, lasti in exception_table(code)
    ]
    return Program(
        code, instructions, handlers, slot_names(code), [ins.value for ins in instructions]
    )


def _instructions(code: CodeType) -> tuple[list[Instruction], dict[int, int]]:
    """The instructions, and the index of the one that each offset stands for."""
    raw, constants, names = code.co_code, code.co_consts, code.co_names
    slots = len(slot_names(code))
    places = code.co_lines()
    line, until = code.co_firstlineno, 0
    index_of: dict[int, int] = {}
    out: list[Any] = []
    jumps: list[int] = []  # instructions whose value is an offset
    targets = _targets(raw) if _ASKS else ()
    swallowed: tuple[str, ...] = ()
    at = extended = 0
    size = len(raw)
    while at < size:
        number, arg, offset = raw[at], raw[at + 1] | extended, at
        opcode = OPCODES[number]
        if opcode is None:
            raise ValueError(f"at {at} is an opcode that does not exist")
        name, known, width, shows, form, backward, tests, takes = opcode
        at += width
        while offset >= until:
            _, until, found = next(places, (0, size, None))
            line = line if found is None else found
        index_of[offset] = len(out)  # a jump to EXTENDED_ARG lands on what it extends
        if number == EXTENDED_ARG:
            extended = arg << 8
            swallowed = ()
            continue
        extended = 0
        if swallowed:
            if name == swallowed[0]:
                swallowed = swallowed[1:]
                continue
            swallowed = ()
        if takes:
            swallowed = takes
        at_line = line
        if tests and out and out[-1].name == "TO_BOOL" and offset not in targets:
            offset, at_line = out[-1].offset, out[-1].line
            del out[-1]
        if form is not None:
            count, last = len(out), out[-1] if out else None
            form(out, _new(Raw, (name, arg)), code)
            if last is not None and out[count - 1] is not last:  # it became a part of that one
                shown, number, stands_for = out[count - 1]
                at_last = shown, number, stands_for, last.offset, last.line
                out[count - 1] = _new(Instruction, at_last)
            for i in range(count, len(out)):
                shown, number, stands_for = out[i]
                out[i] = _new(Instruction, (shown, number, stands_for, offset, at_line))
            continue
        value: Any = arg
        if shows == CONSTANT:
            value = constants[arg]
        elif shows == NAME:
            value = names[arg]
        elif shows == SLOT:
            if arg >= slots:
                raise IndexError(f"there is no local variable {arg}")
        elif shows == TARGET:
            value = at - 2 * arg if backward else at + 2 * arg
            jumps.append(len(out))
        elif shows == COMPARISON:
            value = _COMPARISONS[arg]
        elif shows == NOTHING:
            continue
        out.append(_new(Instruction, (known, arg, value, offset, at_line)))
    for i in jumps:
        out[i] = out[i]._replace(value=_target(code, index_of, out[i].value))
    return out, index_of


def _targets(raw: bytes) -> set[int]:
    """The offsets that jumps lead to."""
    found: set[int] = set()
    at = extended = 0
    while at < len(raw):
        opcode, arg = OPCODES[raw[at]], raw[at + 1] | extended
        extended = arg << 8 if raw[at] == EXTENDED_ARG else 0
        at += 2 if opcode is None else opcode.size
        if opcode is not None and opcode.shows == TARGET:
            found.add(at - 2 * arg if opcode.backward else at + 2 * arg)
    return found


def _target(code: CodeType, index_of: dict[int, int], offset: int) -> int:
    if offset not in index_of:
        raise UnsupportedError(
            f"{code.co_qualname}: a jump leads to the middle of an instruction; "
            "recompile the function's source"
        )
    return index_of[offset]
