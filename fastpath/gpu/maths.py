"""Scalar operations that take several statements in Triton: the module ``m`` of the rows' texts.

Each function takes blocks of one dtype and gives a block of it. An integer divided by zero is 0, as
a row of :mod:`specs.scalars` says.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import gdc_wait

from fastpath.gpu import polynomials

INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))


@triton.jit
def begin(early):
    """The first thing that a kernel does; ``early``: it may be launched before the one that it
    follows has ended, for whose end and whose results it waits here.

    None lets the next one begin before its own programs have: those of kernels that a device holds
    all at once would be spread unevenly over it, and to say so costs each program about 1 ns of
    the whole device's time. Source: "Programmatic Dependent Launch" in
    NVIDIA's CUDA C++ programming guide.
    """
    if early and not INTERPRETED:
        gdc_wait()


@triton.jit
def in_turns_2(a, b, count):
    """``count`` elements each, one of ``a``, one of ``b``, and so on."""
    both = tl.join(tl.broadcast_to(a, [count]), tl.broadcast_to(b, [count]))
    return tl.reshape(both, [2 * count])


@triton.jit
def in_turns_4(a, b, c, d, count):
    first = tl.join(tl.broadcast_to(a, [count]), tl.broadcast_to(c, [count]))
    second = tl.join(tl.broadcast_to(b, [count]), tl.broadcast_to(d, [count]))
    return tl.reshape(tl.join(first, second), [4 * count])


@triton.jit
def apart_2(x, count):
    """The even elements, and the odd ones."""
    return tl.split(tl.reshape(x, [count, 2]))


@triton.jit
def apart_4(x, count):
    even, odd = tl.split(tl.reshape(x, [count, 2, 2]))
    a, c = tl.split(even)
    b, d = tl.split(odd)
    return a, b, c, d


@triton.jit
def spread(x, count, along):
    """Each element ``count`` times, side by side ``along`` a dimension."""
    if len(x.shape) == 1:
        wide = tl.broadcast_to(x[:, None], [x.shape[0], count])
        return tl.reshape(wide, [x.shape[0] * count])
    elif along == 0:
        wide = tl.broadcast_to(x[:, None, :], [x.shape[0], count, x.shape[1]])
        return tl.reshape(wide, [x.shape[0] * count, x.shape[1]])
    else:
        wide = tl.broadcast_to(x[:, :, None], [x.shape[0], x.shape[1], count])
        return tl.reshape(wide, [x.shape[0], x.shape[1] * count])


@triton.jit
def _exp2(x):
    """Two to the ``x``, by the one instruction that there is."""
    if INTERPRETED:
        return tl.exp2(x)
    else:
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1
        )


@triton.jit
def _reciprocal(x):
    """1 / ``x``, by the one instruction that there is, which errs by one unit at most."""
    if INTERPRETED:
        return 1.0 / x
    else:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1
        )


@triton.jit
def exp_near(x):
    """exp(``x``) of float32, whose error grows with ``|x|`` and is small where exp is not."""
    return _exp2(x * 1.4426950408889634)


@triton.jit
def tanh(x):
    """Of float32, without a branch, so that what a thread computes of several points overlaps."""
    a = tl.abs(x)
    large = tl.fma(_reciprocal(_exp2(a * 2.885390081777927) + 1.0), -2.0, 1.0)
    s = x * x
    p = tl.fma(s, -0.006057162303477526, 0.02092050015926361)
    p = tl.fma(p, s, -0.05381648615002632)
    p = tl.fma(p, s, 0.1333225667476654)
    p = tl.fma(p, s, -0.3333330750465393)
    found = tl.where(a < 0.58, tl.fma(p * s, a, a), large)
    sign = x.to(tl.uint32, bitcast=True) & 0x80000000
    return (found.to(tl.uint32, bitcast=True) | sign).to(tl.float32, bitcast=True)


SMALL = tl.constexpr(2.0**-64)


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-``x``)) of float32, by a reciprocal and a step of Newton's, without the branch
    that a quotient has for each point; both sides are small, so that no number is below a normal
    one until the last product."""
    d = tl.fma(libdevice.exp(-x), SMALL, SMALL)
    r = _reciprocal(d)
    found = tl.fma(tl.fma(-d, r, 1.0), r, r) * SMALL
    return tl.where(d == float("inf"), 0.0, found)


