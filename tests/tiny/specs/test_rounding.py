"""The distance in ULP and the storing of values, on cases worked out by hand."""

from __future__ import annotations

import math
import struct

from hypothesis import given
from hypothesis import strategies as st

from specs import rounding
from specs.scalars import exact

INF, NAN = math.inf, math.nan


@given(st.floats(allow_nan=False))
def test_rounding_to_float32_is_the_machines(value: float) -> None:
    try:
        expected = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        expected = math.copysign(INF, value)
    got = rounding.to_float(value, "float32")
    assert (got, math.copysign(1, got)) == (expected, math.copysign(1, expected))


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-65000, max_value=65000))
def test_rounding_to_float16_is_the_machines(value: float) -> None:
    assert rounding.to_float(value, "float16") == struct.unpack("e", struct.pack("e", value))[0]


def test_bfloat16_rounds_halves_to_even() -> None:
    assert rounding.to_float(1 + 2**-8, "bfloat16") == 1.0
    assert rounding.to_float(1 + 3 * 2**-8, "bfloat16") == 1 + 2**-6
    assert rounding.to_float(3.4e38, "bfloat16") == INF
    assert rounding.to_float(2.0**-134, "bfloat16") == 0.0
    assert rounding.to_float(2.0**-133, "bfloat16") == 2.0**-133


def test_integers_wrap() -> None:
    assert [rounding.store(v, "int8") for v in (127, 128, -129, 256)] == [127, -128, 127, 0]
    assert rounding.store(-1, "uint8") == 255
    assert rounding.store(2**63, "int64") == -(2**63)


def test_ulp_errors() -> None:
    assert rounding.ulp_error(1.0, 1.0, "float32") == 0
    assert rounding.ulp_error(1 + 2**-23, 1.0, "float32") == 1
    assert rounding.ulp_error(1 - 2**-24, 1.0, "float32") == 0.5  # the binade below is finer
    assert rounding.ulp_error(2**-149, 0.0, "float32") == 1
    assert rounding.ulp_error(0.0, 2.0**-149, "float32") == 1
    assert rounding.ulp_error(-0.0, 0.0, "float32") == INF
    assert rounding.ulp_error(NAN, NAN, "float32") == 0
    assert rounding.ulp_error(NAN, 1.0, "float32") == INF
    assert rounding.ulp_error(INF, 3.5e38, "float32") == 0
    assert rounding.ulp_error(INF, 3.3e38, "float32") == INF
    assert rounding.ulp_error(1.0, INF, "float32") == INF


def test_values_beyond_every_dtype_cost_no_memory() -> None:
    assert rounding.to_float(exact.power(1e300, 1e300), "float64") == INF
    assert (
        rounding.to_float(exact.elementary("erfc", at_inf=0.0, at_minus_inf=2.0)(9e4), "float64")
        == 0
    )
