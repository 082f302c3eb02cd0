"""Decoding of a code object into instructions that need no further looking up.

Source of the rules: CPython's documentation of ``dis`` and Objects/exception_handling_notes.txt.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, NamedTuple

from refcompiler.bytecode.forms import FORMS, SWALLOWS, TESTS, Raw, Step, plain
from refcompiler.errors import UnsupportedError
from refcompiler.own_builtins import BUILTINS, own_copy

__builtins__ = BUILTINS

dis = own_copy("dis")  # decoding goes on while a program has replaced len


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

    def line_at(self, index: int) -> int:
        return self.instructions[min(index, len(self.instructions) - 1)].line


def slot_names(code: CodeType) -> tuple[str, ...]:
    """The frame's slots in CPython's order; a parameter that is also a cell has one slot."""
    locals_ = code.co_varnames
    cells = tuple(name for name in code.co_cellvars if name not in locals_)
    return locals_ + cells + code.co_freevars


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


_JUMPS = frozenset(dis.opname[op] for op in (*dis.hasjrel, *dis.hasjabs))


#: By identity: equal code objects may differ in their file, and hashing one is slow.
_PROGRAMS: dict[int, Program] = {}


def decode(code: CodeType) -> Program:
    """The program of ``code``, which is kept until :func:`forget_program`."""
    program = _PROGRAMS.get(id(code))
    if program is None:
        program = _PROGRAMS[id(code)] = _decode(code)
    return program


def forget_program(code: CodeType) -> None:
    _PROGRAMS.pop(id(code), None)


def _decode(code: CodeType) -> Program:
    try:
        shown = list(dis.get_instructions(code))
    except (IndexError, KeyError, ValueError) as error:
        raise UnsupportedError(
            f"{code.co_qualname}: the bytecode cannot be read ({error}); "
            "recompile the function's source"
        ) from error
    targets = {ins.argval for ins in shown if ins.opname in _JUMPS}
    index_of: dict[int, int] = {}
    steps: list[Step] = []
    places: list[tuple[int, int]] = []  # offset and line of each step
    line = code.co_firstlineno
    swallowed: tuple[str, ...] = ()
    for ins in shown:
        name = ins.opname
        if ins.positions is not None and ins.positions.lineno is not None:
            line = ins.positions.lineno
        index_of[ins.offset] = len(steps)  # a jump to EXTENDED_ARG lands on what it extends
        if swallowed and name == swallowed[0]:
            swallowed = swallowed[1:]
            continue
        swallowed = SWALLOWS.get(name, ())
        offset = ins.offset
        if name in TESTS and steps and steps[-1].name == "TO_BOOL" and offset not in targets:
            del steps[-1]
            offset, line = places.pop()
        raw = Raw(name, ins.arg if ins.arg is not None else 0, ins.argval)
        FORMS.get(name, plain)(steps, raw, code)
        places += [(offset, line)] * (len(steps) - len(places))
    instructions = [
        Instruction(
            step.name,
            step.arg,
            _target(code, index_of, step.value) if step.name in _JUMPS else step.value,
            *place,
        )
        for step, place in zip(steps, places, strict=True)
    ]

    if not instructions:
        raise UnsupportedError(
            f"{code.co_qualname} has no bytecode; recompile the function's source"
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


def _target(code: CodeType, index_of: dict[int, int], offset: int) -> int:
    if offset not in index_of:
        raise UnsupportedError(
            f"{code.co_qualname}: a jump leads to the middle of an instruction; "
            "recompile the function's source"
        )
    return index_of[offset]
