"""Generated programs, against CPython. A failure prints the shrunk program."""

from __future__ import annotations

import warnings
from collections import Counter

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings

from tests.tiny.interpreter.generate import programs
from tests.tiny.interpreter.oracle import check

COUNT = 25


def campaign(count: int, seed: int) -> Counter[str]:
    """Compare ``count`` programs drawn from ``seed``; what was seen, opcodes among it."""
    seen: Counter[str] = Counter()

    @hypothesis.seed(seed)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    @given(programs())
    def compare(source: str) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SyntaxWarning)
                compile(source, "<generated>", "exec")
        except SyntaxError:  # a name that is nonlocal and global, for example
            seen["not a program"] += 1
            return
        machine = check(source)
        seen["compared"] += 1
        seen["instructions"] += machine.instructions
        seen.update(f"opcode {name}" for name in machine.seen)

    compare()
    return seen


def test_generated_programs() -> None:
    seen = campaign(COUNT, seed=1)
    assert seen["compared"] > COUNT * 0.9
    assert seen["instructions"] > 300 * COUNT
    assert sum(key.startswith("opcode") for key in seen) > 70
