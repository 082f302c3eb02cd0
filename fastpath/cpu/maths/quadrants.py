"""2/pi by exponent: the tables from which any argument's angle in quarter turns is found.

For a number M * 2**(e - p) with an integer significand M, the angle is M * t modulo 4 with
t = 2**(e - p) * 2/pi modulo 4, which depends on the exponent alone (after Payne and Hanek, 1983).
Computed with Python's integers when first asked for.
"""

from __future__ import annotations

import functools

_BITS = 1400  # of 2/pi behind the point: the largest exponent, a significand, 158 bits, and room


def _arctan_inverse(n: int, unit: int) -> int:
    """atan(1/n) * unit."""
    total, term, k = 0, unit // n, 0
    while term:
        total += (-1 if k % 2 else 1) * (term // (2 * k + 1))
        term //= n * n
        k += 1
    return total


@functools.cache
def _two_over_pi() -> int:
    """2/pi * 2**_BITS, by Machin's formula."""
    unit = 1 << (_BITS + 64)
    pi = 4 * (4 * _arctan_inverse(5, unit) - _arctan_inverse(239, unit))
    return (2 * unit << _BITS) // pi


def _table(exponents: range, significand: int, units: tuple[int, ...]) -> list[list[float]]:
    """t for every exponent in pieces: multiples of 2**-u for each of ``units``, and the rest."""
    pieces: list[list[float]] = [[] for _ in range(len(units) + 1)]
    one = 1 << _BITS
    for exponent in exponents:
        shift = exponent - significand
        scaled = _two_over_pi() << shift if shift >= 0 else _two_over_pi() >> -shift
        rest = scaled % (4 * one)
        for place, unit in enumerate(units):
            step = one >> unit
            count = (rest + step // 2) // step
            pieces[place].append(count / 2.0**unit)
            rest -= count * step
        pieces[-1].append(rest / one)
    return pieces


@functools.cache
def single() -> list[list[float]]:
    """For float32 by biased exponent: 29 bits, whose product with M is exact, and the rest."""
    return _table(range(-127, 129), 23, (27,))


FIRST_DOUBLE = 1022  # the biased exponent of the first entry: numbers from 1/2


@functools.cache
def double() -> list[list[float]]:
    """For float64 by biased exponent from :data:`FIRST_DOUBLE`: four pieces of 53 bits."""
    return _table(range(-1, 1025), 52, (51, 104, 157))