@triton.jit
def over_odd(x, divisor, inverse):
    """``x`` over an odd whole number, rounded once, by the float32 next to its ``inverse``.

    What the product leaves of ``x`` is a number, whatever ``x`` is, since all are multiples of the
    least one, and corrects it (Markstein 1990, "Computation of elementary functions on the IBM RISC
    System/6000 processor"); half of the least number, which rounds either way, is no quotient of an
    odd divisor. Nothing left keeps a zero's sign, and nan an infinity.
    """
    quotient = x * inverse
    rest = libdevice.fma(-quotient, divisor, x)
    return tl.where(tl.abs(rest) > 0, libdevice.fma(rest, inverse, quotient), quotient)


def _over_shared_text(count: int) -> str:
    """``count`` quotients, and a branch for all of them if one is not among the usual ones: in PTX,
    where the operands are the results, the dividends, the divisors and the inverses."""
    lines = [".reg .pred bad;", ".reg .f32 quotient, rest, size;", ".reg .b32 twice;"]
    results, dividends, divisors, inverses = (
        [f"${n * count + place}" for place in range(count)] for n in range(4)
    )
    join = ""
    for result, x, divisor, inverse in zip(results, dividends, divisors, inverses):
        lines += [f"mul.rn.f32 quotient, {x}, {inverse};", "abs.f32 size, quotient;"]
        lines += [f"setp.gtu{join and '.or'}.f32 bad, size, 0f7B800000{join};"]  # 2 ** 120, or nan
        join = ", bad"
        # Nothing, or at least 2 ** -60: what is taken from 0 is the greatest.
        lines += [f"mov.b32 twice, {x};", "mad.lo.u32 twice, twice, 2, -1;"]
        lines += [f"setp.lo.or.u32 bad, twice, 0x43000000{join};"]
        lines += [f"neg.f32 size, {x};", f"fma.rn.f32 rest, quotient, {divisor}, size;"]
        lines += [f"neg.f32 size, {inverse};", f"fma.rn.f32 {result}, rest, size, quotient;"]
    lines.append("@!bad bra DONE;")
    for result, x, divisor in zip(results, dividends, divisors):
        lines.append(f"div.rn.f32 {result}, {x}, {divisor};")
    return "\n".join(["{", *lines, "DONE:", "}"])


AT_ONCE = tl.constexpr(8)
OVER_SHARED = tl.constexpr(_over_shared_text(AT_ONCE.value))
OPERANDS = tl.constexpr(",".join(["=&f"] * AT_ONCE.value + ["f"] * 3 * AT_ONCE.value))


@triton.jit
def inverse_of(divisor):
    """The float32 next to one over it, nan where quotients by it need more than two corrections."""
    inverse = tl.div_rn(1.0, divisor)
    return tl.where((divisor >= 2.0**-64) & (divisor <= 2.0**60), inverse, float("nan"))


@triton.jit
def over_shared(x, divisor, inverse):
    """``x`` over a number that neighbours share, rounded once, by its :func:`inverse_of`.

    A product, what it leaves of ``x``, which is a number, and a correction by that (Markstein 1990,
    as above). What is left has the sign with which nothing left keeps that of a zero. Eight
    neighbours have one branch, for numbers so small or large that a step might not be exact; the
    quotient that the compiler makes has one for each, and asks for an inverse each time.
    """
    if INTERPRETED or x.numel < AT_ONCE:  # and so small a block cannot be taken so
        return tl.div_rn(x, divisor)
    else:
        return tl.inline_asm_elementwise(
            OVER_SHARED, OPERANDS, [x, divisor, inverse], tl.float32, True, AT_ONCE
        )


LAST = tl.constexpr(88.72283935546875)  # the greatest number whose exp is finite


@triton.jit
def log_one_and_exp(x):
    """log1p(exp(``x``)), infinite where exp(``x``) is: what log(1 + exp(-|x|)) lacks is x, or 0."""
    if x.dtype == tl.float64:
        return libdevice.log1p(libdevice.exp(x))
    else:
        e = libdevice.exp(-tl.abs(x))
        small = e * polynomials.log_of_sum(e - 0.5)
        return tl.where(x > LAST, float("inf"), tl.where(x > 0, x, 0.0) + small)


