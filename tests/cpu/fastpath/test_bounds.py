"""Bounds that are numbers: what equals one stays as it is, so that a zero keeps its sign."""

import math

import pytest
import torch
from torch.nn import functional

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
    "nothing below nan": lambda x: x.clamp_min(math.nan),
}
VALUES = (0.0, -0.0, math.nan, math.inf, -math.inf, 1.0, -1.0, 6.0, 7.0, 0.5, 3.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager_to_the_bit(name, dtype):
    compiled = refcompiler.compile(PROGRAMS[name], backend="fastpath")
    for repeats in (1, 7):
        x = torch.tensor(VALUES * repeats, dtype=dtype)
        expected, found = PROGRAMS[name](x), compiled(x)
        assert found.dtype == expected.dtype
        assert torch.equal(found.isnan(), expected.isnan())
        number = ~expected.isnan()
        assert torch.equal(found[number], expected[number])
        assert torch.equal(found[number].signbit(), expected[number].signbit())
