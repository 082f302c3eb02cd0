"""A break at each instruction of each function of the battery, and at every few of a capture.

With ``-n 4`` a few minutes.
"""

from __future__ import annotations

import pytest

from tests.cpu.capture.battery import battery
from tests.cpu.capture.oracle import Case, compare, run
from tests.cpu.capture.test_break_everywhere import break_at, forced_run

cases = battery()


@pytest.mark.parametrize("case", cases, ids=str)
def test_break_at_each_instruction(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    assert break_at(case, monkeypatch, limit=10_000) > 10


@pytest.mark.parametrize("every", [2, 3, 7])
@pytest.mark.parametrize("case", cases, ids=str)
def test_break_after_every_few(case: Case, every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    native = run(case, None)
    found, forcing = forced_run(case, monkeypatch, {every}, everywhere=True)
    assert compare(native, found) > 10
    if not forcing.forced:
        pytest.skip(f"fewer than {every} instructions lie between its own breaks")
