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
from fastpath.cpu.maths.rare import at_least, when_large

# -- sine, cosine, tangent ------------------------------------------------------------------------


def _near_single(x: Value) -> tuple[Value, Value]:
    """(r, k) with x = k pi/2 + r, abs(r) <= pi/4, r in float64, for abs(x) < 2**23.

    The product of k and the first part of pi/2 is exact.
    """
    x = x.to("f64")
    k_float, k = nearest(x, 1 / c.HALF_PI[0])
    r = k_float.fma(-c.HALF_PI_F32[0], x)
    return k_float.fma(-c.HALF_PI_F32[1], r), k.to("i32")


def _near_double(x: Value) -> tuple[Value, Value, Value]:
    """(r, r_low, k) with x = k pi/2 + r + r_low, abs(r) <= pi/4, for abs(x) < 2**20.

    The products of k and the first two parts of pi/2 are exact, and so is what the subtractions
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
    """The same as :func:`_near_single` for every finite float32 x from 1."""
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


def _far(x: Value) -> Value:
    """r and k of a large x in one word: two bits of the exponent are known, since abs(r) < 2.

    They are 0 and 1 as long as r is not very small, which it never is (2**-62 or so).
    """
    r, k = _far_single(x) if x.kind == "f32" else _far_double(x)
    word = f"u{x.bits}"
    return (r.to(x.kind).bitcast(word) ^ ((k.bitcast(f"u{k.bits}") & 3) << (x.bits - 3))).bitcast(
        x.kind
    )


def _reduced(x: Value, kind: str) -> tuple[Value, Value | None, Value]:
    """(r, r_low, k) with x = k pi/2 + r + r_low modulo 2 pi, abs(r) <= pi/4, r in ``kind``.

    ``r_low`` is for float64 x. A nan for what is not finite.
    """
    low: Value | None = None
    if x.kind == "f32":
        bound = 2.0**23
        r, k = _near_single(x)
        r = r.to(kind)
    else:
        bound = 2.0**20
        r, low, k = _near_double(x)
    word, shift = f"u{x.bits}", x.bits - 3
    packed = when_large(x, bound, f"angle.{x.kind}", _far).bitcast(word)
    far_k = (packed >> shift) ^ 1
    far_r = ((packed & ~(3 << shift)) | (1 << shift)).bitcast(x.kind).to(kind)
    large = at_least(x, bound)
    if low is not None:
        low = large.where(0.0, low)
    return large.where(far_r, r), low, large.where(far_k.bitcast(k.kind), k)


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
    r, low, k = _reduced(x, x.kind)
    return _quadrant(k + shift if shift else k, _sine(r, low), _cosine(r, low))


def sin(x: Value) -> Value:
    return x.eq(0).where(x, _circular(x, 0))


def cos(x: Value) -> Value:
    return _circular(x, 1)


def tan(x: Value) -> Value:
    """In float64 for both kinds."""
    r, low, k = _reduced(x, "f64")
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
