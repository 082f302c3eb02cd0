"""Conversions between the kinds, and the reduced floats, which live in kernels as float32."""

from __future__ import annotations

import functools
from collections.abc import Callable

from llvmlite import ir

from fastpath.cpu.maths.emitter import BITS, Value, has_features

KINDS = ("b1", "u8", "i8", "i16", "i32", "i64", "f32", "f64")


def to_integer(x: Value, kind: str) -> Value:
    """A float truncated towards zero, and then wrapped; out of range as x86 converts.

    The narrow integers go through int32, so what that does not hold gives its minimum's low bits.
    """
    word = "i64" if kind == "i64" else "i32"
    low, high = -(2.0 ** (BITS[word] - 1)), 2.0 ** (BITS[word] - 1)
    # a float64 above low - 1 truncates into int32; the other pairs have no number between
    above = x > low - 1 if (x.kind, word) == ("f64", "i32") else x >= low
    inside = above & (x < high)
    whole = inside.where(x, 0.0).to(word)
    return inside.where(whole, int(low)).to(kind)


def convert(x: Value, kind: str) -> Value:
    """Any of :data:`KINDS`, or a reduced float, for which the value is rounded and stays f32."""
    if kind in ("f16", "bf16"):
        single = convert(x, "f32")
        if kind == "bf16":
            return bf16_to_f32(f32_to_bf16(single))
        return _through_half(single) if converts() else f16_to_f32(f32_to_f16(single))
    if kind == "b1":
        return x.ne(0)
    if x.is_float and kind[0] in "iu":
        return to_integer(x, kind)
    return x.to(kind)


def bf16_to_f32(x: Value) -> Value:
    """The bits of a bfloat16, as u16, to float32 (exact)."""
    return (x.to("u32") << 16).bitcast("f32")


def f32_to_bf16(x: Value) -> Value:
    """float32 to the bits of the nearest bfloat16, halves to even; nan stays nan."""
    return x.ne(x).where(0x7FC0, _carried(x) >> 16).to("u16")


def _carried(x: Value) -> Value:
    """The bits of a float32, increased so that dropping the low half rounds it, halves to even.

    A choice between two constants by a bit, as it is written here, takes fewer instructions with
    vectors than moving the bit to where it can be added.
    """
    word = x.bitcast("u32")
    return word + (word & 0x10000).ne(0).where(word.const(0x8000), 0x7FFF)


def round_f32_bf16(x: Value) -> Value:
    """The nearest bfloat16 as float32, of what is a number or a nan of an empty low half."""
    return (_carried(x) & 0xFFFF0000).bitcast("f32")


def converts() -> bool:
    """Whether the machine has instructions for float16, which LLVM knows the whole vectors of."""
    return has_features("f16c") or has_features("neon")


def _through_half(x: Value) -> Value:
    """The nearest float16 as float32. LLVM sees what this is: a value that is stored as it is, or
    of which something is computed that float16 holds, is converted no more than once."""
    half = x.builder.fptrunc(x.ir, ir.HalfType())
    return Value(x.builder, x.builder.fpext(half, ir.FloatType()), "f32")


def f16_to_f32(x: Value) -> Value:
    """The bits of a float16, as u16, to float32 (exact, subnormals too)."""
    word = x.to("u32")
    # the exponent field moves by 13 bits; its bias differs by 112, which a product mends
    size = ((word & 0x7FFF) << 13).bitcast("f32") * 2.0**112
    infinite = (word & 0x7C00).eq(0x7C00).where(word.const(0x7F800000), 0)
    return (size.bitcast("u32") | infinite | ((word & 0x8000) << 16)).bitcast("f32")


def f32_to_f16(x: Value) -> Value:
    """float32 to the bits of the nearest float16, halves to even; nan stays nan."""
    word = x.bitcast("u32")
    sign = (word >> 16) & 0x8000
    size = word & 0x7FFFFFFF
    normal = ((size + (((size >> 13) & 1) + 0xFFF)) >> 13) - (112 << 10)
    # adding 1/2 aligns a subnormal's last bit with float32's, so that the sum is rounded to it
    subnormal = (size.bitcast("f32") + 0.5).bitcast("u32") - size.const(0.5, "f32").bitcast("u32")
    result = (size < 0x38800000).where(subnormal, normal)
    result = (size >= 0x47800000).where(0x7C00, result)
    return ((size > 0x7F800000).where(0x7E00, result) | sign).to("u16")


def f32_to_e4m3(x: Value, most: int = 0x7F) -> Value:
    """float32 to the byte of the nearest float of 4 and 3 bits without infinities, halves to even:
    what lies nearer to 480 than to 448, the largest, is ``most``: nan, or the largest."""
    word = x.bitcast("u32")
    size = word & 0x7FFFFFFF
    normal = ((size + (((size >> 20) & 1) + 0x7FFFF)) >> 20) - (120 << 3)
    # adding 2 ** 14 aligns a subnormal's last bit with float32's, so that the sum is rounded to it
    subnormal = (size.bitcast("f32") + 2.0**14).bitcast("u32") - 0x46800000
    result = (size < 0x3C800000).where(subnormal, normal)
    result = (size > 0x43E80000).where(most, result)
    result = (size > 0x7F800000).where(0x7F, result)
    return (result | ((word >> 24) & 0x80)).to("u8")


def e4m3_to_f32(x: Value) -> Value:
    byte = x.to("u32")
    size = byte & 0x7F
    subnormal = (size.to("i32").to("f32") * 2.0**-9).bitcast("u32")
    result = (size < 8).where(subnormal, (size << 20) + (120 << 23))
    result = size.eq(0x7F).where(0x7FC00000, result)
    return (result | ((byte & 0x80) << 24)).bitcast("f32")


def f32_to_e5m2(x: Value) -> Value:
    """float32 to the byte of the nearest float of 5 and 2 bits, halves to even; nan stays nan."""
    word = x.bitcast("u32")
    size = word & 0x7FFFFFFF
    normal = ((size + (((size >> 21) & 1) + 0xFFFFF)) >> 21) - (112 << 2)
    subnormal = (size.bitcast("f32") + 2.0**7).bitcast("u32") - 0x43000000
    result = (size < 0x38800000).where(subnormal, normal)
    result = (size >= 0x47800000).where(0x7C, result)
    result = (size > 0x7F800000).where(0x7F, result)
    return (result | ((word >> 24) & 0x80)).to("u8")


def e5m2_to_f32(x: Value) -> Value:
    return f16_to_f32((x.to("u32") << 8).to("u16"))  # the upper half of a float16


BYTES: dict[str, tuple[Callable[..., Value], Callable[..., Value]]] = {
    "float8_e4m3fn": (f32_to_e4m3, e4m3_to_f32),
    "float8_e4m3fn_saturated": (functools.partial(f32_to_e4m3, most=0x7E), e4m3_to_f32),
    "float8_e5m2": (f32_to_e5m2, e5m2_to_f32),
}
"""Floats of one byte: from float32 to it, and back."""
