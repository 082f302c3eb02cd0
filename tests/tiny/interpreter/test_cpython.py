"""CPython's own tests through the interpreter: a few of its files, and the harness that runs them.

All of them: ``tox run -e cpython``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.slow.cpython import harness
from tests.slow.cpython.campaign import COMPILED, FAST, FILES
from tests.slow.cpython.harness import (
    FileReport,
    FileTimeout,
    Outcome,
    captured,
    happened,
    judge,
    missing,
    reasons,
    run_all,
    run_file,
    table,
)

needs_cpython = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@needs_cpython
@pytest.mark.parametrize("name", FAST)
def test_file(name: str) -> None:
    report = run_file(name, limit=60)
    verdict = judge([report], reasons())
    assert not verdict.empty and report.due
    assert not verdict.unexplained, "\n".join(
        f"{test}: {outcome.text}" for test, outcome in verdict.unexplained.items()
    )
    assert not verdict.stale
    assert report.frames > 20 * report.due, "hardly anything was interpreted"


def test_a_method_costs_only_itself() -> None:
    name = "tests.slow.cpython.sample"
    report = run_file(name, limit=3)
    native = {test.rpartition(".")[2]: o.outcome for test, o in report.native.items()}
    assert native.pop("test_f_fails_natively") == "failed"
    assert native.pop("test_h_is_skipped") == "skipped"
    assert set(native.values()) == {"passed"} and len(native) == 8
    found = {test.rpartition(".")[2]: o for test, o in report.interpreted.items()}
    assert found.keys() == native.keys()
    assert {test: o.outcome for test, o in found.items() if o.outcome != "passed"} == {
        "test_b_hangs": "hung",
        "test_c_dies": "died",
        "test_d_differs": "failed",
        "test_e_exits": "failed",
    }
    assert "last words" in found["test_c_dies"].text
    assert (
        found["test_d_differs"].message == "AssertionError: True is not false : it is interpreted"
    )
    assert all(o.frames for o in found.values() if o.outcome == "passed")
    assert (report.due, report.passed) == (8, 4)


def test_nothing_collected_is_a_failure() -> None:
    absent = run_file("tests.slow.cpython.no_such_module", limit=5)
    empty = run_file("tests.slow.cpython.campaign", limit=5)
    verdict = judge([absent, empty], {})
    assert len(verdict.empty) == 2 and not verdict.ok(0)


def test_a_file_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no method exceeds its own; what was not run is no success."""
    name, hangs = "tests.slow.cpython.sample", 1
    with pytest.raises(FileTimeout, match="interpreted run did not end within 3 s"):
        list(run_all("interpreted", name, [hangs], limit=60, whole=3))

    def runs(mode: str, *given: Any) -> Iterator[Any]:
        yield ["a", "b", "c"]
        yield "a", 0, Outcome("passed", frames=1)
        if mode == "interpreted":
            raise FileTimeout("too long")
        yield "b", 1, Outcome("failed")
        yield "c", 2, Outcome("passed")

    monkeypatch.setattr(harness, "run_all", runs)
    found = run_file("any")
    assert {test: o.outcome for test, o in found.interpreted.items()} == {
        "a": "passed",
        "c": "hung",
    }
    assert found.error == "too long" and not judge([found], {"c": "known"}).ok(0)


def report(**outcomes: str) -> FileReport:
    native = {name: Outcome("passed") for name in outcomes}
    interpreted = {name: Outcome(outcome, "why") for name, outcome in outcomes.items()}
    return FileReport("file", native, interpreted)


def test_every_failure_needs_a_reason_and_every_reason_a_failure() -> None:
    reports = [report(a="passed", b="failed", c="hung", d="passed")]
    verdict = judge(reports, {"b": "known", "d": "was known", "of_another_file": "not run"})
    assert (verdict.due, verdict.passed) == (4, 2)
    assert list(verdict.unexplained) == ["c"] and verdict.stale == ["d"] and not verdict.empty
    assert not verdict.ok(0)
    assert not judge(reports, {"c": "known", "d": "now and then"}, frozenset("d")).stale
    verdict = judge(reports, {"b": "known", "c": "known"})
    assert verdict.ok(0.5) and not verdict.ok(0.6)
    assert table(reports).splitlines()[1].split()[:4] == ["file", "4", "2", "2"]


def test_the_campaign_is_long_enough() -> None:
    assert len(set(FILES)) == len(FILES) >= 60 and set(FAST) <= set(FILES)
    assert len(set(COMPILED)) == len(COMPILED) >= 60


def test_what_compiled_methods_did_is_counted() -> None:
    whole, broken = {"captures": 1}, {"captures": 3, "breaks": 2, "fallbacks": 1}
    found = FileReport("file", {}, {})
    for name, counts in (("a", whole), ("b", broken), ("c", {"fallbacks": 1}), ("d", {})):
        outcome = Outcome("passed", frames=counts.get("captures", 0), counts=counts)
        found.native[name] = found.interpreted[name] = outcome
    assert captured([found]) == 2 / 3 and captured([]) == 0
    assert happened([found]) == (
        "methods captured: 2 (without a break 1, with breaks 1; something in them fell back in 1), "
        "run natively: 1; 4 captures, 2 breaks, 0 recompiles, 2 fallbacks"
    )
    assert table([found], "compiled").splitlines()[1].split()[1:7] == ["4", "4", "4", "0", "2", "2"]
