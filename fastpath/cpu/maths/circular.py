"""Trigonometric functions and their inverses, and the error function."""

from __future__ import annotations

import math
from collections.abc import Callable

from fastpath.cpu.maths import coefficients as c
from fastpath.cpu.maths import quadrants
from fastpath.cpu.maths.emitter import Value, polynomial, table
from fastpath.cpu.maths.exponential import (
    INF,
    NAN,
    by_kind,
    clamped,
    copysign,
    exp,
    nearest,
    scaled_in_range,
    two_product,
    two_sum,
)
from fastpath.cpu.maths.rare import unless_large

# -- sine, cosine, tangent ------------------------------------------------------------------------


Angle = tuple[Value, Value | None, Value]  # (r, r_low, k): the angle k pi/2 + r + r_low

_BOUND = {"f32": 2.0**17, "f64": 2.0**20}  # from there on, arguments are large


def _near(x: Value, kind: str) -> Angle:
    """x as an angle with abs(r) <= pi/4, r in ``kind``, for arguments that are not large.

    The product of k and the first part of pi/2 is exact, and so is what it leaves of x.
    """
    if x.kind == "f64":
        return _near_double(x)
    y = x.to(kind)
    k_float, k = nearest(y, 1 / c.HALF_PI[0])
    r = y
    for part in c.HALF_PI_F32 if kind == "f32" else c.HALF_PI_WIDE:
        r = k_float.call("fma", -part, r)
    return r, None, k.to("i32")


def _near_double(x: Value) -> Angle:
    """The products of k and the first two parts of pi/2 are exact, and so is what the subtractions
    round away: x is a multiple of a larger power of two than their last bits (T. J. Dekker, 1971).
    """
    k_float, k = nearest(x, 1 / c.HALF_PI[0])
    first, second, third = c.HALF_PI_F64
    high = k_float.fma(-first, x)
    total = k_float.fma(-second, high)
    lost = k_float.fma(-second, high - total)
    rest = k_float * third
    r = total - rest
    return r, lost + ((total - r) - rest), k


def _far_single(x: Value) -> tuple[Value, Value]:
    """(r, k) with x = k pi/2 + r, r in float64, for every finite float32 x from 1."""
    word = x.bitcast("u32")
    exponent = (word >> 23) & 255
    significand = ((word & 0x807FFFFF) | 0x4B000000).bitcast("f32").to("f64")
    heads, rests = quadrants.single()
    head = table(x, "quadrants.single.0", "f64", heads, exponent)
    rest = table(x, "quadrants.single.1", "f64", rests, exponent)
    turns = significand * head
    k_float, k = nearest(significand.fma(rest, turns), 1.0)
    return significand.fma(rest, turns - k_float) * c.HALF_PI[0], k.to("i32")


def _far_double(x: Value) -> tuple[Value, Value]:
    """(r, k) with x = k pi/2 + r, abs(r) <= pi/4, for every finite float64 x from 1.

    A multiple of pi/2 can be as near as 2**-62 to a float64, hence the sums without rounding.
    """
    word = x.bitcast("u64")
    place = ((word >> 52) & 2047).bitcast("i64") - quadrants.FIRST_DOUBLE
    place = (place < 0).where(0, place)
    significand = ((word & 0x800FFFFFFFFFFFFF) | 0x4330000000000000).bitcast("f64")
    pieces = [
        table(x, f"quadrants.double.{i}", "f64", numbers, place)
        for i, numbers in enumerate(quadrants.double())
    ]
    first, first_low = two_product(significand, pieces[0])
    second, second_low = two_product(significand, pieces[1])
    third, third_low = two_product(significand, pieces[2])
    first = first - (first * 0.25).call("floor") * 4
    total, low1 = two_sum(first, first_low)
    total, low2 = two_sum(total, second)
    k_float, k = nearest(total, 1.0)
    total = total - k_float
    rests = []
    for term in (low1, low2, second_low, third):
        total, rest = two_sum(total, term)
        rests.append(rest)
    low = rests[0] + rests[1] + rests[2] + rests[3] + third_low
    low = significand.fma(pieces[3], low)
    r, r_low = two_product(total, x.const(c.HALF_PI[0]))
    return r + low.fma(c.HALF_PI[0], total.fma(c.HALF_PI[1], r_low)), k


def _far(x: Value, kind: str) -> Angle:
    """x as an angle for every x from 1; nan for infinity."""
    r, k = _far_single(x) if x.kind == "f32" else _far_double(x)
    return (r + (x - x).to(r.kind)).to(kind), None, k


def _circular(name: str, x: Value, of_angle: Callable[[Angle], Value], kind: str) -> Value:
    """``of_angle(angle)`` of x, computed in ``kind``."""
    usual = of_angle(_near(x, kind)).to(x.kind)
    return unless_large(
        x,
        usual,
        _BOUND[x.kind],
        f"{name}.{x.kind}",
        lambda large: of_angle(_far(large, kind)).to(x.kind),
    )


def _sine(r: Value, low: Value | None = None) -> Value:
    """sin(r + low) for abs(r) <= pi/4."""
    z = r * r
    if low is None:
        return (r * z).fma(polynomial(z, by_kind(r, "SIN")), r)
    return r + (r * z * polynomial(z, by_kind(r, "SIN")) + low.fma(1 - z * 0.5, 0.0))


def _cosine(r: Value, low: Value | None = None) -> Value:
    """cos(r + low) for abs(r) <= pi/4."""
    z = r * r
    if low is None:
        return z.fma(z.fma(polynomial(z, by_kind(r, "COS")), -0.5), 1.0)
    half = z * 0.5
    head = 1 - half
    return head + (z * z * polynomial(z, by_kind(r, "COS")) + ((1 - head) - half) - r * low)


