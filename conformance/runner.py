"""Runs suites against a compiler: the library's entry point, which the command line calls."""

from __future__ import annotations

import os
import queue
import re
import shlex
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from conformance import xfails as expected_failures
from conformance.case import Case
from conformance.pool import CannotRun, Pool, Worker
from conformance.report.results import Report, Result
from conformance.repro import SIGNATURE, Origin, file_name, script
from conformance.shrink import Budget, Shrinker
from conformance.strategies.generate import examples
from conformance.suites import SUITES, Family, default_names
from conformance.worker import Hello, Ready
from conformance.xfails import Expectation

DEFAULT_MAX_EXAMPLES = 1
DEFAULT_TIMEOUT = 120.0
# Bounds that keep a run's length in hand when much fails: per failure, and for the whole run.
SHRINK_CANDIDATES = 80
SHRINK_SECONDS = 20.0
ALL_SHRINK_SECONDS = 90.0


@dataclass(frozen=True)
class Settings:
    """What to run. ``backend`` is a registered name or ``module:callable``.

    ``only``: patterns of ``suite/subject/variant`` (``operators/aten.sin*/float*``) or of a subject
    alone; empty means all. ``max_examples``: cases per operator and dtype. ``seed``: the same seed
    draws the same cases. ``jobs``: worker processes. ``timeout``: seconds that a case may take.
    ``report``: the folder that repro scripts go to; without one, none are written.
    """

    backend: str
    frontend: str = "refcompiler"
    suites: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    device: str = "cpu"
    max_examples: int = DEFAULT_MAX_EXAMPLES
    seed: int = 0
    jobs: int = 2
    timeout: float = DEFAULT_TIMEOUT
    xfails: tuple[Expectation, ...] = ()
    report: Path | None = None

    def command(self) -> str:
        """The command line that repeats the run."""
        words = ["refcompiler", "conform", "--backend", self.backend, "--frontend", self.frontend]
        for suite in self.suites:
            words += ["--suite", suite]
        for pattern in self.only:
            words += ["--only", pattern]
        words += ["--device", self.device, "--max-examples", str(self.max_examples)]
        return shlex.join([*words, "--seed", str(self.seed)])


@dataclass
class Progress:
    """Called as the run goes on; the default says nothing. All calls come from one lock."""

    started: Callable[[int, Ready], None] = lambda families, ready: None
    judged: Callable[[Result], None] = lambda result: None
    finished_family: Callable[[Family], None] = lambda family: None
    shrinking: Callable[[int], None] = lambda failures: None
    shown: Callable[[Result], None] = lambda result: None


# Something for a thread to do with its worker: the arguments of a :data:`Task` after the worker.
Job = tuple[Any, ...]
Task = Callable[..., None]


def run(
    backend: str,
    *,
    frontend: str = "refcompiler",
    suites: Sequence[str] = (),
    only: Sequence[str] = (),
    device: str = "cpu",
    max_examples: int = DEFAULT_MAX_EXAMPLES,
    seed: int = 0,
    jobs: int | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    xfails: str | Path | None = None,
    report: str | Path | None = None,
    progress: Progress | None = None,
) -> Report:
    """Test a compiler, and return what was found.

    Arguments are the command line's options (``refcompiler conform --help``). Raises
    :class:`CannotRun`, with one line that says what to do, when nothing can be tested. In a test::

        def test_conforms():
            report = conformance.run("my_package:backend", frontend="torch", suites=["operators"])
            assert report.conforms, report.failures
    """
    settings = Settings(
        backend=backend,
        frontend=frontend,
        suites=tuple(suites),
        only=tuple(only),
        device=device,
        max_examples=max_examples,
        seed=seed,
        jobs=min(2, os.cpu_count() or 1) if jobs is None else jobs,
        timeout=timeout,
        xfails=_read_xfails(xfails),
        report=Path(report) if report else None,
    )
    return Run(settings, progress or Progress()).go()


def _read_xfails(path: str | Path | None) -> tuple[Expectation, ...]:
    """The entries of an expected-failures file, or :class:`CannotRun`."""
    try:
        return expected_failures.read(Path(path)) if path else ()
    except expected_failures.BadFile as error:
        raise CannotRun(str(error)) from error


