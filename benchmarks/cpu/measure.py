"""How the rows of the section are taken."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

import fastpath
import refcompiler
from benchmarks import compile_time
from benchmarks.compile_time import CACHES
from benchmarks.cpu.cases import cases, large
from benchmarks.cpu.models import MODELS, made, result
from benchmarks.fresh import figure, figures
from benchmarks.harness import Row, calls_to_fill, compare, one_thread, quartiles, time_of
from fastpath import workspace

AGAINST = "inductor"
KERNELS, FEW = 0.60, 1.05  # the geometric mean that is aimed at, and the worst
SHARE = 0.85  # of a copy's speed
COPY = "a copy and a sum of as many bytes"
PROCESSES = 5  # with memory of their own
PAIRS = 3  # of first calls
Clock = Callable[[], float]


def every(
    parts: Sequence[str] = (),
    *,
    only: Collection[str] = (),
    serial: bool = True,
    rounds: int = 15,
) -> list[Row]:
    clock = time.thread_time if serial else time.perf_counter
    found: list[Row] = []
    for part in parts or PARTS:
        with contextlib.ExitStack() as stack:
            stack.enter_context(_caches_of_its_own())
            if serial:
                stack.enter_context(one_thread())
            rows = []
            for row in PARTS[part](clock, rounds, only):
                print(f"{row.name}: {row.ratio:.2f} {row.note}", flush=True)
                rows.append(row)
        if len(rows) > 1 and part in MEANS:
            rows.insert(0, whole(f"{part}: geometric mean (best and worst)", rows, MEANS[part]))
        found += rows
    return found


@contextlib.contextmanager
def _caches_of_its_own() -> Iterator[None]:
    """Other processes that compile at the same time have no part in what is measured."""
    before = {name: os.environ.get(name) for name in CACHES}
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update({name: os.path.join(folder, name.lower()) for name in CACHES})
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


def whole(name: str, rows: Sequence[Row], goal: float) -> Row:
    ratios = [row.ratio for row in rows]
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    ours, theirs = sum(row.ours for row in rows), sum(row.theirs for row in rows)
    first = replace(rows[0], name=name, ours=ours, theirs=theirs, ratio=mean, goal=goal, note="")
    return replace(first, low=min(ratios), high=max(ratios))


def both(function: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    refcompiler.reset()
    torch.compiler.reset()
    ours = refcompiler.compile(function, backend="fastpath", dynamic=False)
    return ours, torch.compile(function, dynamic=False)


# -- kernels -----------------------------------------------------------------------------------


def kernels(clock: Clock, rounds: int, only: Collection[str]) -> Iterator[Row]:
    for name, (function, inputs) in cases().items():
        if not only or name in only:
            with torch.no_grad():
                yield _kernel(name, function, inputs, clock, rounds)


def _kernel(
    name: str, function: Callable[..., Any], inputs: Sequence[Any], clock: Clock, rounds: int
) -> Row:
    ours, theirs = both(function)
    found = ours(*inputs)
    low = any(t.dtype is torch.bfloat16 for t in inputs)
    tolerance = 2e-2 if low else 1e-4
    torch.testing.assert_close(found, function(*inputs), rtol=tolerance, atol=tolerance)
    report = fastpath.last_report()
    row = compare(
        name,
        lambda: ours(*inputs),
        lambda: theirs(*inputs),
        against=AGAINST,
        goal=FEW,
        rounds=rounds,
        clock=clock,
    )
    results = found if isinstance(found, tuple) else (found,)
    moved = sum(t.numel() * t.element_size() for t in (*inputs, *results))
    copied = _copy(moved, clock)
    calls = sum(report.aten_calls.values())
    note = f"{copied / row.ours:.2f} of a copy's speed; {report.kernels} kernels"
    return replace(row, note=note + (f", {calls} ATen calls" if calls else ""))


def _copy(moved: int, clock: Clock) -> float:
    """Seconds in which a copy into fresh memory reads and writes so many bytes."""
    source = torch.randn(max(1, moved // 8))
    number = calls_to_fill(source.clone, 0.01, clock)
    return statistics.median(time_of(source.clone, number, clock) for _ in range(9))


# -- bandwidth ---------------------------------------------------------------------------------


def bandwidth(clock: Clock, rounds: int, only: Collection[str]) -> Iterator[Row]:
    """Kernels that memory alone holds up, against what reads and writes as many bytes: a copy into
    fresh memory of all that is written, and a sum of what else is read.

    Where physical pages lie changes either by a third, for as long as a process lives. So a figure
    is the median of several processes, each with the median of its ratios.
    """
    names = [name for name in large() if not only or name in only]
    serial = clock is time.thread_time
    script = f"from benchmarks.cpu.measure import bandwidths as b; print(*b({names!r}, {serial}))"
    taken = [figures(script) for _ in range(PROCESSES)]
    for place, name in enumerate(names):
        found = [process[4 * place : 4 * place + 4] for process in taken]
        ours, theirs = (statistics.median(times) for times in list(zip(*found))[:2])
        ratios = sorted(a / b for a, b, *_ in found)
        read, wrote = found[0][2:]
        middle, spread = statistics.median(ratios), quartiles(ratios)
        row = Row(f"bandwidth: {name}", ours, theirs, middle, *spread, len(ratios), COPY)
        moved = f"{read / 1e6:.0f} MB read, {wrote / 1e6:.0f} written"
        note = f"{1 / middle:.2f} of its speed; {moved}"
        yield replace(row, goal=1 / SHARE, note=note)


def bandwidths(names: Collection[str], serial: bool) -> list[float]:
    """Of each: seconds of ours, and of what moves as many bytes; the bytes read, and written.

    The allocator keeps its memory meanwhile. Else both would spend most of their time on the pages
    of new memory, which the system hands out one by one.
    """
    found: list[float] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(_memory_is_kept())
        stack.enter_context(torch.no_grad())
        if serial:
            stack.enter_context(one_thread())
        for name, (function, inputs) in large().items():
            if name in names:
                clock = time.thread_time if serial else time.perf_counter
                found += _against_a_copy(function, inputs, clock)
    return found


def _against_a_copy(
    function: Callable[..., Any], inputs: Sequence[torch.Tensor], clock: Clock
) -> list[float]:
    ours, _ = both(function)
    found = ours(*inputs)
    torch.testing.assert_close(found, function(*inputs), rtol=1e-3, atol=1e-2)
    read, wrote = sum(t.nbytes for t in inputs), found.nbytes
    del found
    copied = torch.randn(max(1, min(wrote, (read + wrote) // 2) // 4))
    summed = torch.randn(max(1, (read - wrote) // 4))

    def theirs() -> None:
        copied.clone()
        summed.sum()

    row = compare("", lambda: ours(*inputs), theirs, against="", rounds=5, sample=0.02, clock=clock)
    return [row.ours, row.theirs, read, wrote]


@contextlib.contextmanager
def _memory_is_kept() -> Iterator[None]:
    """glibc gives nothing back to the system; other allocators are left as they are."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    options = (-3, 128 << 10, 1 << 30), (-1, 128 << 10, (1 << 31) - 1)  # from malloc.h
    for option, _, most in options:
        if mallopt is not None:
            mallopt(option, most)
    try:
        yield
    finally:
        for option, usual, _ in options:
            if mallopt is not None:
                mallopt(option, usual)


