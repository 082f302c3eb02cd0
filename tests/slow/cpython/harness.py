"""CPython's own tests run through the interpreter or compiled, a worker process per file.

Each method is run natively first, and those that pass natively again in the interpreter, or
compiled. A method that kills its worker or exceeds its time costs only itself: a new worker goes on
after it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
#: For each way to run a method: the way that it is compared with, and the reasons of failures.
NATIVE = {"interpreted": "native", "compiled": "imported"}
REASONS = {"interpreted": HERE / "reasons.toml", "compiled": HERE / "compiled.toml"}


def missing() -> str | None:
    """Why the tests cannot run here, or None."""
    parts = ("test", "test.support", "test.test_grammar")  # some systems leave only the first two
    if any(importlib.util.find_spec(part) is None for part in parts):
        return "this Python comes without its own tests (the package test of its library)"
    return None


@dataclass
class Outcome:
    """What one method did. ``outcome`` is passed, failed, skipped, died or hung."""

    outcome: str
    text: str = ""
    frames: int = 0
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)  # compiled: refcompiler.counters()

    @property
    def message(self) -> str:
        """The last line that says something."""
        lines = [line for line in self.text.splitlines() if line.strip()]
        return lines[-1].strip() if lines else self.outcome


@dataclass
class FileReport:
    """``native`` and ``interpreted`` (or compiled) map the ids of methods to what they did."""

    name: str
    native: dict[str, Outcome] = field(default_factory=dict)
    interpreted: dict[str, Outcome] = field(default_factory=dict)
    error: str = ""  # why nothing was collected

    @property
    def due(self) -> int:
        return len(self.interpreted)

    @property
    def passed(self) -> int:
        return sum(o.outcome == "passed" for o in self.interpreted.values())

    @property
    def frames(self) -> int:
        return sum(o.frames for o in self.interpreted.values())

    def count(self, name: str) -> int:
        """Of one of the compiler's counters, over all methods."""
        return sum(o.counts.get(name, 0) for o in self.interpreted.values())

    @property
    def seconds(self) -> tuple[float, float]:
        """Of the methods that ran both ways: natively, and interpreted."""
        return (
            sum(self.native[name].seconds for name in self.interpreted),
            sum(o.seconds for o in self.interpreted.values()),
        )

    def failures(self) -> dict[str, Outcome]:
        return {name: o for name, o in self.interpreted.items() if o.outcome != "passed"}


