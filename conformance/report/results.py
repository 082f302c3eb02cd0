"""The results of a run, and what is counted over them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from conformance.case import Case
from conformance.verdict import MISSING_PACKAGE, Census, Kind, Verdict
from conformance.xfails import Expectation
from specs.operators import OPERATORS


def packet(name: str) -> str:
    """``aten.add`` of ``aten.add.Tensor``."""
    return ".".join(name.split(".")[:2])


@cache
def left_to_aten() -> frozenset[str]:
    """The operators of which no overload has a lowering, and the write to a mutated input."""
    lowered = {packet(row.name) for row in OPERATORS if row.lowering is not None}
    return frozenset(packet(row.name) for row in OPERATORS) - lowered | {"aten.copy_"}


@dataclass(frozen=True)
class Result:
    """What came of one case.

    ``seconds``: how long it took. ``expected``: the entry of the user's file that expects this
    failure. ``shrunk``: the smallest case found that fails alike, with its verdict. ``repro``: the
    script's file name inside the report folder, ``confirmed`` when it was run alone and failed
    (``None``: it was not tried), and what it ``printed`` then.
    """

    case: Case
    verdict: Verdict
    seconds: float
    expected: Expectation | None = None
    shrunk: tuple[Case, Verdict] | None = None
    repro: str | None = None
    confirmed: bool | None = None
    printed: str = ""

    @property
    def conforms(self) -> bool:
        return self.verdict.conforms

    @property
    def census(self) -> Census:
        """The verdict's, where a call of ATen that the specification asks for is no fallback."""
        found, compiled = self.verdict.census, self.verdict.compiled
        if found is not Census.FELL_BACK or not compiled.aten:
            return found
        if self.verdict.kind is Kind.NOT_COMPILED or compiled.fallback or compiled.eager_calls:
            return found
        if self.case.left_to_aten or {packet(name) for name in compiled.aten} <= left_to_aten():
            return Census.LEFT_TO_ATEN
        return found

    @property
    def fails(self) -> bool:
        """Counts against the compiler."""
        return not self.conforms and self.expected is None


@dataclass(frozen=True)
class Report:
    """A whole run. ``settings`` are its options in words; ``versions`` what it ran on.

    ``stopped``: why it ended before everything was judged, in a line; empty for a whole run.
    """

    compiler: str
    frontend: str
    settings: Mapping[str, str]
    versions: Mapping[str, str]
    results: tuple[Result, ...]
    seconds: float
    stale: tuple[Expectation, ...] = ()
    command: str = ""
    stopped: str = ""

    @property
    def conforms(self) -> bool:
        """The run is whole, compared something, and no case failed that was not expected to."""
        if self.stopped or not self.comparisons:
            return False
        return not any(result.fails for result in self.results)

    @property
    def comparisons(self) -> int:
        return sum(result.verdict.comparisons for result in self.results)

    @property
    def not_run(self) -> list[str]:
        """What was not judged for want of a package, as lines that say what to install."""
        wanting = Counter(
            f"{finding.expected} is {finding.found}"
            for result in self.results
            for finding in result.verdict.findings
            if finding.aspect == MISSING_PACKAGE
        )
        return [f"{count} cases were not run: {why}" for why, count in wanting.items()]

    @property
    def failures(self) -> list[Result]:
        return [result for result in self.results if result.fails]

    def suites(self) -> list[str]:
        return list(dict.fromkeys(result.case.suite for result in self.results))

    def verdict_counts(self, suite: str | None = None) -> dict[Kind, int]:
        """How many cases got which verdict, every verdict listed."""
        chosen = [r for r in self.results if suite in (None, r.case.suite)]
        counts = Counter(result.verdict.kind for result in chosen)
        return {kind: counts[kind] for kind in Kind}

    def census(self, suite: str) -> dict[str, dict[str, Counter[Census]]]:
        """Subject -> variant -> how many cases compiled, fell back, were wrong, ..."""
        table: dict[str, dict[str, Counter[Census]]] = {}
        for result in self.results:
            if result.case.suite == suite:
                row = table.setdefault(result.case.subject, {})
                row.setdefault(result.case.variant, Counter())[result.census] += 1
        return table
