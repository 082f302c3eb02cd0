"""What the compiler did with a graph: so that nothing runs eagerly without being seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Report:
    """``kernels`` is the number of generated kernels (launches per call); ``aten_calls`` counts
    operators left to ATen, ``reasons`` says why; ``draws`` counts kernels that draw random
    numbers, and ``products`` matrix products that kernels compute; ``direct`` of those left to ATen
    are products that the vendor's library is asked for without it; ``nodes`` is the number of ATen
    nodes captured. ``fallback`` is why the whole graph runs uncompiled, or None. Of a graph that is
    trained, all this is said of the forward;
    ``backwards`` has one more report for each compiled backward, which are compiled when they
    first run, and ``overlapping`` one for each way in which inputs overlapped one that is
    written to. ``graphs`` is the number of device graphs recorded, ``ungraphed`` counts the calls
    that ran without one though they were asked for, and ``why_ungraphed`` is the last's reason."""

    kernels: int = 0
    aten_calls: dict[str, int] = field(default_factory=Counter)
    draws: dict[str, int] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    products: int = 0
    direct: int = 0
    nodes: int = 0
    fallback: str | None = None
    backwards: list[Report] = field(default_factory=list)
    overlapping: list[Report] = field(default_factory=list)
    crowded: int = 0  # calls that ran the graph as it is: too many combinations of sizes
    graphs: int = 0
    ungraphed: int = 0
    why_ungraphed: str = ""
    tell: Callable[[str], None] | None = None  # told of a part that falls back later
    guarded: Any = None  # what is called where a call's inputs are not what was compiled for

    def falls_back(self, reason: str) -> None:
        """What this is the report of runs as it is from now on."""
        self.fallback = reason
        if self.tell is not None:
            self.tell(reason)

    def of_backward(self) -> Report:
        """The report of one more backward, whose fallback is told of as one of the program's."""
        found = Report(tell=lambda reason: self.tell and self.tell(f"its backward: {reason}"))
        self.backwards.append(found)
        return found

    @property
    def runtime_fallbacks(self) -> int:
        """Calls that ran the graph as it is: overlaps that no program serves, too many sizes."""
        return self.crowded + (self.guarded.calls if self.guarded is not None else 0)

    def __str__(self) -> str:
        if self.fallback:
            return f"not compiled: {self.fallback}"
        lines = [f"{self.kernels} kernels for {self.nodes} ATen nodes"]
        lines += [f"{count:5d} x {name}: drawn by a kernel" for name, count in self.draws.items()]
        if self.products:
            lines.append(f"{self.products:5d} matrix products computed by kernels")
        if self.direct:
            lines.append(f"{self.direct:5d} products that the vendor's library is asked for itself")
        for name, count in sorted(self.aten_calls.items(), key=lambda pair: -pair[1]):
            lines.append(f"{count:5d} x {name}: {self.reasons.get(name, '')}")
        if self.graphs or self.ungraphed:
            lines.append(f"{self.graphs} device graphs, {self.ungraphed} calls without one")
        if self.why_ungraphed:
            lines.append(f"without a device graph, the last time: {self.why_ungraphed}")
        for what in ("overlapping", "backwards"):
            lines += [f"{what}: {report}" for report in getattr(self, what)]
        return "\n".join(lines)


_last: list[Report] = []


def last_report() -> Report | None:
    """The report of the graph compiled last in this process, or None before the first."""
    return _last[-1] if _last else None


def remember(report: Report) -> Report:
    _last[:] = [report]
    return report
