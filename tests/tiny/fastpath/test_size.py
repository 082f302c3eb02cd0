"""Sizes as polynomials: what arithmetic, divisions and orders give, against numbers put in."""

from __future__ import annotations

import itertools

import pytest

from fastpath.ir.index import Axis, Index, delinearize, linear, regroup, variable
from fastpath.ir.size import (
    Assumptions,
    Size,
    Undecided,
    Unknown,
    divides,
    hint,
    parts,
    surely,
    text_of,
)


def unknowns() -> tuple[Unknown, Unknown, Size, Size]:
    n, m = Unknown("n", 5, 2), Unknown("m", 7, 2)
    return n, m, Size({(n,): 1}), Size({(m,): 1})


def value(size, n: int, m: int) -> int:
    return eval(text_of(size, lambda u: u.name), {"n": n, "m": m})


def test_arithmetic_is_that_of_numbers():
    _, _, n, m = unknowns()
    made = {
        "n * m - n": n * m - n,
        "(n + 3) * (m - 2) + 1": (n + 3) * (m - 2) + 1,
        "5 - n * 2": 5 - n * 2,
        "n * n * m": n * n * m,
        "-(n + m) * 4": -(n + m) * 4,
    }
    count = 0
    for text, size in made.items():
        for a, b in itertools.product((2, 3, 9), (2, 5)):
            assert value(size, a, b) == eval(text, {"n": a, "m": b})
            count += 1
    assert count == 30
    assert n - n == 0 and isinstance(n - n, int)
    assert (n + 1) * (n - 1) == n * n - 1
    assert hint(n * m + 1) == 36


def test_orders_are_known_by_the_least_values():
    _, _, n, m = unknowns()
    assert surely(n - 1, n) and surely(1, n) and surely(n, n * m)
    assert not surely(n, m) and not surely(m, n)
    assert n > 1 and n * m >= n and not n < 2
    with pytest.raises(Undecided):
        assert n < m
    with pytest.raises(Undecided):
        assert n > 2


def test_what_divides():
    _, _, n, m = unknowns()
    assert divides(8, n * 8) and divides(n, n * m) and divides(n, n * n * 3 + n)
    assert not divides(2, n) and not divides(n, m) and not divides(n, 4)
    assert parts(n * 8 + 3, 8) == (n, 3)
    assert n * m // n == m and (n * 4) % 2 == 0
    assert 0 // (n - m) == 0 % (n - m) == 0
    with pytest.raises(Undecided):
        n // 2


def test_positions_of_views_need_no_divisions():
    _, _, n, m = unknowns()
    a, b, c = Axis(n), Axis(m), Axis(8)
    index = tuple(variable(axis) for axis in (a, b, c))
    merged = regroup(index, (n, m, 8), (n * m, 8))
    assert merged == (Index({a: m, b: 1}), Index({c: 1}))
    assert regroup(merged, (n * m, 8), (n, m, 8)) == index
    flat = linear(index, (m * 8, 8, 1))
    assert delinearize(flat, (n, m, 8)) == index
    assert (merged[0] * 8).floordiv(m * 8) == index[0]


def test_assumptions_are_conditions_where_nothing_is_known():
    _, _, n, m = unknowns()
    sizes = Assumptions()
    assert sizes.at_most(4, 4) and not sizes.at_most(5, 4) and not sizes.at_most(n + 7, 8)
    assert not sizes.conditions
    assert sizes.at_most(n, 5) and not sizes.at_most(m, 6)
    assert sizes.multiple(n, 5) and not sizes.multiple(n, 3) and sizes.multiple(m * 4, 2)
    texts = [c.text(lambda s: text_of(s, lambda u: u.name)) for c in sizes.conditions]
    assert texts == ["n <= 5", "m > 6", "n % 5 == 0"]
