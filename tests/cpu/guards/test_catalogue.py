"""A share of the suite ``guards``: one change between two calls, of anything, at any place.

All of it is `refcompiler conform --backend eager --suite guards`, or `tests/slow`.
"""

import pytest

from tests.cpu.guards import catalogue

SHARE = 300


def test_a_share_of_the_catalogue():
    count = compared = explained = 0
    for case in catalogue.cases(SHARE):
        comparisons, reasons = catalogue.check(case)
        count += 1
        compared += comparisons
        explained += reasons
    assert count > 40 and compared > 40 * count and explained > count / 2


@pytest.mark.parametrize(
    "reason",
    [
        "f: another thread or the guards themselves changed what the guards read",
        "f: x: expected 2, found 2 (guarded at a.py:3)",
        "f: x: expected 2, found 3",
        "f: : expected 2, found 3 (guarded at a.py:3)",
    ],
)
def test_a_poor_reason_is_caught(reason):
    with pytest.raises(AssertionError):
        catalogue.check_reason(reason)
    catalogue.check_reason("f: x: expected 2, found 3 (guarded at a.py:3)")