def _turned(angle: Angle, turns: int) -> Value:
    """The sine of the angle and so many quarter turns."""
    r, low, k = angle
    k = k + turns if turns else k
    value = (k & 1).ne(0).where(_cosine(r, low), _sine(r, low))
    word = f"u{r.bits}"
    sign = (k.to(word) << (r.bits - 2)) & (1 << (r.bits - 1))
    return (value.bitcast(word) ^ sign).bitcast(r.kind)


def sin(x: Value) -> Value:
    return x.eq(0).where(x, _circular("sin", x, lambda angle: _turned(angle, 0), x.kind))


def cos(x: Value) -> Value:
    return _circular("cos", x, lambda angle: _turned(angle, 1), x.kind)


def _tangent(angle: Angle) -> Value:
    r, low, k = angle
    sine, cosine = _sine(r, low), _cosine(r, low)
    odd = (k & 1).ne(0)
    return odd.where(-cosine, sine) / odd.where(sine, cosine)


def tan(x: Value) -> Value:
    """In float64 for both kinds."""
    return x.eq(0).where(x, _circular("tan", x, _tangent, "f64"))


# -- inverses -------------------------------------------------------------------------------------


def _arc(numerator: Value, denominator: Value) -> Value:
    """atan(numerator / denominator) in float64 for numerator >= 0, denominator > 0.

    The quotient t is brought to abs(t) <= tan(pi/8) by an eighth or a quarter turn.
    """
    steep = numerator > denominator * (1 + math.sqrt(2))
    middle = numerator > denominator * (math.sqrt(2) - 1)
    above = steep.where(-denominator, middle.where(numerator - denominator, numerator))
    below = steep.where(numerator, middle.where(numerator + denominator, denominator))
    t = above / below
    z = t * t
    zero = t.const(0)
    base = steep.where(c.PI[0] / 2, middle.where(c.PI[0] / 4, zero))
    base_low = steep.where(c.PI[1] / 2, middle.where(c.PI[1] / 4, zero))
    return base + (t + (t.fma(z * polynomial(z, c.ATAN_F64), base_low)))


def atan(x: Value) -> Value:
    """In float64 for both kinds."""
    y = x.to("f64")
    size = y.abs()
    return copysign(_arc(size, y.const(1.0)), y).to(x.kind)


def atan2(y: Value, x: Value) -> Value:
    """In float64 for both kinds; the order of operands is the C library's."""
    kind = y.kind
    y, x = y.to("f64"), x.to("f64")
    height, width = y.abs(), x.abs()
    both = height.eq(INF) & width.eq(INF)
    height, width = both.where(1.0, height), both.where(1.0, width)
    huge = (height > 2.0**1000) | (width > 2.0**1000)
    scale = huge.where(y.const(2.0**-64), 1.0)
    height, width = height * scale, width * scale
    flat = height.eq(0)
    angle = _arc(height, flat.where(1.0, width))
    left = x.bitcast("i64") < 0
    angle = left.where(c.PI[0] - (angle - c.PI[1]), angle)
    return (x.ne(x) | y.ne(y)).where(NAN, copysign(angle, y)).to(kind)


def _arc_sine(x: Value) -> Value:
    """asin(x) for abs(x) <= 1/2."""
    z = x * x
    return x.fma(z * polynomial(z, c.ASIN_F64), x)


def asin(x: Value) -> Value:
    """In float64 for both kinds."""
    y = x.to("f64")
    size = y.abs()
    large = c.PI[0] / 2 - (_arc_sine(((1 - size) * 0.5).call("sqrt")) * 2 - c.PI[1] / 2)
    return (size < 0.5).where(_arc_sine(y), copysign(large, y)).to(x.kind)


def acos(x: Value) -> Value:
    """In float64 for both kinds."""
    y = x.to("f64")
    size = y.abs()
    near = c.PI[0] / 2 - (_arc_sine(y) - c.PI[1] / 2)
    angle = _arc_sine(((1 - size) * 0.5).call("sqrt")) * 2
    far = (y < 0).where(c.PI[0] - (angle - c.PI[1]), angle)
    return (size < 0.5).where(near, far).to(x.kind)


# -- error function -------------------------------------------------------------------------------


def erf(x: Value) -> Value:
    size = x.abs()
    z = x * x
    small = x.fma(polynomial(z, by_kind(x, "ERF")), x)
    if x.kind == "f32":
        power = polynomial(size.call("minimum", 4.0), c.ERF_TAIL_F32)
        n_float, n = nearest(power, 1.0)
        r = power - n_float
        rest = scaled_in_range(r.fma(polynomial(r, c.ERF_POWER_F32), 1.0), n)
    else:
        rest = _erfc_positive(size.call("minimum", 6.0))
    # nan is neither: the scaling by a power of two would take its bits for a number's
    return (size >= 0.9).where(copysign(1 - rest, x), small)


def _erfc_positive(t: Value) -> Value:
    """erfc(t) of float64 for 0 <= t <= 28: exp(-t**2) / (1 + 2t) times a polynomial."""
    u = (t - 3) / (t + 3)
    high = (t.bitcast("i64") & -(1 << 27)).bitcast("f64")
    low = (t - high) * (t + high)  # t**2 = high**2 + low, both exact enough
    return exp(-(high * high), -low) * polynomial(u, c.ERFC_F64) / t.fma(2.0, 1.0)


def erfc(x: Value) -> Value:
    """In float64 for both kinds."""
    y = x.to("f64")
    tail = _erfc_positive(clamped(y.abs(), 0.0, 28.0))
    return (y < 0).where(2 - tail, tail).to(x.kind)
