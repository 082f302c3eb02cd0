"""The values of a storage: palettes that between them reach what kernels get wrong."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from conformance.case import Number
from specs import dtypes

# From plain to nasty. Hypothesis shrinks towards the first.
PALETTES = ("small", "normal", "wide", "special")


def contents(
    seed: int,
    palette: str,
    dtype: str,
    size: int,
    bounds: Sequence[float] = (),
    nonzero: bool = False,
    summed: bool = False,
    least: float = 0.0,
    nan: bool = True,
) -> tuple[Number, ...]:
    """``size`` values of ``dtype``.

    ``small``: whole numbers from -3 to 3. ``normal``: normally distributed (integers: up to 100).
    ``wide``: any magnitude that the dtype has. ``special``: NaN, infinities, signed zeros,
    subnormals, ties of rounding and the limits of the dtype, among normal values. Values are
    clipped to ``bounds`` (low, high); NaN stays. ``nonzero`` replaces zeros by ones. ``summed``
    keeps finite magnitudes near 1: beside a huge one nobody sees what became of the others, and
    whether sums overflow on the way depends on their order. ``least``: floats of a smaller
    magnitude get this one, but for zeros. Without ``nan``, zeros stand in its place.
    """
    if dtypes.is_complex(dtype):
        part, rest = dtypes.PART_OF[dtype], (bounds, nonzero, summed, least, nan)
        numbers = contents(seed, palette, part, 2 * size, *rest)
        return tuple(complex(a, b) for a, b in zip(numbers[::2], numbers[1::2], strict=True))
    rng = random.Random(f"{seed} {palette} {dtype} {size}")
    values = [_draw(rng, palette, dtype) for _ in range(size)]
    if summed and dtypes.is_float(dtype):
        values = [_moderate(v) for v in values]
    if bounds:
        low, high = bounds
        values = [_clip(v, low, high, dtype) for v in values]
    if not nan:
        values = [0.0 if v != v else v for v in values]
    if least and dtypes.is_float(dtype):
        values = [math.copysign(least, v) if 0 < abs(v) < least else v for v in values]
    if nonzero:
        values = [1 if v == 0 else v for v in values]
    kind = bool if dtype == dtypes.BOOL else int if dtypes.is_int(dtype) else float
    return tuple(kind(v) for v in values)


def _draw(rng: random.Random, palette: str, dtype: str) -> float | int:
    if dtype == dtypes.BOOL:
        return rng.random() < 0.5
    if palette == "special" and rng.random() < 0.5:
        return rng.choice(special(dtype))
    if dtypes.is_int(dtype):
        low, high = dtypes.int_range(dtype)
        span = {"small": 3, "wide": high}.get(palette, 100)
        return rng.randint(max(low, -span), min(high, span))
    if palette == "small":
        return float(rng.randint(-3, 3))
    if palette == "wide":
        _, smallest, largest = dtypes.FLOAT_FORMAT[dtype]
        return rounded(rng.choice((-1, 1)) * 2.0 ** rng.uniform(smallest, largest), dtype)
    return rounded(rng.gauss(0, 1), dtype)


def _moderate(value: float | int) -> float | int:
    """The same digits, with an exponent of at most 12 either way; zero, NaN and infinity stay."""
    if value == 0 or not math.isfinite(value):
        return value
    fraction, exponent = math.frexp(value)
    return math.ldexp(fraction, int(math.remainder(exponent, 24)))


def special(dtype: str) -> tuple[float | int, ...]:
    """The values of ``dtype`` at which kernels go wrong."""
    if dtypes.is_int(dtype):
        low, high = dtypes.int_range(dtype)
        unheld = set() if low else {-1}
        return tuple(sorted({low, low + 1, -1, 0, 1, 2, 3, high // 2 + 1, high - 1, high} - unheld))
    bits, smallest, largest = dtypes.FLOAT_FORMAT[dtype]
    tiny = 2.0**smallest
    largest_number = (2.0 - 2.0 ** (1 - bits)) * 2.0**largest
    positive = (
        0.0,
        tiny * 2.0 ** (1 - bits),  # the smallest subnormal
        tiny * (1 - 2.0 ** (1 - bits)),  # the largest subnormal
        tiny,
        0.5,
        1.0 - 2.0**-bits,
        1.0,
        1.0 + 2.0 ** (1 - bits),
        1.5,
        2.5,
        2.0 ** (bits - 1),  # from here on there are no halves
        largest_number,
        math.inf,
    )
    return (*positive, *(-v for v in positive), math.nan)


def rounded(value: float, dtype: str) -> float:
    """``value`` rounded to the significand of ``dtype``, so that it prints short.

    The exponent is not clipped: the tensor's own constructor rounds to subnormals and infinity.
    """
    if not math.isfinite(value) or dtype == "float64":
        return value
    bits = dtypes.FLOAT_FORMAT[dtype][0]
    fraction, exponent = math.frexp(value)
    return math.ldexp(round(math.ldexp(fraction, bits)), exponent - bits)


def _clip(value: float | int, low: float, high: float, dtype: str) -> float | int:
    if isinstance(value, float) and math.isnan(value):
        return value
    if value < low:
        return math.ceil(low) if dtypes.is_int(dtype) else float(low)
    if value > high:
        return math.floor(high) if dtypes.is_int(dtype) else float(high)
    return value
