"""Runs the program in processes, and counts what they do; what one run came to."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from conformance.faults import messages
from conformance.faults.apart import Ended, apart
from conformance.faults.experiment import Chosen, run
from conformance.faults.levels import Step
from conformance.faults.programs import Program
from conformance.faults.result import Graph
from conformance.faults.watch import Plan
from conformance.faults.weigh import Run, main_finding
from conformance.verdict import Finding, Kind, crash

DEFAULT_TIMEOUT = 120.0
Progress = Callable[[str], None]


@dataclass
class Lab:
    """Runs the program in processes, and counts."""

    program: Program
    chosen: Chosen
    timeout: float = DEFAULT_TIMEOUT
    fresh_thread: bool = False
    progress: Progress = lambda text: None
    shows: bool = False
    processes: int = 0
    comparisons: int = 0
    compilations: int = 0
    slowest: float = 0.0

    def process(self, plan: Plan, step: Step | None = None, timeout: float = 0.0) -> Ended:
        config: Any = ()
        if step is not None:
            plan = replace(
                plan, level=step.level, runs_graphs=step.runs_graphs, options=step.options
            )
            config = step.config
        self.processes += 1
        start = time.monotonic()
        ended = apart(
            lambda say: run(self.program, self.chosen, plan, config, say),
            timeout or self.timeout,
            self.fresh_thread,
        )
        if ended.how != "hang":
            self.slowest = max(self.slowest, time.monotonic() - start)
        for message in ended.said:
            match message:
                case messages.GraphSeen(_, _, verdict):
                    self.comparisons += verdict.comparisons
                case messages.Compiling():
                    self.compilations += not plan.runs_graphs and plan.compiled
                case messages.Probed(_, verdict):
                    self.compilations += 1
                    self.comparisons += verdict.comparisons
        return ended


@dataclass
class Side:
    """One run of the program under some form of the compiler, beside eager's."""

    ended: Ended
    run: Run
    findings: list[Finding] = field(default_factory=list)

    @property
    def worst(self) -> Finding | None:
        return main_finding(self.findings)

    @property
    def fails(self) -> bool:
        return self.worst is not None and not self.worst.tolerated

    def graphs(self) -> dict[int, Graph]:
        found = [m.graph for m in self.ended.said if isinstance(m, messages.Compiling)]
        return {graph.number: graph for graph in found}

    def at(self, finding: Finding) -> str:
        labels = [event.label for event in self.run.events]
        return labels[finding.step] if finding.step < len(labels) else "the process"


def ends_of(ended: Ended, seen: Run) -> list[Finding]:
    """What the process's own end says."""
    last = max(len(seen.events) - 1, 0)
    if ended.died:
        how = "hang" if ended.how == "hang" else "process"
        (finding,) = crash(how, ended.detail, log=ended.printed).findings
        return [replace(finding, step=last + 1)]
    if seen.failed is not None:
        if any(event.seen.error is not None for event in seen.events):
            return []  # seen where it was raised
        evidence = {"traceback": seen.failed.traceback}
        return [
            Finding(
                Kind.CRASH, "exception", "the program", last + 1, "an answer", seen.failed.line,
                evidence=evidence,
            )
        ]  # fmt: skip
    return []


def versions() -> dict[str, str]:
    import torch

    from specs.version import VERSION

    return {
        "refcompiler": VERSION,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
