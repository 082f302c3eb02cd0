"""Generated programs, against CPython. A failure prints the shrunk program."""

from __future__ import annotations

import warnings
from collections import Counter

from hypothesis import HealthCheck, Phase, given, settings

from tests.tiny.interpreter.generate import programs
from tests.tiny.interpreter.oracle import check

COUNT = 100


def test_generated_programs() -> None:
    seen: Counter[str] = Counter()

    @settings(
        max_examples=COUNT,
        derandomize=True,
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
        except SyntaxError:  # a walrus in a comprehension of a class body, for example
            seen["not a program"] += 1
            return
        machine = check(source)
        seen["compared"] += 1
        seen["instructions"] += machine.instructions
        seen.update(f"opcode {name}" for name in machine.seen)

    compare()
    assert seen["compared"] > COUNT * 0.8
    assert seen["instructions"] > 100 * COUNT
    assert sum(key.startswith("opcode") for key in seen) > 60
