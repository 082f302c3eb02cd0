"""What the scalar operations mean, on Python numbers and mpmath values.

Nothing here is shared with the kernels. Floats may be nan, infinite or -0.0, and each function
says what it makes of them (IEEE 754, C99 annex F, and PyTorch where it differs from both);
finite values go through mpmath at :data:`PRECISION` bits, or through Python's own correctly
rounded float operations, whose second rounding to float32 is innocuous (53 >= 2 * 24 + 2).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from specs import dtypes

PRECISION = 140
FAR = 1e5
INF, NAN = math.inf, math.nan


@functools.cache
def _mp() -> Any:
    """An mpmath context of our own, so that nobody's precision setting is touched."""
    import mpmath

    context = mpmath.MPContext()
    context.prec = PRECISION
    return context


def _is_float(*values: Any) -> bool:
    return any(isinstance(value, float) for value in values)


def _sign(x: float) -> float:
    return math.copysign(1.0, x)


def elementary(
    name: str,
    *,
    at_inf: float,
    at_minus_inf: float,
    at_zero: Callable[[float], float] | None = None,
    domain: Callable[[float], bool] = lambda x: True,
    poles: dict[float, float] | None = None,
    saturates: bool = False,
) -> Callable[[float], Any]:
    """A real function of mpmath with its limits: at the infinities, at signed zeros, at poles.

    Outside ``domain`` the result is nan. Where it ``saturates``, the limits at the infinities hold
    beyond :data:`FAR`, where no dtype tells the value from them and mpmath would need the memory
    of a number with as many digits.
    """

    def exact(x: float) -> Any:
        if x != x:
            return NAN
        if x == INF or (saturates and x > FAR):
            return at_inf
        if x == -INF or (saturates and x < -FAR):
            return at_minus_inf
        if x == 0 and at_zero is not None:
            return at_zero(x)
        if poles and x in poles:
            return poles[x]
        if not domain(x):
            return NAN
        mp = _mp()
        return getattr(mp, name)(mp.mpf(x))

    exact.__name__ = name
    exact.__doc__ = f"``{name}`` of mpmath with the limits of C99 annex F."
    return exact


def keep(x: float) -> float:
    """The value at a signed zero of an odd function: the zero itself."""
    return x


def one(x: float) -> float:
    return 1.0


# -- arithmetic -----------------------------------------------------------------------------------


def add(x: Any, y: Any) -> Any:
    """x + y; on ``bool`` the disjunction."""
    if isinstance(x, bool):
        return x or y
    return x + y


def sub(x: Any, y: Any) -> Any:
    return x - y


def mul(x: Any, y: Any) -> Any:
    """x * y; on ``bool`` the conjunction."""
    if isinstance(x, bool):
        return x and y
    return x * y


def fma(x: Any, y: Any, z: Any) -> Any:
    """``x * y + z`` of floats, with nothing rounded on the way: an overflow there is none."""
    if not (math.isfinite(x) and math.isfinite(y)) or x == 0 or y == 0:
        return x * y + z
    if not math.isfinite(z):
        return z
    mp = _mp()
    return mp.fadd(mp.fmul(x, y, exact=True), z, exact=True)


def truediv(x: float, y: float) -> float:
    """IEEE division: a zero divisor gives an infinity, or nan for 0/0."""
    if y == 0:
        if x != x or x == 0:
            return NAN
        return _sign(x) * _sign(y) * INF
    return x / y


def fmod(x: Any, y: Any) -> Any:
    """The remainder with the dividend's sign (C's ``fmod`` and ``%``)."""
    if not _is_float(x, y):
        return int(math.copysign(1, x)) * (abs(x) % abs(y)) if y else 0
    if x != x or y != y or abs(x) == INF or y == 0:
        return NAN
    return math.fmod(x, y)


def remainder(x: Any, y: Any) -> Any:
    """The remainder with the divisor's sign (Python's ``%``); nan for a float divisor of zero.

    As in eager the fmod is shifted by the divisor in the dtype, so -5.0 % inf is inf.
    """
    if not _is_float(x, y):
        return x % y if y else 0
    rest = fmod(x, y)
    if rest != rest or rest == 0:
        return rest
    return rest + y if (rest < 0) != (y < 0) else rest


