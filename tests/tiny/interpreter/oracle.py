"""CPython as the oracle: one program run by both, and everything a user can see compared.

A program is source text with a function ``main``. It is executed three times from scratch:
natively, by :class:`CheckedMachine` handler by handler, and by the machine in fused runs; its
module-level code included.
"""

from __future__ import annotations

import builtins
import contextlib
import difflib
import dis
import importlib.util
import io
import pprint
import re
import textwrap
import types
import warnings
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from refcompiler.bytecode.forms import BINARY_INTRINSICS, UNARY_INTRINSICS
from refcompiler.interpreter import fusion
from refcompiler.interpreter.frame import Frame
from refcompiler.interpreter.machine import Machine
from refcompiler.interpreter.signals import Signal
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS  # programs replace those of the process
__name__ = "refcompiler.oracle"  # frames of this file are the interpreter's, not the user's

#: The opcodes that take one; 3.11 has no list of them.
HAS_ARGUMENT = frozenset(getattr(dis, "hasarg", range(dis.HAVE_ARGUMENT, 256)))
FILE = "<user program>"
ADDRESS = re.compile(r"0x[0-9a-f]+")

#: Where the effect that ``dis`` tells is the compiler's view and not the instruction's, or the
#: instruction is one that the decoder writes for what this Python has another name for.
EFFECTS: dict[str, Callable[[int, bool], int]] = {
    "PRECALL": lambda arg, jumped: 0,
    "CALL": lambda arg, jumped: -arg - 1,
    "CALL_KW": lambda arg, jumped: -arg - 2,
    "RETURN_GENERATOR": lambda arg, jumped: 1,
    "FOR_ITER": lambda arg, jumped: -1 if jumped else 1,
    "SEND": lambda arg, jumped: -1,  # a whole delegation: its value is there, and it is gone
    "LOAD_ATTR": lambda arg, jumped: 0,
    "LOAD_METHOD": lambda arg, jumped: 1,
    "LOAD_SUPER_ATTR": lambda arg, jumped: -2,
    "MAKE_FUNCTION": lambda arg, jumped: -arg.bit_count(),
    "PRINT_EXPR": lambda arg, jumped: -1,
    "IMPORT_STAR": lambda arg, jumped: -1,
    "ASYNC_GEN_WRAP": lambda arg, jumped: 0,
    "UNARY_POSITIVE": lambda arg, jumped: 0,
    "LIST_TO_TUPLE": lambda arg, jumped: 0,
    "PREP_RERAISE_STAR": lambda arg, jumped: -1,
}
EFFECTS.update({name: lambda arg, jumped: 0 for name in UNARY_INTRINSICS})
EFFECTS.update({name: lambda arg, jumped: -1 for name in BINARY_INTRINSICS})


def _own_copy(name: str) -> Any:
    """A copy of the library's module ``name``, which no program changes."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    vars(module)["__builtins__"] = BUILTINS
    spec.loader.exec_module(module)
    return module


_weakref = _own_copy("weakref")  # the program's is interpreted by the machine that uses this


class CheckedMachine(Machine):
    """Holds every instruction to its stack effect, and every frame to an empty stack at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.instructions = 0
        #: The depth a frame must have when it runs again. It keeps no frame alive.
        self.due: MutableMapping[Frame, int] = _weakref.WeakKeyDictionary()
        self.seen: set[str] = set()

    def loop(self) -> None:
        while True:
            try:
                while (frame := self.frame) is not None:
                    self.step(frame)
                return
            except Signal:
                raise
            except BaseException as exc:
                error = exc
            try:
                self.unwind(error)
            finally:
                del error

    def step(self, frame: Frame) -> None:
        due = self.due.pop(frame, None)
        depth = len(frame.stack)
        index = frame.ip
        instruction = frame.program.instructions[index]
        self.seen.add(instruction.name)
        self.instructions += 1
        if due is not None and due != depth:
            raise Broken(f"{frame}: {depth} on the stack, not {due}, at {instruction}")
        if instruction.name == "RETURN_VALUE" and depth != 1:
            raise Broken(f"{frame}: {depth - 1} values left on the stack")
        frame.ip = index + 1
        handler = frame.ops[index]
        handler(self, frame, frame.values[index])
        if instruction.name not in ("RETURN_VALUE", "YIELD_VALUE"):
            effect = self.effect(instruction, frame.ip != index + 1)
            self.due[frame] = depth + effect
        if len(frame.stack) > max(1, frame.code.co_stacksize):  # RETURN_CONST needs none
            raise Broken(f"{frame}: deeper than co_stacksize at {instruction}")

    def effect(self, instruction: Any, jumped: bool) -> int:
        if instruction.name in EFFECTS:
            return EFFECTS[instruction.name](instruction.arg, jumped)
        code = dis.opmap[instruction.name]
        arg = instruction.arg if code in HAS_ARGUMENT else None
        return dis.stack_effect(code, arg, jump=jumped)

    def unwind(self, error: BaseException) -> None:
        if isinstance(error, Broken):
            raise Signal(str(error))
        frame = self.frame
        while frame is not None:
            self.due.pop(frame, None)
            frame = frame.back
        super().unwind(error)


