"""Trigonometric functions and their inverses, and the error function."""

from __future__ import annotations

import math

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
    exp_in_range,
    nearest,
    two_product,
    two_sum,
)

# -- sine, cosine, tangent ------------------------------------------------------------------------


def _reduced_single(x: Value) -> tuple[Value, Value]:
    """(r, k) with x = k pi/2 + r, abs(r) <= pi/4, r in float64, for every finite float32 x."""
    word = x.bitcast("u32")
    exponent = (word >> 23) & 255
    significand = ((word & 0x807FFFFF) | 0x4B000000).bitcast("f32").to("f64")
    heads, rests = quadrants.single()
    head = table(x, "quadrants.single.0", "f64", heads, exponent)
    rest = table(x, "quadrants.single.1", "f64", rests, exponent)
    turns = significand * head
    k_float, k = nearest(significand.fma(rest, turns), 1.0)
    r = significand.fma(rest, turns - k_float) * c.HALF_PI[0]
    r = (x.abs() < 0.7).where(x.to("f64"), r)
    return (x.abs() < INF).where(r, NAN), k


def _reduced_double(x: Value) -> tuple[Value, Value, Value]:
    """(r, r_low, k) with x = k pi/2 + r + r_low, abs(r) <= pi/4, for every finite float64 x.

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
    r_low = low.fma(c.HALF_PI[0], total.fma(c.HALF_PI[1], r_low))
    r, r_low = two_sum(r, r_low)
    near = x.abs() < 0.7
    r = near.where(x, (x.abs() < INF).where(r, NAN))
    return r, near.where(0.0, r_low), near.where(0, k)


def _sine(r: Value, low: Value | None = None) -> Value:
    """sin(r + low) for abs(r) <= pi/4."""
    z = r * r
    tail = r * z * polynomial(z, by_kind(r, "SIN"))
    if low is None:
        return r + tail
    return r + (tail + low.fma(1 - z * 0.5, 0.0))


def _cosine(r: Value, low: Value | None = None) -> Value:
    """cos(r + low) for abs(r) <= pi/4."""
    z = r * r
    half = z * 0.5
    head = 1 - half
    tail = z * z * polynomial(z, by_kind(r, "COS")) + ((1 - head) - half)
    if low is not None:
        tail = tail - r * low
    return head + tail


def _quadrant(k: Value, sine: Value, cosine: Value) -> Value:
    """The sine of the angle k pi/2 + r from sine and cosine of r."""
    value = (k & 1).ne(0).where(cosine, sine)
    return (k & 2).ne(0).where(-value, value)


def _circular(x: Value, shift: int) -> Value:
    if x.kind == "f32":
        r, k = _reduced_single(x)
        k = k + shift if shift else k
        r = r.to("f32")
        return _quadrant(k.to("i32"), _sine(r), _cosine(r))
    r, low, k = _reduced_double(x)
    k = k + shift if shift else k
    return _quadrant(k, _sine(r, low), _cosine(r, low))


def sin(x: Value) -> Value:
    return x.eq(0).where(x, _circular(x, 0))


def cos(x: Value) -> Value:
    return _circular(x, 1)


def tan(x: Value) -> Value:
    """In float64 for both kinds."""
    if x.kind == "f32":
        r, k = _reduced_single(x)
        sine, cosine = _sine(r), _cosine(r)
    else:
        r, low, k = _reduced_double(x)
        sine, cosine = _sine(r, low), _cosine(r, low)
    odd = (k & 1).ne(0)
    value = odd.where(-cosine, sine) / odd.where(sine, cosine)
    return x.eq(0).where(x, value.to(x.kind))


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
        t = (size > 4).where(4.0, size)
        rest = exp_in_range(polynomial(t, c.ERF_TAIL_F32))
    else:
        t = (size > 6).where(6.0, size)
        rest = _erfc_positive(t)
    return (size < 0.9).where(small, copysign(1 - rest, x))


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
