"""One row per operation on symbolic numbers: what it means on numbers, and its expression.

Sources of the meanings: CPython's ``int`` and ``float`` (floor division and remainder round
towards minus infinity), and torch's names for the methods of a symbolic node.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import sympy
from torch.utils._sympy import functions as F

#: The result is an int if all operands are, else a float.
SAME = "same"


class Operation(NamedTuple):
    """``meaning`` on Python numbers, ``build`` on expressions, and the class of the result."""

    meaning: Callable[..., Any]
    build: Callable[..., Any]
    gives: Any


#: Sums with more terms than this stay products.
_TERMS = 16


def _product(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr:
    """Multiplied out: what is equal as a polynomial is one expression."""
    made = sympy.Mul(a, b)
    if made.is_Mul and (a.is_Add or b.is_Add) and a.is_integer and b.is_integer:
        if len(sympy.Add.make_args(a)) * len(sympy.Add.make_args(b)) <= _TERMS:
            return sympy.expand_mul(made, deep=False)
    return made


def _quotient(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr:
    """Without what ``a`` shares with ``b``, for which torch would simplify both, which takes
    minutes of nested expressions: where sizes are rounded up to windows, and counted again."""
    if type(a) is F.FloorDiv:
        a, b = a.args[0], _product(a.args[1], b)
    shared = 1 if b.is_zero else F.simple_floordiv_gcd(a, b)
    if shared != 1:
        a = sympy.Add(*[term / shared for term in sympy.Add.make_args(a)])
        b = sympy.Add(*[term / shared for term in sympy.Add.make_args(b)])
    if b.is_Add and max(len(sympy.Add.make_args(a)), len(b.args)) <= _TERMS:
        with contextlib.suppress(sympy.PolynomialError):
            _, a, b = sympy.cofactors(a, b)
    return F.FloorDiv(a, b)


def _remainder(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr:
    return F.Mod(a, b) if a.is_nonnegative and b.is_positive else F.PythonMod(a, b)


def _to_float(a: sympy.Expr) -> sympy.Expr:
    return F.ToFloat(a) if a.is_integer and not a.is_Float else a


def _round(a: sympy.Expr, digits: sympy.Expr | None = None) -> sympy.Expr:
    return F.RoundToInt(a) if digits is None else F.RoundDecimal(a, digits)


def _integral(function: Any) -> Callable[[sympy.Expr], sympy.Expr]:
    return lambda a: a if a.is_integer else function(a)


def _absolute(a: sympy.Expr) -> sympy.Expr:
    return sympy.Abs(a)


class FloorQuotient(sympy.Function):
    """``a // b`` where ``b`` may be negative: torch's ``FloorDiv`` takes it to be positive."""

    is_integer = True
    nargs = (2,)
    _torch_handler_name = "floordiv"

    @classmethod
    def eval(cls, a: Any, b: Any) -> Any:
        if a.is_Integer and b.is_Integer and b != 0:
            return sympy.Integer(int(a) // int(b))
        return None


class FloorRemainder(sympy.Function):
    """``a % b`` where ``b`` may be negative, of which torch's ``PythonMod`` makes too much."""

    is_integer = True
    nargs = (2,)
    _torch_handler_name = "python_mod"

    @classmethod
    def eval(cls, a: Any, b: Any) -> Any:
        if a.is_Integer and b.is_Integer and b != 0:
            return sympy.Integer(int(a) % int(b))
        return None


class Power(sympy.Function):
    """``a ** b`` of ints, ``b`` not negative: beyond 64 bits torch's has no value but infinity."""

    is_integer = True
    nargs = (2,)
    precedence = 50  # of a product
    _torch_handler_name = "pow_by_natural"

    @classmethod
    def eval(cls, a: Any, b: Any) -> Any:
        return sympy.Pow(a, b) if b.is_Integer else None


class Larger(sympy.Function):
    """``max(a, b)`` of what has a minimum in it: torch's ``Max`` merges the two wrongly."""

    is_integer = True
    nargs = (2,)
    _torch_handler_name = "maximum"

    @classmethod
    def eval(cls, a: Any, b: Any) -> Any:
        return sympy.Integer(max(int(a), int(b))) if a.is_Integer and b.is_Integer else None


class Smaller(sympy.Function):
    """``min(a, b)`` of what has a maximum in it; see :class:`Larger`."""

    is_integer = True
    nargs = (2,)
    _torch_handler_name = "minimum"

    @classmethod
    def eval(cls, a: Any, b: Any) -> Any:
        return sympy.Integer(min(int(a), int(b))) if a.is_Integer and b.is_Integer else None


def _shifted_left(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr:
    return sympy.Mul(a, _places(b))


def _shifted_right(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr:
    return F.FloorDiv(a, _places(b))


def _places(count: sympy.Expr) -> sympy.Expr:
    if count.is_negative:
        raise ValueError("negative shift count")
    return Power(sympy.Integer(2), count)


BINARY: dict[str, Operation] = {
    "add": Operation(operator.add, sympy.Add, SAME),
    "sub": Operation(operator.sub, lambda a, b: sympy.Add(a, sympy.Mul(-1, b)), SAME),
    "mul": Operation(operator.mul, _product, SAME),
    "mod": Operation(operator.mod, _remainder, SAME),
    "int_floordiv": Operation(operator.floordiv, _quotient, int),
    "floordiv": Operation(operator.floordiv, _quotient, SAME),
    "int_truediv": Operation(operator.truediv, F.IntTrueDiv, float),
    "float_truediv": Operation(operator.truediv, F.FloatTrueDiv, float),
    "pow_by_natural": Operation(operator.pow, Power, int),
    "float_pow": Operation(operator.pow, F.FloatPow, float),
    "lshift": Operation(operator.lshift, _shifted_left, int),
    "rshift": Operation(operator.rshift, _shifted_right, int),
    "sym_min": Operation(min, F.Min, SAME),
    "sym_max": Operation(max, F.Max, SAME),
    "bitwise_and": Operation(operator.and_, F.BitwiseFn_bitwise_and, int),
    "bitwise_or": Operation(operator.or_, F.BitwiseFn_bitwise_or, int),
    "bitwise_xor": Operation(operator.xor, F.BitwiseFn_bitwise_xor, int),
    "eq": Operation(operator.eq, sympy.Eq, bool),
    "ne": Operation(operator.ne, sympy.Ne, bool),
    "lt": Operation(operator.lt, sympy.Lt, bool),
    "le": Operation(operator.le, sympy.Le, bool),
    "gt": Operation(operator.gt, sympy.Gt, bool),
    "ge": Operation(operator.ge, sympy.Ge, bool),
    "and_": Operation(operator.and_, sympy.And, bool),
    "or_": Operation(operator.or_, sympy.Or, bool),
    "sym_and": Operation(operator.and_, sympy.And, bool),
    "sym_or": Operation(operator.or_, sympy.Or, bool),
}


UNARY: dict[str, Operation] = {
    "neg": Operation(operator.neg, lambda a: sympy.Mul(-1, a), SAME),
    "pos": Operation(operator.pos, lambda a: a, SAME),
    "abs": Operation(abs, _absolute, SAME),
    "floor": Operation(math.floor, _integral(F.FloorToInt), int),
    "ceil": Operation(math.ceil, _integral(F.CeilToInt), int),
    "trunc": Operation(math.trunc, _integral(F.TruncToInt), int),
    "sym_int": Operation(math.trunc, _integral(F.TruncToInt), int),
    "sym_float": Operation(float, _to_float, float),
    "sym_not": Operation(operator.not_, sympy.Not, bool),
}
_FLOAT_FUNCTIONS = "sqrt cos cosh sin sinh tan tanh asin acos atan exp log asinh log2".split()
for _name in _FLOAT_FUNCTIONS:
    UNARY[f"sym_{_name}"] = Operation(
        getattr(math, _name), getattr(F, f"OpaqueUnaryFn_{_name}"), float
    )

#: ``round`` takes the number of digits or nothing.
ROUND = Operation(round, _round, float)

COMPARISONS = frozenset("eq ne lt le gt ge".split())
