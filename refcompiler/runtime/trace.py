"""The trace folder: what each compilation made, as plain files that can be read and searched.

``REFCOMPILER_TRACE=folder`` in the environment, ``config.trace = "folder"``, or
``options={"trace.enabled": True}`` for one call of ``compile`` (then :data:`DEFAULT`, unless one of
the others names a folder); ``"trace.graph_diagram": True`` does that too, and adds a picture of
each graph. Each process writes below a folder of its own::

    folder/run-<pid>/index.txt              a line per compilation
    folder/run-<pid>/0001-<function>/
        summary.txt                         what was compiled, why, what came of it
        graph.py                            the graph that the backend was given, as Python
        guards.txt                          what must hold for it to be used again, and who asked
        plan.py                             checks, call of the graph, side effects, as they run
        break.txt                           why the graph ends where it does, and a hint
        timings.json                        seconds of capture, backend and plan
        graph.svg                           a picture of the graph: ``trace.graph_diagram``
        error.txt                           what ended the compilation, if anything did

Whatever is compiled meanwhile may add files: see :func:`current`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import threading
import time
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from refcompiler.runtime.config import config
from refcompiler.runtime.diagram import svg

if TYPE_CHECKING:
    from refcompiler.guards.kinds import Guard
    from refcompiler.plan.build import Plan

#: Where traces go that were asked for without saying where.
DEFAULT = "refcompiler_trace"
_LOCK = threading.Lock()  # of the index


class _Current(threading.local):
    trace: Trace | None = None


_CURRENT = _Current()


def current() -> Trace | None:
    """The trace of what this thread compiles now; None if nobody wants one."""
    return _CURRENT.trace


class Asked(NamedTuple):
    """What the options of a call of ``compile`` ask for."""

    enabled: bool = False
    diagram: bool = False

    @classmethod
    def of(cls, options: dict[str, Any]) -> Asked:
        """Takes what is said of traces out of ``options``."""
        found = []
        for name in ("trace.enabled", "trace.graph_diagram"):
            value = options.pop(name, False)
            if not isinstance(value, bool):
                raise TypeError(f"compile: {name} takes True or False, not {value!r}")
            found.append(value)
        return cls(any(found), found[1])


NOTHING = Asked()


def wanted_folder(asked: bool) -> str:
    """Where to write, or nothing. ``asked``: by an option of ``compile``."""
    chosen = config.trace or os.environ.get("REFCOMPILER_TRACE", "")
    return chosen or (DEFAULT if asked else "")


class Trace:
    """The folder of one compilation. What cannot be written is reported once, and left out."""

    def __init__(self, run: Path, number: int, title: str, why: str, diagram: bool):
        name = re.sub(r"\W+", "-", title).strip("-")[:60]
        self.run = run
        self.path = run / f"{number:04}-{name}"
        self.number = number
        self.title = title
        self.why = why
        self.diagram = diagram
        self.seconds: dict[str, float] = {}
        self.began = time.perf_counter()
        with _reported(self.run):
            self.path.mkdir(parents=True)

    def write(self, name: str, text: str) -> None:
        """A file ``name`` with ``text``, in this compilation's folder."""
        with _reported(self.run):
            (self.path / name).write_text(text if text.endswith("\n") else text + "\n", "utf-8")

    @contextlib.contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add what runs inside to the seconds of ``stage``."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - began

    def finish(self, plan: Plan | None, error: BaseException | None) -> None:
        """Write what came of it, and its line in the index."""
        outcome = "failed"
        if plan is not None:
            outcome = "complete" if plan.reason is None else "ends in a graph break"
            self._write_plan(plan)
        elif error is not None:
            self.write("error.txt", f"{type(error).__name__}: {error}")
        operations = 0 if plan is None else plan.operations
        guards = 0 if plan is None else len(plan.guards)
        seconds = self._stages()
        self.write("timings.json", json.dumps(seconds, indent=1))
        why = self.why or "nothing was compiled yet"
        self.write(
            "summary.txt",
            f"function:   {self.title}\nwhy:        {why}\noutcome:    {outcome}\n"
            f"operations: {operations}\nguards:     {guards}\nseconds:    {seconds['total']:.6f}",
        )
        line = f"{self.path.name}  {outcome}, {operations} operations, {guards} guards, "
        line += f"{seconds['total'] * 1e3:.1f} ms: {' '.join(why.split())}\n"
        with _reported(self.run), _LOCK, open(self.run / "index.txt", "a", encoding="utf-8") as f:
            f.write(line)

    def _write_plan(self, plan: Plan) -> None:
        if plan.graph is not None:
            self.write("graph.py", plan.graph.print_readable(print_output=False))
            if self.diagram:
                self.write("graph.svg", svg(plan.graph.graph))
        self.write("guards.txt", "\n".join(map(guard_text, plan.guards)))
        self.write("plan.py", plan.source)
        if plan.reason is not None:
            frames = [f"  {file}:{line} in {name}" for file, line, name in plan.reason.stack]
            self.write(
                "break.txt", "\n".join([str(plan.reason), "stack, outermost first:", *frames])
            )

    def _stages(self) -> dict[str, float]:
        """``backend`` and ``plan`` were measured; what is left is ``capture``."""
        total = time.perf_counter() - self.began
        backend = self.seconds.get("backend", 0.0)
        plan = max(self.seconds.get("build", 0.0) - backend, 0.0)
        capture = max(total - backend - plan, 0.0)
        return {"capture": capture, "backend": backend, "plan": plan, "total": total}


