"""Writes a report's files into its folder."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from conformance.report import as_html, as_json, as_junit
from conformance.report.results import Report


def missing_extra() -> str | None:
    """One line that says what to install before a report can be written, or ``None``."""
    if importlib.util.find_spec("jinja2") is None:
        return "writing a report needs jinja2: pip install 'refcompiler[report]'"
    return None


def write(report: Report, folder: Path) -> list[Path]:
    """``report.json``, ``junit.xml`` and ``index.html``, beside the repro scripts."""
    scripts = {
        result.repro: (folder / result.repro).read_text(encoding="utf-8")
        for result in report.results
        if result.repro
    }
    texts = {
        "report.json": as_json.dump(report),
        "junit.xml": as_junit.dump(report),
        "index.html": as_html.dump(report, scripts),
    }
    paths = []
    for name, text in texts.items():
        path = folder / name
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths
