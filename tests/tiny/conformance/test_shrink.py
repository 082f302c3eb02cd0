"""The reducer keeps the failure, spends no more than its budget, and gets to the core."""

from dataclasses import replace

from conformance.case import Change, Literal
from conformance.shrink import Budget, Shrinker, candidates
from conformance.suites.suite import Family
from conformance.verdict import Finding, Kind
from tests.tiny.conformance.samples import case, passing, wrong

FAMILY = Family("made", "sin", "float32", cases=(case(),))


def values_of(chosen):
    return next(s.contents.values for s in chosen.storages() if s.name == "_x")


def fails_if(test):
    """A stand-in for a worker: wrong where ``test`` holds."""
    judged = []

    def judge(chosen):
        judged.append(chosen)
        return wrong() if test(chosen) else passing()

    return judge, judged


def test_it_finds_the_one_value_that_matters():
    judge, judged = fails_if(lambda c: 3.0 in values_of(c))
    shrinker = Shrinker(judge, Budget(200, 60.0))
    smallest, verdict = shrinker.shrink(case(), wrong(), FAMILY, 1, "0")
    assert set(values_of(smallest)) <= {0.0, 3.0} and 3.0 in values_of(smallest)
    assert len(smallest.history) == 1
    assert [t.name for t in smallest.tensors()] == ["x"]  # the unused input is gone
    assert not verdict.conforms and len(judged) < 60


def test_another_failure_is_not_the_same_failure():
    shrinker = Shrinker(lambda c: wrong(aspect="dtype"), Budget(200, 60.0))
    smallest, _ = shrinker.shrink(case(), wrong(), FAMILY, 1, "0")
    assert smallest == case()


def test_eager_raises_in_no_smaller_case_what_it_did_not_before():
    """Without its change the program divides by zero: eager raises, and compiled code otherwise."""

    def judge(chosen):
        whole = any(isinstance(step, Change) for step in chosen.history)
        return wrong() if whole else replace(wrong(), raised=("ZeroDivisionError",))

    def shrunk(verdict):
        shrinker = Shrinker(judge, Budget(200, 60.0))
        smallest, found = shrinker.shrink(case(), verdict, FAMILY, 1, "0")
        assert len(smallest.tensors()) == 1  # it did shrink
        return any(isinstance(step, Change) for step in smallest.history), found.raised

    assert shrunk(wrong()) == (True, ())
    raising = replace(wrong(), raised=("ZeroDivisionError",))
    assert shrunk(raising) == (False, ("ZeroDivisionError",))


def test_eager_raises_in_no_smaller_case_more_often_than_before():
    once = replace(wrong(), raised=("RuntimeError",))
    shrinker = Shrinker(lambda c: replace(once, raised=once.raised * 2), Budget(200, 60.0))
    assert shrinker.shrink(case(), once, FAMILY, 1, "0")[0] == case()


def test_what_is_missing_in_a_smaller_case_is_the_same_exception():
    def missing(name):
        found = Finding(Kind.WRONG, "exception", "error", 0, f"{name}: text", "no exception")
        return replace(wrong(), findings=(found,), raised=("TypeError", "ValueError"))

    shrinker = Shrinker(lambda c: missing("ValueError"), Budget(200, 60.0))
    assert shrinker.shrink(case(), missing("TypeError"), FAMILY, 1, "0")[0] == case()


def test_the_budget_is_kept():
    judge, judged = fails_if(lambda c: True)
    Shrinker(judge, Budget(3, 60.0)).shrink(case(), wrong(), FAMILY, 1, "0")
    assert len(judged) == 3
    judge, judged = fails_if(lambda c: True)
    Shrinker(judge, Budget(100, 0.0)).shrink(case(), wrong(), FAMILY, 1, "0")
    assert judged == []


def test_candidates_are_well_formed():
    strided = case().with_inputs(
        replace(i, strides=(1,)) if getattr(i, "name", "") == "x" else i for i in case().inputs
    )
    seen = list(candidates(strided))
    assert len(seen) > 10
    for candidate in seen:
        names = {s.name for s in candidate.storages()}
        assert all(t.storage in names for t in candidate.tensors())
        for storage in candidate.storages():
            assert isinstance(storage.contents, Literal)
            assert len(storage.contents.values) == storage.size
    assert any(all(t.strides is None for t in c.tensors()) for c in seen)