# -- memory ------------------------------------------------------------------------------------


def memory(clock: Clock, rounds: int, only: Collection[str]) -> Iterator[Row]:
    """Each model in processes of its own: what programs keep of memory is shared by all of one."""
    for name in MODELS:
        if only and name not in only:
            continue
        a, b = (_peak_of_its_own(name, ours) for ours in (True, False))
        yield Row(
            f"{name}, peak of a training step", a, b, a / b, a / b, a / b, 1, AGAINST, 1.0, unit="B"
        )


def _step(
    model: torch.nn.Module, call: Callable[..., Any], inputs: dict[str, torch.Tensor]
) -> Callable[[], object]:
    def step() -> None:
        result(call(**inputs)).square().mean().backward()
        model.zero_grad(set_to_none=True)

    return step


def _peak_of_its_own(name: str, ours: bool) -> float:
    return figure(f"from benchmarks.cpu.measure import peak_of; print(peak_of({name!r}, {ours}))")


def peak_of(name: str, ours: bool) -> float:
    """The most bytes that a training step of a model holds beside its parameters and inputs: what
    it allocates, and what was kept from the call before."""
    model, inputs = made(name)
    call = both(model)[0 if ours else 1]
    found = peak(_step(model, call, inputs))
    return found + sum(arena.bytes for arena in workspace.idle())


def peak(step: Callable[[], object]) -> float:
    """The most bytes that a warm step has allocated at once, through torch's allocator."""
    for _ in range(2):
        step()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        step()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    most = held = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return float(most)


# -- compiling ---------------------------------------------------------------------------------


def first(clock: Clock, rounds: int, only: Collection[str]) -> Iterator[Row]:
    """First calls in processes of their own, with empty caches."""
    for name, build, goal in (
        ("small model", "perceptron()", 1 / 6),
        ("50 kernels", "many_kernels()", 1 / 4),
    ):
        if not only or name in only:
            yield compile_time.cold(f"first call, cold: {name}", build, goal, PAIRS)


PARTS: dict[str, Callable[[Clock, int, Collection[str]], Iterator[Row]]] = {
    "kernels": kernels,
    "memory": memory,
    "first": first,
    "bandwidth": bandwidth,
}
MEANS = {"kernels": KERNELS, "memory": 1.0}
