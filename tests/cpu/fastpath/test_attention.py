"""Attention in one kernel: scores, softmax and the product with them, against eager."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fastpath
import refcompiler
from fastpath.cpu import attention, gemm

pytestmark = pytest.mark.skipif(
    not gemm.vector_bytes(), reason="the processor has no vectors with multiply-add"
)
FLASH = "aten._scaled_dot_product_flash_attention_for_cpu.default"
#: Batch, heads, rows, keys, width: either side of tiles, of vectors, and of what a chunk holds.
SIZES = (
    (2, 3, 7, 5, 4),
    (1, 1, 2, 1, 1),
    (1, 2, 1, 9, 8),
    (1, 2, 97, 97, 33),
    (2, 1, 400, 390, 8),
    (1, 2, 50, 3000, 8),
)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    refcompiler.reset()
    yield
    refcompiler.reset()


def heads(size: Any, rows: int, apart: bool, dtype: torch.dtype) -> torch.Tensor:
    """Matrices for each head, whose rows lie beside each other or ``apart``, one for each head."""
    batch, count, *_, width = size
    if not apart:
        return torch.randn(batch, count, rows, width, dtype=dtype)
    return torch.randn(batch, rows, 3 * count, width, dtype=dtype)[
        :, :, count:-count
    ].mT.mT.transpose(1, 2)


def agree(q: Any, k: Any, v: Any, mask: Any = None, left: bool = False, **options: Any) -> None:
    """Two calls, the second of other values; ``left``: ATen computes it."""

    def f(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)

    refcompiler.reset()
    call = refcompiler.compile(f, backend="fastpath", dynamic=False)
    with torch.no_grad():
        for scale in (1, -1.5):
            given = q * scale, k, v, mask
            found, expected = call(*given), f(*given)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, equal_nan=True)
            assert found.stride() == expected.stride()
    report: Any = fastpath.last_report()
    assert report.fallback is None and (FLASH in report.aten_calls) == left, report


@pytest.mark.parametrize("masked", [None, "keys", "rows", "causal"])
def test_sizes_and_layouts(masked: str | None) -> None:
    """Each mask at each size, by turns in the one dtype and in the other."""
    torch.manual_seed(0)
    for number, size in enumerate(SIZES):
        apart = bool((number + (masked is None)) % 2)
        dtype = (torch.float32, torch.float64)[(number + (masked in ("keys", "rows"))) % 2]
        batch, _, rows, keys, _ = size
        q, k, v = (heads(size, n, apart, dtype) for n in (rows, keys, keys))
        mask = None
        if masked == "rows":
            mask = torch.randn(rows, keys, dtype=dtype)
        elif masked == "keys":  # a mask of truth values, which is the same for all rows
            mask = torch.rand(batch, 1, 1, keys) > 0.3
        left = rows == 1  # for which keys and values are not laid anew
        agree(q, k, v, mask, left, is_causal=masked == "causal")


def test_scores_that_are_no_numbers_and_rows_without_keys() -> None:
    torch.manual_seed(1)
    q, k, v = torch.randn(3, 1, 2, 20, 16).unbind()
    mask = torch.zeros(20, 20)
    mask[3] = mask[17, 1:] = -math.inf
    mask[5, 4], mask[6, 7] = math.inf, math.nan
    k[0, 1, 9, 2] = math.inf
    agree(q, k, v, mask, scale=0.3)
    agree(q, k, v, torch.zeros(1, 1, 20, 20, dtype=torch.bool), scale=0.3)


@pytest.mark.parametrize("keys", (3, 17))
def test_a_row_of_nan_alone(keys: int) -> None:
    """ATen gives 0, not NaN, where it has no whole vector of scores to look for the greatest in."""
    q, k, v = (torch.randn(1, 2, keys, 8) for _ in range(3))
    q[0, 0, 1, 2], q[0, 1, 0, 5], k[0, 1, -1, 0] = math.nan, -math.inf, math.nan
    for causal in (True, False):
        agree(q, k, v, is_causal=causal)


def test_keys_that_no_row_sees() -> None:
    torch.manual_seed(2)
    for rows, keys in ((20, 40), (40, 20)):
        q, k, v = torch.randn(1, 2, rows, 8), *torch.randn(2, 1, 2, keys, 8)
        agree(q, k, v, is_causal=True)


def test_threads_change_no_bit() -> None:
    torch.manual_seed(3)
    q, k, v = torch.randn(3, 2, 4, 300, 32).unbind()
    call = refcompiler.compile(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v), backend="fastpath"
    )
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            with torch.no_grad():
                found.append(call(q, k, v))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)


def test_gradients_are_of_the_kernels_sums() -> None:
    """The backward is ATen's, and reads the logarithms that the forward leaves it."""
    torch.manual_seed(4)
    q, k, v = (t.requires_grad_() for t in torch.randn(3, 2, 3, 30, 16).unbind())
    mask = torch.randn(30, 30)
    mask[3] = -math.inf  # of a row without keys, too
    call = refcompiler.compile(F.scaled_dot_product_attention, backend="fastpath")
    for scale in (1.0, 0.5):
        found, expected = (
            torch.autograd.grad((f(q, k, v, mask * scale) ** 2).sum(), (q, k, v))
            for f in (call, F.scaled_dot_product_attention)
        )
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    report: Any = fastpath.last_report()
    assert FLASH not in report.aten_calls and report.products == 2, report


def test_masks_that_do_not_lie_along_their_rows() -> None:
    """They are laid anew, once for two layers, and no larger than they were."""
    torch.manual_seed(6)
    q, k, v = torch.randn(3, 2, 3, 20, 8).unbind()
    bias = torch.randn(20, 20, 3).permute(2, 0, 1)  # of each head, looked up by distances
    for mask in (bias[None].expand(2, 3, 20, 20), bias[None], torch.randn(20, 1).expand(20, 20)):
        agree(q, k, v, mask)

    def layers(q: Any, k: Any, v: Any, bias: Any) -> Any:
        mask = bias[None].expand(2, 3, 20, 20)
        inner = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return F.scaled_dot_product_attention(inner, k, v, attn_mask=mask)

    call = refcompiler.compile(layers, backend="fastpath", dynamic=False)
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    for scale in (1.0, -2.0):
        with torch.no_grad():
            torch.testing.assert_close(call(q, k, v, bias * scale), layers(q, k, v, bias * scale))
        found, expected = (
            torch.autograd.grad((f(*leaves, bias * scale) ** 2).sum(), leaves)
            for f in (call, layers)
        )
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        call(q, k, v, bias)
    report: Any = fastpath.last_report()
    assert FLASH not in report.aten_calls and report.kernels == 3, report  # one lays the mask


@pytest.mark.parametrize("case", ["many keys", "bfloat16"])
def test_what_is_left_to_aten(case: str) -> None:
    torch.manual_seed(5)
    keys = attention.SCORES // attention.LEAST_ROWS + 8 if case == "many keys" else 24
    q, k, v = torch.randn(1, 1, 40, 8), *torch.randn(2, 1, 1, keys, 8)
    if case == "bfloat16":
        call = refcompiler.compile(F.scaled_dot_product_attention, backend="fastpath")
        given = [t.bfloat16() for t in (q, k, v)]
        with torch.no_grad():
            assert torch.equal(call(*given), F.scaled_dot_product_attention(*given))
        report: Any = fastpath.last_report()
        assert FLASH in report.aten_calls
        return
    agree(q, k, v, left=True)
