"""Bounds that are numbers: what equals one stays as it is, so that a zero keeps its sign."""

import math

import pytest
import torch
from torch.nn import functional

import fastpath
import refcompiler

PROGRAMS = {
    "relu": torch.relu,
    "relu6": functional.relu6,
    "hardtanh": functional.hardtanh,
    "hardtanh of zero": lambda x: functional.hardtanh(x, 0.0, 1.0),
    "clamp": lambda x: torch.clamp(x, 0, 1),
    "from below": lambda x: x.clamp_min(0),
    "from above": lambda x: x.clamp_max(-0.0),
    "crossed": lambda x: torch.clamp(x, 3, 1),
    "from nan": lambda x: torch.clamp(x, math.nan, 1.0),
    "up to nan": lambda x: torch.clamp(x, 1.0, math.nan),
    "hardtanh from nan": lambda x: functional.hardtanh(x, math.nan, 1.0),
    "hardtanh up to nan": lambda x: functional.hardtanh(x, 1.0, math.nan),
    "nothing below nan": lambda x: x.clamp_min(math.nan),
}
VALUES = (0.0, -0.0, math.nan, math.inf, -math.inf, 1.0, -1.0, 6.0, 7.0, 0.5, 3.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_as_in_eager_to_the_bit(dtype):
    def all_of_them(x):
        return [program(x) for program in PROGRAMS.values()]

    compiled = refcompiler.compile(all_of_them, backend="fastpath")
    for repeats in (1, 7):
        x = torch.tensor(VALUES * repeats, dtype=dtype)
        for name, expected, found in zip(PROGRAMS, all_of_them(x), compiled(x), strict=True):
            assert found.dtype == expected.dtype, name
            assert torch.equal(found.isnan(), expected.isnan()), name
            number = ~expected.isnan()
            assert torch.equal(found[number], expected[number]), name
            assert torch.equal(found[number].signbit(), expected[number].signbit()), name
    report = fastpath.last_report()
    assert report.fallback is None and report.kernels and not report.aten_calls
