"""A break forced at each instruction of a function leaves eager's answer as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import refcompiler.runtime.captures as captures
from refcompiler.capture.machine import Symbolic
from refcompiler.runtime.config import config
from refcompiler.runtime.entry import Entry
from tests.cpu.capture.battery import battery
from tests.cpu.capture.oracle import Case, compare, compiling, run

FORCED = ("user-graph-break", "forced")
#: Of the battery's programs, every so many are tried here, at a few instructions.
EVERY = 14
FEW = 3
programs = battery()
sample = programs[::EVERY]


class Forcing:
    """Makes entries (or every site) stop at given root instructions."""

    def __init__(self, stops: set[int], everywhere: bool):
        self.stops = {step: FORCED for step in stops}
        self.everywhere = everywhere
        self.steps = 0
        self.forced = 0

    def capture(self, original: Callable) -> Callable:
        forcing = self

        def capture(self: Any, start: Callable) -> Any:
            class Forced(Symbolic):
                def __init__(self, stops: dict, *rest: Any) -> None:
                    if forcing.everywhere or entry:
                        merged = {**forcing.stops, **stops}
                    else:
                        merged = stops
                    super().__init__(merged, *rest)

                def capture(self, frame: Any) -> Any:
                    found = super().capture(frame)
                    if entry:
                        forcing.steps = max(forcing.steps, self.steps)
                    # a block that is entered natively because of it says so
                    if found.reason is not None and found.reason.context.endswith("forced"):
                        forcing.forced += 1
                    return found

            entry = isinstance(self, Entry)
            captures.Symbolic = Forced
            try:
                return original(self, start)
            finally:
                captures.Symbolic = Symbolic

        return capture


def forced_run(
    case: Case, monkeypatch: pytest.MonkeyPatch, stops: set[int], everywhere: bool = False
) -> tuple[Any, Forcing]:
    forcing = Forcing(stops, everywhere)
    with monkeypatch.context() as patch:
        patch.setattr(config, "recompile_limit", 1000)  # a warning is not what eager prints
        patch.setattr(captures.Captures, "capture", forcing.capture(captures.Captures.capture))
        return run(case, compiling("eager")), forcing


def break_at(case: Case, monkeypatch: pytest.MonkeyPatch, limit: int, first: int = 0) -> int:
    """Force a break at ``limit`` instructions, evenly spread; the number of comparisons."""
    native = run(case, None)
    _, forcing = forced_run(case, monkeypatch, set())
    steps = range(1, forcing.steps + 1)
    stride = max(1, -(-len(steps) // limit))
    count = forced = 0
    for step in steps[first % stride :: stride]:
        found, forcing = forced_run(case, monkeypatch, {step})
        try:
            count += compare(native, found)
        except AssertionError as error:
            raise AssertionError(f"break forced at instruction {step}\n{error}") from None
        forced += forcing.forced
    assert forced or case.expected["breaks"]  # what breaks by itself may do so before
    return count


def test_there_are_enough_programs() -> None:
    assert len(programs) >= 400


@pytest.mark.parametrize("i", range(len(sample)), ids=[str(case) for case in sample])
def test_break_at_a_few_instructions(i: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All instructions of all programs are tried in ``tests/slow``."""
    assert break_at(sample[i], monkeypatch, FEW, first=i) > 20


@pytest.mark.parametrize("case", programs[3 :: 2 * EVERY], ids=str)
def test_break_after_every_few_instructions(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    found, forcing = forced_run(case, monkeypatch, {5}, everywhere=True)
    assert compare(run(case, None), found) > 0
    assert forcing.forced > 0 or case.expected["breaks"]


def test_a_break_before_a_scaler_makes_its_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scale was made ahead of the graph, and once more by the frame that had asked for it."""
    (case,) = [case for case in programs if str(case) == "gradients_scaled"]
    native = run(case, None)
    for every in (6, 7, 9):
        found, forcing = forced_run(case, monkeypatch, {every}, everywhere=True)
        assert compare(native, found) > 100 and forcing.forced > 10
