"""Many cases in processes beside each other, each of which has so long and may die."""

from __future__ import annotations

import multiprocessing
import queue
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import fastpath
from refcompiler.runtime.counters import reasons
from tests.slow.batteries.training import Backend

LIMIT = 90  # seconds for a case


@dataclass
class Found:
    """One comparison, of a case in one ``way``: ``bad`` says what differs from eager, ``refused``
    that eager itself raises; ``kernels``, ``calls`` and ``fallback`` are the report's, ``graphs``
    those that a backend was given, as far as it was asked."""

    name: str
    way: str
    bad: str = ""
    refused: bool = False
    elements: int = 0
    graphs: int = 0
    kernels: int = 0
    calls: int = 0
    fallback: str = ""


class Watched:
    """A backend by name, and what it says of the graphs that it was given."""

    def __init__(self, name: str):
        self.counted: Backend | None = None
        self.backend: Any = name
        if name != "fastpath":  # whose report says more
            self.backend = self.counted = Backend(name)

    def described(self, found: Found) -> Found:
        """``found`` with how it was compiled."""
        if self.counted is not None:
            found.graphs = self.counted.graphs
            found.fallback = "; ".join(self.counted.uncompiled)
        elif (report := fastpath.last_report()) is not None:
            found.graphs = 1
            found.kernels, found.calls = report.kernels, sum(report.aten_calls.values())
            found.fallback = "; ".join([str(report.fallback or ""), *self._parts()]).strip("; ")
        if not found.graphs:
            found.fallback = "no graph"
        return found

    @staticmethod
    def _parts() -> list[str]:
        """Why graphs, or parts of them, run as they are: the report is of the last part."""
        return [str(reason) for reason in reasons("uncompiled")]


def lost(name: str, way: str, error: BaseException) -> Found:
    last = traceback.format_exception(error)[-1].strip()
    return Found(name, way, f"lost: {last[:300]}")


def in_turn(
    cases: Sequence[str], run: Callable[[str], Sequence[Found]], deadline: float
) -> Iterator[Found]:
    """The cases one by one in this process, until ``deadline`` (of ``time.time``)."""
    for name in cases:
        if time.time() > deadline:
            return
        yield from _one(name, run)


def beside(
    cases: Sequence[str], run: Callable[[str], Sequence[Found]], jobs: int, deadline: float
) -> Iterator[Found]:
    """The same in ``jobs`` processes; ``run`` has to be found by its name. What a process has not
    answered a while after ``deadline`` is lost with it."""
    context = multiprocessing.get_context("spawn")
    todo, done = context.Queue(), context.Queue()
    for name in cases:
        todo.put(name)
    for _ in range(jobs):
        todo.put(None)
    given = todo, done, run, deadline
    workers = [context.Process(target=_work, args=given, daemon=True) for _ in range(jobs)]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers) or not done.empty():
        try:
            yield from done.get(timeout=1)
        except queue.Empty:
            if time.time() > deadline + 10:
                break
    for worker in workers:
        worker.kill()


def _work(todo: Any, done: Any, run: Callable[[str], Sequence[Found]], deadline: float) -> None:
    while time.time() < deadline:
        name = todo.get()
        if name is None:
            return
        done.put(_one(name, run))


def _one(name: str, run: Callable[[str], Sequence[Found]]) -> list[Found]:
    def late(*_: Any) -> None:
        raise TimeoutError(f"took more than {LIMIT} seconds")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(LIMIT)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return list(run(name))
    except Exception as error:
        return [lost(name, "", error)]
    finally:
        signal.alarm(0)
