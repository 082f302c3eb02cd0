"""Matrix products by a kernel of our own: values, sizes, layouts, and what is left to ATen."""

from __future__ import annotations

import copy
import functools
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fastpath
import refcompiler
from fastpath.cpu import gemm, objects, products
from fastpath.cpu.launcher import bind_sized

pytestmark = pytest.mark.skipif(
    not gemm.vector_bytes(), reason="the processor has no vectors with multiply-add"
)
WIDTHS = (32, 64)  # LLVM takes apart what the processor has not
SIZES = (1, 2, 5, 11, 12, 13, 16, 17, 31, 32, 33, 65, 100, 255, 256, 257, 400, 577)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    refcompiler.reset()
    yield
    refcompiler.reset()


@functools.cache
def kernel_of(dtype: torch.dtype, width: int) -> Callable[..., None]:
    name = str(dtype).removeprefix("torch.")
    made = functools.partial(gemm._compile, name, width)
    address = objects.address_of(("gemm", name, str(width)), made)
    return bind_sized(address, len(gemm.ARGUMENTS))


def multiply(width: int, a: Any, b: Any, s: Any, c: Any, threads: int = 1) -> None:
    """``c = a @ b + s`` by the kernel for vectors of ``width`` bytes."""
    count, m, k = a.shape
    n = b.shape[-1]
    columns = 2 * width // a.itemsize
    units = count * eval(gemm.chunks(m)) * -(-n // columns)
    given = [t.data_ptr() if t is not None else 0 for t in (a, b, s, c)]
    start = (0, 0) if s is None else (s.stride(0), s.stride(1))
    strides = [*a.stride()[1:], *b.stride()[1:], start[1], c.stride(1)]
    strides += [a.stride(0), b.stride(0), start[0], c.stride(0)]
    work = 0 if threads == 1 else 1 << 40
    kernel_of(a.dtype, width)(work, units, *given, m, n, k, *strides)


def matrix(dtype: torch.dtype, count: int, rows: int, columns: int, turned: bool) -> torch.Tensor:
    if turned:
        t = torch.randn(count, columns, rows + 3, dtype=dtype)[:, :, :rows].transpose(1, 2)
        return t.as_strided(t.shape, (t.stride(0), 1, t.stride(2)))  # also of one row
    t = torch.randn(count, rows, columns + 3, dtype=dtype)[:, :, :columns]
    return t.as_strided(t.shape, (t.stride(0), t.stride(1), 1))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_kernel_at_all_sizes_and_layouts(dtype: torch.dtype, width: int) -> None:
    chooser = random.Random(width)
    torch.manual_seed(0)
    layouts = itertools.cycle(itertools.product((False, True), (False, True), (0, 1, 2)))
    for turn, (left, right, start) in zip(range(60), layouts, strict=False):
        m, n, k = (chooser.choice(SIZES) for _ in range(3))
        count = chooser.choice((1, 1, 3))
        a, b = matrix(dtype, count, m, k, left), matrix(dtype, count, k, n, right)
        s: Any = None
        if start == 1:
            s = torch.randn(n, dtype=dtype).expand(count, m, n)
        elif start == 2:
            s = torch.randn(count, m, n + 2, dtype=dtype)[:, :, :n]
        c = torch.full((count, m + 1, n + 3), 7.0, dtype=dtype)
        multiply(width, a, b, s, c[:, :m, :n], threads=1 + turn % 2)
        expected = a.double() @ b.double() + (0 if s is None else s.double())
        tolerance = 1e-5 if dtype is torch.float32 else 1e-13
        error = (c[:, :m, :n].double() - expected).abs().max().item()
        assert error < tolerance * k**0.5, (m, n, k, count, left, right, start)
        assert bool((c[:, m:] == 7).all()) and bool((c[:, :, n:] == 7).all())


@pytest.mark.parametrize("width", WIDTHS)
def test_what_is_no_number_stays_in_its_row_and_column(width: int) -> None:
    """Blocks are filled up with zeros, which times infinity would be NaN."""
    a, b = torch.randn(1, 29, 37), torch.randn(1, 37, 43)
    a[0, 3, 5], a[0, 28, 36], b[0, 7, 42] = float("nan"), float("inf"), float("-inf")
    c = torch.empty(1, 29, 43)
    multiply(width, a, b, None, c)
    expected = a @ b
    assert torch.equal(c.isnan(), expected.isnan())
    assert torch.equal(c.isinf(), expected.isinf())
    torch.testing.assert_close(c, expected, equal_nan=True)


def test_threads_change_no_bit() -> None:
    a, b = torch.randn(2, 500, 300), torch.randn(2, 300, 200)
    one, many = torch.empty(2, 500, 200), torch.empty(2, 500, 200)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        multiply(WIDTHS[-1], a, b, None, one, threads=1)
        multiply(WIDTHS[-1], a, b, None, many, threads=2)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(one, many)


# -- programs ------------------------------------------------------------------------------------


def agree(f: Callable[..., Any], *given: Any, tolerance: float = 1e-4, **options: Any) -> Any:
    """Twice with other values; the report."""
    run = refcompiler.compile(f, backend="fastpath", fullgraph=True, dynamic=False, options=options)
    for turn in range(2):
        now = [t + turn if t.is_floating_point() else t for t in given]
        found, expected = run(*now), f(*now)
        found = found if isinstance(found, tuple) else (found,)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for x, y in zip(found, expected, strict=True):
            torch.testing.assert_close(x, y, rtol=tolerance, atol=tolerance)
            assert x.stride() == y.stride()
    return fastpath.last_report()


X, W, B = torch.randn(40, 24), torch.randn(33, 24), torch.randn(33)
THREE = torch.randn(3, 16, 24)
MANY, WIDE = torch.randn(200, 24), torch.randn(300, 24)


@pytest.mark.parametrize(
    "f, given, count",
    [
        (lambda x, w: x @ w.t(), (X, W), 1),
        (lambda x, w, b: F.linear(x, w, b), (X, W, B), 1),
        (lambda x, w, b: F.linear(x, w, b).relu() + 1, (THREE, W, B), 1),
        (lambda x, w: x[4:30, 2:22] @ w[:, 3:23].t(), (X, W), 1),
        (lambda x, y: x.t() @ y, (X, torch.randn(40, 9)), 1),
        (lambda x, w: (x * 2)[8:] @ (w + 1).t()[:, 5:], (X, W), 1),
        (lambda x: x @ x.transpose(1, 2), (THREE,), 1),
        (lambda x, y: torch.baddbmm(y, x, x.mT), (THREE, torch.randn(16)), 1),
        (lambda x, y: torch.baddbmm(y, x, x.mT), (THREE, torch.randn(3, 16, 16)), 1),
        (lambda x, w, s: torch.addmm(s, x, w.t()), (X, W, torch.randn(40, 33)), 1),
        (lambda x, w, s: torch.addmm(s, x, w.t()), (X, W, torch.randn(1, 33)), 1),
        (lambda x, w: (x @ w.t()).softmax(-1) @ w, (X, W), 2),
        (lambda x: (x.double() @ x.double().t()).float(), (X,), 1),
        (lambda x, w: x.permute(2, 0, 1)[3] @ w[:16, :], (THREE, torch.randn(16, 8)), 0),
    ],
)
def test_programs(f: Any, given: Any, count: int) -> None:
    report = agree(f, *given)
    assert report.products == count
    assert sum(report.aten_calls.values()) == (not count)


def test_short_products() -> None:
    """So few elements that to call the library takes longer, and few terms of any number."""
    count = 0

    def f(x: Any, w: Any, b: Any, y: Any) -> Any:
        return F.linear(x, w, b), x @ y, torch.addmm(b, x, y)

    for m, k, n in ((1, 9, 5), (2, 1, 3), (7, 16, 33), (11, 3, 2), (5, 64, 40), (301, 2, 50)):
        given = torch.randn(m, k), torch.randn(n, k), torch.randn(n), torch.randn(k, n)
        report = agree(f, *given)
        assert report.products == 3 and not report.aten_calls, (m, k, n, report)
        count += 1
    x, w = torch.randn(3, 7, requires_grad=True), torch.randn(2, 7, requires_grad=True)
    run = refcompiler.compile(lambda x, w: (F.linear(x, w) ** 2).sum(), backend="fastpath")
    for scale in (1.0, 3.0):
        found = torch.autograd.grad(run(x * scale, w), (x, w))
        expected = torch.autograd.grad((F.linear(x * scale, w) ** 2).sum(), (x, w))
        torch.testing.assert_close(found, expected)
    assert count == 6


@pytest.mark.parametrize(
    "f, given",
    [
        (lambda x, w: x[:11] @ w.t(), (X, WIDE)),  # few rows
        (lambda x, w: x @ w[:7].t(), (MANY, W)),  # few columns
        (lambda x, w: x[:, :7] @ w[:, :7].t(), (MANY, W)),  # few terms
        (lambda x, w: x[:, :7] @ w[:, :7].transpose(1, 2), (THREE, THREE)),  # several
        (lambda x, w: x[:, ::2] @ w[:, ::2].t(), (X, W)),  # no dimension of stride 1
        (lambda x, w, b: torch.addmm(b, x, w.t(), alpha=2), (X, W, B)),
        (lambda x, w, b: torch.addmm(b, x, w.t(), beta=0), (X, W, B)),
        (lambda x, w, s: torch.addmm(s, x, w.t()), (X, W, torch.randn(40, 1))),
        (lambda x, w: (x.bfloat16() @ w.bfloat16().t()).float() * 0, (X, W)),
        (lambda x, w: x @ w.t(), (X.long(), W.long())),
    ],
)
def test_what_is_left_to_aten(f: Any, given: Any) -> None:
    report = agree(f, *given)
    assert report.products == 0 and sum(report.aten_calls.values()) == 1


@pytest.mark.parametrize(
    "processor, width, taken",
    [
        ("znver4", 64, {"large", "few", "turned", "batch", "small", "huge"}),
        ("znver3", 32, {"large", "few", "turned", "batch", "small"}),
        ("emeraldrapids", 64, {"large", "turned", "small"}),
        ("skylake", 32, {"few", "turned", "small"}),
    ],
)
def test_large_ones_only_where_that_was_measured(
    processor: str, width: int, taken: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "processor", lambda: processor)
    monkeypatch.setattr(gemm, "vector_bytes", lambda: width)
    cases = {
        "small": (4, 12, 64, 64, True),
        "few": (1, 16, 128, 200, True),
        "turned": (1, 16, 128, 200, False),
        "large": (1, 128, 400, 200, True),
        "batch": (8, 128, 400, 200, False),
        "huge": (1, 1024, 1024, 1024, False),
    }
    assert {name for name, case in cases.items() if products.ahead(*case)} == taken


def test_what_the_rule_says_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def only_turned(*given: Any) -> bool:
        asked.append(given)
        return not given[-1]

    monkeypatch.setattr(products, "ahead", only_turned)
    x, w = torch.randn(64, 20), torch.randn(20, 48)
    report = agree(lambda x, w, v: (x @ w, x @ v.t()), x, w, torch.randn(48, 20), tolerance=1e-4)
    assert (report.products, sum(report.aten_calls.values())) == (1, 1)
    assert set(asked) == {(1, 64, 48, 20, True), (1, 64, 48, 20, False)}


def test_strict_numerics_are_aten_s() -> None:
    report = agree(lambda x, w: x @ w.t(), X, W, tolerance=0.0, numerics="strict")
    assert report.products == 0 and report.aten_calls == {"aten.mm.default": 1}


def test_operands_that_are_negative_views() -> None:
    """Memory has the values with the other sign."""
    for f in (lambda x, w: x @ w.t(), lambda x, w: (x + 1) @ w.t() + x @ w[:24].t()[:, :1]):
        run = refcompiler.compile(f, backend="fastpath", dynamic=False)
        for turn in range(2):
            x = torch._neg_view(X + turn)
            assert x.is_neg() and x.stride() == (24, 1)
            torch.testing.assert_close(run(x, W), f(x, W), rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(run(X, W), f(X, W), rtol=1e-4, atol=1e-4)


def test_gradients() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(24, 40), nn.GELU(), nn.LayerNorm(40), nn.Linear(40, 16))
    other = copy.deepcopy(model)
    run = refcompiler.compile(model, backend="fastpath", fullgraph=True)
    for turn in range(2):
        x = torch.randn(3, 14, 24, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        run(x).square().sum().backward()
        other(y).square().sum().backward()
        torch.testing.assert_close(x.grad, y.grad, rtol=1e-4, atol=1e-4)
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-3)
        report = fastpath.last_report()
        assert report.products == 2 and report.backwards[0].products == 4
        assert not report.aten_calls and not report.backwards[0].aten_calls
        with torch.no_grad():  # a weight that is written to is read again
            for net in (model, other):
                for p in net.parameters():
                    p.data.mul_(0.5 + turn)


def test_rows_that_each_call_chooses() -> None:
    run = refcompiler.compile(F.linear, backend="fastpath", fullgraph=True, dynamic=True)
    x, w = torch.randn(40, 24), nn.Parameter(W).detach()
    torch._dynamo.mark_static(w)
    programs = 0
    for rows in (40, 41, 12, 5, 1, 900):
        x = torch.randn(rows, 24)
        torch.testing.assert_close(run(x, w, B), F.linear(x, w, B), rtol=1e-4, atol=1e-4)
        programs += 1
    assert programs == 6


def test_views_of_inputs_that_begin_elsewhere() -> None:
    """Where an input begins in its memory is no part of what a program is made for."""
    run = refcompiler.compile(
        lambda x, w: x[2:, 1:] @ w[:, 1:].t(), backend="fastpath", dynamic=False
    )
    for offset in (0, 7, 64):
        x = torch.randn(offset + 40 * 24)[offset:].view(40, 24)
        w = torch.randn(offset + 33 * 24)[offset:].view(33, 24)
        torch.testing.assert_close(run(x, w), x[2:, 1:] @ w[:, 1:].t(), rtol=1e-4, atol=1e-4)
    assert fastpath.last_report().products == 1


def test_chunks_of_rows() -> None:
    """None for none, and no last one of few rows, for which the panels would be copied again."""
    rows = (0, 1, 384, 575, 576, 768, 788, 960)
    assert [int(eval(gemm.chunks(m))) for m in rows] == [0, 1, 1, 1, 2, 2, 2, 3]
