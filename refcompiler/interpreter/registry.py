"""What there is to run: opcode handlers by name, and what is never interpreted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from refcompiler.bytecode.decode import Program, decode
from refcompiler.errors import UnsupportedError
from refcompiler.interpreter.binding import parameters_of
from refcompiler.interpreter.frame import Frame

#: ids of code objects of the interpreter's own objects, which are never interpreted.
NATIVE_CODES: set[int] = set()


def native(cls: type) -> type:
    """Class decorator: the methods of ``cls`` run natively when interpreted code calls them."""
    for value in vars(cls).values():
        if isinstance(value, FunctionType):
            NATIVE_CODES.add(id(value.__code__))
    return cls


HANDLERS: dict[str, Callable[[Any, Frame, Any], None]] = {}


#: What the handlers of these opcodes take instead of the decoded value, looked up once.
OPERANDS: dict[str, Any] = {}


def op(*names: str) -> Callable:
    """Register the handler of the named opcodes."""

    def register(handler: Callable) -> Callable:
        for name in names:
            HANDLERS[name] = handler
        return handler

    return register


#: The versions whose bytecode the handlers run, and the one at hand.
INTERPRETED = frozenset({(3, 11)})
RUNNING = sys.version_info[:2]


def program_of(code: CodeType) -> Program:
    """The decoded program with its handlers resolved."""
    program = decode(code)
    if program.ops is None:
        program.parameters = parameters_of(code)
        if RUNNING not in INTERPRETED:
            raise UnsupportedError(
                f"the interpreter of this release runs the bytecode of Python 3.11, not that of "
                f"{RUNNING[0]}.{RUNNING[1]}: use Python 3.11"
            )
        refused = sorted({ins.name for ins in program.instructions} - HANDLERS.keys())
        if refused:
            raise UnsupportedError(
                f"{code.co_qualname} uses {', '.join(refused)}, which the interpreter does not "
                "run: let it run natively"
            )
        program.ops = [HANDLERS[ins.name] for ins in program.instructions]
        for i, ins in enumerate(program.instructions):
            if ins.name in OPERANDS:
                program.values[i] = OPERANDS[ins.name][ins.value]
    return program