LEAST = tl.constexpr(2.0**-25)  # less than this of 1 is nothing in float32


@triton.jit
def tanh_and_one(x):
    """tanh(``x``) + 1 of float32: below 0 nothing cancels, until nothing is left of the sum."""
    found = 2.0 * _reciprocal(_exp2(x * -2.885390081777927) + 1.0)
    return tl.where(found < LEAST, 0.0, found)


@triton.jit
def erf_and_one(x):
    """erf(``x``) + 1 of float32: below 0 nothing cancels, until nothing is left of the sum.

    With ``a = |x|``, ``-log2(erfc(a)) / a`` is nearly a polynomial, fitted here so that erfc, at
    most 1, is wrong by no more than its rounding is there.
    """
    a = tl.abs(x)
    p = tl.fma(a, 2.409439332495822e-07, -8.138350494846236e-06)
    p = tl.fma(p, a, 0.00010376834688941017)
    p = tl.fma(p, a, -0.0006327034789137542)
    p = tl.fma(p, a, 0.0018106092466041446)
    p = tl.fma(p, a, 0.00046233957982622087)
    p = tl.fma(p, a, -0.0280822291970253)
    p = tl.fma(p, a, 0.1484314352273941)
    p = tl.fma(p, a, 0.9184232354164124)
    p = tl.fma(p, a, 1.6279083490371704)
    beyond = _exp2(p * -a)
    beyond = tl.where(beyond < LEAST, 0.0, beyond)
    return tl.where(x < 0, beyond, 2.0 - beyond)


FAR = tl.constexpr(1e5)  # up to which a quotient by pi / 2 leaves a remainder by three terms


@triton.jit
def sine_and_cosine(x):
    """sin(``x``) and cos(``x``) of float32, each to 1.6 units in the last place.

    What both begin with is done once: the remainder of a division by pi / 2, which is taken off in
    three parts. Then each is a polynomial of it, fitted here, and which of both is which the
    quotient says. Large numbers take libdevice's longer way, and a whole block with them.
    """
    count = libdevice.nearbyint(x * 0.6366197466850281)
    r = tl.fma(count, -1.5707963705062866, x)
    r = tl.fma(count, 4.371138828673793e-08, r)
    r = tl.fma(count, 1.7151245100058819e-15, r)
    s = r * r
    even = tl.fma(s, 2.443809171381872e-05, -0.0013887364184483886)
    even = tl.fma(even, s, 0.04166664555668831)
    even = tl.fma(even, s, -0.5)
    even = tl.fma(even, s, 1.0)
    odd = tl.fma(s, -0.00019516977772582322, 0.008332176133990288)
    odd = tl.fma(odd, s, -0.16666655242443085)
    odd = tl.fma(odd * s, r, r)
    turns = tl.where(tl.abs(x) <= FAR, count, 0.0).to(tl.int32)
    crossed = (turns & 1) != 0
    sine, cosine = tl.where(crossed, even, odd), tl.where(crossed, odd, even)
    sine = tl.where((turns & 2) != 0, -sine, sine)
    cosine = tl.where(((turns + 1) & 2) != 0, -cosine, cosine)
    sine = tl.where(x == 0, x, sine)  # of which there are two
    if tl.max(tl.abs(x) + tl.zeros([1], tl.float32)) > FAR:
        sine, cosine = libdevice.sin(x), libdevice.cos(x)
    return sine, cosine


@triton.jit
def binade(x):
    """What is left of the magnitude without its mantissa; subnormals are made normal for it."""
    size = tl.abs(x)
    if x.dtype == tl.float64:
        small = size < 2.2250738585072014e-308
        scaled = tl.where(small, size * 9007199254740992.0, size)
        power = scaled.to(tl.int64, bitcast=True) & 0x7FF0000000000000
        power = power.to(tl.float64, bitcast=True)
        power = tl.where(small, power * 1.1102230246251565e-16, power)
    else:
        small = size < 1.1754943508222875e-38
        scaled = tl.where(small, size * 16777216.0, size)
        power = scaled.to(tl.int32, bitcast=True) & 0x7F800000
        power = power.to(tl.float32, bitcast=True)
        power = tl.where(small, power * 5.960464477539063e-08, power)
    return tl.where(size < float("inf"), power, size)


