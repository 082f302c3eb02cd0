"""What becomes of a generator's 32-bit words: scalar functions for numba kernels.

Every function gives eager's bits. Where eager's compiler fuses a product with a sum, so does the
text here, by an explicit ``fma``; sources: torch's ``ATen/core/MT19937RNGEngine.h``,
``TransformationHelper.h`` and ``native/cpu/DistributionTemplates.h``; Matsumoto and Nishimura,
"Mersenne Twister" (1998); Moshier's Cephes library for the logarithm, the sine and the cosine.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from fastpath.cpu.maths.conversions import convert
from fastpath.cpu.maths.emitter import Value, function

_UPPER, _LOWER, _MATRIX = 0x80000000, 0x7FFFFFFF, 0x9908B0DF


def _twisted(upper: Value, lower: Value, far: Value) -> Value:
    """The word that takes the place of ``upper``; ``lower`` is next to it, ``far`` 397 further."""
    mixed = (upper & _UPPER) | (lower & _LOWER)
    odd = (lower & 1).ne(0).where(lower.const(_MATRIX), 0)
    return far ^ (mixed >> 1) ^ odd


def _tempered(y: Value) -> Value:
    y = y ^ (y >> 11)
    y = y ^ ((y << 7) & 0x9D2C5680)
    y = y ^ ((y << 15) & 0xEFC60000)
    return y ^ (y >> 18)


def _fma(a: Value, b: Value | float, c: Value | float) -> Value:
    return a.call("fma", b, c)


def _double(bits: Value) -> Value:
    return bits.bitcast("f64")


# -- uniform --------------------------------------------------------------------------------------


def _unit32(word: Value) -> Value:
    """In [0, 1), of 24 bits."""
    return (word & 0xFFFFFF).to("i32").to("f32") * 2.0**-24


def _joined(high: Value, low: Value) -> Value:
    return (high.to("u64") << 32) | low.to("u64")


def _unit64(high: Value, low: Value) -> Value:
    """In [0, 1), of 53 bits."""
    return (_joined(high, low) & ((1 << 53) - 1)).to("i64").to("f64") * 2.0**-53


def _uniform32(word: Value, low: Value, high: Value, rounded: str = "f32") -> Value:
    """In [low, high), rounded to a dtype: what that makes ``high`` of is ``low``.

    Both bounds are float64.
    """
    first, last = low.to("f32"), high.to("f32")
    value = convert(_fma(_unit32(word), last - first, first), rounded)
    return value.eq(convert(last, rounded)).where(convert(first, rounded), value)


def _uniform64(one: Value, two: Value, low: Value, high: Value) -> Value:
    value = _fma(_unit64(one, two), high - low, low)
    return value.eq(high).where(low, value)


def _below(high: Value, low: Value, p: Value) -> Value:
    """Whether a uniform number is below the float64 ``p``."""
    return _unit64(high, low) < p


# -- integers -------------------------------------------------------------------------------------


def _within32(word: Value, count: Value, low: Value) -> Value:
    """``low + word % count``; ``count`` is below 2 ** 28.

    The quotient of float64 is off by at most one, which the rest shows.
    """
    wide = word.to("i64")
    quotient = (wide.to("f64") / count.to("f64")).to("i64")
    rest = wide - quotient * count
    rest = (rest < 0).where(rest + count, rest)
    return low + (rest >= count).where(rest - count, rest)


def _within64(one: Value, two: Value, count: Value, low: Value) -> Value:
    value = _joined(one, two)
    divisor = count.bitcast("u64")
    return low + (value - value.quotient(divisor) * divisor).bitcast("i64")


# -- normal ---------------------------------------------------------------------------------------

_ROOT_HALF = 0.707106781186547524
_LOG = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
_LOG_2_LOW, _LOG_2_HIGH = -2.12194440e-4, 0.693359375
_FOUR_OVER_PI = 1.27323954473516
_QUARTERS = (-0.78515625, -2.4187564849853515625e-4, -3.77489497744594108e-8)  # of a turn's eighth
_COS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
_SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)


def _horner(x: Value, coefficients: tuple[float, ...]) -> Value:
    value = x.const(coefficients[0])
    for c in coefficients[1:]:
        value = _fma(value, x, c)
    return value


def _log(x: Value) -> Value:
    """Cephes' logarithm of a positive normal number, in float32."""
    bits = x.bitcast("u32")
    exponent = ((bits >> 23).bitcast("i32") - 127).to("f32") + 1.0
    mantissa = ((bits & 0x807FFFFF) | x.const(0.5).bitcast("u32")).bitcast("f32")
    small = mantissa < _ROOT_HALF
    reduced = (mantissa - 1.0) + small.where(mantissa, 0.0)
    exponent = exponent - small.where(exponent.const(1.0), 0.0)
    square = reduced * reduced
    value = _horner(reduced, _LOG) * reduced
    value = _fma(value, square, exponent * _LOG_2_LOW)
    value = _fma(-square, 0.5, value)
    return _fma(exponent, _LOG_2_HIGH, reduced + value)


