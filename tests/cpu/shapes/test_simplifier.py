"""Simplified expressions, decisions and ranges against plain integers; ``fuzz`` runs more."""

from __future__ import annotations

import pytest

from tests.cpu.shapes import fuzz

#: Seeds that once failed: torch's ``FloorDiv`` and ``PythonMod`` of negative divisors (those of
#: negated operands among them), and its ``Min`` of a ``Max``.
ONCE_WRONG = (13, 161, 1320, 4449, 5018)


@pytest.mark.parametrize("block", range(4))
def test_random_arithmetic(block: int) -> None:
    compared = sum(fuzz.check(seed) for seed in range(30 * block, 30 * block + 30))
    assert compared > 5000


def test_padded_windows() -> None:
    compared = sum(fuzz.check(seed, fuzz.windows) for seed in range(60))
    assert compared > 5000


@pytest.mark.parametrize("seed", ONCE_WRONG)
def test_what_was_wrong_once(seed: int) -> None:
    assert fuzz.check(seed) > 50


def test_a_wrong_expression_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fuzz.BINARY, "-", lambda a, b: a - b if type(a) is int else a + b)
    with pytest.raises(fuzz.Wrong):
        for seed in range(40):
            fuzz.check(seed)
