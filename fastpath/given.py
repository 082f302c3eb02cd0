"""Floats that each call chooses, as kernels are given them: 64 bits, as sizes have."""

from __future__ import annotations

from struct import pack, unpack

from specs.dtypes import fits

C_NAMES = {"float16": "c10::Half", "bfloat16": "c10::BFloat16", "float32": "float"}


def bits(number: float, within: str | None = None) -> int:
    """Those of a float64, as a kernel is given it among its sizes.

    Raises eager's RuntimeError for a finite number that the dtype ``within`` does not have.
    """
    if within is not None and not fits(number, within):
        name = C_NAMES[within]
        raise RuntimeError(f"value cannot be converted to type {name} without overflow")
    found: int = unpack("q", pack("d", number))[0]
    return found