@dataclass
class Run:
    """One run: families go through threads, of which each has a worker process."""

    settings: Settings
    progress: Progress = field(default_factory=Progress)

    def __post_init__(self) -> None:
        self.lock = threading.Lock()
        self.results: dict[int, list[Result]] = {}
        self.versions: dict[str, str] = {}
        self.shrink_seconds = ALL_SHRINK_SECONDS
        self.error: BaseException | None = None
        self.interrupted = False

    def go(self) -> Report:
        """Run everything, or what an interrupt leaves time for. Raises :class:`CannotRun`."""
        start = time.monotonic()
        families = self._families()
        self._check_settings()
        todo = list(enumerate(families))
        settings = self.settings
        threads_each = max(1, (os.cpu_count() or 1) // settings.jobs)
        hello = Hello(settings.backend, settings.frontend, threads_each, settings.device)
        with Pool(hello, settings.timeout, _preload(settings)) as pool:
            first = pool.worker()
            ready = first.start()
            self.versions = ready.versions
            self.progress.started(len(families), ready)
            workers = [first, *(pool.worker() for _ in range(settings.jobs - 1))]
            self._in_threads(workers, todo, self._run_family)
            if not self.interrupted:
                self._in_threads(workers, self._failures(families), self._show_failure)
            for worker in workers:
                worker.stop()
        stopped = ""
        if self.interrupted:
            stopped = f"interrupted: {len(self.results)} of {len(families)} families were begun"
        return self._report(time.monotonic() - start, stopped)

    def _families(self) -> list[Family]:
        names = self.settings.suites or default_names()
        for name in names:
            if name not in SUITES:
                raise CannotRun(
                    f"unknown suite {name!r}; the suites are {', '.join(SUITES.names())}"
                )
        families = [f for name in names for f in SUITES[name].families(self.settings.device)]
        chosen = [family for family in families if self._wanted(family)]
        if not families:
            raise CannotRun(f"the suites {', '.join(names)} have nothing for this device")
        if not chosen:
            raise CannotRun(_no_match(self.settings.only, [*map(_path, families)]))
        families = chosen
        # Long ones first: what is listed takes models, what is drawn takes single operators.
        return sorted(families, key=lambda family: family.strategy is not None)

    def _wanted(self, family: Family) -> bool:
        only, names = self.settings.only, (_path(family), family.subject)
        return not only or any(fnmatchcase(n, p) for p in only for n in names)

    def _check_settings(self) -> None:
        settings = self.settings
        for name in ("max_examples", "jobs", "timeout"):
            if getattr(settings, name) <= 0:
                option = name.replace("_", "-")
                raise CannotRun(f"--{option} is {getattr(settings, name)}; it has to be positive")
        if settings.report is not None:
            prepare_folder(settings.report)

    def _in_threads(self, workers: Sequence[Worker], jobs: Sequence[Job], do: Task) -> None:
        """Share ``jobs`` out among one thread per worker, and wait for all of them."""
        todo: queue.SimpleQueue[Job] = queue.SimpleQueue()
        for job in jobs:
            todo.put(job)

        def work(worker: Worker) -> None:
            try:
                while self.error is None and not self.interrupted:
                    do(worker, *todo.get_nowait())
            except queue.Empty:
                return
            except BaseException as error:  # the main thread raises it
                self.error = error

        threads = [threading.Thread(target=work, args=(w,), daemon=True) for w in workers]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:  # what was judged so far is worth a report
            self.interrupted = True
            for worker in workers:
                worker.interrupt()
            for thread in threads:
                thread.join()
        if self.error is not None and not self.interrupted:
            raise self.error

    def _seed(self, family: Family) -> str:
        return f"{self.settings.seed} {family.suite} {family.subject} {family.variant}"

    def _run_family(self, worker: Worker, number: int, family: Family) -> None:
        settings = self.settings
        cases: Sequence[Case] = family.cases
        if family.strategy is not None:
            cases = examples(family.strategy, settings.max_examples, self._seed(family))
        self.results[number] = []
        for case in cases:
            judged = worker.judge(case)
            if self.interrupted:
                return
            entry = None
            if not judged.verdict.conforms:
                entry = expected_failures.expectation_for(case.id, judged.verdict, settings.xfails)
            result = Result(case, judged.verdict, judged.seconds, entry)
            self.results[number].append(result)
            with self.lock:
                self.progress.judged(result)
        with self.lock:
            self.progress.finished_family(family)

    def _failures(self, families: Sequence[Family]) -> list[Job]:
        """What gets a script: every failure; the first of its kind per subject is shrunk too."""
        if self.settings.report is None:
            return []
        jobs: list[Job] = []
        shown = set()
        for number, family in enumerate(families):
            for place, result in enumerate(self.results.get(number, ())):
                worst = result.verdict.worst
                if result.conforms or worst is None:
                    continue
                key = (family.suite, family.subject, worst.failure_class)
                shrinks = result.fails and key not in shown
                shown |= {key} if shrinks else set()
                jobs.append((number, place, family, shrinks))
        with self.lock:
            self.progress.shrinking(len(jobs))
        return jobs

    def _show_failure(
        self, worker: Worker, number: int, place: int, family: Family, shrinks: bool
    ) -> None:
        result = self.results[number][place]
        if shrinks and self.shrink_seconds > 0:
            result = self._shrunk(worker, family, result)
        if self.interrupted:
            return
        result = self._with_script(worker, result)
        self.results[number][place] = result
        with self.lock:
            self.progress.shown(result)

    def _shrunk(self, worker: Worker, family: Family, result: Result) -> Result:
        start = time.monotonic()
        budget = Budget(SHRINK_CANDIDATES, min(SHRINK_SECONDS, self.shrink_seconds))
        shrinker = Shrinker(lambda case: worker.judge(case).verdict, budget)
        count = self.settings.max_examples
        seed = self._seed(family)
        shrunk = shrinker.shrink(result.case, result.verdict, family, count, seed)
        with self.lock:
            self.shrink_seconds -= time.monotonic() - start
        return replace(result, shrunk=shrunk)

    def _with_script(self, worker: Worker, result: Result) -> Result:
        """Write the script; a shrunk one is also run alone, to see that it fails."""
        folder = self.settings.report
        assert folder is not None
        case, verdict = result.shrunk or (result.case, result.verdict)
        finding = verdict.worst
        if finding is None or finding.aspect in ("case", "comparisons", "missing package"):
            return result
        settings = self.settings
        origin = Origin(
            settings.backend, settings.frontend, settings.command(), self.versions, settings.timeout
        )
        name = f"repros/{file_name(result.case.id)}"
        path = folder / name
        path.write_text(script(case, finding, origin, bool(verdict.raised)), encoding="utf-8")
        confirmed, printed = None, ""
        if result.shrunk is not None:
            status, printed = worker.pool.worker().run_script(path.resolve())
            confirmed = status == 1
        return replace(result, repro=name, confirmed=confirmed, printed=printed)

    def _report(self, seconds: float, stopped: str = "") -> Report:
        settings = self.settings
        results = tuple(r for number in sorted(self.results) for r in self.results[number])
        outcomes = [(result.case.id, result.conforms) for result in results]
        return Report(
            compiler=settings.backend,
            frontend=settings.frontend,
            settings={
                "suites": ", ".join(settings.suites or default_names()),
                "device": settings.device,
                "examples": str(settings.max_examples),
                "seed": str(settings.seed),
                "jobs": str(settings.jobs),
            },
            versions=self.versions,
            results=results,
            seconds=seconds,
            # Of a run that was cut short nobody knows which expectations are stale.
            stale=() if stopped else tuple(expected_failures.stale(settings.xfails, outcomes)),
            command=settings.command(),
            stopped=stopped,
        )


def _path(family: Family) -> str:
    return f"{family.suite}/{family.subject}/{family.variant}"


def _no_match(only: Sequence[str], paths: Sequence[str]) -> str:
    """What to say where ``only`` matches none of ``paths``: one that may have been meant, too."""
    words = sorted(re.findall(r"[A-Za-z]\w+", only[0]), key=len, reverse=True)
    like = [path for word in words for path in paths if word in path.partition("/")[2]]
    example = (like or paths)[0]
    return f"--only {' --only '.join(only)}: nothing matches; a case is such as {example}"


def prepare_folder(folder: Path) -> None:
    """Make the report folder, and see that files can be written to it."""
    try:
        (folder / "repros").mkdir(parents=True, exist_ok=True)
        for old in (folder / "repros").glob("*.py"):
            if SIGNATURE in old.read_text(encoding="utf-8", errors="replace"):
                old.unlink()  # of an earlier run: its failures may be gone
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise CannotRun(f"report folder {folder} cannot be written: {error.strerror}") from error


def _preload(settings: Settings) -> tuple[str, ...]:
    """What to import once, before the first worker is forked."""
    modules = ["conformance.judge"]
    if settings.frontend == "torch":
        modules.append("torch._dynamo")
    if settings.backend == "inductor":
        modules.append("torch._inductor.compile_fx")
    if settings.backend == "fastpath":
        modules.append("fastpath")
    return tuple(modules)
