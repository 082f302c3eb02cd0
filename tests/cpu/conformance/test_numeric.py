"""The oracle's arithmetic: distances, allowances, and what explains a difference."""

import math

import pytest
import torch

from conformance.case import Tolerance
from conformance.numeric import Reference, closeness, explained_by, identical, ulp
from conformance.verdict import Kind

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_ulp_is_the_distance_to_the_next_number(dtype):
    info = torch.finfo(dtype)
    for value in (1.0, 1.5, 3.0, 0.1, info.smallest_normal, info.smallest_normal / 4, 0.0, 1000.0):
        x = torch.tensor(value, dtype=dtype)
        if dtype == torch.bfloat16:  # has no nextafter; its numbers are float32's upper halves
            up = (x.view(torch.int16) + 1).view(torch.bfloat16)
        else:
            up = torch.nextafter(x, torch.tensor(math.inf, dtype=dtype))
        expected = up.double() - x.double()
        assert ulp(x.double(), dtype).item() == expected.item(), value


def tensor(*values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype)


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("expected", "found", "kind"),
    [
        ((1.0, NAN, INF), (1.0, NAN, INF), Kind.PASS),
        ((1.0,), (1.0 + 2**-23,), Kind.REASSOCIATION),
        ((1.0,), (1.0 + 2**-20,), Kind.WRONG),
        ((1.0,), (NAN,), Kind.WRONG),
        ((NAN,), (1.0,), Kind.WRONG),
        ((NAN,), (INF,), Kind.WRONG),
        ((INF,), (-INF,), Kind.WRONG),
        ((3e38,), (INF,), Kind.WRONG),
        ((INF,), (3e38,), Kind.WRONG),
        ((0.0,), (-0.0,), Kind.WRONG),
        ((1e-45,), (0.0,), Kind.REASSOCIATION),  # one unit of the subnormals
        ((1e-40,), (0.0,), Kind.WRONG),  # a subnormal flushed to zero
    ],
)
def test_elements_without_a_reference(expected, found, kind):
    rule = Tolerance(1.0, zero_sign=True)
    assert closeness(tensor(*expected), tensor(*found), rule).kind is kind


@pytest.mark.parametrize(
    ("expected", "found", "exact", "kind"),
    [
        (NAN, INF, INF, Kind.REASSOCIATION),
        (1.0, NAN, NAN, Kind.REASSOCIATION),
        (NAN, -INF, INF, Kind.WRONG),
        (NAN, 1.0, NAN, Kind.WRONG),
        (INF, NAN, INF, Kind.WRONG),
    ],
)
def test_float64_decides_about_infinities_and_nan(expected, found, exact, kind):
    reference = Reference(torch.tensor([exact], dtype=torch.float64))
    close = closeness(tensor(expected), tensor(found), Tolerance(1.0), reference)
    assert close.kind is kind
    assert kind is Kind.WRONG or close.evidence["ulp_to_float64"] == 0


def test_integers_and_bools_are_exact():
    one, other = torch.tensor([1, 2]), torch.tensor([1, 3])
    close = closeness(one, other, Tolerance(100.0))
    assert close.kind is Kind.WRONG and close.evidence["differing"] == 1
    # unless float64 says that eager's rounding decided the element
    close = closeness(one, other, Tolerance(), Reference(other))
    assert close.kind is Kind.REASSOCIATION and close.tolerated
    third = torch.tensor([1, 4])
    assert closeness(one, third, Tolerance(), Reference(other)).kind is Kind.WRONG


def test_eagers_own_error_is_allowed_and_no_more():
    exact = torch.tensor([1.0], dtype=torch.float64)
    eager = tensor(1.0 + 2**-18)
    better = tensor(1.0 - 2**-18)
    worse = tensor(1.0 - 2**-15)
    assert closeness(eager, better, Tolerance(1.0), Reference(exact)).kind is Kind.REASSOCIATION
    assert closeness(eager, worse, Tolerance(1.0), Reference(exact)).kind is Kind.WRONG


def test_the_spread_allows_what_cancellation_costs():
    exact = torch.tensor([2.0**-30, 1.0], dtype=torch.float64)
    spread = torch.tensor([2.0**-24, 2.0**-24], dtype=torch.float64)
    eager, lucky = tensor(2.0**-30, 1.0), tensor(2.0**-30 + 2.0**-24, 1.0)
    rule = Tolerance(1.0, conditioned=True)
    assert closeness(eager, lucky, rule, Reference(exact)).kind is Kind.WRONG
    assert closeness(eager, lucky, rule, Reference(exact, spread)).kind is Kind.REASSOCIATION


def test_overflow_within_the_allowance_is_no_error():
    largest = torch.finfo(torch.float16).max
    eager, found = tensor(largest, dtype=torch.float16), tensor(INF, dtype=torch.float16)
    exact = torch.tensor([largest + 15.9], dtype=torch.float64)
    assert closeness(eager, found, Tolerance(1.0), Reference(exact)).kind is not Kind.WRONG
    far = torch.tensor([largest / 2], dtype=torch.float64)
    assert closeness(eager / 2, found, Tolerance(1.0), Reference(far)).kind is Kind.WRONG


def test_more_digits_than_eager_are_a_precision_difference():
    exact = torch.tensor([1.0, 2.0], dtype=torch.float64)
    eager = tensor(1.0625, 2.125, dtype=torch.bfloat16)
    close = closeness(
        eager, tensor(1.0, 2.0, dtype=torch.bfloat16), Tolerance(1.0), Reference(exact)
    )
    assert close.kind is Kind.PRECISION and close.tolerated


def test_a_lower_precision_explains_only_what_it_predicts():
    exact = torch.rand(100, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    low = exact.bfloat16()
    assert explained_by(low, low.float(), Reference(exact))
    assert not explained_by(low, exact.float() + 0.01, Reference(exact))
    assert not explained_by(exact.float(), exact.float(), Reference(exact.float().double()))


def test_complex_numbers_are_judged_by_both_parts():
    one = torch.tensor([1 + 2j], dtype=torch.complex64)
    assert closeness(one, one.clone(), Tolerance()).kind is Kind.PASS
    close = closeness(one, one + 1j, Tolerance(1.0))
    assert close.kind is Kind.WRONG
    assert close.evidence["index"] == (0, 1) and close.evidence["found"] == 3.0


def test_evidence_names_the_worst_unexplained_element():
    eager, found = tensor(1.0, NAN, 2.0, 3.0), tensor(1.0 + 2**-23, NAN, 2.5, 3.1)
    evidence = closeness(eager, found, Tolerance(2.0)).evidence
    assert evidence["index"] == (2,) and evidence["unexplained"] == 2
    assert evidence["differing"] == 3


def test_identical_means_the_same_to_a_user():
    assert identical(tensor(NAN, 0.0), tensor(NAN, 0.0))
    assert not identical(tensor(0.0), tensor(-0.0))
    assert not identical(tensor(1.0), tensor(1.0, dtype=torch.float64))
    assert not identical(tensor(1.0), tensor(1.0, 2.0))


def test_empty_tensors_have_nothing_to_differ_in():
    assert closeness(tensor(), tensor(), Tolerance()).kind is Kind.PASS
