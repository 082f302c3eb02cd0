"""Scalar operations that take several statements in Triton: the module ``m`` of the rows' texts.

Each function takes blocks of one dtype and gives a block of it. An integer divided by zero is 0, as
a row of :mod:`specs.scalars` says.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def _divided(x, y):
    if x.dtype == tl.float64:
        return x / y
    else:
        return tl.div_rn(x, y)


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
    left = tl.where(y < 0, 0, y).to(x.dtype)
    base = x
    result = (x == x).to(x.dtype)
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
    left = y
    base = x
    result = (x == x).to(x.dtype)
    for _ in range(x.dtype.primitive_bitwidth):
        result = tl.where((left & 1) != 0, result * base, result).to(x.dtype)
        base = (base * base).to(x.dtype)
        left = (left >> 1).to(x.dtype)
    return result


@triton.jit
def philox_words(seed, counter, index):
    """The generator's four words at ``counter`` and ``index``, as unsigned integers of 32 bits."""
    index = index.to(tl.uint32)
    low, high = counter.to(tl.uint32), (counter >> 32).to(tl.uint32)
    nothing = index * 0
    return tl.philox(seed, low + nothing, high + nothing, index, nothing)


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
    return tl.interleave(tl.interleave(a, c), tl.interleave(b, d))


@triton.jit
def philox_apart(seed, counter, index):
    """The first words of all points of ``[n]``, then the second ones ...: ``[4 * n]``."""
    a, b, c, d = philox_words(seed, counter, index)
    words = tl.join(tl.join(a, c), tl.join(b, d))
    return tl.reshape(tl.permute(words, (1, 2, 0)), [4 * a.shape[0]])