class Broken(Exception):
    """An invariant of the interpreter does not hold."""


# ---- what a user can see -----------------------------------------------------------------------


def describe(value: Any, seen: tuple[int, ...] = ()) -> Any:
    """``value`` as plain data: types, contents, order; no addresses."""
    if id(value) in seen:
        return "<again>"
    seen = (*seen, id(value))
    kind = type(value).__name__
    if isinstance(value, BaseException):
        return error_data(value, seen)
    if isinstance(value, list | tuple):
        return kind, [describe(v, seen) for v in value]
    if isinstance(value, dict):
        return kind, [(describe(k, seen), describe(v, seen)) for k, v in value.items()]
    if isinstance(value, set | frozenset):
        return kind, sorted(repr(describe(v, seen)) for v in value)
    if isinstance(value, types.FunctionType):
        parts = value.__defaults__, value.__kwdefaults__, value.__annotations__, value.__doc__
        return kind, value.__qualname__, value.__module__, [describe(p, seen) for p in parts]
    if isinstance(value, types.GeneratorType):
        return "generator", value.__qualname__
    if isinstance(value, type):
        return "class", value.__qualname__, [base.__qualname__ for base in value.__mro__]
    if isinstance(value, types.CodeType):
        return "code", value.co_qualname
    if hasattr(value, "__dict__") and not isinstance(value, types.ModuleType):
        return kind, describe(vars(value), seen), ADDRESS.sub("0x", repr(value))
    return kind, ADDRESS.sub("0x", repr(value))


def error_data(error: BaseException, seen: tuple[int, ...]) -> Any:
    group = isinstance(error, BaseExceptionGroup)
    return (
        type(error).__name__,
        ADDRESS.sub("0x", str(error)),
        describe(error.args, seen),
        describe(dict(vars(error)), seen),
        ("name", describe(getattr(error, "name", None), seen)),
        ("suppress", error.__suppress_context__),
        ("cause", describe(error.__cause__, seen)),
        ("context", describe(error.__context__, seen)),
        ("traceback", trace(error)),
        ("parts", [describe(e, seen) for e in error.exceptions] if group else None),
    )


def trace(error: BaseException) -> list[tuple]:
    """(function, line, place in the source) of the entries that lie in the user's program."""
    found = []
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if code.co_filename == FILE:
            place = list(code.co_positions())[traceback.tb_lasti // 2]
            found.append((code.co_qualname, traceback.tb_lineno, place))
        traceback = traceback.tb_next
    return found


# ---- running -----------------------------------------------------------------------------------


def _fresh() -> dict[str, Any]:
    return {"__name__": "user", "__builtins__": vars(builtins)}


def natively(code: types.CodeType, args: tuple) -> Any:
    space = _fresh()
    exec(code, space)
    return space["main"](*args)


def interpreted(code: types.CodeType, args: tuple, machine: Machine) -> Any:
    space = _fresh()
    machine.run(machine.module_frame(code, space, space))
    return machine.run(machine.make_frame(space["main"], args, {}))


def observe(run: Any, *args: Any) -> dict[str, Any]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            outcome = "returned", describe(run(*args))
        except BaseException as error:
            if isinstance(error, Signal):
                raise AssertionError(str(error)) from None
            outcome = "raised", describe(error)
    return {"outcome": outcome, "printed": ADDRESS.sub("0x", printed.getvalue())}


def check(source: str, *args: Any) -> CheckedMachine:
    """Assert that the interpreter agrees with CPython on ``source``; the machine that ran it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # programs do odd things on purpose
        code = compile(textwrap.dedent(source), FILE, "exec", dont_inherit=True)
    given, again = ([list(a) if type(a) is list else a for a in args] for _ in range(2))
    taken = list(args)
    expected = observe(natively, code, tuple(given))
    machine = CheckedMachine()
    actual = observe(interpreted, code, tuple(taken), machine)
    assert actual == expected, difference(expected, actual)
    with fused_at_once():
        actual = observe(interpreted, code, tuple(again), Machine())
    assert actual == expected, "in runs: " + difference(expected, actual)
    assert describe(taken) == describe(given)
    assert machine.frame is None and machine.exc is None and not machine.outer_excs
    assert machine.depth == 0
    return machine


@contextlib.contextmanager
def fused_at_once() -> Iterator[None]:
    """Runs are made where control first arrives, short ones, which are compiled sooner."""
    saved = fusion.ARRIVALS, fusion.LENGTH
    fusion.ARRIVALS, fusion.LENGTH = 1, 5
    try:
        yield
    finally:
        fusion.ARRIVALS, fusion.LENGTH = saved


def difference(expected: Any, actual: Any) -> str:
    texts = [pprint.pformat(data, width=100).splitlines() for data in (expected, actual)]
    return "\n" + "\n".join(
        difflib.unified_diff(*texts, "CPython", "interpreter", n=1, lineterm="")
    )


def programs(text: str) -> dict[str, str]:
    """``text`` cut at its lines ``## name`` into named programs."""
    parts = re.split(r"^## (\w+)\n", textwrap.dedent(text), flags=re.M)
    found = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert len(found) == len(parts) // 2, "two programs have one name"
    return found
