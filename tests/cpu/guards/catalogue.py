"""Checks of a case of the suite ``guards``: answers, recompiles, and what these say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from zlib import crc32

from conformance.case import Case
from conformance.compilers import Compiler, CompilerName, find
from conformance.judge import judge
from conformance.suites.guards import families
from refcompiler.runtime import counters

#: A reason names what was read, what was expected and found there, and the program's line.
_REASON = re.compile(
    r".+?: (?P<source>.*?):? expected (?P<expected>.*), found (?P<found>.*)", re.DOTALL
)
_PLACE = re.compile(r"\(guarded at [^)]*?(<program \w+>|\.py):\d+\)$")
#: What no line of the program asked for: the state that each plan is captured in.
_WITHOUT_PLACE = re.compile(r"ambient state|inputs of the graph|expected different objects")


def cases(share: int = 1, start: int = 0) -> Iterator[Case]:
    """One case of ``share``, chosen by what it is called."""
    for family in families("cpu"):
        for case in family.cases:
            if crc32(case.id.encode()) % share == start:
                yield case


@cache
def _compiler() -> Compiler:
    return find(CompilerName("eager"))


def check(case: Case) -> tuple[int, int]:
    """How many comparisons were made, and how many recompiles were explained."""
    verdict = judge(case, _compiler())
    assert verdict.conforms, "\n".join([case.id, *map(str, verdict.findings)])
    reasons = counters.reasons("recompiles")
    for reason in reasons:
        check_reason(reason)
    assert len(reasons) == counters.counters()["recompiles"]
    return verdict.comparisons, len(reasons)


def check_reason(reason: str) -> None:
    matched = _REASON.match(reason)
    assert matched, f"says too little: {reason}"
    assert matched["source"].strip(), f"names no source: {reason}"
    found = matched["found"].partition(" (guarded at")[0]
    assert matched["expected"] != found, f"finds what it expected: {reason}"
    if not _WITHOUT_PLACE.search(reason):
        assert _PLACE.search(reason), f"names no line: {reason}"