@triton.jit
def _divided(x, y):
    if y.dtype == tl.float64:
        return x / y
    else:
        return tl.div_rn(x, y)


@triton.jit
def _nearly_divided(x, y):
    """``x`` / ``y`` for a normal ``y``, to two units: without a branch for each point."""
    if y.dtype == tl.float64:
        return x / y
    else:
        return x * _reciprocal(y)


@triton.jit
def _bessel(x, order, scaled):
    """A modified Bessel function at ``|x|``, over exp(``|x|``) where it is ``scaled``.

    Up to ``end`` by its series, whose terms are all positive, then by what it nears. CUDA's
    kernels, of ATen, give nan at the infinities too.
    """
    size = tl.abs(x)
    end = 16.0 if x.dtype == tl.float64 else 8.0
    far = size >= end
    near = tl.where(far, 0.0, size)
    part = near * (1.0 / end)
    inverse = _nearly_divided(1.0, tl.where(far, size, end))
    square = part * part
    # What the square's rounding lost counts half of ``|x|`` times, as the function grows there.
    missed = tl.fma(part, part, -square) * (end * end)
    lost = _nearly_divided(missed, tl.fma(part, 2 * end, 1.0))
    if order == 0:
        series = polynomials.i0(square)
        series = tl.fma(series, lost, series)
        tail = polynomials.i0_tail(inverse)
    else:
        series = polynomials.i1(square)
        series = near * tl.fma(series, lost, series)
        tail = polynomials.i1_tail(inverse)
    tail = tail / tl.sqrt(size) if x.dtype == tl.float64 else tail * libdevice.rsqrt(size)
    if scaled:
        return tl.where(far, tail, libdevice.exp(-near) * series)
    else:
        found = tl.where(far, libdevice.exp(size) * tail, series)
        return tl.where(size == float("inf"), float("nan"), found)


@triton.jit
def i0(x):
    return _bessel(x, tl.constexpr(0), tl.constexpr(False))


@triton.jit
def i0e(x):
    return _bessel(x, tl.constexpr(0), tl.constexpr(True))


@triton.jit
def i1(x):
    found = _bessel(x, tl.constexpr(1), tl.constexpr(False))
    return tl.where(x < 0, -found, found)


@triton.jit
def i1e(x):
    found = _bessel(x, tl.constexpr(1), tl.constexpr(True))
    return tl.where(x < 0, found * -1.0, found)  # also of zero


@triton.jit
def digamma(x):
    """By its distance from the root up to 6, then by what it nears; below 0 by its reflection."""
    size = tl.abs(x)
    small, large = size < 1.0, size >= 6.0
    s = tl.where(small, size + 1.0, size)
    if x.dtype == tl.float64:
        apart = (s - 1.4616321449683622) - 9.549995429965697e-17
    else:
        apart = (s - 1.4616321325302124) - 1.243815006546356e-08
    over = _divided(1.0, s + 2.5)
    near = apart * (polynomials.digamma((s - 4.5) * over) * over)
    wide = tl.where(large, size, 6.0)
    inverse = _divided(1.0, wide)
    square = inverse * inverse
    far = libdevice.log(wide) - tl.fma(square, polynomials.digamma_tail(square), inverse * 0.5)
    usual = tl.where(large, far, near)
    over = _divided(1.0, size)
    r = size - libdevice.nearbyint(size)
    a = tl.abs(r)
    b = 0.5 - a
    cosine, sine = b * polynomials.sinpi(b * b), a * polynomials.sinpi(a * a)
    cotangent = _divided(cosine * 3.141592653589793, sine)
    cotangent = tl.where(r < 0, -cotangent, cotangent)
    turned = tl.where(small, usual, usual + over) + cotangent
    found = tl.where(x < 0, turned, tl.where(small, usual - over, usual))
    found = tl.where((x < 0) & ((r == 0) | (size == float("inf"))), float("nan"), found)
    end = libdevice.copysign(size + float("inf"), x) * -1.0  # to negate is to take from 0: no sign
    return tl.where(x == 0, end, found)


