"""Many generated programs, other ones each time, against CPython."""

from __future__ import annotations

import random

import pytest

from tests.tiny.interpreter.test_generated import campaign

COUNT = 300


@pytest.mark.parametrize("part", range(8))
def test_campaign(part: int) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"campaign({COUNT}, seed={seed}) draws the same programs again")
    assert campaign(COUNT, seed)["compared"] > COUNT * 0.9
