"""One program for all sizes: kernels take them as arguments, and no size compiles another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fastpath
import refcompiler
from fastpath.ir.size import Undecided
from fastpath.report import Report
from fastpath.wrapper import Wrapper

SIZES = (2, 3, 7, 8, 15, 16, 17, 33, 64, 300)


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype)


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * x.shape[0] + x.mean(1, keepdim=True) / x.shape[1] - torch.arange(x.shape[1])


def pieces(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    joined = torch.cat([x, y * 2, x[1:]], 0)
    return F.pad(joined[1:].relu(), (1, 2), value=3.0).flip(0)


def views(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    n, m = x.shape
    flat = (x + 1).reshape(-1)
    return flat[1:] - flat[:-1], (x.t() * 2).reshape(m, n, 1).expand(m, n, 3).sum(1), x[2:] * x[-1]


def picked(table: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
    rows = table[index] + 1
    return rows, rows.argmax(-1), rows.amax(0), rows.cumsum(0)


def normed(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.softmax(x, -1), torch.softmax(x, 0), x.var(-1), torch.logsumexp(x, (0, 1))


# Sizes that follow from others are no constants either: where these are 2, n - 1 is 1.
Case = tuple[Callable[..., Any], Callable[[int, int], Sequence[torch.Tensor]]]
CASES: dict[str, Case] = {
    "pointwise": (lambda x, b: F.gelu(x + b) * x, lambda n, m: (randn(n, m), randn(m))),
    "strided": (lambda x: x[:, ::2] * 2 + 1, lambda n, m: (randn(n, 2 * m)[:, 1:],)),
    "turned": (lambda x, y: x + y.t(), lambda n, m: (randn(n, m), randn(m, n))),
    "normed": (normed, lambda n, m: (randn(n, m),)),
    "halves": (
        lambda x: (torch.softmax(x, -1), x.var(0)),
        lambda n, m: (randn(n, m, dtype=torch.bfloat16),),
    ),
    "pairs": (
        lambda x: F.silu(x) * x,
        lambda n, m: (randn(n, 6 * m, dtype=torch.bfloat16),),
    ),
    "corrected": (
        lambda x: (x.var(0, correction=1.5), x.std(1, correction=2.0), x.var(correction=100.5)),
        lambda n, m: (randn(n, m),),
    ),
    "scaled": (scaled, lambda n, m: (randn(n, m),)),
    "pieces": (pieces, lambda n, m: (randn(n + 3, m + 3), randn(2 * m, m + 3))),
    "views": (views, lambda n, m: (randn(n + 3, m + 3),)),
    "picked": (picked, lambda n, m: (randn(n, 5), torch.randint(0, n, (m,)))),
    "integers": (
        lambda x: (x * x.shape[1] // 3, x.any(0), x.sum()),
        lambda n, m: (torch.randint(-99, 99, (n, m)),),
    ),
}


def compiled(function: Callable[..., Any]) -> tuple[Any, list[Report]]:
    reports: list[Report] = []

    def backend(gm: torch.fx.GraphModule, examples: Any) -> Any:
        run = fastpath.compile_graph(gm, examples)
        reports.append(run.report)
        return run

    backend.takes_symbols = True  # type: ignore[attr-defined]
    refcompiler.reset()
    return refcompiler.compile(function, backend=backend, dynamic=True, fullgraph=True), reports


def pairs(seed: int) -> list[tuple[int, int]]:
    order = [(n, SIZES[(3 * k + 4) % len(SIZES)]) for k, n in enumerate(SIZES)]
    return [*order[seed:], *order[:seed]]


@pytest.mark.parametrize("name", CASES)
def test_one_program_serves_all_sizes(name):
    function, make = CASES[name]
    torch.manual_seed(0)
    ours, reports = compiled(function)
    count = 0
    kernels = 0
    with torch.no_grad():
        for n, m in pairs(4):
            inputs = make(n, m)
            got, expected = ours(*inputs), function(*inputs)
            if isinstance(got, torch.Tensor):
                got, expected = (got,), (expected,)
            for a, b in zip(got, expected, strict=True):
                assert a.stride() == b.stride() or 1 in a.shape or not a.numel()
                wide = a.dtype is torch.bfloat16
                torch.testing.assert_close(
                    a, b, rtol=2e-2 if wide else 2e-5, atol=2e-2 if wide else 1e-5
                )
                count += 1
            kernels = kernels or reports[0].kernels
    assert count >= len(SIZES) and kernels
    (report,) = reports
    assert report.fallback is None and report.kernels == kernels and not report.crowded


def test_training_takes_one_program_too():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(12, 24), nn.GELU(), nn.LayerNorm(24), nn.Linear(24, 5), nn.LogSoftmax(-1)
    )

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.nll_loss(model(x).flatten(0, 1), y.flatten()) * x.shape[0]

    ours, reports = compiled(step)
    kernels = None
    for n, m in pairs(2):
        x, y = randn(n, m, 12).requires_grad_(), torch.randint(0, 5, (n, m))
        found = []
        for run in (step, ours):
            loss = run(x, y)
            found.append([loss, *torch.autograd.grad(loss, [x, *model.parameters()])])
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        (report,) = reports
        made = [part.kernels for part in (report, *report.backwards)]
        assert kernels in (None, made)
        kernels = made
        assert all(part.fallback is None for part in (report, *report.backwards))
    assert kernels is not None and len(kernels) == 2 and all(kernels)


def test_a_stride_that_calls_choose_reaches_the_backward() -> None:
    function = lambda x: x * x  # noqa: E731
    ours, reports = compiled(function)
    for n, m in ((5, 26), (7, 26), (7, 31)):
        x = randn(n, m).requires_grad_()
        grads = [torch.autograd.grad(f(x[:, 1:21]).sum(), x)[0] for f in (function, ours)]
        torch.testing.assert_close(grads[1], grads[0])
    (report,) = reports
    (backward,) = report.backwards
    assert backward.fallback is None and backward.kernels


def test_rows_too_long_for_a_scratch_row_get_one_program_more():
    ours, reports = compiled(lambda x: torch.softmax(x, -1))
    torch.manual_seed(0)
    seen = []
    with torch.no_grad():
        for width in (100, 3000, 20_000, 50_000, 200, 9_000):
            x = randn(3, width)
            torch.testing.assert_close(ours(x), torch.softmax(x, -1))
            seen.append(reports[0].kernels)
    assert seen == [1, 1, 2, 2, 2, 2]


def test_sizes_of_none_and_of_one():
    """The front end makes constants of them, also where they follow from another size."""
    ours, reports = compiled(lambda x: (x[2:] * 2, x[1:].sum(0), x[1:].relu()))
    torch.manual_seed(0)
    with torch.no_grad():
        for n in (5, 2, 3, 0, 1, 2, 9):
            x = randn(n, 6)
            for a, b in zip(ours(x), (x[2:] * 2, x[1:].sum(0), x[1:].relu()), strict=True):
                torch.testing.assert_close(a, b)
    assert len(reports) <= 5 and all(report.fallback is None for report in reports)


def test_an_index_out_of_bounds_is_told_with_the_size_of_the_call():
    ours, _ = compiled(lambda t, i: t[i] + 1)
    with torch.no_grad():
        for n in (5, 9):
            assert ours(randn(n, 3), torch.tensor([n - 1, 0, -n])).shape == (3, 3)
            with pytest.raises(IndexError, match=f"index {n} is out of .* with size {n}"):
                ours(randn(n, 3), torch.tensor([0, n, 1]))


def test_a_program_for_each_size_where_none_is_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """What scheduling and printing find open is no error of ours that leaves a graph uncompiled."""
    write, asked = Wrapper.write, []

    def undecided(self: Wrapper) -> Any:
        asked.append(self)
        if len(asked) == 1:
            raise Undecided("a question")
        return write(self)

    monkeypatch.setattr(Wrapper, "write", undecided)
    compiled = refcompiler.compile(lambda x: x * 2 + 1, backend="fastpath", dynamic=True)
    for n in (3, 5):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), x * 2 + 1)
        report = fastpath.last_report()
        assert report is not None and report.fallback is None and report.kernels == 1
    assert len(asked) == 3


def test_a_size_is_an_operand_of_kernels() -> None:
    """A divisor, a bound and a value as others are; one that is 0 raises as eager's does."""

    def program(t: torch.Tensor, x: torch.Tensor) -> list[torch.Tensor]:
        n = x.shape[1]
        divided = [torch.div(t, n, rounding_mode="trunc"), t // n, t % n, torch.fmod(t, n), x % n]
        filled = [torch.full_like(x, n), torch.where(t > 3, n, t), n - t]
        return [
            *divided,
            *filled,
            t.clamp(max=n - 1),
            t.clamp(1, n),
            x.clamp(min=n - 4),
            t % (n - 3),
        ]

    refcompiler.reset()
    compiled = refcompiler.compile(program, backend="fastpath", dynamic=True, fullgraph=True)
    for n in (5, 8, 3, 9):
        t, x = torch.randint(-40, 99, (33,)), torch.randn(3, n) * 9
        if n == 3:
            for each in (program, compiled):
                with pytest.raises(RuntimeError, match="^ZeroDivisionError$"):
                    each(t, x)
            continue
        for found, wanted in zip(compiled(t, x), program(t, x), strict=True):
            assert torch.equal(found, wanted) and found.dtype == wanted.dtype
    report = fastpath.last_report()
    assert report is not None and report.fallback is None and not report.aten_calls


def test_what_sizes_leave_open_is_left_to_aten() -> None:
    """How far a roll goes around depends on the size: that one operator is ATen's, and counted."""
    compiled = refcompiler.compile(lambda x: x.roll(2, 0) + 1, backend="fastpath", dynamic=True)
    for n in (2, 3, 7):
        x = torch.randn(n, 4)
        assert torch.equal(compiled(x), x.roll(2, 0) + 1)
    report = fastpath.last_report()
    assert report is not None and report.fallback is None and report.kernels == 1
    assert dict(report.aten_calls) == {"aten.roll.default": 1}


class _Halves(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        a, b = x.chunk(2)
        ctx.mark_non_differentiable(positive := b > 0)
        return a.clone(), b.clone(), positive

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return torch.cat([gradients[0], gradients[1] * 2])


def test_a_missing_gradient_is_not_asked_for_its_sizes() -> None:
    compiled = refcompiler.compile(lambda x: _Halves.apply(x), backend="fastpath")
    for size in (4, 6):
        x = torch.randn(size, requires_grad=True)
        halves = [call(x) for call in (compiled, _Halves.apply)]
        for n in (0, 1):
            tangent = torch.randn(size // 2)
            gradients = [torch.autograd.grad(h[n], x, tangent, retain_graph=True) for h in halves]
            assert torch.equal(*[g for (g,) in gradients])
