"""What was found out, in plain data, which pickles and needs no torch, and in lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from conformance.verdict import Finding, Kind

_FATAL, _FRAMES = "Fatal Python error", 8  # what a handler of faults begins with, lines of it
_MEANING = {
    Kind.PASS: "nothing differs from eager",
    Kind.REASSOCIATION: "values differ, by no more than rounding explains: no graph is further "
    "from float64 than eager's own error",
    Kind.PRECISION: "values differ by the precision in which they are computed",
    Kind.NONDETERMINISM: "run twice, it gives two answers",
    Kind.NOT_COMPILED: "nothing was compiled",
    Kind.REFUSED: "the compiler refuses the program",
    Kind.WRONG: "it differs from eager, and rounding does not explain it",
    Kind.CRASH: "it ends in an error, or its process does",
}


@dataclass(frozen=True)
class Operator:
    """The first operator of a graph whose error is not that of its inputs.

    ``alone``: it fails with eager's inputs and nothing beside it; else only in ``group``, the
    operators up to it. ``draws``: it takes random numbers. ``kind``: of what
    it does alone, which may be a lower precision. ``nodes``: how many the graph has.
    """

    node: str
    name: str
    place: str
    alone: bool
    group: tuple[str, ...]
    nodes: int
    draws: bool = False
    kind: Kind = Kind.WRONG
    evidence: Mapping[str, Any] = field(default_factory=dict)
    finding: str = ""


@dataclass(frozen=True)
class Graph:
    """A captured graph: its number in the order of compilation, and the user's line that it
    begins with."""

    number: int
    nodes: int
    place: str = ""


@dataclass(frozen=True)
class Counts:
    """What was really done."""

    graphs: int = 0
    calls: int = 0  # of the program's compiled functions
    graph_calls: int = 0
    comparisons: int = 0
    compilations: int = 0
    processes: int = 0
    seconds: float = 0.0
    kernels: int | None = None


@dataclass(frozen=True)
class Rung:
    """One step of the ladder as it came out. ``verdict``: its worst, or why it does not apply."""

    stage: str
    what: str
    verdict: str
    differs: bool
    applies: bool = True


@dataclass(frozen=True)
class Located:
    """The verdict on a program under a compiler, and where it comes from.

    ``finding``: the worst difference, at ``event`` ("call 2 of model, train.py:9"). ``stage``,
    ``graph``, ``direction`` (forward or backward), ``operator``: where a failure begins, as far
    as it could be told. ``script``: a standalone program that fails alike; ``confirmed``: it was
    run, and did.
    """

    compiler: str
    kind: Kind
    finding: Finding | None = None
    event: str = ""
    stage: str = ""
    graph: Graph | None = None
    direction: str = ""
    operator: Operator | None = None
    ladder: tuple[Rung, ...] = ()
    findings: tuple[tuple[str, Finding], ...] = ()  # with the event of each
    remarks: tuple[str, ...] = ()
    counts: Counts = field(default_factory=Counts)
    versions: Mapping[str, str] = field(default_factory=dict)
    script: str = ""
    confirmed: bool | None = None

    @property
    def differs(self) -> bool:
        """Whether it is a failure: not where nothing differs, or by rounding alone."""
        return self.finding is not None and not self.finding.tolerated

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def _lines(found: Located) -> Iterator[str]:
    yield f"{found.compiler}: {found.kind} ({_MEANING[found.kind]})"
    if found.finding is not None:
        yield f"  first at {found.event}"
        yield f"  {found.finding}"
        yield from (f"    {line}" for line in _measured(found.finding))
    if found.differs:
        yield from _where(found)
    others = [pair for pair in found.findings if pair[1] is not found.finding]
    if others:
        yield f"  {len(others)} more differences, such as"
        for event, finding in others[:4]:
            yield f"    {finding.kind} at {event}: {finding}"
            yield from (f"      {line}" for line in _last_words(finding))
    for remark in found.remarks:
        yield f"  note: {remark}"
    yield _counted(found)


def _where(found: Located) -> Iterator[str]:
    if found.ladder:
        yield "ladder (each adds one stage; the first that fails names it)"
    for rung in found.ladder:
        mark = "fails" if rung.differs else "     " if rung.applies else "  -  "
        yield f"  {mark} {rung.stage:18} {rung.what}: {rung.verdict}"
    yield f"stage:     {found.stage or 'not told'}"
    if found.graph is not None:
        place = f", begins at {found.graph.place}" if found.graph.place else ""
        yield f"graph:     {found.graph.number}, {found.graph.nodes} nodes{place}"
        yield f"direction: {found.direction or 'not told'}"
    if found.operator is not None:
        yield from _operator(found.operator)


def _operator(operator: Operator) -> Iterator[str]:
    yield f"operator:  {operator.name} (node {operator.node} of {operator.nodes})"
    if operator.place:
        yield f"  {operator.place}"
    if operator.alone:
        yield "  fails alone, from eager's inputs"
    else:
        yield f"  fails only together with those before it: {', '.join(operator.group)}"
    yield f"  {operator.kind}: {operator.finding}"
    yield from (f"    {line}" for line in _told(operator.evidence))


def _measured(finding: Finding) -> Iterator[str]:
    if finding.aspect == "values":
        yield from _told(finding.evidence)
    yield from _last_words(finding)
    yield from str(finding.evidence.get("traceback", "")).strip().splitlines()[-3:]


def _last_words(finding: Finding) -> list[str]:
    """Of a process that has died: what its handler of faults has printed, first the error and the
    innermost frames; else what it has printed last."""
    lines = [line for line in str(finding.evidence.get("log", "")).splitlines() if line.strip()]
    return lines[:_FRAMES] if lines and lines[0].startswith(_FATAL) else lines[-3:]


def _told(evidence: object) -> Iterator[str]:
    if not isinstance(evidence, dict) or not evidence.get("float64"):
        return
    yield (
        f"to float64 ({evidence['reference']!r} there): compiled {evidence['ulp_to_float64']:.4g} "
        f"ulp, eager at most {evidence['ulp_of_eager']:.4g}; allowed are {evidence['allowed']:.3g}"
    )
    yield f"{evidence['unexplained']} of {evidence['elements']} elements are not explained"


def _counted(found: Located) -> str:
    counts = found.counts
    kernels = "" if counts.kernels is None else f", {counts.kernels} kernels"
    return (
        f"looked at: {counts.calls} calls, {counts.graphs} graphs with {counts.graph_calls} calls"
        f"{kernels}; {counts.comparisons} comparisons, {counts.compilations} compilations in "
        f"{counts.processes} processes, {counts.seconds:.1f} s"
    )
