"""What was found out: plain data, which pickles and needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from conformance.verdict import Finding, Kind


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
        from conformance.faults.text import text

        return text(self)
