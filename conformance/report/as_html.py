"""A report as one HTML page that needs nothing else: no network, no other file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from conformance.render import inputs_source
from conformance.report.results import Report, Result
from conformance.verdict import Census, Kind

HERE = Path(__file__).parent
ORDER = list(Census)


def dump(report: Report, scripts: dict[str, str] | None = None) -> str:
    """The page. ``scripts``: the text of each repro script, by its file name in the report folder.

    Raises ``ImportError`` without jinja2.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.jinja").render(
        report=report,
        kinds=list(Kind),
        counts={suite: report.verdict_counts(suite) for suite in report.suites()},
        total=report.verdict_counts(),
        census=[_census(report, suite) for suite in report.suites()],
        failures=[_failure(r, scripts or {}) for r in report.results if not r.conforms],
        cases=[_case(result) for result in report.results],
        style=(HERE / "page.css").read_text(encoding="utf-8"),
        script=(HERE / "page.js").read_text(encoding="utf-8"),
    )


def _slug(text: object) -> str:
    return str(text).replace(" ", "-")


def _census(report: Report, suite: str) -> dict[str, Any]:
    table = report.census(suite)
    variants = list(dict.fromkeys(variant for row in table.values() for variant in row))
    rows = [
        {
            "subject": subject,
            "cells": [_cell(row.get(variant)) for variant in variants],
        }
        for subject, row in table.items()
    ]
    total = Counter(kind for row in table.values() for counts in row.values() for kind in counts)
    return {"suite": suite, "variants": variants, "rows": rows, "total": total}


def _cell(counts: Counter[Census] | None) -> dict[str, str]:
    if not counts:
        return {"name": "", "slug": "none", "title": ""}
    worst = max(counts, key=ORDER.index)
    title = ", ".join(f"{number} {kind}" for kind, number in counts.items())
    return {"name": str(worst), "slug": _slug(worst), "title": title}


def _failure(result: Result, scripts: dict[str, str]) -> dict[str, Any]:
    verdict = result.verdict
    case, shown = result.shrunk or (result.case, verdict)
    worst = shown.worst
    assert worst is not None
    return {
        "id": result.case.id,
        "suite": result.case.suite,
        "slug": _slug(verdict.kind),
        "kind": str(verdict.kind),
        "worst": str(worst),
        "expected_reason": result.expected.reason if result.expected else "",
        "findings": [str(finding) for finding in verdict.findings if not finding.tolerated],
        "evidence": {
            key: value
            for key, value in worst.evidence.items()
            if key not in ("traceback", "log") and value != ""
        },
        "trace": worst.evidence.get("traceback") or worst.evidence.get("log") or "",
        "program": case.program.source.strip(),
        "inputs": inputs_source(case.inputs, case.device),
        "history": "\n".join(step.source for step in case.history),
        "repro": result.repro,
        "confirmed": result.confirmed,
        "printed": result.printed,
        "script": scripts.get(result.repro or "", ""),
    }


def _case(result: Result) -> dict[str, Any]:
    compiled = result.verdict.compiled
    return {
        "id": result.case.id,
        "kind": str(result.verdict.kind),
        "slug": _slug(result.verdict.kind),
        "census": str(result.census),
        "comparisons": result.verdict.comparisons,
        "graphs": compiled.graphs,
        "breaks": compiled.breaks,
        "kernels": "" if compiled.kernels is None else compiled.kernels,
        "aten": ", ".join(compiled.aten),
        "milliseconds": round(result.seconds * 1000),
    }
