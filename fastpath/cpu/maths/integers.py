"""Exact operations: integer arithmetic as eager does it, extrema, division, rounding, bits."""

from __future__ import annotations

import math

from fastpath.cpu.maths.emitter import Value, has_features
from fastpath.cpu.maths.exponential import copysign, format_of, power
from fastpath.cpu.maths.rare import unless_large

INF = math.inf

# -- arithmetic -----------------------------------------------------------------------------------


def add(x: Value, y: Value) -> Value:
    return x + y


def sub(x: Value, y: Value) -> Value:
    return x - y


def mul(x: Value, y: Value) -> Value:
    return x * y


def fma(x: Value, y: Value, z: Value) -> Value:
    """Rounded once on any machine, by the C library where there is no instruction."""
    return x.call("fma", y, z)


def neg(x: Value) -> Value:
    return -x


def absolute(x: Value) -> Value:
    if x.is_float:
        return x.abs()
    return (x < 0).where(-x, x) if x.signed else x


def sign(x: Value) -> Value:
    if x.kind == "b1":
        return x
    if not x.is_float:
        one = x.const(1)
        return (x > 0).where(one, (x < 0).where(-1, x.const(0)) if x.signed else x.const(0))
    return (x > 0).where(1.0, (x < 0).where(-1.0, x.const(0)))


def _safe_divisor(x: Value, y: Value) -> Value:
    """A divisor without a trap: 1 for 0, and for -1 of the smallest integer."""
    trap = y.eq(0)
    if x.signed:
        trap = trap | (y.eq(-1) & x.eq(-(1 << (x.bits - 1))))
    return trap.where(1, y)


def _divided(x: Value, y: Value) -> tuple[Value, Value]:
    """The quotient towards zero and its rest, both 0 where y is 0.

    No processor divides vectors of integers. A float that holds the operands gives the quotient: it
    rounds to the integer above only what is nearer to that than 1 / y, of which there is none while
    x has fewer digits than the float. None holds 64 bits: there
    magnitudes are divided, mostly of 32, for which LLVM has a way round that sees no signs.
    """
    divisor = _safe_divisor(x, y)
    if x.bits < 64:
        wide = "f32" if x.bits <= 16 else "f64"
        quotient = (x.to(wide) / divisor.to(wide)).to(x.kind)
    else:
        size, by = absolute(x).bitcast("u64"), absolute(divisor).bitcast("u64")
        quotient = size.quotient(by).bitcast(x.kind)
        quotient = ((x ^ divisor) < 0).where(-quotient, quotient)
    quotient = y.eq(0).where(0, quotient)
    return quotient, y.eq(0).where(0, x - quotient * divisor)


def truncdiv(x: Value, y: Value) -> Value:
    return _divided(x, y)[0]


def fmod(x: Value, y: Value) -> Value:
    return _float_rest(x, y) if x.is_float else _divided(x, y)[1]


def _float_rest(x: Value, y: Value) -> Value:
    """C's ``fmod``, which no loop of vectors calls, but where the quotient has as many digits as
    the format has.

    Else the rounded quotient has the right integer below it, or the next one where it was just
    below that. Both leave a rest which the format holds, so that multiply-add, which rounds once,
    gives it exactly; after the next one it has the wrong sign, and is moved by the divisor.
    """
    if not has_features("fma") and not has_features("neon"):
        return x.rest(y)
    quotient = x / y
    whole = quotient.call("trunc")
    rest, size = (-whole).call("fma", y, x), y.abs()
    moved = (((rest < 0) & (x > 0)) | ((rest > 0) & (x < 0))).where(size - rest.abs(), rest)
    # No multiple of an infinite divisor is a number, and an infinite number has no rest.
    usual = copysign(size.eq(INF).where(x + (x - x), moved), x)
    bound = 2.0 ** (22 if x.kind == "f32" else 51)
    return unless_large(quotient, usual, bound, f"fmod_{x.kind}", lambda _, x, y: x.rest(y), x, y)


def remainder(x: Value, y: Value) -> Value:
    """fmod, moved by the divisor where the signs differ."""
    rest = fmod(x, y)
    if not x.is_float and not x.signed:
        return rest
    return (rest.ne(0) & ((rest < 0) ^ (y < 0))).where(rest + y, rest)


