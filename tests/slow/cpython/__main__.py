"""Runs CPython's own tests through the interpreter, and prints what passes."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from tests.slow.cpython.campaign import FILES
from tests.slow.cpython.harness import (
    FileReport,
    judge,
    missing,
    reasons,
    run_file,
    sometimes,
    table,
)

FEW = 4  # failures with one message are shown each, more are not
REQUIRED = 0.995  # of the methods that pass natively


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.slow.cpython", description=__doc__)
    parser.add_argument("files", nargs="*", help="names like test_grammar (none: the campaign)")
    parser.add_argument("-k", default="", metavar="TEXT", help="only methods with TEXT in their id")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for each method")
    parser.add_argument(
        "--file-limit", type=float, default=3600.0, help="seconds for each of a file's two runs"
    )
    parser.add_argument("--jobs", type=int, default=1, help="files that run at the same time")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write everything there")
    parser.add_argument("-v", action="store_true", help="show the whole text of each failure")
    given = parser.parse_args()
    why = missing()
    if why:
        print(f"nothing was run: {why}")
        return 1
    known = reasons()

    def run(name: str) -> FileReport:
        report = run_file(name, given.limit, given.k, given.file_limit)
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
        return report

    with ThreadPoolExecutor(given.jobs) as pool:
        reports = list(pool.map(run, given.files or FILES))
    if given.json:
        given.json.write_text(json.dumps([asdict(report) for report in reports], indent=1))
    verdict = judge(reports, known, sometimes())
    print(f"\n{table(reports)}\n")
    print(
        f"{len(reports)} files: {verdict.passed} of {verdict.due} methods that pass natively pass "
        f"in the interpreter ({verdict.ratio:.2%}); without a reason: {len(verdict.unexplained)}"
    )
    for name in verdict.stale:
        print(f"stale: {name} passes, so its entry in reasons.toml has to go")
    for name, error in verdict.empty.items():
        print(f"unfinished: {name}: {error or 'no methods'}")
    return 0 if verdict.ok(REQUIRED) else 1


if __name__ == "__main__":
    sys.exit(main())
