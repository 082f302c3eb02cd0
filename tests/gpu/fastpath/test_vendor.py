"""Products that the vendor's library is asked for without ATen: values, addresses, graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import fastpath
import refcompiler
from fastpath.gpu import lt, vendor
from fastpath.gpu.tuning import timed

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

M, N, K = 512, 384, 640


def normal(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(shape, device="cuda").to(dtype)


def made(dtype: torch.dtype, begin: int) -> list[torch.Tensor]:
    """Left, right, bias and residual, each ``begin`` elements behind what is aligned."""
    shapes = (4, M // 4, K), (N, K), (N,), (4, M // 4, N)
    found = []
    for shape in shapes:
        flat = normal(torch.Size(shape).numel() + begin, dtype=dtype)
        found.append(flat[begin:].view(shape))
    return found


PROGRAMS: dict[str, tuple[Callable[..., Any], int]] = {
    "mm": (lambda x, w, b, y: x[0] @ w.t(), 1),
    "addmm": (lambda x, w, b, y: F.linear(x, w, b), 1),
    "gelu": (lambda x, w, b, y: F.gelu(F.linear(x, w, b), approximate="tanh"), 1),
    "residual": (lambda x, w, b, y: y + F.linear(x, w, b), 1),
    "residual without bias": (lambda x, w, b, y: F.linear(x, w) + y, 1),
    "matrix": (lambda x, w, b, y: torch.addmm(y.flatten(0, 1), x.flatten(0, 1), w.t()), 1),
    "two layers": (
        lambda x, w, b, y: F.linear(F.gelu(z := y + F.linear(x, w, b)), w.t()) + x + z.mean(),
        2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name: str, dtype: torch.dtype) -> None:
    """The sum is rounded once: as near to float64's as eager's, whose error is of two roundings.

    The library's gelu is of less precision than eager's, which rounds what it is taken of.
    """
    function, count = PROGRAMS[name]
    refcompiler.reset()
    compiled = refcompiler.compile(function, fullgraph=True)
    for begin in (0, 0, 1, 4):
        inputs = made(dtype, begin)
        got, eager = compiled(*inputs), function(*inputs)
        exact = function(*(x.double() for x in inputs))
        assert (got.dtype, got.stride()) == (eager.dtype, eager.stride())
        assert (got._base is None) == (eager._base is None)  # a layer sees a product in its shape
        room = (1.5 if name == "gelu" else 1.01) * (eager.double() - exact).norm()
        assert (got.double() - exact).norm() <= room
    report = fastpath.last_report()
    assert report is not None and report.fallback is None and report.direct == count


def test_rounded_once() -> None:
    """That the library adds the residual shows in its error, which is less than eager's."""
    refcompiler.reset()
    compiled = refcompiler.compile(PROGRAMS["residual"][0], fullgraph=True)
    inputs = made(torch.bfloat16, 0)
    exact = PROGRAMS["residual"][0](*(x.double() for x in inputs))
    errors = [(f(*inputs).double() - exact).norm() for f in (compiled, PROGRAMS["residual"][0])]
    assert errors[0] < 0.9 * errors[1]


def test_every_algorithm_of_every_layout() -> None:
    count = 0
    for dtype in ("bfloat16", "float16"):
        for left in ((K, 1), (1, M)):
            for right in ((N, 1), (1, K)):
                for adds in ("", "bias", "residual", "bias residual", "gelu bias"):
                    has = dict.fromkeys(adds.split(), True)
                    problem = lt.Problem(dtype, M, N, K, left, right, **has)
                    proposed = lt.proposed(problem, 0)
                    assert proposed is not None
                    for algorithm in proposed[0]:
                        _check(problem, algorithm, proposed[1])
                        count += 1
    assert count >= 40


def _check(problem: lt.Problem, algorithm: lt.Algorithm, otherwise: lt.Algorithm) -> None:
    given = [torch.empty_like(t, device="cuda").normal_() for t in vendor._tensors(problem)]
    left, right, *more, out = given
    bias = more.pop(0) if problem.bias else None
    residual = more.pop(0) if problem.residual else None
    exact = left.double() @ right.double()
    exact = exact if bias is None else exact + bias
    exact = exact if residual is None else exact + residual
    exact = F.gelu(exact, approximate="tanh") if problem.gelu else exact
    out.fill_(float("nan"))
    addresses = [0 if t is None else t.data_ptr() for t in (left, right, bias, residual, out)]
    lt.launch(problem, algorithm, 0, otherwise)(*addresses)
    step = torch.finfo(out.dtype).eps
    assert (out.double() - exact).norm() <= step * exact.norm()


@pytest.mark.parametrize("training", [False, True])
def test_device_graphs(training: bool) -> None:
    """Inputs that move are copied to where the graph reads them; results that live are kept."""
    refcompiler.reset()
    compiled = refcompiler.compile(
        PROGRAMS["two layers"][0], fullgraph=True, mode="reduce-overhead"
    )
    kept = []
    for _ in range(5):
        inputs = [x.requires_grad_(training) for x in made(torch.bfloat16, 0)]
        got, eager = compiled(*inputs), PROGRAMS["two layers"][0](*inputs)
        found, wanted = [got], [eager]
        if training:
            found += torch.autograd.grad(got.sum(), inputs)
            wanted += torch.autograd.grad(eager.sum(), inputs)
        kept += zip(found, wanted, [x.detach().clone() for x in found], strict=True)
    for got, eager, then in kept:
        assert torch.equal(got, then)
        torch.testing.assert_close(got, eager, rtol=0.03, atol=0.03 * float(eager.abs().max()))
    report = fastpath.last_report()
    assert report is not None and report.graphs > 0 and report.direct > 0


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lt, "library", lambda: None)
    vendor._launch.cache_clear()
    try:
        refcompiler.reset()
        compiled = refcompiler.compile(PROGRAMS["residual"][0], fullgraph=True)
        inputs = made(torch.bfloat16, 0)
        for _ in range(2):
            got = compiled(*inputs)
        eager = PROGRAMS["residual"][0](*inputs)
        torch.testing.assert_close(got, eager, rtol=0.02, atol=0.02 * float(eager.abs().max()))
        report = fastpath.last_report()
        assert report is not None and report.fallback is None and report.direct == 0
        assert report.kernels == 1 and report.aten_calls == {"aten.addmm.default": 1}
    finally:
        vendor._launch.cache_clear()


@pytest.mark.parametrize("backend", ["native", "pluggable"])
def test_nothing_is_recorded_where_an_allocator_may_not_be(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An allocator of the user's asks CUDA for memory, which it refuses while it records."""
    recorded = []
    made = torch.cuda.CUDAGraph

    def graph() -> torch.cuda.CUDAGraph:
        recorded.append(1)
        return made()

    monkeypatch.setattr(torch.cuda, "CUDAGraph", graph)
    monkeypatch.setattr(torch.cuda.memory, "get_allocator_backend", lambda: backend)
    x, out = normal(64, 64), torch.empty(64, 64, device="cuda", dtype=torch.bfloat16)
    calls = {n: lambda x, out: torch.mm(x, x, out=out) for n in range(2)}
    times = timed(calls, [x, out], x.device, rounds=2, span=1e-4)
    assert sorted(times) == [0, 1] and all(0 < t < 1 for t in times.values())
    assert len(recorded) == (2 if backend == "native" else 0)
