"""A script that shows the failure: judged, shrunk and run in processes of their own."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from conformance.case import Case
from conformance.faults.operators import error_class
from conformance.faults.preload import modules
from conformance.faults.sizes import with_smaller_sizes
from conformance.pool import Pool, Worker
from conformance.repro import Origin, script
from conformance.shrink import Budget, Shrinker
from conformance.verdict import Finding, Verdict
from conformance.worker import Hello

CANDIDATES, SECONDS = 80, 60.0


@dataclass(frozen=True)
class Shown:
    """``script``: its text, empty if there is none. ``confirmed``: it was run alone, and failed."""

    script: str = ""
    confirmed: bool | None = None
    remarks: tuple[str, ...] = ()
    comparisons: int = 0


def show(
    cases: Sequence[Case],
    wanted: Finding,
    compilers: Sequence[tuple[str, str]],
    timeout: float,
) -> Shown:
    """The smallest script of the first of ``cases`` that fails as ``wanted``."""
    backend, frontend = compilers[0]
    if len(compilers) != 1:
        return Shown(remarks=("no script: the program compiles with several backends",))
    if backend.startswith(":"):
        why = f"no script: the backend {backend[1:]} is in no module that a script could import"
        return Shown(remarks=(why,))
    hello = Hello(backend, frontend, threads=2)
    with Pool(hello, timeout, ("conformance.judge", *modules(backend))) as pool:
        worker = pool.worker()
        versions = dict(worker.start().versions)
        command = f"refcompiler locate --backend {backend} --frontend {frontend}"
        origin = Origin(backend, frontend, command, versions, timeout)
        judge = _Judge(worker, wanted)
        why = "no script: the smallest graph does not fail when it is captured by itself"
        try:
            for case in cases:
                small = _smallest(case, judge)
                if small is not None:
                    text = script(*small, origin)
                    if _runs(pool, text):
                        return Shown(text, True, (), judge.comparisons)
                    why = "no script: what was written did not fail when it was run alone"
        finally:
            worker.stop()
    return Shown(remarks=(why,), comparisons=judge.comparisons)


@dataclass
class _Judge:
    """The verdict on a case if it is the failure ``wanted``, or else one that is none."""

    worker: Worker
    wanted: Finding
    comparisons: int = 0

    def __call__(self, case: Case) -> Verdict:
        verdict = self.worker.judge(case).verdict
        self.comparisons += verdict.comparisons
        same = [f for f in verdict.findings if is_alike(f, self.wanted)]
        return replace(verdict, findings=tuple(same))


def _smallest(case: Case, judge: _Judge) -> tuple[Case, Finding] | None:
    verdict = judge(case)
    if verdict.worst is None:
        return None
    same = verdict.worst.failure_class
    shrinker = Shrinker(judge, Budget(CANDIDATES, SECONDS))
    shrinker.known[case.digest] = verdict
    small = with_smaller_sizes(case, lambda smaller: shrinker.is_same_failure(smaller, same))
    small = shrinker.reduce(small, same)
    worst = shrinker.known[small.digest].worst
    assert worst is not None
    return small, worst


def is_alike(finding: Finding, wanted: Finding) -> bool:
    """Whether it is the same failure."""
    if finding.tolerated or (finding.kind, finding.aspect) != (wanted.kind, wanted.aspect):
        return False
    return finding.aspect != "exception" or _same_error(finding, wanted)


def _same_error(one: Finding, other: Finding) -> bool:
    """A front end says a backend's error in its own words, with the backend's in them."""
    said = error_class(other.found).rpartition(".")[2]
    return said in error_class(one.found) or said in error_class(
        str(one.evidence.get("traceback", ""))
    )


def _runs(pool: Pool, text: str) -> bool:
    """Whether the script fails, run alone in a process that knows nothing of all this."""
    with tempfile.TemporaryDirectory(prefix="locate-") as folder:
        path = Path(folder) / "repro.py"
        path.write_text(text, encoding="utf-8")
        status, _ = pool.worker().run_script(path)
    return status == 1
