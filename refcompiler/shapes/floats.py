"""Floats as expressions: arithmetic that rounds, and comparisons that a NaN takes part in.

Sympy's own operations are those of real numbers, which no float obeys: a sum depends on its order,
a NaN does not equal itself, infinities cancel to no number, and a zero has a sign. So nothing here
is reordered, cancelled, collected, or decided without the numbers. Source: IEEE 754, as CPython's
``float`` has it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import sympy
from sympy.logic.boolalg import BooleanFunction
from torch.utils._sympy import functions as F


class NegativeZero(sympy.Function):
    """``-0.0``, which sympy's numbers do not have."""

    is_real = True
    nargs = (0,)

    def _eval_evalf(self, precision: int) -> Any:
        return sympy.Float(0.0)


def float_of(value: float) -> Any:
    """The expression of a float."""
    if value == 0 and math.copysign(1.0, value) < 0:
        return NegativeZero()
    return sympy.Float(value)


def _number(expression: Any) -> int | float | None:
    if expression.func is NegativeZero:
        return -0.0
    if not expression.is_Number:
        return None
    return int(expression) if expression.is_Integer else float(expression)


def _arithmetic(name: str, meaning: Callable[[float, float], float]) -> Any:
    class Rounded(sympy.Function):
        is_real = True
        _torch_handler_name = name

        @classmethod
        def eval(cls, a: Any, b: Any) -> Any:
            x, y = _number(a), _number(b)
            return None if x is None or y is None else float_of(meaning(float(x), float(y)))

    Rounded.__name__ = Rounded.__qualname__ = f"Float{name.capitalize()}"
    return Rounded


def _comparison(name: str, meaning: Callable[[Any, Any], bool]) -> Any:
    class Compared(BooleanFunction):
        nargs = (2,)
        _torch_handler_name = name

        @classmethod
        def eval(cls, a: Any, b: Any) -> Any:
            x, y = _number(a), _number(b)
            return None if x is None or y is None else sympy.sympify(meaning(x, y))

    Compared.__name__ = Compared.__qualname__ = f"Float{name.capitalize()}"
    return Compared


class FloatSign(sympy.Function):
    """1.0 or -1.0: the sign that also a zero has."""

    is_real = True
    nargs = (1,)


# By their names files have them: see :mod:`refcompiler.package.expressions`.
FloatAdd: Any = _arithmetic("add", operator.add)
FloatSub: Any = _arithmetic("sub", operator.sub)
FloatMul: Any = _arithmetic("mul", operator.mul)
FloatMod: Any = _arithmetic("mod", operator.mod)
FloatFloordiv: Any = _arithmetic("floordiv", operator.floordiv)
FloatEq: Any = _comparison("eq", operator.eq)
FloatLt: Any = _comparison("lt", operator.lt)
FloatLe: Any = _comparison("le", operator.le)
COMPARISONS = frozenset((FloatEq, FloatLt, FloatLe))

#: The operations of :data:`refcompiler.shapes.operations.BINARY` where an operand is a float.
FLOAT: dict[str, Any] = {
    "add": FloatAdd,
    "sub": FloatSub,
    "mul": FloatMul,
    "mod": FloatMod,
    "floordiv": FloatFloordiv,
    "eq": FloatEq,
    "ne": lambda a, b: sympy.Not(FloatEq(a, b)),
    "lt": FloatLt,
    "le": FloatLe,
    "gt": lambda a, b: FloatLt(b, a),
    "ge": lambda a, b: FloatLe(b, a),
    # of which ``max`` and ``min`` give the first where the second is not known to be beyond it
    "sym_max": lambda a, b: F.Where(FloatLt(a, b), b, a),
    "sym_min": lambda a, b: F.Where(FloatLt(b, a), b, a),
}
#: The functions on Python's numbers that the classes of :data:`FLOAT` stand for.
MEANINGS: dict[Any, Callable] = {
    **{FLOAT[name]: getattr(operator, name) for name in "add sub mul mod floordiv".split()},
    FloatEq: operator.eq,
    FloatLt: operator.lt,
    FloatLe: operator.le,
}


def identical(expression: Any, value: float) -> Any:
    """The condition that ``expression`` is this very float, which all programs agree about."""
    if value != value:
        return sympy.Not(FloatEq(expression, expression))
    same = FloatEq(expression, float_of(value))
    if value == 0:
        return sympy.And(same, FloatEq(FloatSign(expression), float_of(math.copysign(1.0, value))))
    return same
