"""Exponentials, logarithms, powers, hyperbolic functions and their inverses.

Method throughout: reduce the argument with constants split so that products are exact, one
minimax polynomial (``coefficients.py``), rebuild by exponent bits, and selects for the special
values. What is seldom hot in float32 is computed in float64, where the polynomial's error is
negligible, and rounded once.
"""

from __future__ import annotations

import math

from llvmlite import ir
from llvmlite.binding import llvm_version_info

from fastpath.cpu.maths import coefficients as c
from fastpath.cpu.maths.emitter import Value, has_features, polynomial

INF, NAN = math.inf, math.nan


class _Format:
    """What the algorithms need to know of a floating kind."""

    def __init__(self, kind: str):
        single = kind == "f32"
        self.bits = 32 if single else 64
        self.word = f"i{self.bits}"
        self.mantissa = 23 if single else 52
        self.bias = 127 if single else 1023
        self.middle = 64 if single else 512  # an exponent as far from 1 as from the end
        self.least = -104.0 if single else -746.0  # exp of less is 0
        self.most = 89.0 if single else 710.0  # exp of more overflows
        # the greatest number whose exp is finite
        self.last = 88.72283935546875 if single else 709.782712893384
        self.lost = -18.0 if single else -38.0  # 1 + exp of less is 1
        self.round = 1.5 * 2.0**self.mantissa  # adding it rounds to an integer in the low bits
        self.half_root = 0x3F3504F3 if single else 0x3FE6A09E667F3BCD  # bits of sqrt(1/2)
        self.normal = 2.0**-126 if single else 2.0**-1022
        self.sign = -(1 << (self.bits - 1))
        self.ln2 = c.LN2_F32 if single else c.LN2_F64


_FORMATS = {"f32": _Format("f32"), "f64": _Format("f64")}


def format_of(x: Value) -> _Format:
    return _FORMATS[x.kind]


def by_kind(x: Value, name: str) -> tuple[float, ...]:
    """The coefficients of ``name`` for the value's kind."""
    return getattr(c, f"{name}_{x.kind.upper()}")


def copysign(x: Value, y: Value) -> Value:
    return x.call("copysign", y)


def nearest(x: Value, factor: float) -> tuple[Value, Value]:
    """x * factor rounded to the nearest integer, as a float and as an integer.

    For magnitudes below 2**21 (float32) or 2**50; no conversion instruction, so a nan is harmless.
    """
    form = format_of(x)
    shifted = x.fma(factor, form.round)
    integer = shifted.bitcast(form.word) - shifted.const(form.round).bitcast(form.word)
    return shifted - form.round, integer


def _nearest_power(x: Value, bias: int) -> tuple[Value, Value]:
    """n = x / ln2 rounded to the nearest integer, as a float, and 2**(n - bias), if that is normal.

    What rounds is chosen such that the low bits are the power's exponent as it is stored.
    """
    form = format_of(x)
    by = form.round + form.bias - bias
    shifted = x.fma(1 / math.log(2), by)
    return shifted - by, (shifted.bitcast(form.word) << form.mantissa).bitcast(x.kind)


def power_of_two(n: Value, kind: str) -> Value:
    """2.0**n for an exponent in the normal range."""
    form = _FORMATS[kind]
    return ((n + form.bias) << form.mantissa).bitcast(kind)


def _has_scaling() -> bool:
    """Whether scaling is an instruction, of vectors too; else it is a call for each lane."""
    return llvm_version_info[0] >= 22 and has_features("avx512f", "avx512vl")