class Worker:
    """A process that runs tests of one file; its events, each with a time limit."""

    def __init__(self, mode: str, name: str, wanted: list[int], folder: str):
        read, write = os.pipe()
        self.read, self.buffer = read, b""
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "worker.py"), str(write), mode, name, *map(str, wanted)],
            pass_fds=(write,),
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            cwd=folder,
            start_new_session=True,  # what a test starts ends with it
        )
        os.close(write)

    def event(self, limit: float) -> dict[str, Any] | None:
        """The next event; None when the worker is gone; TimeoutError after ``limit`` seconds."""
        until = time.monotonic() + limit
        while b"\n" not in self.buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.read], [], [], left)[0]:
                raise TimeoutError
            data = os.read(self.read, 1 << 16)
            if not data:
                return None
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        return json.loads(line)

    def end(self) -> str:
        """Stop it; the last lines that it printed."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        os.close(self.read)
        self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, self.log.tell() - 3000))
        text = self.log.read().decode(errors="replace")
        self.log.close()
        return text


class FileTimeout(Exception):
    """The time of a whole file is over."""


def run_all(
    mode: str, name: str, wanted: list[int], limit: float, whole: float
) -> Iterator[tuple[str, int, Outcome] | list[str]]:
    """First the ids of the file's tests, then (id, index, outcome) of each one wanted.

    ``limit`` and ``whole`` are seconds, for a method and for all of them. FileTimeout when the
    latter are over.
    """
    ids: list[str] = []
    left = wanted
    end = time.monotonic() + whole
    while True:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            worker = Worker(mode, name, left, folder)
            running: int | None = None
            begun = False
            broken = ""
            try:
                while True:
                    # the import of the file, and its collection, count as a method of their own
                    most = limit if running is not None else max(limit, 120.0)
                    event = worker.event(min(most, end - time.monotonic()))
                    if event is None:
                        broken = "died"
                        break
                    if "tests" in event:
                        if not ids:
                            ids = event["tests"]
                            yield ids
                            left = left or list(range(len(ids)))
                    elif "start" in event:
                        running, begun = event["start"], True
                    elif "end" in event:
                        index = event.pop("end")
                        running = None
                        left = left[left.index(index) + 1 :]
                        yield ids[index], index, Outcome(**event)
                    else:
                        return
            except TimeoutError:
                broken = "hung"
            finally:
                printed = worker.end()
        if time.monotonic() >= end:
            where = f", in {ids[running]}" if running is not None else ""
            raise FileTimeout(f"the {mode} run did not end within {whole:.0f} s{where}")
        if running is None and not ids:
            raise RuntimeError(f"test.{name}: nothing was collected: {printed[-1500:]}")
        why = f"no end after {limit:.0f} s" if broken == "hung" else printed or "the process died"
        if not begun:  # it cannot even begin
            yield from ((ids[index], index, Outcome(broken, why)) for index in left)
            return
        if running is None:
            running = left[0] if left else None
        if running is None:
            return
        yield ids[running], running, Outcome(broken, why)
        left = left[left.index(running) + 1 :]
        if not left:
            return


def run_file(
    name: str,
    limit: float = 60.0,
    only: str = "",
    whole: float = 3600.0,
    mode: str = "interpreted",
) -> FileReport:
    """Both runs of the file ``name``; ``only``: of the methods whose id contains it.

    ``limit`` and ``whole`` are seconds, for a method and for each of the two runs. What was not
    run when the latter are over has hung, and the report's error says so. ``mode`` is interpreted
    or compiled.
    """
    report = FileReport(name)
    passed: list[int] = []
    try:
        for found in run_all(NATIVE[mode], name, [], limit, whole):
            if isinstance(found, list):
                continue
            test, index, outcome = found
            if only and only not in test:
                continue
            test = unique(test, report.native)
            report.native[test] = outcome
            if outcome.outcome == "passed":
                passed.append(index)
    except (RuntimeError, FileTimeout) as error:
        report.error = str(error)
        return report
    if not passed:
        report.error = "no method passes natively"
        return report
    names = [test for test, outcome in report.native.items() if outcome.outcome == "passed"]
    by_index = dict(zip(passed, names, strict=True))
    try:
        for found in run_all(mode, name, passed, limit, whole):
            if not isinstance(found, list):
                report.interpreted[by_index[found[1]]] = found[2]
    except FileTimeout as error:
        report.error = str(error)
        for test in names:
            report.interpreted.setdefault(test, Outcome("hung", report.error))
    return report


def unique(test: str, known: dict[str, Outcome]) -> str:
    """``test``, or with a number where two tests have one id."""
    found, n = test, 1
    while found in known:
        n += 1
        found = f"{test}#{n}"
    return found


def reasons(mode: str = "interpreted") -> dict[str, str]:
    """The methods that are known to fail on this Python, each with the reason.

    The file has a table for every Python, one for each in which others fail, and one of what fails
    in some runs only.
    """
    tables = tomllib.loads(REASONS[mode].read_text())
    running = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return {**tables.get("every", {}), **tables.get(running, {}), **tables.get("sometimes", {})}


def sometimes(mode: str = "interpreted") -> frozenset[str]:
    """Those of them that also pass."""
    return frozenset(tomllib.loads(REASONS[mode].read_text()).get("sometimes", {}))


@dataclass
class Verdict:
    """The judgement of a campaign: figures, and what keeps it from passing."""

    due: int
    passed: int
    unexplained: dict[str, Outcome]
    stale: list[str]
    empty: dict[str, str]

    @property
    def ratio(self) -> float:
        return self.passed / self.due if self.due else 0.0

    def ok(self, required: float) -> bool:
        return self.ratio >= required and not (self.unexplained or self.stale or self.empty)


def judge(
    reports: list[FileReport], known: dict[str, str], may_pass: frozenset[str] = frozenset()
) -> Verdict:
    """Every failure needs a reason, and every reason of a file that was run needs its failure.

    Except for the methods ``may_pass``.
    """
    failures = {k: o for report in reports for k, o in report.failures().items()}
    ran = {k for report in reports for k in report.interpreted}
    return Verdict(
        due=sum(report.due for report in reports),
        passed=sum(report.passed for report in reports),
        unexplained={k: o for k, o in failures.items() if k not in known},
        stale=sorted(k for k in known if k in ran and k not in failures and k not in may_pass),
        empty={report.name: report.error for report in reports if report.error or not report.due},
    )


def table(reports: list[FileReport], mode: str = "interpreted") -> str:
    counted = ("graphs", "breaks", "fallbacks") if mode == "compiled" else ()
    frames = "captures" if mode == "compiled" else "frames"
    rows = [("file", "native", mode, "failed", frames, *counted, "s native", f"s {mode}")]
    for report in sorted(reports, key=lambda r: r.name):
        native, interpreted = report.seconds
        rows.append(
            (
                report.name,
                str(report.due),
                str(report.passed),
                str(report.due - report.passed) if report.due != report.passed else "",
                str(report.frames),
                *(str(report.count(name)) for name in counted),
                f"{native:.1f}",
                f"{interpreted:.1f}",
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def captured(reports: list[FileReport]) -> float:
    """The share of compiled methods that were not run natively from their beginning."""
    ran = [o for report in reports for o in report.interpreted.values() if o.counts]
    return sum(1 for o in ran if o.counts.get("captures")) / len(ran) if ran else 0.0


def happened(reports: list[FileReport]) -> str:
    """Of compiled methods: which were captured as a whole, which broke, which ran natively."""
    ran = [o for report in reports for o in report.interpreted.values() if o.counts]
    captured = [o for o in ran if o.counts.get("captures")]
    broken = sum(1 for o in captured if o.counts.get("breaks"))
    partly = sum(1 for o in captured if o.counts.get("fallbacks"))
    totals = ", ".join(
        f"{sum(report.count(name) for report in reports)} {name}"
        for name in ("captures", "breaks", "recompiles", "fallbacks")
    )
    return (
        f"methods captured: {len(captured)} (without a break {len(captured) - broken}, "
        f"with breaks {broken}; something in them fell back in {partly}), "
        f"run natively: {len(ran) - len(captured)}; {totals}"
    )
