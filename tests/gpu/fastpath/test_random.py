"""Kernels draw eager's numbers on a GPU, bit for bit, and move the generator's offset as eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import fastpath
import refcompiler

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

SIZES = (1, 4, 255, 4097, 100_003, (1 << 21) + 6, 1 << 24)
REDUCED = (torch.bfloat16, torch.float16)
FLOATS = (torch.float32, *REDUCED)


def _x(n: int, dtype: torch.dtype, skipped: int = 0) -> torch.Tensor:
    whole = torch.linspace(-1, 1, n + skipped, device="cuda").to(dtype)
    return whole[skipped:]


CASES: dict[str, Callable[[int, torch.dtype], Callable[..., Any]]] = {
    "rand": lambda n, d: lambda: torch.rand(n, dtype=d, device="cuda") * 2,
    "uniform": lambda n, d: lambda: torch.empty(n, dtype=d, device="cuda").uniform_(-0.3, 1.75),
    "bernoulli": lambda n, d: lambda: torch.empty(n, dtype=d, device="cuda").bernoulli_(0.3),
    "randint": lambda n, d: lambda: torch.randint(-3, 200, (n,), dtype=d, device="cuda"),
    "randn": lambda n, d: lambda: torch.randn(n, dtype=d, device="cuda") * 0.5,
    "normal": lambda n, d: lambda: torch.empty(n, dtype=d, device="cuda").normal_(0.3, 1.7),
    "exponential": lambda n, d: lambda: torch.empty(n, dtype=d, device="cuda").exponential_(2.3),
}
LEFT_TO_ATEN: dict[str, Callable[[int, torch.dtype], Callable[..., Any]]] = {
    "randn of 53 bits": lambda n, d: lambda: torch.randn(n, dtype=torch.float64, device="cuda"),
    "cauchy": lambda n, d: lambda: torch.empty(n, dtype=d, device="cuda").cauchy_(),
    "rand of 53 bits": lambda n, d: lambda: torch.rand(n, dtype=torch.float64, device="cuda"),
    "randperm": lambda n, d: lambda: torch.randperm(n, device="cuda"),
}


def _run(function: Callable[..., Any], offset: int, *inputs: Any) -> tuple[Any, torch.Tensor]:
    torch.cuda.init()
    torch.cuda.manual_seed((1 << 40) + 7)
    torch.cuda.default_generators[torch.cuda.current_device()].set_offset(offset)
    results = function(*inputs)
    return results if isinstance(results, tuple) else (results,), torch.cuda.get_rng_state()


def _agree(function: Callable[..., Any], *inputs: Any, offset: int = 12) -> Any:
    refcompiler.reset()
    expected, state = _run(function, offset, *inputs)
    found, after = _run(refcompiler.compile(function, fullgraph=True), offset, *inputs)
    for ours, eager in zip(found, expected, strict=True):
        assert (ours.dtype, ours.stride()) == (eager.dtype, eager.stride())
        assert torch.equal(ours, eager), (ours != eager).sum().item()
    assert torch.equal(after, state)
    return fastpath.last_report()


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", CASES)
def test_draws(name: str, n: int) -> None:
    for dtype in FLOATS:
        report = _agree(CASES[name](n, dtype))
        assert not report.aten_calls or set(report.aten_calls) <= {"aten.empty.memory_format"}
        assert report.draws == {"reserve_philox": 1}, str(report)


@pytest.mark.parametrize("name", LEFT_TO_ATEN)
def test_draws_by_aten_keep_their_place(name: str) -> None:
    own = CASES["rand"](4097, torch.float32)
    other = LEFT_TO_ATEN[name](4097, torch.float32)
    report = _agree(lambda: (own(), other(), own()))
    assert report.draws == {"reserve_philox": 2}
    assert report.aten_calls


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("skipped", [0, 1, 2, 4])
def test_dropout(n: int, skipped: int) -> None:
    """Alone, of an input wherever it begins, and between other work."""
    for dtype in FLOATS:
        x = _x(n, dtype, skipped)
        report = _agree(lambda x: F.dropout(x, 0.3), x)
        assert sum(report.draws.values()) == 1, str(report)
        _agree(lambda x: F.dropout(torch.relu(x), 0.1) + x, x)


def test_layouts_and_offsets() -> None:
    image = torch.randn(4, 8, 32, 32, device="cuda")
    last = image.to(memory_format=torch.channels_last)
    for offset in (0, 4, 1 << 33):
        _agree(lambda: torch.rand_like(last), offset=offset)
        _agree(lambda: torch.empty(300, 70, device="cuda").t().bernoulli_(0.5), offset=offset)
        _agree(lambda: torch.randn_like(last), offset=offset)
        # Two axes, of which the grid is a multiple, and not.
        for shape in ((1100, 4096), (2048, 999)):
            _agree(lambda s=shape: torch.randn(s, device="cuda") * 2, offset=offset)
            _agree(lambda s=shape: torch.rand(s, device="cuda") * 2, offset=offset)
        _agree(lambda x: F.dropout(x, 0.5), image, offset=offset)
        _agree(lambda x: F.dropout(x, 0.5), last, offset=offset)


def test_a_seed_of_64_bits() -> None:
    def program() -> torch.Tensor:
        return torch.rand(5000, device="cuda")

    refcompiler.reset()
    compiled = refcompiler.compile(program, fullgraph=True)
    for seed in (0, (1 << 63) + 11, (1 << 64) - 1):
        torch.cuda.manual_seed(seed)
        expected = program()
        torch.cuda.manual_seed(seed)
        assert torch.equal(compiled(), expected)


def test_training() -> None:
    w = torch.randn(512, 512, device="cuda", requires_grad=True)
    x = torch.randn(64, 512, device="cuda")

    def program(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(F.dropout(x @ w, 0.3) * 2, 0.2)

    def step(function: Callable[..., Any]) -> Callable[..., Any]:
        def run() -> Any:
            result = function(x)
            result.backward(x)
            gradient, w.grad = w.grad, None
            return result.detach(), gradient

        return run

    expected, state = _run(step(program), 0)
    refcompiler.reset()
    found, after = _run(step(refcompiler.compile(program, fullgraph=True)), 0)
    assert torch.equal(found[0] == 0, expected[0] == 0)
    for ours, eager in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, eager)
    assert torch.equal(state, after)