@triton.jit
def floordiv_int(x, y):
    """The quotient of signed integers, rounded down."""
    divisor = tl.where(y == 0, 1, y).to(x.dtype)
    quotient = x // divisor
    rest = x - quotient * divisor
    down = (rest != 0) & ((rest < 0) != (divisor < 0))
    return ((quotient - down.to(x.dtype)) * (y != 0).to(x.dtype)).to(x.dtype)


@triton.jit
def remainder_int(x, y):
    """The remainder of signed integers, with the divisor's sign."""
    divisor = tl.where(y == 0, 1, y).to(x.dtype)
    rest = x - (x // divisor) * divisor
    moved = (rest != 0) & ((rest < 0) != (divisor < 0))
    return ((rest + moved.to(x.dtype) * divisor) * (y != 0).to(x.dtype)).to(x.dtype)


@triton.jit
def floordiv_float(x, y):
    """The exact quotient rounded down, from the exact remainder."""
    rest = libdevice.fmod(x, y)
    quotient = _divided(x - rest, y)
    quotient = tl.where((rest != 0) & ((y < 0) != (rest < 0)), quotient - 1.0, quotient)
    floor = tl.floor(quotient)
    floor = tl.where(quotient - floor > 0.5, floor + 1.0, floor)
    ratio = _divided(x, y)
    zero = libdevice.copysign(floor * 0.0, ratio)
    return tl.where(y == 0, ratio, tl.where(quotient == 0, zero, floor))


@triton.jit
def remainder_float(x, y):
    """fmod, moved by the divisor where the signs differ."""
    rest = libdevice.fmod(x, y)
    return tl.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)


@triton.jit
def pow_int(x, y):
    """By squaring, which wraps around; a negative exponent leaves something of 1 and -1 only."""
    both = (x == x) & (y == y)  # as many as of either, for a loop that keeps what it has
    left = tl.where(both & (y > 0), y, 0).to(x.dtype)
    base = tl.where(both, x, 0).to(x.dtype)
    result = both.to(x.dtype)
    for _ in range(x.dtype.primitive_bitwidth):
        result = tl.where((left & 1) != 0, result * base, result).to(x.dtype)
        base = (base * base).to(x.dtype)
        left = (left >> 1).to(x.dtype)
    odd = (y & 1) != 0
    unit = (x == 1) | ((x == -1) & (odd == 0))
    fraction = unit.to(x.dtype) - ((x == -1) & odd).to(x.dtype)
    return tl.where(y < 0, fraction, result).to(x.dtype)


@triton.jit
def pow_uint(x, y):
    """By squaring, which wraps around."""
    both = (x == x) & (y == y)  # as many as of either, for a loop that keeps what it has
    left = tl.where(both, y, 0).to(x.dtype)
    base = tl.where(both, x, 0).to(x.dtype)
    result = both.to(x.dtype)
    for _ in range(x.dtype.primitive_bitwidth):
        result = tl.where((left & 1) != 0, result * base, result).to(x.dtype)
        base = (base * base).to(x.dtype)
        left = (left >> 1).to(x.dtype)
    return result


@triton.jit
def part(word, place, pointer):
    """Of each word the element ``place``, as what ``pointer`` leads to."""
    kind: tl.constexpr = pointer.dtype.element_ty
    bits: tl.constexpr = kind.primitive_bitwidth
    found = word >> (place * bits)
    if bits == 8:
        return found.to(tl.uint8).to(kind, bitcast=True)
    elif bits == 16:
        return found.to(tl.uint16).to(kind, bitcast=True)
    else:
        return found.to(tl.uint32).to(kind, bitcast=True)


@triton.jit
def philox_words(seed, counter, index):
    """The generator's four words at ``counter`` and ``index``, as unsigned integers of 32 bits.

    Philox-4x32-10 (Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2,
    3"). Both halves of a product come of one multiplication here, of two in Triton's own function,
    and the device's multiplier is what the words wait for.
    """
    c = index.to(tl.uint32)
    d = c * 0
    a, b = d + counter.to(tl.uint32), d + (counter >> 32).to(tl.uint32)
    key, other = seed.to(tl.uint32), (seed >> 32).to(tl.uint32)
    for _ in tl.static_range(10):
        one, two = a.to(tl.uint64) * 0xD2511F53, c.to(tl.uint64) * 0xCD9E8D57
        a, b = (two >> 32).to(tl.uint32) ^ b ^ key, two.to(tl.uint32)
        c, d = (one >> 32).to(tl.uint32) ^ d ^ other, one.to(tl.uint32)
        key += 0x9E3779B9
        other += 0xBB67AE85
    return a, b, c, d


