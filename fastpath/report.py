"""What the compiler did with a graph: so that nothing runs eagerly without being seen."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Report:
    """``kernels`` is the number of generated kernels (launches per call); ``aten_calls`` counts
    operators left to ATen, ``reasons`` says why; ``nodes`` is the number of ATen nodes captured.
    ``fallback`` is why the whole graph runs uncompiled, or None."""

    kernels: int = 0
    aten_calls: dict[str, int] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    nodes: int = 0
    fallback: str | None = None
    runtime_fallbacks: int = 0  # calls that had to run the graph as is (overlapping memory)

    def __str__(self) -> str:
        if self.fallback:
            return f"not compiled: {self.fallback}"
        lines = [f"{self.kernels} kernels for {self.nodes} ATen nodes"]
        for name, count in sorted(self.aten_calls.items(), key=lambda pair: -pair[1]):
            lines.append(f"{count:5d} x {name}: {self.reasons.get(name, '')}")
        return "\n".join(lines)


_last: list[Report] = []


def last_report() -> Report | None:
    """The report of the graph compiled last in this process, or None before the first."""
    return _last[-1] if _last else None


def remember(report: Report) -> Report:
    _last[:] = [report]
    return report