def scaled(x: Value, n: Value) -> Value:
    """x * 2**n, over- and underflowing as it should, for x near 1 and abs(n) up to one and a half
    times the largest exponent.

    The result is rounded once: x times the first power of two is in the middle of the normal range.
    A nan stays, which sums of bits would not keep.
    """
    if _has_scaling():
        count = n.to("i32")
        operands = [x.ir, count.ir]
        types = [value.type for value in operands]
        name = f"llvm.ldexp.{x.kind}.i32"
        function = x.builder.module.globals.get(name)
        if function is None:
            signature = ir.FunctionType(types[0], types)
            function = ir.Function(x.builder.module, signature, name)
        return Value(x.builder, x.builder.call(function, operands), x.kind)
    form = format_of(x)
    below, middle = n < 0, form.middle
    first = (n << form.mantissa) + below.where(
        n.const(form.bias + middle << form.mantissa), n.const(form.bias - middle << form.mantissa)
    )
    return x * first.bitcast(x.kind) * below.where(x.const(2.0**-middle), x.const(2.0**middle))


def scaled_in_range(x: Value, n: Value) -> Value:
    """x * 2**n where both are normal."""
    form = format_of(x)
    return (x.bitcast(form.word) + (n << form.mantissa)).bitcast(x.kind)


def clamped(x: Value, low: float, high: float) -> Value:
    """Between the bounds; a nan stays."""
    return x.call("maximum", low).call("minimum", high)


def _reduced_exp(x: Value, low: Value | None = None) -> tuple[Value, Value]:
    """exp(r) and n with x + low = n ln2 + r."""
    n_float, n = nearest(x, 1 / math.log(2))
    if low is None:
        return _exp_beside(x, n_float), n
    high_part, low_part = format_of(x).ln2
    high = n_float.fma(-high_part, x)  # exact
    coefficients = by_kind(x, "EXP")
    rest = n_float * low_part - low
    r = high - rest
    lost = (high - r) - rest  # by rounding r: a quarter of an ULP of the result
    return r + (r * r).fma(polynomial(r, coefficients), lost) + 1, n


def _exp_beside(x: Value, n: Value) -> Value:
    """exp(x - n ln2) for x within half of ln2 of n ln2."""
    high_part, low_part = format_of(x).ln2
    r = n.fma(-low_part, n.fma(-high_part, x))
    return r.fma(r.fma(polynomial(r, by_kind(x, "EXP")), 1.0), 1.0)


def _exp_scaled(x: Value, bias: int) -> Value:
    """exp(x) / 2**bias where that is normal; a nan stays."""
    n, power = _nearest_power(x, bias)
    return _exp_beside(x, n) * power


def exp(x: Value, low: Value | None = None, shift: int = 0) -> Value:
    """exp(x + low) * 2**shift, subnormal results included."""
    form = format_of(x)
    y, n = _reduced_exp(clamped(x, form.least, form.most + (1 if shift else 0)), low)
    return scaled(_unless_gone(y, x), n + shift if shift else n)


def _unless_gone(y: Value, x: Value) -> Value:
    """0 in the place of ``y`` where exp(x) is 0, such as behind a mask: to find that by scaling,
    which underflows, takes hundreds of cycles on some processors."""
    return (x <= format_of(x).least).where(y.const(0.0), y)


def exp_of_negative(x: Value) -> Value:
    """exp(x) where x is at most 0, subnormal results included."""
    form = format_of(x)
    z = x.call("maximum", form.least)
    if _has_scaling():
        y, n = _reduced_exp(z)
        return scaled(_unless_gone(y, x), n)
    y = _exp_scaled(z, -form.middle)
    return _unless_gone(y, x) * 2.0**-form.middle


def one_and_exp(x: Value) -> Value:
    """1 + exp(x), rounded twice as it is written. What exp(x) lacks to be normal, the sum hides."""
    form = format_of(x)
    half = _exp_scaled(clamped(x, form.lost, form.most), 1)  # the whole may overflow
    return half.fma(2.0, 1.0)


def exp2(x: Value) -> Value:
    form = format_of(x)
    x = clamped(x, -1.5 * form.bias, form.bias + 1.0)
    n_float, n = nearest(x, 1.0)
    r = x - n_float
    return scaled(r.fma(polynomial(r, by_kind(x, "EXP2")), 1.0), n)


