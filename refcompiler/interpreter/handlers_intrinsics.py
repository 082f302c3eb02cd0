"""What CPython keeps behind CALL_INTRINSIC: type parameters and type aliases (PEP 695, 696).

They make objects that Python code cannot make alike (a TypeVar whose bound is computed when it is
asked for), so CPython makes them. Those that were opcodes before
have the handlers of those (:mod:`refcompiler.bytecode.forms`).
"""

from __future__ import annotations

from typing import Any

from refcompiler.bytecode.forms import BINARY_INTRINSICS, UNARY_INTRINSICS
from refcompiler.interpreter.frame import Frame
from refcompiler.interpreter.machine import Machine
from refcompiler.interpreter.native import instruction
from refcompiler.interpreter.registry import op
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS

_UNARY = (
    "INTRINSIC_TYPEVAR",
    "INTRINSIC_PARAMSPEC",
    "INTRINSIC_TYPEVARTUPLE",
    "INTRINSIC_SUBSCRIPT_GENERIC",
    "INTRINSIC_TYPEALIAS",
)
_BINARY = (
    "INTRINSIC_TYPEVAR_WITH_BOUND",
    "INTRINSIC_TYPEVAR_WITH_CONSTRAINTS",
    "INTRINSIC_SET_FUNCTION_TYPE_PARAMS",
    "INTRINSIC_SET_TYPEPARAM_DEFAULT",
)


def _register_unary(name: str) -> None:
    known = name in UNARY_INTRINSICS
    call = instruction("CALL_INTRINSIC_1", UNARY_INTRINSICS.index(name), 1) if known else None

    @op(name)
    def unary(m: Machine, f: Frame, arg: Any) -> None:
        s = f.stack
        s[-1] = call(m.own(s[-1]))  # type: ignore[misc]


def _register_binary(name: str) -> None:
    known = name in BINARY_INTRINSICS
    call = instruction("CALL_INTRINSIC_2", BINARY_INTRINSICS.index(name), 2) if known else None

    @op(name)
    def binary(m: Machine, f: Frame, arg: Any) -> None:
        s = f.stack
        s[-2] = call(m.own(s[-2]), m.own(s[-1]))  # type: ignore[misc]
        s.pop()


for _name in _UNARY:
    _register_unary(_name)
for _name in _BINARY:
    _register_binary(_name)
