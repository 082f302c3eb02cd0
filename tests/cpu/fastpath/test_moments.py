"""Means and variances where rounding shows: equal terms, terms far from 0, infinities."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import fastpath
import refcompiler
from fastpath import target
from fastpath.decompositions import table

PROGRAMS: dict[str, Callable[[torch.Tensor], list[torch.Tensor]]] = {
    "rows": lambda x: [x.var(-1), x.std(-1), torch.var_mean(x, -1)[0], torch.std_mean(x, -1)[0]],
    "columns": lambda x: [x.var(0), torch.var_mean(x, 0)[0]],
    "all": lambda x: [x.var()],
    "layer": lambda x: [F.layer_norm(x, x.shape[-1:])],
    "group": lambda x: [F.group_norm(x[None], 1)],
    "batch": lambda x: [F.batch_norm(x[None], x[:, 0] * 0, x[:, 0] * 0, training=True)],
}


@pytest.mark.parametrize("split", [False, True], ids=["whole", "in pieces"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_equal_terms_deviate_by_nothing(
    name: str, split: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if split:  # reductions that are not long, too
        monkeypatch.setattr(target.Target, "pieces", lambda *_: 5)
    refcompiler.reset()
    compiled = refcompiler.compile(PROGRAMS[name], backend="fastpath", fullgraph=True)
    compared = 0
    for seed in range(6):
        one = torch.rand(1, generator=torch.Generator().manual_seed(seed)) * 200
        x = one.expand(35, 700).contiguous()
        for found in compiled(x):
            assert torch.equal(found, torch.zeros_like(found)), found.abs().max()
            compared += 1
    assert compared >= 6
    report = fastpath.last_report()
    assert report is not None and report.kernels > 0 and not report.aten_calls


@pytest.mark.parametrize("split", [False, True], ids=["whole", "in pieces"])
def test_terms_far_from_zero_are_as_near_as_eagers(
    split: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if split:
        monkeypatch.setattr(target.Target, "pieces", lambda *_: 7)
    refcompiler.reset()
    compiled = refcompiler.compile(lambda x: torch.var_mean(x, -1), backend="fastpath")
    for offset in (0.0, 1e3, 1e5):
        x = torch.randn(9, 2100, generator=torch.Generator().manual_seed(3)) + offset
        exact = torch.var_mean(x.double(), -1)
        for found, eager, wanted in zip(compiled(x), torch.var_mean(x, -1), exact, strict=True):
            room = 4 * (eager.double() - wanted).abs().max() + 4e-6 * wanted.abs().max()
            assert (found.double() - wanted).abs().max() <= room


def test_means_of_infinities_are_eagers() -> None:
    x = torch.ones(3, 40)
    x[0, 3], x[1, 5], x[1, 6] = torch.inf, torch.inf, -torch.inf
    refcompiler.reset()
    compiled = refcompiler.compile(lambda x: [*torch.var_mean(x, -1), x.mean(-1)])
    eager = [*torch.var_mean(x, -1), x.mean(-1)]
    for found, wanted in zip(compiled(x), eager, strict=True):
        torch.testing.assert_close(found, wanted, equal_nan=True)


OVERFLOWING: dict[str, Callable[[torch.Tensor], list[torch.Tensor]]] = {
    "rows": lambda x: [*torch.var_mean(x, -1), x.mean(-1)],
    "columns": lambda x: [x.T.contiguous().var(0)],
    "layer": lambda x: list(torch.native_layer_norm(x, [x.shape[-1]], None, None, 1e-5)),
    "group": lambda x: list(torch.native_group_norm(x[:, None], None, None, len(x), 1, 64, 1, 0.1)),
    "batch": lambda x: _batch(x.T.contiguous()),
}


def _batch(x: torch.Tensor) -> list[torch.Tensor]:
    mean, var = x[0] * 0, x[0] * 0
    return [F.batch_norm(x, mean, var, training=True), mean, var]


@pytest.mark.parametrize("name", OVERFLOWING)
def test_squares_and_sums_that_overflow_leave_what_eager_has(name: str) -> None:
    """Where eager has nan, which the order of its steps decides, any result is one."""
    refcompiler.reset()
    compiled = refcompiler.compile(OVERFLOWING[name], backend="fastpath", fullgraph=True)
    for dtype, seed in ((torch.float32, 0), (torch.bfloat16, 1)):
        most = torch.finfo(dtype).max
        x = torch.randn(8, 64, generator=torch.Generator().manual_seed(seed), dtype=dtype)
        x[0, 2], x[1, 60] = most, -most / 2  # the squares overflow, ...
        if name != "batch":  # of whose sums eager's processes have several
            x[2, 1], x[2, 50], x[3] = most, most, most / 2  # ... and these sums
        x[4, 9], x[5, 7], x[6] = torch.inf, torch.nan, 0.0
        pairs = list(zip(compiled(x), OVERFLOWING[name](x), strict=True))
        for found, wanted in pairs:
            known = ~wanted.isnan()
            assert found.dtype == wanted.dtype and known.sum() >= 3
            torch.testing.assert_close(found[known], wanted[known], rtol=0.02, atol=1e-4)
            assert found.isnan().sum() <= wanted.isnan().sum()
        assert not fastpath.last_report().aten_calls  # type: ignore[union-attr]


def test_deviations_whose_squares_the_dtype_does_not_have_are_eagers() -> None:
    def spreads(x: torch.Tensor) -> list[torch.Tensor]:
        joint = torch.std_mean(x), torch.var_mean(x, 0)
        return [x.std(), x.std(0), x.std(1), x.var(), x.mean(), *joint[0], *joint[1]]

    refcompiler.reset()
    compiled = refcompiler.compile(spreads, backend="fastpath", fullgraph=True)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        most = torch.finfo(dtype).max
        x = torch.randn(12, 70, generator=torch.Generator().manual_seed(5), dtype=dtype)
        large = x.clamp(0.2, 0.9) * most  # the sum is infinite, which shows where eager adds up
        for given in (x * (most / 900), x * most**-0.7, large):
            for found, wanted in zip(compiled(given), spreads(given), strict=True):
                rtol = 0.02 if dtype == torch.bfloat16 else 1e-4
                torch.testing.assert_close(found, wanted, rtol=rtol, atol=0)
        assert not fastpath.last_report().aten_calls  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "dtype, width, wanted",
    [
        (torch.float32, 4, [0.0, torch.nan, 0.0, 0.0]),
        (torch.float32, 3, [torch.nan] * 3),
        (torch.float16, 5, [torch.nan] * 5),
        (torch.float64, 4, [torch.nan] * 4),
    ],
)
def test_rms_norm_of_an_infinity_is_cudas(
    dtype: torch.dtype, width: int, wanted: list[float]
) -> None:
    """What eager gives on an H200: rows of a multiple of 4 are read by vectors, but for float64."""
    rule = table()[torch.ops.aten._fused_rms_norm.default]

    def norm(x: torch.Tensor) -> torch.Tensor:
        return rule(x, [width], None, 1e-6)

    with FakeTensorMode():
        graph = make_fx(norm)(torch.empty(2, width, dtype=dtype, device="cuda"))
    x = torch.ones(2, width, dtype=dtype)
    x[0, 1] = torch.inf
    found, scale = graph(x)
    assert torch.equal(found[0].nan_to_num(7), torch.tensor(wanted, dtype=dtype).nan_to_num(7))
    torch.testing.assert_close(found[1], x[1], rtol=1e-3, atol=0)
    assert scale.shape == (2, 1) and scale[0].isnan() == found[0, 0].isnan()


@pytest.mark.parametrize("order", [None, 0, 1, 2, math.inf, -math.inf])
def test_norms_by_the_old_operator_are_kernels(order: float | None) -> None:
    x = torch.randn(5, 7)
    x[2, 3] = math.nan

    def function(x: torch.Tensor) -> Any:
        return (
            torch.ops.aten.norm.ScalarOpt_dim(x, order, [1], True),
            torch.ops.aten.norm.ScalarOpt_dim(x[:2], order, [0]),
            torch.ops.aten.norm.Scalar(x[:2], 2 if order is None else order),
        )

    call = fastpath.compile_graph(torch.fx.symbolic_trace(function), [x])
    assert not call.report.aten_calls and call.report.fallback is None
    for scale in (1, -3):
        found, expected = call(x * scale), function(x * scale)
        torch.testing.assert_close(found, expected, equal_nan=True)
        assert [t.stride() for t in found] == [t.stride() for t in expected]


def test_what_has_no_meaning_on_a_dtype_is_left_to_aten() -> None:
    a = torch.tensor([True, True, False])
    call = fastpath.compile_graph(torch.fx.symbolic_trace(lambda a: torch.fmax(a, ~a)), [a])
    assert call.report.reasons == {"aten.fmax.default": "fmax has no meaning on bool"}
    assert torch.equal(call(a), torch.fmax(a, ~a)) and torch.equal(call(~a), torch.fmax(a, ~a))
