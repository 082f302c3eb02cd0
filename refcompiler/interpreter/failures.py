"""Errors of the interpreter itself, kept apart from those of the program that it runs.

A program may catch what it raises. What the interpreter raises on its own account, be it that it
does not run some bytecode or that it has a bug, must not be swallowed by the program's ``except``:
it leaves as a signal, and the outermost run makes an error of the project of it.
"""

from __future__ import annotations

import dis
from typing import Any

from refcompiler.errors import InternalError, RefcompilerError
from refcompiler.interpreter.signals import Signal
from refcompiler.interpreter.tracebacks import MADE
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS

_OWN = ("refcompiler.interpreter.", "refcompiler.bytecode.")


class Failure(Signal):
    """Carries an error of the interpreter out of all runs."""

    def __init__(self, error: BaseException, place: str):
        super().__init__(error)
        self.error, self.place = error, place

    def as_error(self) -> BaseException:
        """What the caller of the interpreter gets."""
        error = self.error
        if isinstance(error, RefcompilerError):
            return error
        found = InternalError(f"{type(error).__name__}: {error} while running {self.place}")
        found.__cause__ = error
        return found


def is_own(error: BaseException) -> bool:
    """Whether the interpreter made a mistake, or says that it cannot go on.

    An operation of the program is performed by code of the interpreter, so where an error comes
    from is not enough. What is asked is whether the instruction that raised it is one with which
    the interpreter looks up its own names, attributes and stacks: no program's operation is that.
    """
    entry = error.__traceback__
    if entry is None:
        return False
    while entry.tb_next is not None:
        if id(entry.tb_frame.f_code) in MADE:
            return False  # it came through a frame of the program, where it was judged
        entry = entry.tb_next
    module = entry.tb_frame.f_globals.get("__name__")
    if type(module) is not str or not module.startswith(_OWN):
        return False
    if isinstance(error, RefcompilerError):
        return True
    judge = _JUDGES.get(type(error))
    return judge is not None and judge(error, entry)


def _opcode(entry: Any, before: int = 0) -> str:
    return dis.opname[entry.tb_frame.f_code.co_code[max(entry.tb_lasti - before, 0)]]


def _is_name(error: NameError, entry: Any) -> bool:
    return _opcode(entry).startswith(("LOAD_", "DELETE_"))


def _is_attribute(error: AttributeError, entry: Any) -> bool:
    modules = [base.__dict__.get("__module__") for base in type(error.obj).__mro__]
    return any(type(name) is str and name.startswith("refcompiler.") for name in modules) and (
        _opcode(entry).startswith(("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR"))
    )


def _is_index(error: IndexError, entry: Any) -> bool:
    """In a handler or the loop: the program's own indexing is a hook of the domain."""
    module = entry.tb_frame.f_globals["__name__"]
    return (".handlers_" in module or module.endswith(".loop")) and _opcode(entry) in (
        "BINARY_SUBSCR",
        "STORE_SUBSCR",
    )


def _is_assertion(error: AssertionError, entry: Any) -> bool:
    return _opcode(entry, 2) in ("LOAD_ASSERTION_ERROR", "LOAD_COMMON_CONSTANT")


_JUDGES: dict[type, Any] = {
    NameError: _is_name,
    UnboundLocalError: _is_name,
    AttributeError: _is_attribute,
    IndexError: _is_index,
    AssertionError: _is_assertion,
}