def floordiv(x: Value, y: Value) -> Value:
    """Python's floor division; of floats from the exact remainder, as CPython does."""
    if not x.is_float:
        if not x.signed:
            return truncdiv(x, y)
        quotient, rest = _divided(x, y)
        down = rest.ne(0) & ((rest < 0) ^ (y < 0))
        return down.where(quotient - 1, quotient)
    rest = _float_rest(x, y)
    quotient = (x - rest) / y
    quotient = (rest.ne(0) & ((y < 0) ^ (rest < 0))).where(quotient - 1, quotient)
    floor = quotient.call("floor")
    floor = (quotient - floor > 0.5).where(floor + 1, floor)
    ratio = x / y
    result = quotient.eq(0).where(copysign(x.const(0), ratio), floor)
    return y.eq(0).where(ratio, result)


def minimum(x: Value, y: Value) -> Value:
    if x.kind == "b1":
        return x & y
    return x.call("minimum", y) if x.is_float else (x < y).where(x, y)


def maximum(x: Value, y: Value) -> Value:
    if x.kind == "b1":
        return x | y
    return x.call("maximum", y) if x.is_float else (x > y).where(x, y)


def fmin(x: Value, y: Value) -> Value:
    if not x.is_float:
        return minimum(x, y)
    smaller = x.call("minimum", y)
    return x.ne(x).where(y, y.ne(y).where(x, smaller))


def fmax(x: Value, y: Value) -> Value:
    if not x.is_float:
        return maximum(x, y)
    larger = x.call("maximum", y)
    return x.ne(x).where(y, y.ne(y).where(x, larger))


def pow_(x: Value, y: Value) -> Value:
    """C99's pow of floats; integers by squaring, which wraps (a loop: this does not vectorise)."""
    return power(x, y) if x.is_float else _integer_power(x, y)


def _integer_power(x: Value, y: Value) -> Value:
    builder = x.builder
    kind = x.kind
    before = builder.block
    loop = builder.append_basic_block("power")
    done = builder.append_basic_block("power.done")
    left_start = (y < 0).where(0, y) if y.signed else y
    builder.branch(loop)
    builder.position_at_end(loop)
    phis = [builder.phi(x.ir.type) for _ in range(3)]
    result, base, left = (Value(builder, phi, kind) for phi in phis)
    next_result = (left & 1).ne(0).where(result * base, result)
    unsigned = left.bitcast("u" + kind[1:])
    following = (next_result, base * base, (unsigned >> 1).bitcast(kind))
    for phi, start, step in zip(phis, (x.const(1), x, left_start), following, strict=True):
        phi.add_incoming(start.ir, before)
        phi.add_incoming(step.ir, loop)
    builder.cbranch(following[2].ne(0).ir, loop, done)
    builder.position_at_end(done)
    if not x.signed:
        return next_result
    parity = (y & 1).ne(0).where(x.const(-1), 1)
    inverse = x.eq(1).where(x.const(1), x.eq(-1).where(parity, 0))
    return (y < 0).where(inverse, next_result)


def reciprocal(x: Value) -> Value:
    return 1 / x


def sqrt(x: Value) -> Value:
    return x.call("sqrt")


def rsqrt(x: Value) -> Value:
    return 1 / x.call("sqrt")


# -- rounding, classification ---------------------------------------------------------------------


def floor(x: Value) -> Value:
    return x.call("floor")


def ceil(x: Value) -> Value:
    return x.call("ceil")


def trunc(x: Value) -> Value:
    return x.call("trunc")


def round_(x: Value) -> Value:
    """Halves to even."""
    return x.call("rint")


def frac(x: Value) -> Value:
    return x - x.call("trunc")


def isnan(x: Value) -> Value:
    return x.ne(x)


def isinf(x: Value) -> Value:
    return x.abs().eq(INF)


def isfinite(x: Value) -> Value:
    return x.abs() < INF


def signbit(x: Value) -> Value:
    return x.bitcast(format_of(x).word) < 0


# -- logic and bits -------------------------------------------------------------------------------


def and_(x: Value, y: Value) -> Value:
    return x & y


def or_(x: Value, y: Value) -> Value:
    return x | y


def xor(x: Value, y: Value) -> Value:
    return x ^ y


def not_(x: Value) -> Value:
    return ~x


def _inside(count: Value) -> Value:
    """Whether the count is in 0 ... width - 1 (one unsigned comparison)."""
    return count.bitcast("u" + count.kind[1:]) < count.bits


def lshift(x: Value, y: Value) -> Value:
    inside = _inside(y)
    return inside.where(x << inside.where(y, 0), 0)


def rshift(x: Value, y: Value) -> Value:
    inside = _inside(y)
    if x.signed:
        return x >> inside.where(y, x.bits - 1)
    return inside.where(x >> inside.where(y, 0), 0)


def where(condition: Value, x: Value, y: Value) -> Value:
    return condition.where(x, y)
