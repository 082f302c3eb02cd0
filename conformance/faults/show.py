"""A script that shows the failure: judged, shrunk and run in processes of their own."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.case import Case
from conformance.faults.preload import modules
from conformance.pool import Pool
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
        comparisons = 0

        def judge(case: Case) -> Verdict:
            nonlocal comparisons
            verdict = worker.judge(case).verdict
            comparisons += verdict.comparisons
            return verdict

        try:
            for case in cases:
                verdict = judge(case)
                found = alike(verdict, wanted)
                if found is None:
                    continue
                shrinker = Shrinker(judge, Budget(CANDIDATES, SECONDS))
                shrinker.known[case.digest] = verdict
                small = shrinker.reduce(case, found.failure_class)
                seen = alike(shrinker.known[small.digest], wanted)
                assert seen is not None
                command = f"refcompiler locate --backend {backend} --frontend {frontend}"
                origin = Origin(backend, frontend, command, versions, timeout)
                text = script(small, seen, origin)
                confirmed = _runs(pool, text)
                if confirmed:
                    return Shown(text, True, (), comparisons)
        finally:
            worker.stop()
    why = "no script: the smallest graph does not fail when it is captured by itself"
    return Shown(remarks=(why,), comparisons=comparisons)


def alike(verdict: Verdict, wanted: Finding) -> Finding | None:
    """What decides, if it is the same failure."""
    worst = verdict.worst
    if worst is None or worst.tolerated:
        return None
    if (worst.kind, worst.aspect) != (wanted.kind, wanted.aspect):
        return None
    if worst.aspect == "exception" and not _same_error(worst, wanted):
        return None
    return worst


def _same_error(one: Finding, other: Finding) -> bool:
    """A front end says a backend's error in its own words, with the backend's in them."""
    kind = other.found.partition(":")[0].rpartition(".")[2]
    return kind in one.found or kind in str(one.evidence.get("traceback", ""))


def _runs(pool: Pool, text: str) -> bool:
    """Whether the script fails, run alone in a process that knows nothing of all this."""
    with tempfile.TemporaryDirectory(prefix="locate-") as folder:
        path = Path(folder) / "repro.py"
        path.write_text(text, encoding="utf-8")
        status, _ = pool.worker().run_script(path)
    return status == 1