def floordiv(x: Any, y: Any) -> Any:
    """The quotient rounded down, of the exact quotient (so 1.0 // 0.1 is 9), as CPython does."""
    if not _is_float(x, y):
        return x // y if y else 0
    if y == 0 or x != x or y != y or abs(x) == INF:
        return truediv(x, y) if y == 0 or x != x or y != y else NAN
    if abs(y) == INF:
        opposite = _sign(x) != _sign(y)
        return -1.0 if opposite and x != 0 else -0.0 if opposite else 0.0
    from fractions import Fraction

    quotient = math.floor(Fraction(x) / Fraction(y))
    return quotient if quotient else math.copysign(0.0, _sign(x) * _sign(y))


def truncdiv(x: int, y: int) -> int:
    """The integer quotient rounded towards zero; 0 for a zero divisor."""
    quotient = abs(x) // abs(y) if y else 0
    return quotient if (x < 0) == (y < 0) else -quotient


def neg(x: Any) -> Any:
    return -x


def absolute(x: Any) -> Any:
    return abs(x)


def sign(x: Any) -> Any:
    """-1, 0 or 1; PyTorch gives 0 for nan."""
    if isinstance(x, bool):
        return x
    result = (x > 0) - (x < 0)
    return float(result) if isinstance(x, float) else result


def minimum(x: Any, y: Any) -> Any:
    """The smaller; nan if either is nan; -0.0 counts as smaller than 0.0."""
    if x != x or y != y:
        return NAN
    if x == y == 0 and _is_float(x):
        return -0.0 if _sign(x) < 0 or _sign(y) < 0 else 0.0
    return x if x < y else y


def maximum(x: Any, y: Any) -> Any:
    """The larger; nan if either is nan; 0.0 counts as larger than -0.0."""
    if x != x or y != y:
        return NAN
    if x == y == 0 and _is_float(x):
        return 0.0 if _sign(x) > 0 or _sign(y) > 0 else -0.0
    return x if x > y else y


def fmin(x: float, y: float) -> float:
    """The smaller; the other one if one is nan."""
    return y if x != x else x if y != y else minimum(x, y)


def fmax(x: float, y: float) -> float:
    """The larger; the other one if one is nan."""
    return y if x != x else x if y != y else maximum(x, y)


def square(x: Any) -> Any:
    return x * x


def power(x: Any, y: Any) -> Any:
    """``pow`` of C99 annex F; of integers, exact, with 1/x**n truncated for negative exponents."""
    if not _is_float(x, y):
        if y >= 0:
            # the wrapped result needs only the low 64 bits
            return pow(x, y, 1 << 64)
        return {1: 1, -1: 1 - 2 * (y % 2)}.get(x, 0)
    if y == 0 or x == 1:
        return 1.0
    if x != x or y != y:
        return NAN
    odd = abs(y) < 2.0**53 and y == math.floor(y) and int(y) % 2 == 1
    signum = -1.0 if odd and _sign(x) < 0 else 1.0
    size = abs(x)
    if abs(y) == INF:
        if size == 1:
            return 1.0
        return INF if (size > 1) == (y > 0) else 0.0
    if size == 0 or size == INF:
        return signum * (INF if (size == INF) == (y > 0) else 0.0)
    if x < 0 and y != math.floor(y):
        return NAN
    magnitude = y * math.log2(size)
    if abs(magnitude) > FAR:
        return signum * (INF if magnitude > 0 else 0.0)
    mp = _mp()
    return signum * mp.power(mp.mpf(size), mp.mpf(y))


def reciprocal(x: float) -> float:
    return truediv(1.0, x)


def sqrt(x: float) -> Any:
    """The correctly rounded root; -0.0 is its own root, negative numbers have none."""
    if x != x or x < 0:
        return NAN
    return math.sqrt(x)


def rsqrt(x: float) -> Any:
    if x != x or x < 0:
        return NAN
    if x == 0:
        return _sign(x) * INF
    if x == INF:
        return 0.0
    mp = _mp()
    return 1 / mp.sqrt(mp.mpf(x))


# -- elementary functions -------------------------------------------------------------------------


