"""Expressions as calls of functions: the nodes that stand for symbolic numbers in graphs."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import sympy
import torch
from sympy.logic.boolalg import Boolean
from torch.utils._sympy import functions as F

from refcompiler.shapes.floats import MEANINGS
from refcompiler.shapes.operations import FloorQuotient, FloorRemainder, Larger, Power, Smaller

#: What a node of a graph calls for each kind of expression: torch's own names for them.
FUNCTIONS: dict[Any, Callable] = {
    sympy.Add: operator.add,
    sympy.Mul: operator.mul,
    sympy.Pow: operator.pow,
    F.PowByNatural: operator.pow,
    Power: operator.pow,
    F.FloatPow: operator.pow,
    F.FloorDiv: operator.floordiv,
    FloorQuotient: operator.floordiv,
    F.Mod: operator.mod,
    FloorRemainder: operator.mod,
    F.PythonMod: operator.mod,
    F.IntTrueDiv: operator.truediv,
    F.FloatTrueDiv: operator.truediv,
    F.LShift: operator.lshift,
    F.RShift: operator.rshift,
    F.Max: torch.sym_max,
    F.Min: torch.sym_min,
    Larger: torch.sym_max,
    Smaller: torch.sym_min,
    F.ToFloat: torch.sym_float,
    F.TruncToInt: torch.sym_int,
    F.FloorToInt: math.floor,
    F.CeilToInt: math.ceil,
    F.RoundToInt: round,
    F.RoundDecimal: round,
    F.Where: torch.sym_ite,
    F.BitwiseFn_bitwise_and: operator.and_,
    F.BitwiseFn_bitwise_or: operator.or_,
    F.BitwiseFn_bitwise_xor: operator.xor,
    sympy.Abs: operator.abs,
    sympy.Eq: operator.eq,
    sympy.Ne: operator.ne,
    sympy.Lt: operator.lt,
    sympy.Le: operator.le,
    sympy.Gt: operator.gt,
    sympy.Ge: operator.ge,
    sympy.And: operator.and_,
    sympy.Or: operator.or_,
    sympy.Not: torch.sym_not,
    **MEANINGS,
}
for _name, _function in vars(F).items():
    if _name.startswith("OpaqueUnaryFn_"):
        _name = _name.removeprefix("OpaqueUnaryFn_")
        FUNCTIONS[_function] = getattr(torch, f"_sym_{_name}", getattr(math, _name))
#: Kinds with any number of operands, of which their functions take two.
NARY = frozenset({sympy.Add, sympy.Mul, F.Max, F.Min, sympy.And, sympy.Or})
_BITWISE = (F.BitwiseFn_bitwise_and, F.BitwiseFn_bitwise_or, F.BitwiseFn_bitwise_xor)


def type_of(expr: Any) -> type:
    """The class of the number that an expression is: bool, int or float."""
    if isinstance(expr, Boolean):
        return bool
    return int if expr.is_integer or expr.func in _BITWISE else float
