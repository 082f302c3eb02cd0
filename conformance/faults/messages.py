"""What a process says while it runs the program: plain data, in the order in which it happens."""

from __future__ import annotations

from dataclasses import dataclass

from conformance.case import Case
from conformance.faults.result import Graph, Operator
from conformance.observe import StepSeen
from conformance.verdict import Finding, Verdict


@dataclass(frozen=True)
class Asked:
    """The program calls ``compile``: with this backend, of this front end. ``compiles``: it says
    so, and is not there for debugging. ``options``: it has others beside the backend."""

    backend: str
    frontend: str
    compiles: bool = True
    options: bool = False


@dataclass(frozen=True)
class Compiling:
    """A graph is handed to the backend."""

    graph: Graph


@dataclass(frozen=True)
class Ahead:
    """A backend compiles ahead of time by an ``aot_autograd`` that is known; ``gradients``: it
    has a backward, so that it is partitioned."""

    gradients: bool


@dataclass(frozen=True)
class Running:
    """A compiled graph begins to run: its call of that number, ``forward`` or ``backward``."""

    graph: int
    call: int
    direction: str


@dataclass(frozen=True)
class GraphSeen:
    """The verdict on a graph's call by itself."""

    graph: int
    call: int
    verdict: Verdict


@dataclass(frozen=True)
class Skipped:
    """A graph's call that was not looked at by itself, and why."""

    graph: int
    call: int
    why: str


@dataclass(frozen=True)
class Event:
    """Something that the program did, and what a user can see after it."""

    label: str
    seen: StepSeen


@dataclass(frozen=True)
class Looking:
    """A probe of that name begins."""

    probe: str


@dataclass(frozen=True)
class Probed:
    probe: str
    verdict: Verdict


@dataclass(frozen=True)
class Searched:
    """What a search in one call of a graph came to. ``cases``: the smallest graph that fails, as
    another process can run it, in the order in which to try them; or ``why`` there is none."""

    operator: Operator | None
    remark: str
    finding: Finding | None
    probes: int
    cases: tuple[Case, ...] = ()
    why: str = ""
