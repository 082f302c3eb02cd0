"""The worst finding decides; nothing compared is a failure."""

import pytest

from conformance.report.results import Result
from conformance.verdict import Census, Compiled, Finding, Kind, Verdict, crash, verdict_of
from tests.tiny.conformance.samples import case, mixed_report, passing, wrong


def finding(kind, tolerated=False):
    return Finding(kind, "values", "outs[0]", 0, "1", "2", tolerated)


def test_the_worst_finding_is_the_verdict():
    verdict = Verdict((finding(Kind.REASSOCIATION, True), finding(Kind.WRONG)), 2)
    assert verdict.kind is Kind.WRONG and not verdict.conforms


def test_what_is_tolerated_never_hides_what_is_not():
    verdict = Verdict((finding(Kind.NONDETERMINISM, True), finding(Kind.PRECISION)), 2)
    assert verdict.kind is Kind.PRECISION and not verdict.conforms


def test_no_comparison_is_a_failure():
    verdict = verdict_of([], 0, Compiled())
    assert verdict.kind is Kind.WRONG and verdict.worst.aspect == "comparisons"
    assert verdict_of([], 1, Compiled()).kind is Kind.PASS


def test_only_noise_conforms():
    assert wrong(True, Kind.REASSOCIATION).conforms
    assert not wrong(True, Kind.REASSOCIATION).kind == Kind.PASS
    for kind in Kind:
        assert not wrong(False, kind).conforms


@pytest.mark.parametrize(
    ("verdict", "census"),
    [
        (passing(), Census.COMPILED),
        (passing(("aten.cos",)), Census.FELL_BACK),
        (wrong(kind=Kind.NOT_COMPILED), Census.FELL_BACK),
        (wrong(kind=Kind.REFUSED), Census.REFUSED),
        (wrong(kind=Kind.NONDETERMINISM), Census.WRONG),
        (wrong(kind=Kind.PRECISION), Census.WRONG),
        (wrong(True, Kind.PRECISION), Census.COMPILED),
        (crash("hang", "no answer"), Census.CRASHED),
    ],
    ids=lambda value: str(getattr(value, "kind", value)),
)
def test_census(verdict, census):
    assert verdict.census is census


@pytest.mark.parametrize(
    ("aten", "more", "census"),
    [
        (("aten.cos",), {}, Census.FELL_BACK),
        (("aten.cos",), {"left_to_aten": True}, Census.LEFT_TO_ATEN),
        (("aten.mm", "aten.mm.default"), {}, Census.LEFT_TO_ATEN),
        (("aten.mm", "aten.cos.default"), {}, Census.FELL_BACK),
        ((), {"left_to_aten": True}, Census.COMPILED),
    ],
)
def test_a_call_that_the_specification_asks_for_is_no_fallback(aten, more, census):
    assert Result(case(**more), passing(aten), 0.1).census is census


def test_what_the_compiler_did_adds_up():
    one = Compiled(graphs=1, nodes=3, calls=2, kernels=None, aten=("a",))
    two = Compiled(graphs=1, nodes=1, calls=1, kernels=4, fallback="why", aten=("a", "b"))
    assert one + two == Compiled(2, 4, 3, 0, 0, 0, 4, "why", ("a", "b"))


def test_a_report_conforms_unless_something_unexpected_fails():
    report = mixed_report()
    assert not report.conforms
    assert [r.case.label for r in report.failures] == ["bad", "dead"]
    assert report.verdict_counts()[Kind.WRONG] == 2
    assert report.census("made")["sin"]["float32"][Census.COMPILED] == 2
