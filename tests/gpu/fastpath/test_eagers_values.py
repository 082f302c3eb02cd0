"""Where CUDA's eager kernels give other values than the CPU's, compiled ones give CUDA's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import fastpath
import refcompiler

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    refcompiler.reset()


ZEROS: dict[str, Callable[..., Any]] = {
    "relu": torch.relu,
    "relu6": F.relu6,
    "hardtanh": lambda x: F.hardtanh(x, 0.0, 2.0),
    "clamp": lambda x: x.clamp(0.0, 1.0),
    "clamp_min": lambda x: x.clamp_min(0.0),
    "clamp_max": lambda x: x.clamp_max(-0.0),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ZEROS)
def test_zeros_have_eagers_signs(name: str, dtype: Any) -> None:
    numbers = [-0.0, 0.0, -1.0, 1.0, 7.0, float("nan"), float("inf"), -float("inf")]
    x = torch.tensor(numbers * 5, device="cuda", dtype=dtype)
    found, expected = refcompiler.compile(ZEROS[name], fullgraph=True)(x), ZEROS[name](x)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    there = ~expected.isnan()
    assert torch.equal(found.signbit()[there], expected.signbit()[there])
    assert fastpath.last_report().kernels == 1


def test_what_eager_has_no_kernel_for_is_rejected_as_it_is() -> None:
    for dtype in FLOATS:
        x = torch.randn(40, device="cuda", dtype=dtype)
        compiled = refcompiler.compile(lambda x: torch.angle(x) * 2, fullgraph=True)
        try:
            expected = torch.angle(x) * 2
        except NotImplementedError as error:
            with pytest.raises(NotImplementedError, match=re.escape(str(error))):
                compiled(x)
        else:
            torch.testing.assert_close(compiled(x), expected)


SIXTHS = {"hardsigmoid": F.hardsigmoid, "hardswish": F.hardswish}


@pytest.mark.parametrize("name", SIXTHS)
def test_a_sixth_is_eagers(name: str) -> None:
    x = torch.randn(1000, device="cuda", dtype=torch.float64).mul(3).requires_grad_()
    found, expected = refcompiler.compile(SIXTHS[name], fullgraph=True)(x), SIXTHS[name](x)
    torch.testing.assert_close(found, expected, rtol=1e-14, atol=1e-16)
    ours, eagers = (torch.autograd.grad(y.square().sum(), x)[0] for y in (found, expected))
    torch.testing.assert_close(ours, eagers, rtol=1e-13, atol=1e-15)


SCALED: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: torch.add(x, y, alpha=0.1),
    "sub": lambda x, y: torch.sub(x, y, alpha=6e4 + 7),
    "add a number": lambda x, y: torch.add(x, -2.5e-3, alpha=6e4 + 7),
}


@pytest.mark.parametrize("dtype", FLOATS[:2])
@pytest.mark.parametrize("name", SCALED)
def test_factors_are_not_rounded(name: str, dtype: Any) -> None:
    x = torch.randn(1000, device="cuda", dtype=dtype)
    y = torch.randn(1000, device="cuda", dtype=dtype) * 1e-3
    found, expected = refcompiler.compile(SCALED[name], fullgraph=True)(x, y), SCALED[name](x, y)
    assert torch.equal(found, expected) and expected.isfinite().all()


def test_a_quotient_is_scaled_behind_the_division() -> None:
    x, y = (torch.randn(100, device="cuda", dtype=torch.float64) for _ in range(2))
    small, large = y * 1e-300, y.abs() * 1e300

    def divided(x: Any, a: Any, b: Any) -> Any:
        return torch.addcdiv(x, a, b, value=1e20)

    found = refcompiler.compile(divided, fullgraph=True)(x, large, small)
    assert torch.equal(found, divided(x, large, small))


ORDINARY = [1e-30, 3e-20, 0.1, 1.0, 3.0, 1.9999999, 7e5, 3e19, 9e30, -2.5]
ODD = [0.0, -0.0, 1e-45, 1e-39, 3e38, float("inf"), -float("inf"), float("nan")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [7, 96, 4096, 20001])
def test_quotients_by_what_a_row_shares_are_rounded_once(width: int, dtype: Any) -> None:
    divisors = torch.tensor(ORDINARY + ODD, device="cuda").repeat_interleave(4)[:, None]
    x = torch.randn(len(divisors), width, device="cuda")
    x[1::4] *= divisors[1::4].nan_to_num(1, 1, 1)  # quotients near 1
    x[2::4] = (10.0 ** (x[2::4] * 15)).clamp(max=3e38)
    x[3::4, ::3] = torch.tensor(ODD, device="cuda").repeat(width)[: len(x[0, ::3])]
    x = x.to(dtype)

    def program(x: Any, y: Any) -> Any:
        return x / y, x.float() / (x.float().abs().amax(-1, True) * 0.25)

    found, expected = (
        refcompiler.compile(program, fullgraph=True)(x, divisors),
        program(x, divisors),
    )
    for a, b in zip(found, expected):
        there = ~b.isnan()
        assert torch.equal(there, ~a.isnan()) and torch.equal(a[there], b[there])
        assert torch.equal(a[there].signbit(), b[there].signbit())


def _batch(x: Any, m: Any, v: Any, w: Any, b: Any) -> Any:
    before = m * 1
    return F.batch_norm(x, m, v, w, b, training=True), before, m * 2, v + 1


def _instance(x: Any, m: Any, v: Any, w: Any, b: Any) -> Any:
    return F.instance_norm(x, m, v, w, b, use_input_stats=True), m + 0, v * 2


def _twice(x: Any, m: Any, v: Any, w: Any, b: Any) -> Any:
    first = F.batch_norm(x, m, v, w, b, training=True)
    return F.batch_norm(first.relu(), m, v, w, b, training=True), m - v


@pytest.mark.parametrize("program", [_batch, _instance, _twice], ids=lambda f: f.__name__)
@pytest.mark.parametrize("learning", [False, True])
def test_running_statistics_are_eagers(program: Callable[..., Any], learning: bool) -> None:
    compiled = refcompiler.compile(program, fullgraph=True)
    torch.manual_seed(0)
    for _ in range(2):
        seen = []
        x, more = torch.randn(4, 3, 8, 8, device="cuda"), torch.rand(2, 3, device="cuda")
        for function in (compiled, program):
            m, v = torch.zeros(3, device="cuda"), torch.ones(3, device="cuda")
            leaves = [t.clone().requires_grad_(learning) for t in (x, *more)]
            results = function(leaves[0], m, v, *leaves[1:])
            if learning:
                (results[0].square() * torch.arange(8.0, device="cuda")).sum().backward()
            seen.append([*results, m, v, *(t.grad for t in leaves if learning)])
        for ours, eagers in zip(*seen, strict=True):
            torch.testing.assert_close(ours, eagers, rtol=2e-4, atol=2e-4)
        assert not torch.equal(seen[1][-1 - 3 * learning], torch.ones(3, device="cuda"))
    assert refcompiler.counters()["captures"] == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("width", [3, 4, 6, 8])
def test_rms_norms_of_infinities_are_eagers(width: int, dtype: Any) -> None:
    def program(x: Any) -> Any:
        return F.rms_norm(x, (width,))

    x = torch.ones(3, width, dtype=dtype, device="cuda")
    x[0, 1], x[1, 2] = torch.inf, torch.nan
    refcompiler.reset()
    compiled = refcompiler.compile(program, backend="fastpath", fullgraph=True)
    for scale in (1, 2):
        found, eager = compiled(x * scale), program(x * scale)
        torch.testing.assert_close(found, eager, equal_nan=True)
    assert fastpath.last_report().kernels == 1


@pytest.mark.parametrize("width", [3, 100, 768, 70_000])
def test_equal_terms_deviate_by_nothing(width: int) -> None:
    def program(x: Any) -> Any:
        return x.var(-1), x.std(-1), F.layer_norm(x, (width,))

    refcompiler.reset()
    compiled = refcompiler.compile(program, backend="fastpath", fullgraph=True)
    for number in (123.456, 0.1, 77.7):
        x = torch.full((4, width), number, device="cuda")
        for found in compiled(x):
            assert torch.equal(found, torch.zeros_like(found)), found.abs().max()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_curves_are_as_near_as_eagers(dtype: Any) -> None:
    programs = (torch.tanh, F.gelu, lambda x: F.gelu(x, approximate="tanh"))
    ends = torch.tensor([0.0, -0.0, 1e-20, -1e-20, 0.58, -0.58, torch.inf, torch.nan])
    x = torch.cat([torch.linspace(-12, 12, 50_000), ends]).to(dtype).cuda()
    for program in programs:
        refcompiler.reset()
        found = refcompiler.compile(program, backend="fastpath", fullgraph=True)(x)
        eager, exact = program(x), program(x.double())
        step = torch.finfo(dtype).eps
        room = 2 * (eager.double() - exact).abs() + step * exact.abs() + 2.0**-22
        near = (found.double() - exact).abs() <= room
        assert (near | (found == eager) | (found.isnan() & eager.isnan())).all()
        zeros = x == 0
        assert torch.equal(found[zeros].signbit(), eager[zeros].signbit())


def test_a_products_gelu_is_the_vendors_and_few_rows_are_ours() -> None:
    def program(x: Any, w: Any, b: Any) -> Any:
        return F.gelu(F.linear(x, w, b), approximate="tanh")

    generator = torch.Generator("cuda").manual_seed(0)

    def normal(*shape: int) -> Any:
        found = torch.randn(shape, device="cuda", generator=generator, dtype=torch.float32)
        return found.to(torch.bfloat16)

    for rows, ours in ((512, 0), (16, 1), (3, 1)):
        refcompiler.reset()
        compiled = refcompiler.compile(program, backend="fastpath", fullgraph=True)
        for _ in range(2):
            given = normal(rows, 256), normal(1024, 256) * 0.1, normal(1024)
            exact = program(*(x.double() for x in given))
            room = 2 * (program(*given).double() - exact).abs().max()
            assert (compiled(*given).double() - exact).abs().max() <= room
        report = fastpath.last_report()
        assert report.products == ours and report.kernels == ours
        assert report.aten_calls == ({} if ours else {"aten._addmm_activation.default": 1})
