"""Values put into a dtype, and the distance of a computed value from the exact one in ULP.

Pure Python on Python numbers, mpmath values and fractions; the tests and the reports share it.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from specs import dtypes

INF, NAN = math.inf, math.nan


def _fraction(value: Any) -> Fraction:
    """An exact number of any type as a fraction."""
    if hasattr(value, "_mpf_"):
        sign, mantissa, exponent, _ = value._mpf_
        mantissa = -int(mantissa) if sign else int(mantissa)
        return Fraction(mantissa) * Fraction(2) ** int(exponent)
    return Fraction(value)


def _special(value: Any) -> float | None:
    """The value as a float if it is nan, infinite or zero (whose sign is kept), else ``None``.

    What is far beyond every dtype counts as infinite or zero: as a fraction it would fill memory.
    """
    if hasattr(value, "_mpf_"):
        sign, mantissa, exponent, bits = value._mpf_
        if mantissa and abs(exponent + bits) > 5000:
            return math.copysign(INF if exponent > 0 else 0.0, -1.0 if sign else 1.0)
    if value != value:
        return NAN
    if value in (INF, -INF):
        return INF if value > 0 else -INF
    if value == 0:
        return float(value)
    return None


def _exponent(size: Fraction) -> int:
    """floor(log2(size))."""
    guess = size.numerator.bit_length() - size.denominator.bit_length()
    return guess if Fraction(2) ** guess <= size else guess - 1


def to_float(value: Any, dtype: str) -> float:
    """The nearest number of a floating dtype, halves to even, subnormals and overflow included."""
    special = _special(value)
    if special is not None:
        return special
    exact = _fraction(value)
    bits, least, most = dtypes.FLOAT_FORMAT[dtype]
    unit = Fraction(2) ** (max(_exponent(abs(exact)), least) - bits + 1)
    rounded = round(exact / unit) * unit
    if abs(rounded) >= Fraction(2) ** (most + 1):
        return INF if exact > 0 else -INF
    return math.copysign(float(rounded), float(exact > 0) - 0.5)


def wrap(value: int, dtype: str) -> int:
    """An integer modulo the width of an integer dtype."""
    low, high = dtypes.int_range(dtype)
    return (value - low) % (high - low + 1) + low


def store(value: Any, dtype: str) -> bool | int | float:
    """``value``, of the meaning's kind, as an element of ``dtype`` holds it.

    Floats round to nearest, integers wrap; bool is truth. Conversion of a float to an integer is
    no storing but the scalar operation ``cast``.
    """
    if dtype == dtypes.BOOL:
        return bool(value)
    if dtypes.is_float(dtype):
        return to_float(value, dtype)
    return wrap(int(value), dtype)


def ulp(value: Any, dtype: str) -> Fraction:
    """The spacing of the dtype's numbers at ``value`` (its binade's; subnormals have one)."""
    bits, least, most = dtypes.FLOAT_FORMAT[dtype]
    size = abs(_fraction(value))
    exponent = _exponent(size) if size else least
    return Fraction(2) ** (min(max(exponent, least), most) - bits + 1)


def ulp_error(got: float, exact: Any, dtype: str) -> float:
    """How many ULP ``got`` is from the exact value; 0.5 is the best that rounding guarantees.

    nan for nan, equal infinities, and an infinity where the exact value rounds to it are no error;
    otherwise a special value that only one side has is an infinite one. The sign of a zero counts
    where the exact value is a zero too: 0.0 for -0.0 is an infinite error.
    """
    special = _special(exact)
    if special is not None and not special == 0:
        return 0.0 if got == special or (got != got and special != special) else INF
    if got != got:
        return INF
    if special is not None and got == 0:
        return 0.0 if math.copysign(1, got) == math.copysign(1, special) else INF
    if math.isinf(got):
        return 0.0 if to_float(exact, dtype) == got else INF
    return float(abs(_fraction(got) - _fraction(exact)) / ulp(exact, dtype))
