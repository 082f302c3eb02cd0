"""Sizes, numbers and what depends on data inside regions, against eager, with gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch.utils.checkpoint import checkpoint

import refcompiler
from tests.cpu.shapes.programs import torchs_aot

SIZES = (6, 5, 9)
WEIGHT = torch.randn(4, 4, requires_grad=True)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    refcompiler.reset()


def recomputed(function: Callable, *args: Any) -> Any:
    return checkpoint(function, *args, use_reentrant=False)


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, n: int) -> Any:
        ctx.n = n
        ctx.save_for_backward(x)
        return x * n + x.shape[0]

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad * ctx.n + x.shape[0], None


@torch.compiler.nested_compile_region
def nested(x: Any, n: int) -> Any:
    return x * n + x.shape[0]


def _count(x: Any) -> Any:
    n = (x > 0).sum().item()
    torch._check(n >= 0)
    return n


def _gradient_and_number(x: Any) -> Any:
    n = x.shape[0]
    return recomputed(lambda a: ((a @ WEIGHT).view(n * 4).relu() * n, n + 1), x)


def _counted(x: Any) -> Any:
    """It carries a size and an int, which decide when to stop and how large the result is."""
    n, k, y = torch.while_loop(
        lambda n, k, y: n > k,
        lambda n, k, y: (n - 1, k + 2, y * k + n),
        (x.shape[0], 0, x.detach()),
    )
    return torch.zeros(n), n * 2, y[:n], k


def _looped(x: Any) -> Any:
    n = x.shape[0]
    start = torch.zeros((), dtype=torch.long)
    return torch.while_loop(
        lambda i, a: i < 3, lambda i, a: (i + 1, a * n + a.shape[0]), (start, x)
    )


def _pulled(x: Any) -> Any:
    n = x.shape[0]
    y, pull = torch.func.vjp(lambda a: a * n, x)
    return y, pull(torch.ones_like(y))


def _hooked(x: Any) -> Any:
    n = x.shape[0]
    y = x * WEIGHT.sum()
    y.register_hook(lambda grad: grad * n)
    return y * 2


REGIONS: dict[str, Callable[[Any], Any]] = {
    "checkpoint": _gradient_and_number,
    "checkpoint in checkpoint": lambda x: recomputed(
        lambda a: recomputed(lambda b: b.reshape(len(x) * 4) * len(x), a) + len(x), x
    ),
    "autograd.Function": lambda x: Scaled.apply(x * WEIGHT.sum(), x.shape[0]),
    "cond": lambda x: torch.cond(
        x.sum() > 0, lambda a: a * len(x), lambda a: a + len(x) + a.shape[0], (x,)
    ),
    "while_loop": _looped,
    "while_loop over ints": _counted,
    "scan": lambda x: scan(lambda c, a: (c + a * len(x), c * len(x)), torch.zeros(4), x),
    "map": lambda x: (lambda n: map_over(lambda a, y: a * n + y.sum(), x, x.clone()))(len(x)),
    "vmap": lambda x: torch.vmap(lambda r, k: r * len(x) + k, in_dims=(0, None))(x, len(x)),
    "grad": lambda x: torch.func.grad(lambda a, k: (a * len(x)).sum() * k)(x, len(x)),
    "vjp": _pulled,
    "nested_compile_region": lambda x: nested(nested(x, x.shape[0]), x.shape[0]),
    "hook": _hooked,
    "checkpoint and data": lambda x: (
        lambda n: recomputed(lambda a: a * n + torch.zeros(n, 4).sum(), x * WEIGHT.sum())
    )(_count(x)),
    "vmap and data": lambda x: (lambda n: torch.vmap(lambda r: r * n)(x))(_count(x)),
    "cond and data": lambda x: (
        lambda n: torch.cond(x.sum() > 0, lambda a: a * n, lambda a: a + n, (x,))
    )(_count(x)),
    "data inside": lambda x: recomputed(lambda a: a[a > 0] * 2, x * WEIGHT.sum()),
    "a number inside": lambda x: recomputed(lambda a: a * (a > 0).sum().item(), x * WEIGHT.sum()),
}


def result_and_gradient(function: Callable, x: Any) -> Any:
    WEIGHT.grad = None
    found = function(x)
    first = found[0] if isinstance(found, tuple) else found
    if first.requires_grad:
        first.sum().backward()
    return found, WEIGHT.grad


@pytest.mark.parametrize("backend", ["eager", torchs_aot])
@pytest.mark.parametrize("name", REGIONS)
def test_one_program_for_all_sizes(name: str, backend: Any) -> None:
    function = REGIONS[name]
    compiled = refcompiler.compile(function, backend=backend, dynamic=True, fullgraph=True)
    count = 0
    for s in SIZES:
        x = torch.randn(s, 4)
        (wanted, gradient), (found, own) = (
            result_and_gradient(each, x) for each in (function, compiled)
        )
        torch.testing.assert_close(found, wanted)
        assert (own is None) == (gradient is None)
        if own is not None:
            torch.testing.assert_close(own, gradient)
        count += 1
    assert count == len(SIZES) and refcompiler.counters()["captures"] == 1
