"""Runs CPython's own tests through the interpreter, or compiled, and prints what passes."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from tests.slow.cpython.campaign import COMPILED, FILES
from tests.slow.cpython.harness import (
    REASONS,
    FileReport,
    captured,
    happened,
    judge,
    missing,
    reasons,
    run_file,
    sometimes,
    table,
)

FEW = 4  # failures with one message are shown each, more are not
#: Of the methods that pass natively.
REQUIRED = {"interpreted": 0.995, "compiled": 0.965}
#: Of the compiled methods: those that were captured, not run natively from their beginning.
CAPTURED = 0.98


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.slow.cpython", description=__doc__)
    parser.add_argument("files", nargs="*", help="names like test_grammar (none: the campaign)")
    parser.add_argument(
        "--compiled",
        action="store_true",
        help="compile each method (refcompiler.compile, backend eager) in place of interpreting it",
    )
    parser.add_argument("-k", default="", metavar="TEXT", help="only methods with TEXT in their id")
    parser.add_argument(
        "--limit",
        type=float,
        help="seconds for each method (300 interpreted, 60 compiled)",
    )
    parser.add_argument(
        "--file-limit", type=float, default=3600.0, help="seconds for each of a file's two runs"
    )
    parser.add_argument("--jobs", type=int, default=1, help="files that run at the same time")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write everything there")
    parser.add_argument("-v", action="store_true", help="show the whole text of each failure")
    given = parser.parse_args()
    mode = "compiled" if given.compiled else "interpreted"
    limit = given.limit or (60.0 if given.compiled else 300.0)
    why = missing()
    if why:
        print(f"nothing was run: {why}")
        return 1
    known = reasons(mode)
    done: list[FileReport] = []

    def run(name: str) -> FileReport:
        report = run_file(name, limit, given.k, given.file_limit, mode)
        print(f"{name}: {report.passed} of {report.due} {report.error}", flush=True)
        alike = Counter(outcome.message for outcome in report.failures().values())
        shown: set[str] = set()
        for test, outcome in report.failures().items():
            if outcome.message in shown:
                continue
            if alike[outcome.message] > FEW:
                shown.add(outcome.message)
                print(f"    {alike[outcome.message]} methods like this one:")
            note = f" [{known[test]}]" if test in known else ""
            print(f"    {outcome.outcome} {test}: {outcome.message}{note}", flush=True)
            if given.v:
                print(outcome.text)
        done.append(report)
        if given.json:  # what is known so far, should somebody end this
            given.json.write_text(json.dumps([asdict(report) for report in done], indent=1))
        return report

    with ThreadPoolExecutor(given.jobs) as pool:
        reports = list(pool.map(run, given.files or (COMPILED if given.compiled else FILES)))
    verdict = judge(reports, known, sometimes(mode))
    print(f"\n{table(reports, mode)}\n")
    print(
        f"{len(reports)} files: {verdict.passed} of {verdict.due} methods that pass natively pass "
        f"{mode} ({verdict.ratio:.2%}); without a reason: {len(verdict.unexplained)}"
    )
    enough = True
    if given.compiled:
        print(happened(reports))
        enough = captured(reports) >= CAPTURED
    for name in verdict.stale:
        print(f"stale: {name} passes, so its entry in {REASONS[mode].name} has to go")
    for name, error in verdict.empty.items():
        print(f"unfinished: {name}: {error or 'no methods'}")
    return 0 if enough and verdict.ok(REQUIRED[mode]) else 1


if __name__ == "__main__":
    sys.exit(main())
