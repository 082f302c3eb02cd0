"""Scalar functions that numba kernels call, known to generated source as ``m``.

In: LLVM's vocabulary. Out, by attribute: one numba intrinsic per function and kind, ``m.exp_f32``,
``m.add_i8``, ``m.cast_f64_i32``, named as the numba texts of :data:`specs.scalars.SCALARS` name
them; the storage conversions ``m.bf16_to_f32`` (of u16 bits), ``m.f32_to_bf16``, ``m.f16_to_f32``,
``m.f32_to_f16``; the constants ``m.zero_f32``, ... and ``m.true``, ``m.false``. Kinds are ``b1 u8
i8 i16 i32 i64 f32 f64``; ``m.cast_S_f16`` and ``m.cast_S_bf16`` round to the reduced float and give
an f32. Operands have to be of exactly the kind that the name says. Functions are emitted inline and
vectorise, except integer ``pow``, float ``fmod``, ``remainder`` and ``floordiv`` (the C library's
fmod). ``sin``, ``cos`` and ``tan`` call a function out of line for large arguments (``rare.py``).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from fastpath.cpu.maths import circular, conversions, exponential, integers, special
from fastpath.cpu.maths.emitter import Emit, function

FLOATS = ("f32", "f64")
INTS = ("u8", "i8", "i16", "i32", "i64")
NUMBERS = INTS + FLOATS
ALL = ("b1", *NUMBERS)

true, false = np.bool_(True), np.bool_(False)
zero_b1 = np.bool_(False)
zero_u8, zero_i8, zero_i16 = np.uint8(0), np.int8(0), np.int16(0)
zero_i32, zero_i64 = np.int32(0), np.int64(0)
zero_f32, zero_f64 = np.float32(0), np.float64(0)

_UNARY: dict[str, tuple[Emit, tuple[str, ...]]] = {
    **{
        name: (getattr(exponential, name), FLOATS)
        for name in (
            "exp exp2 expm1 log log2 log10 log1p sigmoid tanh sinh cosh asinh acosh atanh"
            " binade one_and_exp log_one_and_exp".split()
        )
    },
    **{
        name: (getattr(circular, name), FLOATS)
        for name in "sin cos tan asin acos atan erf erfc".split()
    },
    **{
        name: (getattr(special, name), FLOATS)
        for name in "lgamma digamma i0 i0e i1 i1e erfinv".split()
    },
    **{
        name: (getattr(integers, name), FLOATS)
        for name in "reciprocal sqrt rsqrt floor ceil trunc frac".split()
    },
    "round": (integers.round_, FLOATS),
    "neg": (integers.neg, NUMBERS),
    "abs": (integers.absolute, NUMBERS),
    "sign": (integers.sign, ALL),
    "not": (integers.not_, ("b1", *INTS)),
}
_PREDICATES: dict[str, Emit] = {
    name: getattr(integers, name) for name in ("isnan", "isinf", "isfinite", "signbit")
}
_BINARY: dict[str, tuple[Emit, tuple[str, ...]]] = {
    "add": (integers.add, INTS),
    "sub": (integers.sub, INTS),
    "mul": (integers.mul, INTS),
    "truncdiv": (integers.truncdiv, INTS),
    "floordiv": (integers.floordiv, NUMBERS),
    "fmod": (integers.fmod, NUMBERS),
    "remainder": (integers.remainder, NUMBERS),
    "minimum": (integers.minimum, ALL),
    "maximum": (integers.maximum, ALL),
    "fmin": (integers.fmin, NUMBERS),
    "fmax": (integers.fmax, NUMBERS),
    "pow": (integers.pow_, NUMBERS),
    "atan2": (circular.atan2, FLOATS),
    "hypot": (exponential.hypot, FLOATS),
    "copysign": (exponential.copysign, FLOATS),
    "and": (integers.and_, ("b1", *INTS)),
    "or": (integers.or_, ("b1", *INTS)),
    "xor": (integers.xor, ("b1", *INTS)),
    "lshift": (integers.lshift, INTS),
    "rshift": (integers.rshift, INTS),
}
_STORAGE: dict[str, tuple[Emit, str, str]] = {
    "round_f32_bf16": (conversions.round_f32_bf16, "f32", "f32"),
    "bf16_to_f32": (conversions.bf16_to_f32, "u16", "f32"),
    "f32_to_bf16": (conversions.f32_to_bf16, "f32", "u16"),
    "f16_to_f32": (conversions.f16_to_f32, "u16", "f32"),
    "f32_to_f16": (conversions.f32_to_f16, "f32", "u16"),
}


def _functions() -> Iterator[tuple[str, Any]]:
    """Every name with its intrinsic. Making them is cheap: nothing is compiled."""
    for name, (emit, source, target) in _STORAGE.items():
        yield name, function(name, (source,), target, emit)
    for rows, count in ((_UNARY, 1), (_BINARY, 2)):
        for name, (emit, kinds) in rows.items():
            for kind in kinds:
                full = f"{name}_{kind}"
                yield full, function(full, (kind,) * count, kind, emit)
    for name, emit in _PREDICATES.items():
        for kind in FLOATS:
            full = f"{name}_{kind}"
            yield full, function(full, (kind,), "b1", emit)
    for kind in FLOATS:
        full = f"fma_{kind}"
        yield full, function(full, (kind,) * 3, kind, integers.fma)
    for kind in ALL:
        full = f"where_{kind}"
        yield full, function(full, ("b1", kind, kind), kind, integers.where)
    for source in conversions.KINDS:
        for target in (*conversions.KINDS, "f16", "bf16"):
            full = f"cast_{source}_{target}"
            emit = functools.partial(conversions.convert, kind=target)
            result = "f32" if target in ("f16", "bf16") else target
            yield full, function(full, (source,), result, emit)
    for name, (narrow, widen) in conversions.BYTES.items():
        yield f"cast_f32_{name}", function(f"cast_f32_{name}", ("f32",), "u8", narrow)
        yield f"cast_{name}_f32", function(f"cast_{name}_f32", ("u8",), "f32", widen)


# numba finds a function only if it was made before compilation began, so all are made here.
globals().update(_functions())