def guard_text(guard: Guard) -> str:
    """A guard in a line: its kind, what it reads, what is expected, and the line that asked."""
    from refcompiler.guards.held import named
    from refcompiler.guards.kinds import KINDS

    source = "" if guard.source is None else f" {guard.source}"
    try:
        expected = KINDS[guard.kind].show(named(guard.expected))
    except Exception:  # a value of the user's that cannot be printed
        expected = type(named(guard.expected)).__name__
    place = f"  # {guard.place[0]}:{guard.place[1]}" if guard.place[0] else ""
    return f"    {guard.kind}{source}: {' '.join(expected.split())[:200]}{place}"


class _Runs:
    """This process's folder below each folder that was named, and how many traces it has."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, int], tuple[Path | None, int]] = {}

    def next(self, folder: str) -> tuple[Path | None, int]:
        key = os.path.abspath(folder), os.getpid()  # a fork is a process of its own
        with _LOCK:
            run, count = self.known.get(key) or (_new_run(Path(key[0])), 0)
            self.known[key] = run, count + 1
        return run, count + 1


_RUNS = _Runs()


def _new_run(folder: Path) -> Path | None:
    """A folder that no earlier process of this number has left there; None if it cannot be made."""
    for number in itertools.count(1):
        run = folder / (f"run-{os.getpid()}" + (f"-{number}" if number > 1 else ""))
        with _reported(folder):
            try:
                run.mkdir(parents=True)
                return run
            except FileExistsError:
                if run.exists():
                    continue
                raise  # the folder itself is a file
        return None
    return None


def begin(title: str, why: str, asked: Asked) -> Trace | None:
    """The trace of a compilation that begins now, if somebody wants one."""
    folder = wanted_folder(asked.enabled)
    if not folder:
        return None
    run, number = _RUNS.next(folder)
    return None if run is None else Trace(run, number, title, why, asked.diagram)


@contextlib.contextmanager
def tracing(title: str, why: str, asked: Asked) -> Iterator[list[Any]]:
    """Trace what is compiled inside; the plan that came of it is put into the list."""
    made: list[Any] = []
    trace = begin(title, why, asked)
    if trace is None:
        yield made
        return
    before, _CURRENT.trace = _CURRENT.trace, trace
    error: BaseException | None = None
    try:
        yield made
    except BaseException as raised:
        error = raised
        raise
    finally:
        _CURRENT.trace = before
        trace.finish(made[0] if made else None, error)
        error = None  # no cycle with the traceback


@contextlib.contextmanager
def timed(stage: str) -> Iterator[None]:
    """Count what runs inside for ``stage``, if it is traced."""
    trace = _CURRENT.trace
    if trace is None:
        yield
        return
    with trace.timed(stage):
        yield


@contextlib.contextmanager
def _reported(folder: Path) -> Iterator[None]:
    """What cannot be written costs one warning for each folder, and no compilation."""
    try:
        yield
    except OSError as error:
        _warn(f"the trace folder {folder} cannot be written: {error.strerror}")


@cache
def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=2)
