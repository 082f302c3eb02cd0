"""The whole suite ``guards``: every change at every place recompiles or gives eager's answer."""

import pytest

from tests.cpu.guards import catalogue

SHARES = 40


@pytest.mark.parametrize("start", range(SHARES))
def test_catalogue(start):
    count = explained = 0
    for case in catalogue.cases(SHARES, start):
        comparisons, reasons = catalogue.check(case)
        assert comparisons > 20
        count += 1
        explained += reasons
    assert count > 300 and explained > count / 2