def sigmoid(x: float) -> Any:
    if x != x:
        return NAN
    if abs(x) > FAR:
        return 1.0 if x > 0 else 0.0
    mp = _mp()
    return 1 / (1 + mp.exp(-mp.mpf(x)))


def exp2(x: float) -> Any:
    if x != x or abs(x) > FAR:
        return NAN if x != x else INF if x > 0 else 0.0
    mp = _mp()
    return mp.power(2, mp.mpf(x))


def _logarithm(base: int) -> Callable[[float], Any]:
    def exact(x: float) -> Any:
        if x != x or x < 0:
            return NAN
        if x == 0 or x == INF:
            return -INF if x == 0 else INF
        mp = _mp()
        return mp.log(mp.mpf(x), base)

    exact.__name__ = f"log{base}"
    exact.__doc__ = f"The logarithm to base {base}."
    return exact


log2 = _logarithm(2)
log10 = _logarithm(10)


def atan2(y: float, x: float) -> Any:
    """The angle of the point (x, y), with the signed zeros and infinities of C99 annex F."""
    if x != x or y != y:
        return NAN
    if y == 0 or abs(x) == INF or abs(y) == INF:
        mp = _mp()
        if y == 0:
            angle = mp.pi if _sign(x) < 0 else mp.mpf(0)
        elif abs(x) == INF:
            quarter = abs(y) == INF
            angle = mp.pi * (3 if x < 0 else 1) / 4 if quarter else mp.pi * (x < 0)
        else:
            angle = mp.pi / 2
        return -0.0 if angle == 0 and _sign(y) < 0 else angle * int(_sign(y))
    mp = _mp()
    return mp.atan2(mp.mpf(y), mp.mpf(x))


def hypot(x: float, y: float) -> Any:
    """The length of (x, y): infinite where a part is, beside nan too (C99 annex F)."""
    if abs(x) == INF or abs(y) == INF:
        return INF
    if x != x or y != y:
        return NAN
    mp = _mp()
    return mp.sqrt(mp.mpf(x) ** 2 + mp.mpf(y) ** 2)


def binade(x: float) -> float:
    """The largest power of two in ``|x|``; what has none (0, an infinity, nan) without its sign."""
    if x == 0 or x != x or abs(x) == INF:
        return abs(x)
    return math.ldexp(1.0, math.frexp(x)[1] - 1)


def lgamma(x: float) -> Any:
    """log |gamma(x)|; infinite at the poles and at both infinities."""
    if x != x:
        return NAN
    if abs(x) == INF or (x <= 0 and x == math.floor(x)):
        return INF
    mp = _mp()
    return mp.log(abs(mp.gamma(mp.mpf(x)))) if abs(x) < 1e4 else mp.loggamma(mp.mpf(x)).real


def digamma(x: float) -> Any:
    """The derivative of lgamma; at a zero the infinity of its side, at other poles nan."""
    if x == 0:
        return -_sign(x) * INF
    if x != x or x == -INF or (x < 0 and x == math.floor(x)):
        return NAN
    return INF if x == INF else _mp().digamma(_mp().mpf(x))


def bessel(order: int, scaled: bool) -> Callable[[str], Callable[[float], Any]]:
    """The modified Bessel function of the first kind, over exp(|x|) where ``scaled``.

    As ATen defines it: nan at the infinities, infinite where exp(|x|) is beyond the dtype, and no
    negative zero of an odd function.
    """

    def of(dtype: str) -> Callable[[float], Any]:
        most = math.log(2) * (dtypes.FLOAT_FORMAT[dtype][2] + 1)

        def exact(x: float) -> Any:
            if x != x:
                return NAN
            side = -1.0 if order and x < 0 else 1.0
            if abs(x) == INF:
                return side * 0.0 if scaled else NAN
            if x == 0:
                return 1.0 - order
            if not scaled and abs(x) > most:
                return side * INF
            mp = _mp()
            size = mp.mpf(abs(x))
            if abs(x) < FAR:
                return side * mp.besseli(order, size) * (mp.exp(-size) if scaled else 1)
            # A. and S. 9.7.1: with mu = 4 order**2, the terms' quotients are these
            value = term = mp.mpf(1)
            for k in range(1, 12):
                term *= -(4 * order**2 - (2 * k - 1) ** 2) / (k * 8 * size)
                value += term
            return side * value / mp.sqrt(2 * mp.pi * size)

        return exact

    return of


