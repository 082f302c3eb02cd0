"""bfloat16 to the bit: rounding, nans of any payload, and loops over pairs of elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import fastpath

EVERY = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
OTHER = EVERY[torch.randperm(len(EVERY), generator=torch.Generator().manual_seed(0))]
# Payloads that a carry runs through, that the low half holds alone, subnormals, halves to even.
WORDS = [0x7F800001, 0x7FFFFFFF, 0x7FFF8000, 0xFFFFFFFF, 0x7F800000, 0x00000001, 0x00008000]
WORDS += [0x00018000, 0x7F7FFFFF, 0x3F808000, 0x3F818000, 0x3F808001, 0x807FFFFF, 0x80000000]
SINGLES = torch.tensor(WORDS, dtype=torch.int64).to(torch.int32).view(torch.float32).repeat(12)


def compiled(function: Callable[..., Any], *inputs: torch.Tensor) -> tuple[torch.Tensor, Any]:
    """The result, and the callable that made it."""
    call = fastpath.compile_graph(torch.fx.symbolic_trace(function), list(inputs))
    found = call(*inputs)
    return (found[0] if isinstance(found, (list, tuple)) else found), call


def assert_same_bits(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.dtype == expected.dtype and found.shape == expected.shape
    word = torch.int16 if found.dtype is torch.bfloat16 else torch.int32
    same = (found.view(word) == expected.view(word)) | (found.isnan() & expected.isnan())
    assert same.all(), f"{int((~same).sum())} of {same.numel()} differ"


@pytest.mark.parametrize("count", [len(EVERY), len(EVERY) - 1, 4098, 7, 2])
def test_arithmetic_rounds_as_eager_does(count: int) -> None:
    def chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.where(x > y, x * y + x, y * 0.5)

    x, y = EVERY[:count], OTHER[:count]
    found, call = compiled(chain, x, y)
    assert_same_bits(found, chain(x, y))
    assert ("load_high" in call.kernel_sources[0]) is (count % 2 == 0)


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_a_float32_nan_stays_one(shift: float) -> None:
    def narrow(x: torch.Tensor) -> torch.Tensor:
        return (x + shift).to(torch.bfloat16) if shift else x.to(torch.bfloat16)

    found, _ = compiled(narrow, SINGLES)
    expected = narrow(SINGLES)
    assert expected.isnan().sum() == 48
    assert_same_bits(found, expected)


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x, y: x.tril() + y.triu(3), id="positions"),
        pytest.param(lambda x, y: x[:, 1:] + y[:, :-1], id="odd length"),
        pytest.param(lambda x, y: x[:, 2:] + y[:, :-2], id="even length"),
        pytest.param(lambda x, y: x[:, ::2] + y[:, 1::2], id="strides"),
        pytest.param(lambda x, y: x + y.t(), id="transposed"),
        pytest.param(lambda x, y: x * y.float(), id="mixed"),
        pytest.param(lambda x, y: x * y[0] + y[:, :1], id="broadcast"),
        pytest.param(lambda x, y: x.amax(-1), id="row maximum"),
        pytest.param(lambda x, y: torch.threshold(x, 0.1, 1 / 3), id="threshold between two"),
    ],
)
def test_every_bit_pattern(function: Callable[..., torch.Tensor]) -> None:
    x, y = EVERY.view(256, 256), OTHER.view(256, 256)
    found, _ = compiled(function, x, y)
    assert_same_bits(found, function(x, y))


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x, y: x / x.abs().sum(-1, keepdim=True) * y, id="two passes"),
        pytest.param(lambda x, y: torch.softmax(x, -1), id="kept row"),
        pytest.param(
            lambda x, y: torch.nn.functional.layer_norm(x, (256,), y[0], y[1]), id="layer norm"
        ),
        pytest.param(lambda x, y: x.view(4, 16, 256).sum((0, 2)), id="two reduced axes"),
    ],
)
def test_rows(function: Callable[..., torch.Tensor]) -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(64, 256, generator=generator).bfloat16() for _ in range(2))
    found, _ = compiled(function, x, y)
    torch.testing.assert_close(found, function(x, y), rtol=8e-3, atol=1e-5)
