"""What came of a case: a verdict is a value with measured evidence, never a boolean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """Ordered from harmless to worst; the verdict on a case is the worst of its findings."""

    PASS = "pass"
    REASSOCIATION = "reassociation noise"
    PRECISION = "precision-cast difference"
    NONDETERMINISM = "nondeterminism"
    NOT_COMPILED = "not compiled"
    REFUSED = "refused"
    WRONG = "wrong"
    CRASH = "crash"

    @property
    def severity(self) -> int:
        return list(Kind).index(self)


#: The aspect of a case that was not run for want of a package: nothing of the compiler's.
MISSING_PACKAGE = "missing package"


@dataclass(frozen=True)
class Finding:
    """One difference between what was expected and what was found.

    ``aspect`` is what differs: ``values``, ``dtype``, ``shape``, ``strides``, ``aliasing``,
    ``identity``, ``exception``, ``printed``, ``rng``, ``recompiles``, ``process``, ... ``where`` is
    a Python expression over the namespace of the case after step ``step`` (``outs[0]``, ``x``,
    ``model.bias``), so a repro script can evaluate it. ``tolerated``: does not count against the
    compiler (noise; or the compiled side is the more precise one; or eager itself is not
    deterministic). ``evidence`` holds what was measured.
    """

    kind: Kind
    aspect: str
    where: str
    step: int
    expected: str
    found: str
    tolerated: bool = False
    evidence: Mapping[str, Any] = field(default_factory=dict)

    @property
    def failure_class(self) -> tuple[str, str, str]:
        """What a reduced case must keep in order to be the same failure.

        Of an exception that is missing, or another one, also what eager raises.
        """
        raised = self.expected.partition(":")[0] if self.aspect == "exception" else ""
        return (self.kind.value, self.aspect, raised)

    def __str__(self) -> str:
        place = f" at {self.where}" if self.where else ""
        return f"{self.aspect}{place}: expected {self.expected}, found {self.found}"


@dataclass(frozen=True)
class Compiled:
    """What the compiler did during one step, or (added up) during a case.

    ``graphs``: graphs handed to the backend, of ``nodes`` nodes; ``calls``: calls of what it gave
    back; ``eager_calls``: how many of those ran the captured graph itself, eagerly; ``kernels``
    (``None``: the backend does not say) and ``fallback``: its own report; ``aten``: the ATen
    operators, views and allocations aside, that compiled code called.
    """

    graphs: int = 0
    nodes: int = 0
    calls: int = 0
    eager_calls: int = 0
    breaks: int = 0
    recompiles: int = 0
    kernels: int | None = None
    fallback: str | None = None
    aten: tuple[str, ...] = ()

    def __add__(self, other: Compiled) -> Compiled:
        known = [k for k in (self.kernels, other.kernels) if k is not None]
        return Compiled(
            graphs=self.graphs + other.graphs,
            nodes=self.nodes + other.nodes,
            calls=self.calls + other.calls,
            eager_calls=self.eager_calls + other.eager_calls,
            breaks=self.breaks + other.breaks,
            recompiles=self.recompiles + other.recompiles,
            kernels=sum(known) if known else None,
            fallback=self.fallback or other.fallback,
            aten=tuple(sorted({*self.aten, *other.aten})),
        )


class Census(StrEnum):
    """What became of an operator: the columns of the census, from best to worst.

    Compiled code that calls ATen *fell back*, unless the specification says that the operator is
    left to ATen.
    """

    COMPILED = "compiled"
    LEFT_TO_ATEN = "left to ATen"
    FELL_BACK = "fell back"
    WRONG = "wrong"
    REFUSED = "refused"
    CRASHED = "crashed"


@dataclass(frozen=True)
class Verdict:
    """The judgement on one case, with ``comparisons`` that were really made.

    ``raised``: what eager's steps ended with, by class, where that was an exception.
    """

    findings: tuple[Finding, ...] = ()
    comparisons: int = 0
    compiled: Compiled = field(default_factory=Compiled)
    raised: tuple[str, ...] = ()

    @property
    def worst(self) -> Finding | None:
        """The finding that decides: intolerable before tolerated, then the most severe, first."""
        if not self.findings:
            return None
        return max(self.findings, key=lambda f: (not f.tolerated, f.kind.severity))

    @property
    def kind(self) -> Kind:
        return self.worst.kind if self.worst else Kind.PASS

    @property
    def conforms(self) -> bool:
        return all(finding.tolerated for finding in self.findings)

    @property
    def census(self) -> Census:
        match self.kind:
            case Kind.CRASH:
                return Census.CRASHED
            case Kind.REFUSED:
                return Census.REFUSED
            case Kind.NOT_COMPILED:
                return Census.FELL_BACK
        if not self.conforms:
            return Census.WRONG
        if self.compiled.aten or self.compiled.fallback or self.compiled.eager_calls:
            return Census.FELL_BACK
        return Census.COMPILED


def verdict_of(
    findings: Sequence[Finding], comparisons: int, compiled: Compiled, raised: Sequence[str] = ()
) -> Verdict:
    """The verdict, where a case that compared nothing is itself a failure."""
    if not comparisons and not findings:
        nothing = Finding(
            Kind.WRONG, "comparisons", "", 0, "at least one comparison", "none was made"
        )
        return Verdict((nothing,), 0, compiled, tuple(raised))
    return Verdict(tuple(findings), comparisons, compiled, tuple(raised))


def crash(aspect: str, found: str, **evidence: Any) -> Verdict:
    """The verdict on a case that ended its process (``process``) or never ended (``hang``)."""
    expected = "an answer" if aspect == "hang" else "a living process"
    return Verdict((Finding(Kind.CRASH, aspect, "", 0, expected, found, evidence=evidence),))
