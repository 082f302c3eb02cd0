"""Integers divided by tensors: eager's values, and its error where a divisor is zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import fastpath
import refcompiler
from fastpath.ir.expr import inside
from tests.cpu.fastpath.triton_kernels import kernels_of, program_of

INTS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def divided(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    floor = torch.div(x, y, rounding_mode="floor")
    trunc = torch.div(x, y, rounding_mode="trunc")
    return [floor, trunc, x // y, x % y, torch.fmod(x, y)]


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    refcompiler.reset()
    return refcompiler.compile(function, backend="fastpath", dynamic=False)


def counted() -> None:
    report = fastpath.last_report()
    assert report is not None and report.fallback is None and not report.aten_calls, report


@pytest.mark.parametrize("dtype", INTS, ids=str)
def test_values(dtype: torch.dtype) -> None:
    most, least = torch.iinfo(dtype).max, torch.iinfo(dtype).min
    x = torch.cat([torch.arange(-20, 21), torch.tensor([most, most - 1, least + 1])]).to(dtype)
    y = torch.tensor([-7, -2, -1, 1, 2, 3, 5, most, least + 1]).to(dtype)
    x, y = x[:, None], torch.where(y == 0, 1, y)
    for found, expected in zip(compiled(divided)(x, y), divided(x, y), strict=True):
        assert found.dtype == expected.dtype and torch.equal(found, expected)
    counted()


@pytest.mark.parametrize("name", range(5))
def test_a_divisor_of_zero_raises(name: int) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return divided(x * 2, y - 3)[name] + 1

    function = compiled(program)
    x, y = torch.arange(1000), torch.arange(1000) + 4
    assert torch.equal(function(x, y), program(x, y))
    counted()
    y[777] = 3
    with pytest.raises(RuntimeError) as expected:
        program(x, y)
    with pytest.raises(RuntimeError) as found:
        function(x, y)
    assert str(found.value) == str(expected.value) == "ZeroDivisionError"
    y[777] = 5
    assert torch.equal(function(x, y), program(x, y))


def test_what_pads_divides_nothing_there() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(x // y, (3, 3))

    x, y = torch.arange(1, 50), torch.arange(1, 50)
    assert torch.equal(compiled(program)(x, y), program(x, y))
    counted()


def test_where_there_are_no_elements_no_divisor_is_looked_at() -> None:
    """Nor one that nobody asks for: of an empty tensor of divisors none is there to be read."""

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        _ = torch.unravel_index(x[0], ()), x % y
        return x + 1

    x = torch.tensor([3])
    for y in (torch.tensor([], dtype=torch.int64), torch.tensor([2])):
        assert torch.equal(compiled(program)(x, y), program(x, y))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(program)(x, torch.tensor([0]))


def test_powers_of_integers() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [torch.pow(x, y), torch.pow(3, y)]

    x, y = torch.arange(-4, 5, dtype=torch.int32)[:, None], torch.arange(-3, 7, dtype=torch.int32)
    for found, expected in zip(compiled(program)(x, y), program(x, y), strict=True):
        assert found.dtype == expected.dtype and torch.equal(found, expected)
    counted()


def test_shifts_as_operators_are_kernels() -> None:
    """Counts outside of the width too."""

    def shifted(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [x << 2, x >> 1, x << y, (x >> y) & 3, x << 40, x >> 70]

    for dtype in INTS:
        x, y = torch.randint(0, 120, (50,)).to(dtype), torch.randint(-2, 70, (50,)).to(dtype)
        y = torch.where(y > 64, -3, y).to(dtype)
        for found, wanted in zip(compiled(shifted)(x, y), shifted(x, y), strict=True):
            assert torch.equal(found, wanted) and found.dtype == wanted.dtype
        counted()


def test_on_cuda_nothing_is_asked_of_a_divisor() -> None:
    kernels, _ = kernels_of(program_of(divided, [torch.ones(9).int(), torch.ones(9).int()]))
    every = [
        e.op for k in kernels for s in k.stages for t in s.statements for e in inside([t.value])
    ]
    assert "floordiv" in every and "bounded" not in every


@pytest.mark.parametrize("dtype", INTS, ids=str)
def test_quotients_at_the_limits_and_beside_multiples(dtype: torch.dtype) -> None:
    """Of Python's own integers, which no dtype bounds."""
    info = torch.iinfo(dtype)
    ends = {info.min, info.min + 1, info.max, info.max - 1, info.max // 3, 1, 2, 3, 7, 11}
    ends |= {n for n in (2**24 + 1, 2**31, 2**32 + 1, 2**53 - 1, 2**53 + 1) if n <= info.max}
    if info.min:
        ends |= {-n for n in ends if n != info.min}
    pairs = [(x, y) for x in ends for y in ends if y]
    for y in ends:
        pairs += [(q * y + d, y) for q in ends for d in (-1, 0, 1) if y]
    pairs = [
        (x, y) for x, y in pairs if info.min <= x <= info.max and (x, y) != (info.min, -1) and x * y
    ]
    x, y = (torch.tensor(given, dtype=dtype) for given in zip(*pairs, strict=True))
    found = compiled(divided)(x, y)
    truncated = [abs(a) // abs(b) * (1 if a * b > 0 else -1) for a, b in pairs]
    floors = [a // b for a, b in pairs]
    rests = [[a % b for a, b in pairs], [a - q * b for (a, b), q in zip(pairs, truncated)]]
    assert len(pairs) > 80
    for got, wanted in zip(found, (floors, truncated, floors, *rests), strict=True):
        assert got.tolist() == wanted
