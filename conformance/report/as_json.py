"""A report as JSON, for programs. The keys are documented in ``docs/conformance.md``."""

from __future__ import annotations

import json
import math
from typing import Any

from conformance.render import inputs_source
from conformance.report.results import Report, Result
from conformance.verdict import Finding

SCHEMA = 1


def dump(report: Report) -> str:
    """The text. Strict JSON: NaN and infinities are strings."""
    return json.dumps(as_data(report), indent=1, allow_nan=False) + "\n"


def as_data(report: Report) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "compiler": report.compiler,
        "frontend": report.frontend,
        "command": report.command,
        "settings": dict(report.settings),
        "versions": dict(report.versions),
        "seconds": round(report.seconds, 2),
        "conforms": report.conforms,
        "stopped": report.stopped,
        "comparisons": report.comparisons,
        "verdicts": {
            suite: {str(kind): n for kind, n in report.verdict_counts(suite).items()}
            for suite in report.suites()
        },
        "census": {
            suite: {
                subject: {variant: dict(counts) for variant, counts in row.items()}
                for subject, row in report.census(suite).items()
            }
            for suite in report.suites()
        },
        "stale_expectations": [
            {"id": entry.pattern, "reason": entry.reason} for entry in report.stale
        ],
        "results": [_result(result) for result in report.results],
    }


def _result(result: Result) -> dict[str, Any]:
    verdict, case = result.verdict, result.case
    data: dict[str, Any] = {
        "id": case.id,
        "suite": case.suite,
        "subject": case.subject,
        "variant": case.variant,
        "verdict": str(verdict.kind),
        "conforms": result.conforms,
        "census": str(result.census),
        "comparisons": verdict.comparisons,
        "seconds": round(result.seconds, 4),
        "graphs": verdict.compiled.graphs,
        "nodes": verdict.compiled.nodes,
        "breaks": verdict.compiled.breaks,
        "recompiles": verdict.compiled.recompiles,
        "kernels": verdict.compiled.kernels,
        "aten": list(verdict.compiled.aten),
    }
    if result.expected is not None:
        data["expected_failure"] = result.expected.reason
    if verdict.findings:
        data["findings"] = [_finding(finding) for finding in verdict.findings]
    if not result.conforms:
        smallest = result.shrunk[0] if result.shrunk else case
        data["program"] = smallest.program.source
        data["inputs"] = inputs_source(smallest.inputs, smallest.device)
        data["history"] = [step.source for step in smallest.history]
        data["repro"] = result.repro
        data["repro_confirmed"] = result.confirmed
        data["repro_printed"] = result.printed
    return data


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "kind": str(finding.kind),
        "aspect": finding.aspect,
        "where": finding.where,
        "step": finding.step,
        "expected": finding.expected,
        "found": finding.found,
        "tolerated": finding.tolerated,
        "evidence": {key: _plain(value) for key, value in finding.evidence.items()},
    }


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, complex):
        return repr(value)
    return list(value) if isinstance(value, tuple) else value