def expm1(x: Value) -> Value:
    form = format_of(x)
    y = clamped(x, -40.0, form.most)
    n_float, n = nearest(y, 1 / math.log(2))
    high_part, low_part = form.ln2
    r = n_float.fma(-low_part, n_float.fma(-high_part, y))
    # What the reduction rounded away would cost an ULP where the result is small.
    p = (r * r).fma(polynomial(r, by_kind(x, "EXPM1")), r)
    # Half of 2**n, since n may be one beyond the largest exponent.
    scale = power_of_two(n - 1, x.kind)
    result = (scale.fma(p, scale - 0.5)) * 2
    return copysign(n.eq(0).where(p, result), x)


def _decomposed(x: Value) -> tuple[Value, Value]:
    """(e as a float, m) with x = 2**e m and sqrt(1/2) <= m < sqrt(2), for positive finite x."""
    form = format_of(x)
    tiny = x < form.normal
    x = tiny.where(x * 2.0 ** (form.mantissa + 1), x)
    offset = x.bitcast(form.word) - form.half_root
    e = (offset >> form.mantissa) - tiny.where(offset.const(form.mantissa + 1), offset.const(0))
    m = ((offset & ((1 << form.mantissa) - 1)) + form.half_root).bitcast(x.kind)
    if form.bits == 64:
        e = e.to("i32")  # AVX2 converts 32-bit integers only
    return e.to(x.kind), m


def _log_parts(m: Value) -> tuple[Value, Value, Value]:
    """(f, h, r) with log(m) = f - h + r, where f = m - 1, h = f**2 / 2 and r is small."""
    f = m - 1
    h = f * f * 0.5
    if m.kind == "f32":
        return f, h, f * f * f * polynomial(f, c.LOG_F32)
    s = f / (f + 2)
    z = s * s
    return f, h, s * (h + z * polynomial(z, c.LOG_F64))


def _log_limits(x: Value, core: Value) -> Value:
    """The core's value for positive finite x; -inf at 0, nan below, x itself at inf and nan."""
    result = (x < INF).where(core, x)
    return (x < 0).where(NAN, x.eq(0).where(-INF, result))


def log(x: Value) -> Value:
    return _log_limits(x, _log_core(x))


def _log_core(x: Value, low: Value | None = None) -> Value:
    """log(x) + low for positive finite x."""
    e, m = _decomposed(x)
    f, h, r = _log_parts(m)
    high_part, low_part = format_of(x).ln2
    small = e.fma(low_part, r)
    if low is not None:
        small = small + low
    return e.fma(high_part, f - (h - small))


def _log_based(x: Value, factor: tuple[float, ...], exponent: tuple[float, ...]) -> Value:
    """log(x) * factor for positive finite float64 x, 2**e counting ``exponent`` each."""
    e, m = _decomposed(x)
    f, h, r = _log_parts(m)
    difference = f - h
    word = difference.bitcast("i64") & -(1 << 32)
    high = word.bitcast("f64")  # few bits, so that its product with the factor's head is exact
    low = ((f - high) - h) + r
    tail = low.fma(factor[0], (low + high) * factor[1])
    if len(exponent) > 1:
        tail = e.fma(exponent[1], tail)
    head = high * factor[0]
    base = e * exponent[0]
    total = base + head
    return total + (((base - total) + head) + tail)


def log2(x: Value) -> Value:
    """In float64 for both kinds."""
    y = x.to("f64")
    core = _log_based(y, c.LOG2E, (1.0,))
    return _log_limits(y, core).to(x.kind)


def log10(x: Value) -> Value:
    """In float64 for both kinds."""
    y = x.to("f64")
    core = _log_based(y, c.LOG10E, c.LOG10_2)
    return _log_limits(y, core).to(x.kind)


