"""Expressions as Python: what runs in guards, and what a program's values are rebuilt with."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import sympy
from torch.utils._sympy import functions as F

from refcompiler.shapes.floats import FLOAT, FloatEq, FloatLe, FloatLt, FloatSign, NegativeZero
from refcompiler.shapes.operations import FloorQuotient, FloorRemainder, Larger, Power, Smaller


def is_dense(*numbers: int) -> bool:
    """Whether sizes and strides (the second half of ``numbers``) leave no hole and no overlap."""
    half = len(numbers) // 2
    extent = 1
    for stride, size in sorted(zip(numbers[half:], numbers[:half], strict=True)):
        if size == 1:
            continue
        if stride != extent:
            return False
        extent *= size
    return True


def sign(value: float) -> float:
    """1.0 or -1.0, also of a zero."""
    return math.copysign(1.0, value)


class Dense(sympy.Function):
    """:func:`is_dense` of expressions, as 0 or 1."""

    is_integer = True

    @classmethod
    def eval(cls, *numbers: Any) -> Any:
        if all(n.is_Integer for n in numbers):
            return sympy.Integer(is_dense(*map(int, numbers)))
        return None


_INFIX: dict[Any, str] = {
    sympy.Add: " + ",
    sympy.Mul: "*",
    F.FloorDiv: " // ",
    F.CleanDiv: " // ",
    FloorQuotient: " // ",
    F.IntTrueDiv: " / ",
    F.FloatTrueDiv: " / ",
    F.Mod: " % ",
    FloorRemainder: " % ",
    F.PythonMod: " % ",
    sympy.Mod: " % ",
    sympy.Pow: "**",
    F.PowByNatural: "**",
    Power: "**",
    F.FloatPow: "**",
    F.LShift: " << ",
    F.RShift: " >> ",
    F.BitwiseFn_bitwise_and: " & ",
    F.BitwiseFn_bitwise_or: " | ",
    F.BitwiseFn_bitwise_xor: " ^ ",
    sympy.Eq: " == ",
    sympy.Ne: " != ",
    sympy.Lt: " < ",
    sympy.Le: " <= ",
    sympy.Gt: " > ",
    sympy.Ge: " >= ",
    sympy.And: " and ",
    sympy.Or: " or ",
    FLOAT["add"]: " + ",
    FLOAT["sub"]: " - ",
    FLOAT["mul"]: "*",
    FLOAT["mod"]: " % ",
    FLOAT["floordiv"]: " // ",
    FloatEq: " == ",
    FloatLt: " < ",
    FloatLe: " <= ",
}
_CALLS: dict[Any, Callable] = {
    F.Max: max,
    F.Min: min,
    Larger: max,
    Smaller: min,
    sympy.Max: max,
    sympy.Min: min,
    sympy.Abs: abs,
    F.ToFloat: float,
    F.FloorToInt: math.floor,
    F.CeilToInt: math.ceil,
    F.TruncToInt: math.trunc,
    F.TruncToFloat: math.trunc,
    F.RoundToInt: round,
    F.RoundDecimal: round,
    Dense: is_dense,
    FloatSign: sign,
}
for _name, _function in F.__dict__.items():
    if _name.startswith("OpaqueUnaryFn_"):
        _CALLS[_function] = getattr(math, _name.removeprefix("OpaqueUnaryFn_"))
#: What the texts call, under names that no parameter of the user's has.
NAMES: dict[str, Any] = {f"__{f.__name__}": f for f in _CALLS.values()}
NAMES |= {"__inf": math.inf, "__nan": math.nan}
#: Floats that are no ordinary numbers.
_SPECIAL = {sympy.oo: "__inf", -sympy.oo: "(-__inf)", sympy.nan: "__nan"}


def python(expression: Any, name: Callable[[sympy.Symbol], str]) -> str:
    """``expression`` as Python; ``name`` gives the text that stands for a symbol."""
    kind = expression.func
    if expression.is_Symbol:
        return name(expression)
    if expression.is_Integer:
        return str(int(expression)) if expression >= 0 else f"({int(expression)})"
    if expression.is_Float:
        value = float(expression)
        return repr(value) if value >= 0 else f"({value!r})"
    if kind is NegativeZero:
        return "(-0.0)"
    if expression in (sympy.true, sympy.false):
        return str(bool(expression))
    if expression in _SPECIAL:
        return _SPECIAL[expression]
    parts: Sequence[str] = [python(part, name) for part in expression.args]
    infix = _INFIX.get(kind)
    if infix is not None:
        return f"({infix.join(parts)})"
    call = _CALLS.get(kind)
    if call is not None:
        return f"__{call.__name__}({', '.join(parts)})"
    if kind is F.Identity:
        return parts[0]
    if kind is sympy.Not:
        return f"(not {parts[0]})"
    if kind is F.Where:
        return f"({parts[1]} if {parts[0]} else {parts[2]})"
    if expression.is_Rational:
        return f"({expression.p} / {expression.q})"
    raise TypeError(f"no text for {kind.__name__} in {expression}")


@functools.lru_cache(4096)
def compiled(expression: Any, symbols: tuple[sympy.Symbol, ...]) -> Callable[..., Any]:
    """A function of the values of ``symbols`` that computes ``expression``."""
    names = {symbol: f"v{i}" for i, symbol in enumerate(symbols)}
    text = f"lambda {', '.join(names.values())}: {python(expression, names.__getitem__)}"
    return eval(text, dict(NAMES))
