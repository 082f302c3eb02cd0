"""What is captured in one graph, here and by torch.compile: counts, differences, times."""

from __future__ import annotations

import argparse
import json
import selectors
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tests.slow.batteries.measure import COMPILERS, Outcome
from tests.slow.batteries.worker import BATTERIES

REQUIRED = 0.99  # of what torch.compile captures in one graph


class Worker:
    """A process that runs entries one by one; one that hangs or dies costs its entry alone."""

    def __init__(self, battery: str, compilers: list[str], limit: float):
        self.command = [sys.executable, "-m", "tests.slow.batteries.worker", battery]
        self.command.append(",".join(compilers))
        self.limit = limit
        self.process: subprocess.Popen | None = None
        self.errors = tempfile.TemporaryFile()

    def run(self, name: str) -> list[dict[str, Any]]:
        if self.process is None:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.errors,
                bufsize=0,  # what select does not see must not lie in a buffer
            )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{name}\n".encode())
        self.process.stdin.flush()
        found: list[dict[str, Any]] = []
        deadline = time.monotonic() + self.limit
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while True:
                ready = selector.select(max(deadline - time.monotonic(), 0))
                line = self.process.stdout.readline() if ready else b""
                if not line:
                    self.errors.seek(0)
                    last = self.errors.read().decode(errors="replace").strip().rsplit("\n", 1)[-1]
                    lost = f"died: {last}" if ready else "took too long"
                    found.append({"program": name, "lost": lost})
                    self.close()
                    return found
                answer = json.loads(line)
                if "done" in answer:
                    return found
                found.append(answer)

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def summary(answers: list[dict[str, Any]], compilers: list[str]) -> tuple[list[str], bool]:
    """The lines of the report, and whether what is required holds."""
    table: dict[str, dict[str, Outcome]] = {}
    for answer in answers:
        if "outcome" in answer:
            row = table.setdefault(answer["program"], {})
            row[answer["compiler"]] = Outcome(**answer["outcome"])
    lost = [answer for answer in answers if "lost" in answer]
    refused = [answer for answer in answers if "eager" in answer]
    lines = [f"{len(table)} programs ({len(refused)} that eager refuses, {len(lost)} lost)"]
    lines += [f"    {answer['missing']}" for answer in answers if "missing" in answer]
    lines += [f"    lost: {answer['program']} {answer['lost']}" for answer in lost]
    for compiler in compilers:
        found = [row[compiler] for row in table.values() if compiler in row]
        lines.append(
            f"{compiler}: {sum(not (o.error or o.difference) for o in found)} of {len(found)} as "
            f"in eager, {sum(o.whole for o in found)} in one graph, "
            f"{sum(o.graphs for o in found)} graphs, {sum(o.breaks for o in found)} breaks, "
            f"{sum(bool(o.error) for o in found)} raise, "
            f"{sum(bool(o.difference) for o in found)} differ from eager, "
            f"{sum(o.seconds for o in found):.1f} s"
        )
    good = not any(o.difference or o.error for row in table.values() for o in row.values())
    both = [row for row in table.values() if set(row) == set(COMPILERS)]
    if both:
        whole = [row for row in both if row["torch"].whole]
        kept = sum(row["refcompiler"].whole for row in whole)
        share = kept / max(len(whole), 1)
        times = sorted(row["refcompiler"].seconds / row["torch"].seconds for row in whole)
        lines.append(f"of torch's {len(whole)} in one graph {kept} are here: {share:.2%}")
        if times:
            lines.append(
                f"time of the first call over torch's: median {times[len(times) // 2]:.3f}, "
                f"worst {times[-1]:.3f}"
            )
        good = share >= REQUIRED
    good = good and not any(row["refcompiler"].difference for row in both)
    return lines, good


def _each(workers: list[Worker], names: list[str]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The answers to ``names``, in their order, of which each worker is asked one at a time."""
    free = SimpleQueue[Worker]()
    for worker in workers:
        free.put(worker)

    def ask(name: str) -> list[dict[str, Any]]:
        worker = free.get()
        try:
            return worker.run(name)
        finally:
            free.put(worker)

    with ThreadPoolExecutor(len(workers)) as pool:
        yield from zip(names, pool.map(ask, names), strict=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.slow.batteries", description=__doc__)
    parser.add_argument("battery", choices=BATTERIES)
    parser.add_argument("names", nargs="*", help="entries, or parts of their names (none: all)")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each N-th entry only")
    parser.add_argument("--compilers", default=",".join(COMPILERS), help="separated by commas")
    parser.add_argument(
        "--jobs", type=int, default=1, help="processes; beside others, times say little"
    )
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for each entry")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write everything there")
    parser.add_argument("-v", action="store_true", help="a line for each program")
    given = parser.parse_args()
    compilers = given.compilers.split(",")
    if unknown := set(compilers) - set(COMPILERS):
        parser.error(f"--compilers takes {' and '.join(COMPILERS)}, not {', '.join(unknown)}")
    names = BATTERIES[given.battery][0]()
    if given.names:
        names = [
            n for n in names if n in given.names or any(f":{k}" in f":{n}" for k in given.names)
        ]
    if not names:
        parser.error("no entry has that name")
    if given.jobs < 1:
        parser.error(f"--jobs takes a number of processes, not {given.jobs}")
    workers = [Worker(given.battery, compilers, given.limit) for _ in range(given.jobs)]
    answers: list[dict[str, Any]] = []
    why: Counter[str] = Counter()
    for name, found in _each(workers, names[:: given.every]):
        for answer in found:
            answer["entry"] = name
            answers.append(answer)
            answer["program"] = program = f"{name} {answer['program']}"
            if "outcome" not in answer:
                why_not = answer.get("lost") or answer.get("missing") or answer.get("eager")
                print(program, why_not, flush=True)
                continue
            outcome = Outcome(**answer["outcome"])
            if outcome.error or outcome.difference or not outcome.whole or given.v:
                reason = outcome.error or outcome.difference or "; ".join(outcome.why[:2])
                print(
                    f"{program} {answer['compiler']}: {outcome.graphs} graphs, "
                    f"{outcome.breaks} breaks, {outcome.seconds * 1e3:.0f} ms. {reason}",
                    flush=True,
                )
            if answer["compiler"] == "refcompiler":
                why.update(outcome.why)
    for worker in workers:
        worker.close()
    if given.json:
        given.json.write_text(json.dumps(answers, indent=1))
    print()
    for reason, count in why.most_common(20):
        print(f"{count:5d} {reason}")
    lines, good = summary(answers, compilers)
    print("\n".join(lines))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
