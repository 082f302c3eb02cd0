"""Trigonometric functions and their inverses, and the error function."""

from __future__ import annotations

import math

from llvmlite import ir
from numba.core import cgutils

from fastpath.cpu.maths import coefficients as c
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
)

# -- sine, cosine, tangent ------------------------------------------------------------------------

LARGE = 2.0**22  # beyond this the C library reduces the argument


def _reduced(x: Value) -> tuple[Value, Value, Value]:
    """(r, r_low, k) of float64 with x = k pi/2 + r + r_low, abs(r) <= pi/4, for abs(x) < LARGE.

    The first three pieces of pi/2 have 30 bits and k at most 22, so their products are exact.
    """
    k_float, k = nearest(x, 2 / math.pi)
    first, second, third, last = c.HALF_PI
    a = k_float.fma(-first, x)
    b = k_float * second
    r = a - b
    back = r - a
    low = (a - (r - back)) - (b + back)
    low = k_float.fma(-last, k_float.fma(-third, low))
    total = r + low
    return total, low - (total - r), k


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


def _reduced_single(x: Value) -> tuple[Value, Value]:
    """(r, k) in float64 with x = k pi/2 + r, abs(r) <= pi/4, for every finite float32 x.

    The angle in quarter turns comes from a table by exponent, so no argument is too large.
    """
    word = x.bitcast("u32")
    exponent = (word >> 23) & 255
    significand = ((word & 0x807FFFFF) | 0x3F800000).bitcast("f32").to("f64")
    heads = table(x, "quadrant_heads", "f64", c.QUADRANT_HEADS, exponent)
    rests = table(x, "quadrant_rests", "f64", c.QUADRANT_RESTS, exponent)
    turns = significand * heads
    k_float, k = nearest(turns, 1.0)
    r = significand.fma(rests, turns - k_float) * (math.pi / 2)
    r = (x.abs() < 0.7).where(x.to("f64"), r)
    # an infinity has the exponent of a nan, and so has to become one
    return (x.abs() < INF).where(r, NAN), k


def _circular(x: Value, shift: int) -> Value:
    if x.kind == "f32":
        r, k = _reduced_single(x)
        k = k + shift if shift else k
        r = r.to("f32")
        return _quadrant(k.to("i32"), _sine(r), _cosine(r))
    r, low, k = _reduced(x)
    k = k + shift if shift else k
    return _guarded(x, "cos" if shift else "sin", _quadrant(k, _sine(r, low), _cosine(r, low)))


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
        r, low, k = _reduced(x)
        sine, cosine = _sine(r, low), _cosine(r, low)
    odd = (k & 1).ne(0)
    value = odd.where(-cosine, sine) / odd.where(sine, cosine)
    if x.kind == "f32":
        return x.eq(0).where(x, value.to("f32"))
    return x.eq(0).where(x, _guarded(x, "tan", value))


def _guarded(x: Value, name: str, fast: Value) -> Value:
    """The fast value where the argument is small, else the C library's."""
    builder = x.builder
    large = ~(x.abs() < LARGE)
    before = builder.block
    with builder.if_then(large.ir, likely=False):
        slow = _library(x, name)
        inside = builder.block
    merged = builder.phi(fast.ir.type)
    merged.add_incoming(fast.ir, before)
    merged.add_incoming(slow.ir, inside)
    return Value(builder, merged, x.kind)


def _library(x: Value, name: str) -> Value:
    """The C library's function, which may not be called speculatively."""
    module = x.builder.module
    kind = x.ir.type
    signature = ir.FunctionType(kind, [kind])
    own = f".refcompiler.{name}_{x.kind}"
    function = module.globals.get(own)
    if function is None:
        library = cgutils.get_or_insert_function(
            module, signature, name + ("f" if x.kind == "f32" else "")
        )
        function = ir.Function(module, signature, own)
        function.linkage = "internal"
        for attribute in ("noinline", "nounwind", "willreturn", "memory(none)"):
            set.add(function.attributes, attribute)
        body = ir.IRBuilder(function.append_basic_block())
        body.ret(body.call(library, function.args))
    return Value(x.builder, x.builder.call(function, [x.ir]), x.kind)


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
    return copysign(angle, y).to(kind)


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
