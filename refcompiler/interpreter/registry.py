"""What there is to run: opcode handlers by name, and what is never interpreted."""

from __future__ import annotations

import sys
from _thread import RLock
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from refcompiler.bytecode.decode import Program, decode, forget_program
from refcompiler.errors import UnsupportedError
from refcompiler.interpreter.binding import forget_parameters, parameters_of
from refcompiler.interpreter.callers import CALLERS, NOBODY
from refcompiler.interpreter.current import aside
from refcompiler.interpreter.frame import Frame
from refcompiler.interpreter.fusion import Fused
from refcompiler.interpreter.tracebacks import DRIVERS, ENTRIES, MADE
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS

#: ids of code objects of the interpreter's own objects, which are never interpreted.
NATIVE_CODES: set[int] = set()

#: Where a compiled function keeps the program's own, which is interpreted in its place.
ORIGINAL = "__refcompiler_original__"


def original_of(function: Any) -> Any:
    """The function that ``function`` is this package's compiled wrapper of, or None.

    ``functools.wraps`` gives a wrapper's attributes to functions that do something else.
    """
    found = getattr(function, ORIGINAL, None)
    return found if found is not None and function.__globals__.get("__fn") is found else None


def native(cls: type) -> type:
    """Class decorator: the methods of ``cls`` run natively when interpreted code calls them."""
    for value in vars(cls).values():
        run_natively(getattr(value, "fget", value))
    return cls


def run_natively(function: Any) -> None:
    """Interpreted code that calls this function of the interpreter's own runs it natively.

    What a decorator of the library has put around one shares its code with the program's.
    """
    if isinstance(function, FunctionType):
        if function.__globals__.get("__name__", "").startswith("refcompiler."):
            NATIVE_CODES.add(id(function.__code__))


HANDLERS: dict[str, Callable[[Any, Frame, Any], None]] = {}


#: What the handlers of these opcodes take instead of the decoded value, looked up once.
OPERANDS: dict[str, Any] = {}


#: What loads an attribute whose name is that of a generator's frame or code.
ATTRIBUTES: dict[str, Callable[[Any, Frame, Any], None]] = {}


def op(*names: str) -> Callable:
    """Register the handler of the named opcodes."""

    def register(handler: Callable) -> Callable:
        for name in names:
            HANDLERS[name] = handler
        return handler

    return register


#: The programs that are ready to run when their functions are called, by the code's identity.
READY: dict[int, Program] = {}


#: What lets go of code that is not in use.
FORGETTING: list[Callable[[], None]] = []

_RESOLVING = RLock()
_ROOM = 1024  # programs that are kept before those of dead code are looked for
_room = _ROOM


def program_of(code: CodeType) -> Program:
    """The decoded program with its handlers resolved."""
    global _room
    program = READY.get(id(code))
    if program is None:
        user = ENTRIES.get(id(code))
        if user is not None:
            program = READY[id(code)] = program_of(user)
            return program
        if len(READY) >= _room:
            _forget_dead_code()
            _room = max(_ROOM, 2 * len(READY))
        with _RESOLVING:  # by one thread: others find it ready
            program = READY.get(id(code)) or aside(_resolved, code)
        if id(code) not in NATIVE_CODES:
            READY[id(code)] = program
    return program


def _forget_dead_code() -> None:
    """Forget the programs whose code nobody else holds: a program may make code without end."""
    for forget in FORGETTING:
        forget()
    for program in list(READY.values()):
        forget_if_dead(program)


def forget_if_dead(program: Program, going: int = 0) -> bool:
    """Forget ``program`` if nobody else holds its code, and nothing runs that was made of it.

    ``going`` counts references to the code that are known to go. Whether it was forgotten.
    """
    held = [program.code, program.parameters.code]
    if program.shown is not None:
        held.append(program.shown.code)
        for code in program.shown.codes.values():
            if _references(code) > 3:  # the dict's, the variable's and the argument's
                return False  # a traceback lives
    driver = program.driver
    if driver is not None:
        held.append(DRIVERS[id(driver)])
        if _references(driver) > 3:  # the program's, the variable's and the argument's
            return False  # a generator lives
    # where they are from, the list, the argument
    if _references(held[0]) == 2 * len(held) + 1 + going:
        READY.pop(id(program.code), None)
        forget_program(program.code)
        forget_parameters(program.code)
        DRIVERS.pop(id(driver), None)
        CALLERS.difference_update(map(id, program.caller_codes.values()))
        if program.shown is not None:
            for key in program.shown.made:
                MADE.pop(key, None)
        return True
    return False


_references = sys.getrefcount


def _resolved(code: CodeType) -> Program:
    program = decode(code)
    if program.ops is None:
        program.parameters = parameters_of(code)
        refused = sorted({ins.name for ins in program.instructions} - HANDLERS.keys())
        if refused:
            raise UnsupportedError(
                f"{code.co_qualname} uses {', '.join(refused)}, which the interpreter does not "
                "run: let it run natively"
            )
        ops = [HANDLERS[ins.name] for ins in program.instructions]
        for i, ins in enumerate(program.instructions):
            if ins.name == "LOAD_ATTR" and ins.value in ATTRIBUTES:
                ops[i] = ATTRIBUTES[ins.value]
            if ins.name in OPERANDS:
                program.values[i] = OPERANDS[ins.name][ins.value]
        program.fused = Fused(ops, program.values)
        program.callers = [NOBODY] * (len(ops) + 1)
        program.ops = ops  # last: it tells another thread that the program is ready
    return program
