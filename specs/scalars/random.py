"""Scalar rows: the counter-based generator of Salmon et al., "Parallel random numbers: as easy as
1, 2, 3" (2011), in the form that CUDA's Philox has."""

from __future__ import annotations

from specs.scalars.row import SCALARS, Scalar

_FACTORS = 0xD2511F53, 0xCD9E8D57
_STEPS = 0x9E3779B9, 0xBB67AE85
_WORD = (1 << 32) - 1


def philox_words(seed: int, counter: int, index: int) -> tuple[int, int, int, int]:
    """The four 32-bit words of a 64-bit key at a 64-bit counter and a 32-bit index (10 rounds)."""
    a, b, c, d = counter & _WORD, counter >> 32 & _WORD, index & _WORD, 0
    low, high = seed & _WORD, seed >> 32 & _WORD
    for _ in range(10):
        first, second = _FACTORS[0] * a, _FACTORS[1] * c
        a, b, c, d = (
            (second >> 32) ^ b ^ low,
            second & _WORD,
            (first >> 32) ^ d ^ high,
            first & _WORD,
        )
        low, high = (low + _STEPS[0]) & _WORD, (high + _STEPS[1]) & _WORD
    return a, b, c, d


def philox(seed: int, counter: int, place: int) -> int:
    return philox_words(seed, counter, place >> 2)[place & 3]


SCALARS.add(
    Scalar(
        "philox",
        3,
        philox,
        "same",
        frozenset({"int64"}),
        numba=None,
        triton="m.philox({0}, {1}, {2})",
        special=((0, 0, 0), (0, 0, 3), (-1, -1, -1), (1 << 40, 1 << 33, 4097), (5, 1, 2)),
        reasons={"numba": "generators of the CPU are Mersenne Twisters, drawn from one by one"},
        doc="Word `place % 4` of Philox-4x32-10 for the key seed, the counter, and the index"
        " `place // 4`; from 0 to 2 ** 32 - 1.",
    )
)
