"""The interpreter against CPython: plain programs, processor time of the process."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.harness import Row, compare
from benchmarks.workloads import WORKLOADS, mix
from refcompiler import interpret

GOAL = 60


def rows() -> list[Row]:
    """One row for the even mix, whose ratio has a goal, and one for each of its parts."""
    return [row("all of them", mix, GOAL), *(row(f"`{w.__name__}`", w, None) for w in WORKLOADS)]


def row(name: str, workload: Callable[[], int], goal: float | None) -> Row:
    assert interpret(workload) == workload()
    return compare(
        name,
        lambda: interpret(workload),
        workload,
        against="CPython",
        goal=goal,
        rounds=11,
        sample=0.005,
        clock=time.process_time,
    )
