"""How the figures are taken: two ways of doing one thing, interleaved in one process, as a ratio.

A single time says little on a machine that somebody else uses too. So the two ways take turns, in
an order that flips every round, and what is reported is the ratio of their medians, with the
quartiles of the ratios of single rounds as its spread. Below 1 means that ours is faster.
"""

from __future__ import annotations

import contextlib
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

DOCUMENT = Path(__file__).parent.parent / "docs" / "benchmarks.md"


@dataclass(frozen=True)
class Row:
    """One figure: seconds of ours and of theirs, their ratio, and the ratio that is aimed at."""

    name: str
    ours: float  # median, seconds
    theirs: float  # median, seconds
    ratio: float  # of the medians
    low: float  # first quartile of the ratios of single rounds
    high: float  # third quartile
    rounds: int
    against: str  # what `theirs` is
    goal: float | None = None  # the ratio to stay below; None: for information
    note: str = ""
    unit: str = "s"  # or "B", bytes instead of seconds


def compare(
    name: str,
    ours: Callable[[], object],
    theirs: Callable[[], object],
    *,
    against: str,
    goal: float | None = None,
    rounds: int = 21,
    sample: float = 0.01,
    clock: Callable[[], float] = time.perf_counter,
) -> Row:
    """Time two callables in turns.

    Each is called once to warm up, and then as often per round as fills ``sample`` seconds.
    ``clock``: ``time.thread_time`` counts what this thread alone used.
    """
    pair = (ours, theirs)
    numbers = [calls_to_fill(way, sample, clock) for way in pair]
    return alternate(
        name,
        lambda: time_of(ours, numbers[0], clock),
        lambda: time_of(theirs, numbers[1], clock),
        against=against,
        goal=goal,
        rounds=rounds,
    )


def alternate(
    name: str,
    ours: Callable[[], float],
    theirs: Callable[[], float],
    *,
    against: str,
    goal: float | None = None,
    rounds: int,
) -> Row:
    """The same for two ways that time themselves and return seconds."""
    taken: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds):
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            taken[which].append((ours, theirs)[which]())
    a, b = (statistics.median(times) for times in taken)
    ratios = sorted(x / y for x, y in zip(*taken, strict=True))
    low, high = quartiles(ratios)
    return Row(name, a, b, a / b, low, high, rounds, against, goal)


def time_of(
    way: Callable[[], object], number: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds per call, over ``number`` calls."""
    start = clock()
    for _ in range(number):
        way()
    return (clock() - start) / number


def calls_to_fill(
    way: Callable[[], object],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> int:
    """How many calls take at least that long by ``clock``; the first call is not counted."""
    way()
    number = 1
    while (taken := time_of(way, number, clock) * number) < seconds:
        number = max(number * 2, int(number * seconds / max(taken, 1e-9)))
    return number


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """First and third quartile; of one value, that value twice."""
    if len(values) < 2:
        return values[0], values[0]
    cuts = statistics.quantiles(values, n=4, method="inclusive")
    return cuts[0], cuts[2]


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """torch works on one thread inside."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def machine() -> str:
    """One line about where figures were taken: processor, cores, load, threads, versions."""
    import torch

    cores = len(os.sched_getaffinity(0))
    python = ".".join(map(str, sys.version_info[:3]))
    device = f"{torch.cuda.get_device_name()}, " if torch.cuda.is_available() else ""
    return (
        f"{device}{processor()}, {cores} cores, load {os.getloadavg()[0]:.1f}, "
        f"{torch.get_num_threads()} torch threads by default, "
        f"Python {python}, torch {torch.__version__}, {time.strftime('%Y-%m-%d')}"
    )


def processor() -> str:
    """The processor's name as Linux gives it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def duration(seconds: float) -> str:
    """Three significant digits in a unit that suits."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:#.3g}".rstrip(".") + f" {unit}"
    return f"{seconds / 1e-9:#.3g}".rstrip(".") + " ns"


def amount(value: float, unit: str) -> str:
    """Seconds as :func:`duration`; bytes in KB, of 1000."""
    return duration(value) if unit == "s" else f"{value / 1000:,.1f} KB"


def table(rows: Iterable[Row]) -> str:
    """The rows as a markdown table, with a column of notes where there are any."""
    rows = list(rows)
    noted = any(row.note for row in rows)
    lines = [
        "| what | ours | theirs | against | ratio (quartiles) | goal | rounds |"
        + " note |" * noted,
        "|---|---|---|---|---|---|---|" + "---|" * noted,
    ]
    for row in rows:
        if row.goal is None:
            goal = ""
        else:
            goal = f"{row.goal:.2f}: {'met' if row.ratio <= row.goal else '**missed**'}"
        lines.append(
            f"| {row.name} | {amount(row.ours, row.unit)} | {amount(row.theirs, row.unit)} "
            f"| {row.against} "
            f"| {row.ratio:.2f} ({row.low:.2f}-{row.high:.2f}) | {goal} | {row.rounds} |"
            + f" {row.note} |"
            * noted
        )
    return "\n".join(lines) + "\n"


def refreshed(document: str, section: str, body: str) -> str:
    """``document`` with ``body`` between the two markers of ``section``.

    A document without both markers, in that order, is a ``ValueError`` that names them.
    """
    begin, end = f"<!-- begin {section} -->\n", f"<!-- end {section} -->"
    head, found_begin, rest = document.partition(begin)
    _, found_end, tail = rest.partition(end)
    if not (found_begin and found_end):
        raise ValueError(f"no markers {begin.strip()!r} ... {end!r} in the document")
    return f"{head}{begin}{body}{end}{tail}"