def log1p(x: Value) -> Value:
    """log(u) with u = 1 + x, plus what the sum rounded away, over u."""
    u = x + 1
    exact = u - 1
    lost = (1 - (u - exact)) + (x - exact)
    result = _log_core(u, lost / u)
    result = (x < INF).where(result, x)
    result = (x < -1).where(NAN, x.eq(-1).where(-INF, result))
    return x.eq(0).where(x, result)


def log_one_and_exp(x: Value) -> Value:
    """log1p(exp(x)), infinite where exp(x) is: what log(1 + exp(-abs(x))) lacks is x, or 0."""
    form = format_of(x)
    e = exp_of_negative(-x.abs())
    total = e * polynomial(e - 0.5, by_kind(x, "LOG_OF_SUM")) + x.call("maximum", 0.0)
    return (x > form.last).where(INF, total)


def sigmoid(x: Value) -> Value:
    """1 / (1 + exp(-x)), both sides of the fraction so small that neither overflows."""
    form = format_of(x)
    small = 2.0**-form.middle
    e = _exp_scaled(clamped(-x, form.lost, -form.least), form.middle)
    return small / (e + small)


def tanh(x: Value) -> Value:
    """e / (e + 2) with e = exp(2 abs(x)) - 1."""
    end = 10.0 if x.kind == "f32" else 20.0
    size = x.abs()
    z = (size > end).where(end, size) * 2  # a nan stays
    n, scale = _nearest_power(z, 0)
    high_part, low_part = format_of(x).ln2
    r = n.fma(-low_part, n.fma(-high_part, z))
    e = scale.fma((r * r).fma(polynomial(r, by_kind(x, "EXPM1")), r), scale - 1)
    return copysign(e / (e + 2), x)


def sinh(x: Value) -> Value:
    """In float64 for both kinds."""
    y = x.to("f64")
    size = y.abs()
    z = y * y
    small = y.fma(z * polynomial(z, c.SINH_F64), y)
    half = exp(size, shift=-1)
    large = copysign(half - 0.25 / half, y)
    return (size < 1).where(small, large).to(x.kind)


def cosh(x: Value) -> Value:
    """In float64 for both kinds."""
    half = exp(x.to("f64").abs(), shift=-1)
    return (half + 0.25 / half).to(x.kind)


def asinh(x: Value) -> Value:
    """In float64 for both kinds."""
    y = x.to("f64")
    size = y.abs()
    z = y * y
    small = y.fma(z * polynomial(z, c.ASINH_F64), y)
    root = (z + 1).call("sqrt")
    middle = log1p(size + z / (root + 1))
    large = log(size) + c.LN2[0]
    result = (size < 0.5).where(small, (size > 2.0**28).where(large, middle))
    return copysign(result, y).to(x.kind)


def acosh(x: Value) -> Value:
    """In float64 for both kinds."""
    y = x.to("f64")
    t = y - 1
    middle = log1p(t + (t * (t + 2)).call("sqrt"))
    large = log(y) + c.LN2[0]
    return (y < 1).where(NAN, (y > 2.0**28).where(large, middle)).to(x.kind)


def atanh(x: Value) -> Value:
    """In float64 for both kinds."""
    y = x.to("f64")
    size = y.abs()
    return copysign(log1p(size * 2 / (1 - size)) * 0.5, y).to(x.kind)


# -- powers ---------------------------------------------------------------------------------------


def two_product(a: Value, b: Value) -> tuple[Value, Value]:
    """a * b as an unevaluated sum; a true fused operation, wherever it runs."""
    product = a * b
    return product, a.call("fma", b, -product)