@triton.jit
def philox(seed, counter, place):
    """Word ``place % 4`` of the generator's four at ``counter`` and index ``place // 4``."""
    a, b, c, d = philox_words(seed, counter, place >> 2)
    even, odd = tl.where((place & 2) == 0, a, c), tl.where((place & 2) == 0, b, d)
    return tl.where((place & 1) == 0, even, odd).to(tl.int64)


@triton.jit
def philox_side_by_side(seed, counter, index):
    """The four words of each point of ``[n]``, one after the other: ``[4 * n]``."""
    a, b, c, d = philox_words(seed, counter, index)
    return _in_fours(a, b, c, d)


@triton.jit
def _in_fours(a, b, c, d):
    return tl.interleave(tl.interleave(a, c), tl.interleave(b, d))


@triton.jit
def philox_apart(seed, counter, index, step):
    """The four words of each of four points that are ``step`` apart, the first of which are
    ``[n]``: four blocks ``[4 * n]``, one for each word.

    So each thread has neighbours, four at a time, as it stores them.
    """
    a0, b0, c0, d0 = philox_words(seed, counter, index)
    a1, b1, c1, d1 = philox_words(seed, counter, index + step)
    a2, b2, c2, d2 = philox_words(seed, counter, index + 2 * step)
    a3, b3, c3, d3 = philox_words(seed, counter, index + 3 * step)
    a, b = _in_fours(a0, a1, a2, a3), _in_fours(b0, b1, b2, b3)
    return a, b, _in_fours(c0, c1, c2, c3), _in_fours(d0, d1, d2, d3)


@triton.jit
def _normals(a, b):
    """Two normal numbers of two words, as CUDA's generators make them: with its logarithm, and
    the instructions that there are for a sine and a cosine."""
    u = tl.fma(a.to(tl.float32), 2.3283064365386963e-10, 1.1641532182693481e-10)
    angle = tl.fma(b.to(tl.float32), 1.4629180792671596e-09, 7.314590396335798e-10)
    if INTERPRETED:
        log, sine, cosine = tl.log(u), tl.sin(angle), tl.cos(angle)
    else:
        log = libdevice.log(u)
        sine, cosine = libdevice.fast_sinf(angle), libdevice.fast_cosf(angle)
    radius = tl.sqrt_rn(-2.0 * log)
    return sine * radius, cosine * radius


@triton.jit
def philox_normal(seed, counter, place):
    """A normal number of each place, of the pair of words that it lies in."""
    a, b, c, d = philox_words(seed, counter, place >> 2)
    behind = (place & 2) != 0
    sine, cosine = _normals(tl.where(behind, c, a), tl.where(behind, d, b))
    return tl.where((place & 1) == 0, sine, cosine)


@triton.jit
def philox_normal_side_by_side(seed, counter, index):
    a, b, c, d = philox_words(seed, counter, index)
    a, b = _normals(a, b)
    c, d = _normals(c, d)
    return _in_fours(a, b, c, d)


@triton.jit
def philox_normal_apart(seed, counter, index, step):
    a, b, c, d = philox_apart(seed, counter, index, step)
    a, b = _normals(a, b)
    c, d = _normals(c, d)
    return a, b, c, d


@triton.jit
def _log_of_unit(word):
    """By the instruction that there is; never 0."""
    u = tl.fma(word.to(tl.float32), 2.3283064365386963e-10, 1.1641532182693481e-10)
    if INTERPRETED:
        found = tl.log(u)
    else:
        found = libdevice.fast_logf(u)
    return tl.where(u >= 0.99999994, -5.9604645e-08, found)


@triton.jit
def philox_log(seed, counter, place):
    return _log_of_unit(philox(seed, counter, place).to(tl.uint32))


