"""Index arithmetic: what it says equals what it is, and reshapes stay free of divisions."""

from __future__ import annotations

import math
import random

from fastpath.ir.index import (
    Axis,
    Division,
    Index,
    axes_for,
    contiguous_strides,
    linear,
    regroup,
    variable,
)


def value(index: Index, at: dict[Axis, int]) -> int:
    """The index as a number, by the meaning of its parts."""
    total = index.const
    for atom, c in index.terms.items():
        if isinstance(atom, Axis):
            total += c * at[atom]
        else:
            inner = value(atom.dividend, at)
            total += c * (inner % atom.divisor if atom.remainder else inner // atom.divisor)
    return total


def factors(chance: random.Random, number: int) -> list[int]:
    found = []
    while number > 1:
        divisor = chance.choice([d for d in range(2, number + 1) if number % d == 0])
        found.append(divisor)
        number //= divisor
    if chance.random() < 0.3:
        found.insert(chance.randint(0, len(found)), 1)
    return found


def test_reshapes_keep_every_element_in_its_place() -> None:
    chance, compared = random.Random(0), 0
    for _ in range(400):
        source = [chance.choice([1, 2, 3, 4, 6, 8]) for _ in range(chance.randint(1, 3))]
        target = factors(chance, math.prod(source))
        axes = axes_for(source)
        index = regroup([variable(a) for a in axes], source, target)
        back = regroup(index, target, source)
        for _ in range(5):
            at = {a: chance.randrange(a.extent) for a in axes}
            flat = sum(at[a] * s for a, s in zip(axes, contiguous_strides(source), strict=True))
            places = [value(i, at) for i in index]
            assert all(0 <= p < n for p, n in zip(places, target, strict=True))
            assert value(linear(index, contiguous_strides(target)), at) == flat
            assert [value(i, at) for i in back] == [at[a] for a in axes]
            compared += 1
    assert compared == 2000


def test_splitting_and_merging_neighbours_needs_no_division() -> None:
    for source, target in (
        ([4, 6], [24]),
        ([24], [4, 6]),
        ([2, 3, 5], [6, 5]),
        ([6, 5], [2, 3, 5]),
    ):
        axes = axes_for(source)
        index = regroup([variable(a) for a in axes], source, target)
        flat = linear(index, contiguous_strides(target))
        assert not any(isinstance(atom, Division) for atom in flat.terms)


def test_divisions_that_show_their_result_disappear() -> None:
    a, b = Axis(5), Axis(8)
    flat = variable(a) * 8 + variable(b)
    assert flat.floordiv(8) == variable(a)
    assert flat.mod(8) == variable(b)
    crossed = variable(a) * 6 + variable(b)  # b runs past 6, so this one has to stay
    assert isinstance(next(iter(crossed.floordiv(6).terms)), (Axis, Division))
    again = crossed.floordiv(6) * 6 + crossed.mod(6)
    assert again.simplified() == crossed


def test_what_has_no_elements_is_divided_too() -> None:
    index = variable(Axis(5)) * 3 + variable(Axis(0)) + 1
    assert index.floordiv(0) == index.mod(0) == Index({})


def test_bounds_hold() -> None:
    a, b = Axis(5), Axis(8)
    index = variable(a) * -3 + variable(b) * 2 + 7
    seen = [value(index, {a: i, b: j}) for i in range(5) for j in range(8)]
    assert index.bounds() == (min(seen), max(seen))


def test_positions_that_run_backwards() -> None:
    """Quotients and remainders of differences: in bounds, and of numbers that are not negative."""
    chance, compared = random.Random(1), 0
    for _ in range(300):
        axes = axes_for([chance.randint(1, 5) for _ in range(chance.randint(1, 2))])
        index = Index({a: chance.choice([-3, -2, -1, 1, 2]) for a in axes}, chance.randint(-4, 9))
        divisor = chance.randint(2, 4)
        found = index.mod(divisor), index.floordiv(divisor)
        for _ in range(6):
            at = {a: chance.randrange(a.extent) for a in axes}
            number = value(index, at)
            assert [value(i, at) for i in found] == [number % divisor, number // divisor]
            for each in found:
                low, high = each.bounds()
                assert low <= value(each, at) <= high
                for atom in each.terms:
                    assert isinstance(atom, Axis) or value(atom.dividend, at) >= 0
                compared += 1
    assert compared == 3600
