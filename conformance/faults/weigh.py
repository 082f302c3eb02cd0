"""What two runs of a program differ in, and what each difference is: the graphs tell.

Values are judged where their inputs are the same on both sides, graph by graph, by float64: what
the program's own values differ in is what its graphs' do, carried on by everything after them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from conformance.case import Tolerance
from conformance.compare import compare
from conformance.faults.apart import Failed
from conformance.faults.events import Thin
from conformance.faults.isolate import case_of, worst
from conformance.faults.messages import Event, GraphSeen, Running
from conformance.numeric import Closeness, closeness
from conformance.observe import Observation
from conformance.verdict import Finding, Kind

_NUMBERS = ("float", "int", "complex", "bool")


@dataclass(frozen=True)
class Run:
    """What one process said of the program, in order."""

    events: tuple[Event, ...]
    graphs: tuple[tuple[int, GraphSeen], ...]  # with the number of events before the call
    failed: Failed | None = None

    @staticmethod
    def of(said: Sequence[Any]) -> Run:
        events: list[Event] = []
        graphs: list[tuple[int, GraphSeen]] = []
        begun: dict[tuple[int, int], int] = {}
        failed = None
        for message in said:
            match message:
                case Event():
                    events.append(message)
                case Running(graph, call, "forward"):
                    begun[graph, call] = len(events)
                case GraphSeen(graph, call):  # which may have waited for the backward
                    graphs.append((begun.get((graph, call), len(events)), message))
                case Failed():
                    failed = message
        return Run(tuple(events), tuple(graphs), failed)

    def bad(self) -> list[tuple[int, GraphSeen, Finding]]:
        """The calls of graphs that count against the compiler, in order."""
        found = [(at, seen, worst(seen.verdict)) for at, seen in self.graphs]
        return [(at, seen, finding) for at, seen, finding in found if finding is not None]


def differences(eager: Run, other: Run, compiles: bool = True) -> tuple[list[Finding], int]:
    """All that a user sees differ, with the number of the event as the step, and how many
    comparisons that took. Values that differ are wrong until :func:`weighed`."""
    count = min(len(eager.events), len(other.events))
    pairs = list(zip(eager.events[:count], other.events[:count]))
    same = [a.label.partition(",")[0] == b.label.partition(",")[0] for a, b in pairs]
    together = same.index(False) if False in same else count
    case = case_of([event.label for event in eager.events[:together]])
    sides = (eager.events[:together], other.events[:together])
    expected, found = (Observation(tuple([e.seen for e in side])) for side in sides)
    if not together:
        return [], 0
    result = compare(case, expected, found, _judge, compiles)
    if together < max(len(eager.events), len(other.events)) and other.failed is None:
        one, two = (_label(run, together) for run in (eager, other))
        result.add(Kind.WRONG, "history", "", together - 1, one, two)
    return result.findings, result.count


def _label(run: Run, number: int) -> str:
    return run.events[number].label if number < len(run.events) else "nothing"


def _judge(step: int, path: str, one: Any, other: Any) -> Closeness:
    assert isinstance(one, Thin) and isinstance(other, Thin)
    if one.digest == other.digest:
        return Closeness(Kind.PASS)
    evidence = closeness(one.values, other.values, Tolerance()).evidence
    evidence = {**evidence, "elements": None}  # of the sample
    return Closeness(Kind.WRONG, tolerated=False, evidence=evidence)


def weighed(findings: Sequence[Finding], run: Run) -> list[Finding]:
    """``findings`` with the values' judged by what the graphs of ``run`` did up to then."""
    return [_weighed(finding, run) if is_value(finding) else finding for finding in findings]


def is_value(finding: Finding) -> bool:
    """Of numbers: a tensor's, or Python's own that were read from one."""
    if finding.aspect == "object":
        kinds = {text.partition(" ")[0] for text in (finding.expected, finding.found)}
        return len(kinds) == 1 and kinds <= set(_NUMBERS)
    return finding.aspect == "values"


def _weighed(finding: Finding, run: Run) -> Finding:
    before = [seen for at, seen in run.graphs if at <= finding.step]
    for seen in before:
        bad = worst(seen.verdict)
        if bad is not None and bad.aspect == "values":
            return replace(finding, kind=bad.kind, evidence={**finding.evidence, **bad.evidence})
    tolerated = [f for seen in before for f in seen.verdict.findings if f.aspect == "values"]
    if not tolerated:
        return finding
    kind = max((f.kind for f in tolerated), key=lambda k: k.severity)
    return replace(finding, kind=kind, tolerated=True)


def unseen(run: Run) -> list[Finding]:
    """Wrong values of a graph that nothing shows which was looked at: what the program does with
    them is its own."""
    found = []
    for at, seen, finding in run.bad():
        if finding.aspect == "values":
            where = f"{finding.where} of graph {seen.graph}, call {seen.call + 1}"
            found.append(replace(finding, where=where, step=min(at, len(run.events) - 1)))
    return found


def main_finding(findings: Sequence[Finding]) -> Finding | None:
    """What decides: what counts before what does not, then the earliest, then the gravest."""
    if not findings:
        return None
    return min(findings, key=lambda f: (f.tolerated, f.step, -f.kind.severity))
