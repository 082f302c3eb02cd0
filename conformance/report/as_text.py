"""A report as tables in a terminal."""

from __future__ import annotations

from collections import Counter

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from conformance.report.results import Report
from conformance.verdict import Census, Kind
from specs import dtypes

STYLES = {
    Kind.PASS: "green",
    Kind.REASSOCIATION: "green",
    Kind.PRECISION: "yellow",
    Kind.NONDETERMINISM: "magenta",
    Kind.NOT_COMPILED: "yellow",
    Kind.REFUSED: "yellow",
    Kind.WRONG: "red",
    Kind.CRASH: "bold red",
}
# The worst that happened to an operator in a dtype, as one letter in the census.
MARKS = {
    Census.COMPILED: ("●", "green"),
    Census.LEFT_TO_ATEN: ("◐", "green"),
    Census.FELL_BACK: ("○", "cyan"),
    Census.REFUSED: ("–", "yellow"),
    Census.WRONG: ("✗", "red"),
    Census.CRASHED: ("!", "bold red"),
}
# Eighty columns hold ten dtypes only under short names.
SHORT = {
    "uint8": "u8",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
}
FAILURES_SHOWN = 20


def tables(report: Report) -> RenderableType:
    """Verdicts per suite, the census of the operators, and the first failures."""
    parts: list[RenderableType] = [_verdicts(report)]
    for suite in report.suites():
        table = _census(report, suite)
        if table is not None:
            parts.append(table)
    parts += _failures(report)
    parts += [Text(line, style="yellow") for line in report.not_run]
    for entry in report.stale:
        parts.append(
            Text(f"stale expectation, every case now conforms: {entry.pattern}", style="yellow")
        )
    return Group(*parts)


def _verdicts(report: Report) -> Table:
    """One row per verdict and one column per suite."""
    table = Table(title="verdicts", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("")
    suites = report.suites()
    for suite in suites:
        table.add_column(suite, justify="right")
    counts = {suite: report.verdict_counts(suite) for suite in suites}
    for kind in Kind:
        numbers = [str(counts[suite][kind] or "") for suite in suites]
        table.add_row(str(kind), *numbers, style=STYLES[kind])
    expected = [
        sum(r.expected is not None for r in report.results if r.case.suite == s) for s in suites
    ]
    if any(expected):
        table.add_row("of these, expected", *(str(n or "") for n in expected))
    return table


def _census(report: Report, suite: str) -> Table | None:
    """Subjects by variants, where the suite has more than one variant."""
    census = report.census(suite)
    variants = list(dict.fromkeys(v for row in census.values() for v in row))
    if len(variants) < 2:
        return None
    title = f"census of {suite}"
    caption = "  ".join(f"{mark} {kind}" for kind, (mark, _) in MARKS.items())
    table = Table(title=title, caption=caption, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.title_justify = table.caption_justify = "left"
    table.add_column("")
    if not set(variants) <= set(dtypes.ALL):
        # Variants that are phrases: in a line after the subject, each behind its mark.
        table.show_header = False
        for subject, row in census.items():
            words = Text("  ").join(
                Text.assemble(_mark(counts), " ", variant) for variant, counts in row.items()
            )
            table.add_row(subject, words)
        return table
    for variant in variants:
        table.add_column(SHORT.get(variant, variant), justify="center", no_wrap=True)
    for subject, row in census.items():
        marks = [_mark(row.get(variant)) for variant in variants]
        table.add_row(subject.removeprefix("aten.").removesuffix(".default"), *marks)
    return table


def _mark(counts: Counter[Census] | None) -> Text:
    if not counts:
        return Text("")
    worst = max(counts, key=list(MARKS).index)
    mark, style = MARKS[worst]
    return Text(mark, style=style)


def _failures(report: Report) -> list[RenderableType]:
    failures = report.failures
    lines: list[RenderableType] = []
    for result in failures[:FAILURES_SHOWN]:
        worst = result.verdict.worst
        line = Text()
        line.append(f"{result.verdict.kind}  ", style=STYLES[result.verdict.kind])
        line.append(result.case.id, style="bold")
        line.append(f"\n    {worst}")
        if result.repro:
            line.append(f"\n    {result.repro}", style="dim")
        lines.append(line)
    if len(failures) > FAILURES_SHOWN:
        lines.append(Text(f"... and {len(failures) - FAILURES_SHOWN} more", style="dim"))
    return lines
