"""A break at each instruction of each program, on as many processes as there are cores.

    python -m tests.slow.breaking --jobs 64 --seconds 560 --out DIRECTORY [--every 50] [NAME ...]

Each piece of work is a few seconds of one program's instructions, in a process forked for it. No
program is cut off by its length: all advance together, and where ``--seconds`` end the run, each
was tried at instructions that lie evenly in it; how many of how many is in ``summary.json``. What
failed is in ``failures.txt``; a crash and a run past ``--limit`` are failures of the instruction.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("REFCOMPILER_CACHE_PROGRAMS", "0")

import argparse
import contextlib
import heapq
import json
import multiprocessing
import multiprocessing.connection
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.cpu import conftest  # noqa: F401  # its imports, made before the processes are forked
from tests.cpu.capture.battery import battery
from tests.cpu.capture.oracle import Case, Run, compare, run
from tests.cpu.capture.test_break_everywhere import forced_run

#: Seconds that one piece of work is to take.
PIECE = 6.0
#: A break after every so many instructions, besides one at each.
SEVERAL = (2, 3, 7)
_FORK = multiprocessing.get_context("fork")


@dataclass
class Program:
    """What is left to do for one case, and what was found."""

    case: Case
    total: int = 0
    left: list[int] = field(default_factory=list)  # instructions, in the order they are tried
    tried: int = 0
    comparisons: int = 0
    forced: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0  # of all its work
    each: float = 0.0  # seconds of a run

    def take(self) -> list[int]:
        count = max(1, int(PIECE / max(self.each, 1e-3)))
        steps, self.left = self.left[:count], self.left[count:]
        return steps


class Late(Exception):
    """A run took longer than its limit."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    def late(*_: Any) -> None:
        raise Late(f"no end within {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def spread(count: int) -> list[int]:
    """1 to ``count`` so that each beginning of the list lies evenly: by bits from the last one."""
    bits = max(1, (count - 1).bit_length())
    order = sorted(range(1 << bits), key=lambda i: int(f"{i:0{bits}b}"[::-1], 2))
    return [i + 1 for i in order if i < count]


def begin(*given: Any) -> None:
    """Of a process: it ends without what interpreters do at their end, which is slow and loud."""
    status = 1
    try:
        work(*given)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def work(case: Case, steps: list[int] | None, limit: float, channel: Any) -> None:
    """In a process of its own: send ``(step, seconds, comparisons, forced, failure)`` for each.

    Without steps the program is measured: ``(instructions, seconds)`` first, then the breaks that
    come after every few.
    """
    patch = pytest.MonkeyPatch()
    with limited(limit):
        native = run(case, None)
    every: list[tuple[set[int], bool]] = [({step}, False) for step in steps or ()]
    if steps is None:
        with limited(limit):
            forced_run(case, patch, set())  # the first run of a process fills caches
            begun = time.perf_counter()
            _, forcing = forced_run(case, patch, set())
        channel.send((forcing.steps, time.perf_counter() - begun))
        every = [({number}, True) for number in SEVERAL]
    for stops, everywhere in every:
        channel.send(min(stops))
        channel.send(one(case, native, patch, stops, everywhere, limit))


def one(
    case: Case, native: Run, patch: Any, stops: set[int], everywhere: bool, limit: float
) -> tuple[float, int, int, str]:
    begun = time.perf_counter()
    count = forced = 0
    failure = ""
    try:
        with limited(limit):
            found, forcing = forced_run(case, patch, stops, everywhere)
            forced = forcing.forced
            count = compare(native, found)
    except (Exception, Late) as error:
        text = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
        where = f"after every {min(stops)}" if everywhere else f"at instruction {min(stops)}"
        failure = f"{case}: a break {where}\n{text[:4000]}"
    return time.perf_counter() - begun, count, forced, failure


class Campaign:
    """Hands out work, and keeps what comes back."""

    def __init__(self, cases: list[Case], jobs: int, limit: float, every: int):
        self.programs = [Program(case) for case in cases]
        self.jobs = jobs
        self.limit = limit
        self.every = every
        #: (share that is done, program, what): those that are least far go first.
        self.waiting: list[tuple[float, int, bool]] = []
        for i in range(len(cases)):
            heapq.heappush(self.waiting, (-1.0, i, True))
        self.running: dict[Any, tuple[Any, int, list[int] | None]] = {}
        self.at: dict[Any, tuple[int, float]] = {}

    def start(self) -> None:
        _, i, first = heapq.heappop(self.waiting)
        program = self.programs[i]
        steps = None if first else program.take()
        if program.left:
            self.queue(i)
        here, there = _FORK.Pipe(duplex=False)
        process = _FORK.Process(target=begin, args=(program.case, steps, self.limit, there))
        process.start()
        there.close()
        self.running[here] = (process, i, steps)
        self.at[here] = (0, time.monotonic())

    def queue(self, i: int) -> None:
        program = self.programs[i]
        heapq.heappush(self.waiting, (1 - len(program.left) / program.total, i, False))

    def listen(self, channel: Any) -> None:
        process, i, steps = self.running[channel]
        program = self.programs[i]
        try:
            message = channel.recv()
        except EOFError:
            process.join()
            del self.running[channel]
            if process.exitcode:
                step, _ = self.at[channel]
                where = f"near instruction {step}" if step else "before the first"
                program.failures.append(
                    f"{program.case}: its process ended with {process.exitcode}, {where}"
                )
                rest = steps[steps.index(step) + 1 :] if steps and step in steps else []
                if rest and not program.left:  # or else it waits already
                    program.left = rest
                    self.queue(i)
                else:
                    program.left = rest + program.left
            del self.at[channel]
            return
        if isinstance(message, int):
            self.at[channel] = (message, time.monotonic())
        elif len(message) == 2:
            program.total, program.each = message
            program.left = spread(program.total)[:: self.every]
            program.total = len(program.left)
            if program.left:
                self.queue(i)
        else:
            seconds, count, forced, failure = message
            program.seconds += seconds
            program.comparisons += count
            program.forced += forced
            program.tried += steps is not None
            if failure:
                program.failures.append(failure)

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (self.waiting or self.running) and time.monotonic() < end:
            while self.waiting and len(self.running) < self.jobs:
                self.start()
            for channel in multiprocessing.connection.wait(list(self.running), timeout=1.0):
                self.listen(channel)
            self.end_the_stuck()
        for process, *_ in self.running.values():
            process.kill()

    def end_the_stuck(self) -> None:
        """What takes no signal, since it runs in C."""
        for channel, (process, *_) in self.running.items():
            if time.monotonic() - self.at[channel][1] > 3 * self.limit:
                process.kill()


def report(campaign: Campaign, folder: Path, seconds: float) -> str:
    programs = campaign.programs
    rows = {
        str(p.case): {
            "instructions": p.total,
            "tried": p.tried,
            "forced": p.forced,
            "comparisons": p.comparisons,
            "failures": len(p.failures),
            "seconds": round(p.seconds, 1),
        }
        for p in sorted(programs, key=lambda p: -p.seconds)
    }
    folder.mkdir(parents=True, exist_ok=True)
    failures = [text for p in programs for text in p.failures]
    whole = sum(p.tried == p.total > 0 for p in programs)
    part = [p.tried / p.total for p in programs if p.tried < p.total]
    line = (
        f"{len(programs)} programs, {sum(p.total for p in programs)} instructions,"
        f" {sum(p.tried for p in programs)} tried, {whole} programs whole,"
        f" {len(part)} in part (the least: {min(part, default=1.0):.0%}),"
        f" {sum(p.comparisons for p in programs)} comparisons,"
        f" {len(failures)} failures in {sum(bool(p.failures) for p in programs)} programs;"
        f" {sum(p.seconds for p in programs):.0f} s of work in {seconds:.0f} s"
    )
    (folder / "summary.json").write_text(json.dumps({"summary": line, "programs": rows}, indent=1))
    (folder / "failures.txt").write_text("\n\n".join([line, *failures]) + "\n")
    return line


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.slow.breaking", description=__doc__)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=1e9, help="when to end")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of one run")
    parser.add_argument("--every", type=int, default=1, help="every so many instructions only")
    parser.add_argument("--out", type=Path, default=Path("reports/breaking"))
    parser.add_argument("--part", default="1/1", help="k/n: of n parts of the programs")
    parser.add_argument("names", nargs="*", help="programs, or modules of them; all without")
    given = parser.parse_args(arguments)
    part, parts = map(int, given.part.split("/"))
    cases = [
        case
        for case in battery()
        if not given.names
        or str(case) in given.names
        or case.factory.__module__.rpartition(".")[2] in given.names
    ][part - 1 :: parts]
    campaign = Campaign(cases, given.jobs, given.limit, given.every)
    begun = time.monotonic()
    try:
        campaign.run(given.seconds)
    finally:
        print(report(campaign, given.out, time.monotonic() - begun))
    return int(any(p.failures for p in campaign.programs))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