def erfinv(x: float) -> Any:
    """The inverse of erf on [-1, 1]."""
    if x != x or abs(x) > 1:
        return NAN
    if x == 0 or abs(x) == 1:
        return x * INF if x else x
    return _mp().erfinv(_mp().mpf(x))


# -- rounding to integers -------------------------------------------------------------------------


def _to_integer(function: Callable[[float], int]) -> Callable[[Any], Any]:
    def exact(x: Any) -> Any:
        if not _is_float(x) or x != x or abs(x) == INF or x == 0:
            return x
        return math.copysign(float(function(x)), x)

    return exact


floor = _to_integer(math.floor)
ceil = _to_integer(math.ceil)
trunc = _to_integer(math.trunc)
nearest_even = _to_integer(round)


def frac(x: float) -> float:
    """x - trunc(x): nan for the infinities; the difference of equal numbers is +0.0."""
    return x - trunc(x) if abs(x) != INF else NAN


# -- comparison, logic, bits ----------------------------------------------------------------------


def eq(x: Any, y: Any) -> bool:
    return x == y


def ne(x: Any, y: Any) -> bool:
    return x != y


def lt(x: Any, y: Any) -> bool:
    return x < y


def le(x: Any, y: Any) -> bool:
    return x <= y


def gt(x: Any, y: Any) -> bool:
    return x > y


def ge(x: Any, y: Any) -> bool:
    return x >= y


def logical_and(x: Any, y: Any) -> bool:
    return bool(x) and bool(y)


def logical_or(x: Any, y: Any) -> bool:
    return bool(x) or bool(y)


def logical_xor(x: Any, y: Any) -> bool:
    return bool(x) != bool(y)


def logical_not(x: Any) -> bool:
    return not x


def bitwise_and(x: Any, y: Any) -> Any:
    return x & y


def bitwise_or(x: Any, y: Any) -> Any:
    return x | y


def bitwise_xor(x: Any, y: Any) -> Any:
    return x ^ y


def bitwise_not(x: Any) -> Any:
    return not x if isinstance(x, bool) else ~x


def shift_left(dtype: str) -> Callable[[int, int], int]:
    """x * 2**y where the count is in the dtype's width, else 0, as in eager."""
    bits = dtypes.BITS[dtype]
    return lambda x, y: x << y if 0 <= y < bits else 0


def shift_right(dtype: str) -> Callable[[int, int], int]:
    """x // 2**y; a count outside the dtype's width leaves the sign alone (0 or -1)."""
    bits = dtypes.BITS[dtype]
    return lambda x, y: x >> y if 0 <= y < bits else -1 if x < 0 else 0


def cast(dtype: str) -> Callable[[Any], Any]:
    """To ``dtype``: floats truncate, then wrap; what no int64 holds becomes its minimum.

    The last is what x86's conversions give in eager: the narrower integers take the low bits of
    int32's minimum (0), int32 its own minimum, int64 its own.
    """
    if dtype == dtypes.BOOL:
        return lambda x: x != 0
    if dtypes.is_float(dtype):
        return lambda x: float(x) if isinstance(x, bool) else x
    word = 64 if dtype == "int64" else 32

    def exact(x: Any) -> int:
        if isinstance(x, float):
            if x != x or abs(x) == INF or not -(2 ** (word - 1)) <= math.trunc(x) < 2 ** (word - 1):
                return dtypes.int_range("int64" if word == 64 else "int32")[0]
            return math.trunc(x)
        return int(x)

    return exact


def where(condition: bool, x: Any, y: Any) -> Any:
    return x if condition else y


def isnan(x: Any) -> bool:
    return x != x


def isinf(x: Any) -> bool:
    return x == INF or x == -INF


def isfinite(x: Any) -> bool:
    return x == x and not isinf(x)


def signbit(x: Any) -> bool:
    return _sign(x) < 0 if isinstance(x, float) else x < 0


def copysign(x: float, y: float) -> float:
    return math.copysign(x, y)