@triton.jit
def philox_log_side_by_side(seed, counter, index):
    return _log_of_unit(philox_side_by_side(seed, counter, index))


@triton.jit
def philox_log_apart(seed, counter, index, step):
    a, b, c, d = philox_apart(seed, counter, index, step)
    return _log_of_unit(a), _log_of_unit(b), _log_of_unit(c), _log_of_unit(d)


NAN_BEYOND = tl.constexpr(
    "{ .reg .pred beyond; .reg .f32 size; abs.f32 size, $1; setp.gt.f32 beyond, size, 0f43E80000; "
    "selp.f32 $0, 0f7FFFFFFF, $1, beyond; }"
)


@triton.jit
def to_float8_e4m3fn(x, native, most=0x7F, whole=False):
    """The byte of the nearest, halves to even; where that would be 480 or more it is ``most``, nan
    or 448 as in eager: the device's instruction, if it has one (``native``), knows 448 alone.

    ``whole``: no element is masked. Then what has no byte is nan before bytes are made, which lie
    four to a register, and by instructions that stay together: apart they hold registers, and half
    as many programs run. Else it is found among the bytes: of two that are stored as a mask says,
    next to others, the assembler of Triton 3.6 loses one, if they come from the instruction.
    """
    if native and not INTERPRETED:
        if most == 0x7F and whole and x.dtype == tl.float32:
            x = tl.inline_asm_elementwise(NAN_BEYOND, "=f,f", [x], tl.float32, True, 1)
            return x.to(tl.float8e4nv).to(tl.uint8, bitcast=True)
        found = x.to(tl.float8e4nv).to(tl.uint8, bitcast=True)
        if most == 0x7F:
            found = tl.where(tl.abs(x) > 464.0, 0x7F, found).to(tl.uint8)
        return found
    else:
        word = x.to(tl.uint32, bitcast=True)
        size = word & 0x7FFFFFFF
        normal = ((size + ((size >> 20) & 1) + 0x7FFFF) >> 20) - 960
        # Adding 2 ** 14 aligns a subnormal's last bit with float32's: the sum is rounded to it.
        subnormal = (size.to(tl.float32, bitcast=True) + 16384.0).to(tl.uint32, bitcast=True)
        found = tl.where(size < 0x3C800000, subnormal - 0x46800000, normal)
        found = tl.where(size > 0x43E80000, most, found)
        found = tl.where(size > 0x7F800000, 0x7F, found)
        return (found | ((word >> 24) & 0x80)).to(tl.uint8)


@triton.jit
def of_float8_e4m3fn(x, native):
    if native and not INTERPRETED:
        return x.to(tl.float8e4nv, bitcast=True).to(tl.float32)
    else:
        byte = x.to(tl.uint32)
        size = byte & 0x7F
        subnormal = (size.to(tl.float32) * 0.001953125).to(tl.uint32, bitcast=True)
        found = tl.where(size < 8, subnormal, (size << 20) + 0x3C000000)
        found = tl.where(size == 0x7F, 0x7FC00000, found)
        return (found | ((byte & 0x80) << 24)).to(tl.float32, bitcast=True)


@triton.jit
def to_float8_e5m2(x, native):
    """The byte of the nearest, halves to even; infinite where that would be more than 57344. Not by
    the device's instruction: what Triton 3.6 makes of a float64 by it has neighbours exchanged."""
    word = x.to(tl.uint32, bitcast=True)
    size = word & 0x7FFFFFFF
    normal = ((size + ((size >> 21) & 1) + 0xFFFFF) >> 21) - 448
    subnormal = (size.to(tl.float32, bitcast=True) + 128.0).to(tl.uint32, bitcast=True)
    found = tl.where(size < 0x38800000, subnormal - 0x43000000, normal)
    found = tl.where(size >= 0x47800000, 0x7C, found)
    found = tl.where(size > 0x7F800000, 0x7F, found)
    return (found | ((word >> 24) & 0x80)).to(tl.uint8)


@triton.jit
def of_float8_e5m2(x, native):
    """A float16 whose lower half is 0."""
    return (x.to(tl.uint16) << 8).to(tl.float16, bitcast=True).to(tl.float32)