def two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    """a + b as an unevaluated sum."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _quick_two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    """a + b as an unevaluated sum, for abs(a) >= abs(b)."""
    total = a + b
    return total, b - (total - a)


def _log_double(x: Value) -> tuple[Value, Value]:
    """log(x) as an unevaluated sum of two float64, to about 2**-66, for positive finite x."""
    e, m = _decomposed(x)
    f = m - 1
    d = m + 1
    d_low = m - (d - 1)
    s = f / d
    s_low = ((-s).call("fma", d, f) - s * d_low) / d
    z, z_low = two_product(s, s)
    z_low = s.fma(s_low * 2, z_low)
    # log(m) = s (2 + z (2/3 + z (2/5 + ...)))
    tail = z * polynomial(z, c.POW_F64)
    third, third_low = _quick_two_sum(x.const(c.THIRD[0]), tail)
    third_low = third_low + c.THIRD[1]
    p, p_low = two_product(z, third)
    p_low = p_low + (z * third_low + z_low * third)
    q, q_low = _quick_two_sum(x.const(2.0), p)
    q_low = q_low + p_low
    y, y_low = two_product(s, q)
    y_low = y_low + (s * q_low + s_low * q)
    base, base_low = two_product(e, x.const(c.LN2[0]))
    base_low = e.fma(c.LN2[1], base_low)
    total, rest = two_sum(base, y)
    return _quick_two_sum(total, rest + (base_low + y_low))


def _power_core(size: Value, y: Value) -> Value:
    """size**y for positive finite float64."""
    high, low = _log_double(size)
    p, p_low = two_product(y, high)
    p_low = y.fma(low, p_low)
    # beyond the range of exp the low part is of no use, and may be a nan
    return exp(p, (p.abs() < 1000).where(p_low, 0.0))


def power(x: Value, y: Value) -> Value:
    """C99's pow."""
    size = x.abs()
    if x.kind == "f32":
        wide = size.to("f64")
        result = exp(y.to("f64") * _log_core(wide)).to("f32")
    else:
        result = _power_core(size, y)
    edge = size.eq(0) | size.eq(INF)
    result = edge.where((size.eq(0) ^ (y > 0)).where(INF, size.const(0.0)), result)
    half = y * 0.5
    integer = y.call("floor").eq(y)
    odd = integer & half.call("floor").ne(half)
    word = format_of(x).word
    negative = x.bitcast(word) < 0
    result = (negative & odd).where(-result, result)
    result = ((x < 0) & ~integer & (size < INF)).where(NAN, result)
    unknown = x.ne(x) | y.ne(y)
    result = unknown.where(NAN, result)
    one = x.eq(1) | y.eq(0) | (size.eq(1) & y.abs().eq(INF))
    return one.where(1.0, result)


# -- magnitudes -----------------------------------------------------------------------------------


def binade(x: Value) -> Value:
    """What is left of the magnitude without its mantissa; subnormals are made normal for it."""
    form = format_of(x)
    size = x.abs()
    small = size < form.normal
    up = 2.0 ** (form.mantissa + 1)
    exponent = (1 << form.bits - 1) - (1 << form.mantissa)
    power = (small.where(size * up, size).bitcast(form.word) & exponent).bitcast(x.kind)
    return (size < INF).where(small.where(power * (1 / up), power), size)


def hypot(x: Value, y: Value) -> Value:
    """float32 in float64; float64 by numbers scaled so that squares neither over- nor underflow."""
    a, b = x.abs(), y.abs()
    if x.kind == "f32":
        a, b = a.to("f64"), b.to("f64")
        length = (a * a + b * b).call("sqrt").to("f32")
    else:
        larger = (a > b).where(a, b)
        high, low = larger > 2.0**510, larger < 2.0**-510
        scale = high.where(a.const(2.0**-600), low.where(a.const(2.0**600), 1.0))
        back = high.where(a.const(2.0**600), low.where(a.const(2.0**-600), 1.0))
        s, t = a * scale, b * scale
        length = s.fma(s, t * t).call("sqrt") * back
    endless = x.abs().eq(INF) | y.abs().eq(INF)
    return endless.where(INF, length)