def _circle(x: Value) -> tuple[Value, Value]:
    """Cephes' sine and cosine of a number in [0, 8192), in float32."""
    octant = ((x * _FOUR_OVER_PI).to("i32") + 1) & ~1
    turns = octant.to("f32")
    for part in _QUARTERS:
        x = _fma(turns, part, x)
    square = x * x
    cosine = _horner(square, _COS) * square
    cosine = _fma(cosine, square, -(square * 0.5)) + 1.0
    sine = _fma(_horner(square, _SIN) * square, x, x)
    straight = (octant & 2).eq(0)
    one, other = straight.where(sine, cosine), straight.where(cosine, sine)
    flip_sine = (octant & 4) << 29
    flip_cosine = (~(octant - 2) & 4) << 29
    return tuple(
        (value.bitcast("i32") ^ flip).bitcast("f32")
        for value, flip in ((one, flip_sine), (other, flip_cosine))
    )  # type: ignore[return-value]


def _normal(cosine: bool, one: Value, two: Value, mean: Value, std: Value) -> Value:
    """Half of a pair (Box and Muller 1958); ``mean`` and ``std`` are float64."""
    radius = (_log(one.const(1.0, "f32") - _unit32(one)) * -2.0).call("sqrt")
    angle = _unit32(two) * 6.283185307179586
    along = radius * _circle(angle)[1 if cosine else 0]
    return _fma(along, std.to("f32"), mean.to("f32"))


def _normal64(one: Value, two: Value, mean: Value, std: Value, along: str) -> Value:
    """The same in float64, by the C library, from two numbers in [0, 1)."""
    radius = ((1.0 - one).call("log") * -2.0).call("sqrt")
    angle = two * 6.283185307179586
    return _fma(radius * angle.call(along), std, mean)


# -- exponential ----------------------------------------------------------------------------------


def _exponential(one: Value, two: Value, rate: Value) -> Value:
    return (-1.0 / rate) * _library(-_unit64(one, two), "log1p")


def _library(x: Value, name: str) -> Value:
    """A function of the C library on a float64."""
    kind = ir.FunctionType(ir.DoubleType(), [ir.DoubleType()])
    called = cgutils.get_or_insert_function(x.builder.module, kind, name)
    return Value(x.builder, x.builder.call(called, [x.ir]), "f64")


_KINDS: dict[str, tuple[Any, str, str]] = {
    "twisted": (_twisted, "u32 u32 u32", "u32"),
    "tempered": (_tempered, "u32", "u32"),
    "double": (_double, "i64", "f64"),
    "unit32": (_unit32, "u32", "f32"),
    "unit64": (_unit64, "u32 u32", "f64"),
    "uniform32": (_uniform32, "u32 f64 f64", "f32"),
    "uniform32_bf16": (functools.partial(_uniform32, rounded="bf16"), "u32 f64 f64", "f32"),
    "uniform32_f16": (functools.partial(_uniform32, rounded="f16"), "u32 f64 f64", "f32"),
    "uniform64": (_uniform64, "u32 u32 f64 f64", "f64"),
    "below": (_below, "u32 u32 f64", "b1"),
    **{f"less_{kind}": (lambda x, y: x < y, f"{kind} {kind}", "b1") for kind in ("f32", "f64")},
    **{
        f"not_within_{kind}": (lambda x: ~((x >= 0.0) & (x <= 1.0)), kind, "b1")
        for kind in ("f32", "f64")
    },
    "within32": (_within32, "u32 i64 i64", "i64"),
    "within64": (_within64, "u32 u32 i64 i64", "i64"),
    "normal_cosine": (functools.partial(_normal, True), "u32 u32 f64 f64", "f32"),
    "normal_sine": (functools.partial(_normal, False), "u32 u32 f64 f64", "f32"),
    "normal64_cosine": (functools.partial(_normal64, along="cos"), "f64 f64 f64 f64", "f64"),
    "normal64_sine": (functools.partial(_normal64, along="sin"), "f64 f64 f64 f64", "f64"),
    "exponential": (_exponential, "u32 u32 f64", "f64"),
    "remainder": (lambda x, y: x.rest(y), "u32 u32", "u32"),
    "word_of_i64": (lambda x: x.to("u32"), "i64", "u32"),
    "i64_of_word": (lambda x: x.to("i64"), "u32", "i64"),
}

FUNCTIONS: dict[str, Any] = {
    name: function(name, operands.split(), result, emit)
    for name, (emit, operands, result) in _KINDS.items()
}
"""The functions by the names that kernels call them by."""
