"""Graphs with symbols under each backend, regions inside them, and gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import fastpath
import refcompiler
from refcompiler.shapes import ShapeEnv
from tests.cpu.shapes.programs import compare

SIZES = (6, 5, 9, 20)  # no other dimension has the size of the first


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    refcompiler.reset()


def _mixed(x: Any, y: Any) -> Any:
    b, t = x.shape
    return (x + y).view(b * t) * 2 + b, (x @ y.t()).relu(), b


@pytest.mark.parametrize("backend", ["eager", "reference", "fastpath", "inductor"])
def test_one_capture(backend: str) -> None:
    compiled = refcompiler.compile(_mixed, backend=backend, dynamic=True, fullgraph=True)
    count = 0
    for s in SIZES:
        x, y = torch.randn(s, s + 1), torch.randn(s, s + 1)
        for found, wanted in zip(compiled(x, y), _mixed(x, y), strict=True):
            torch.testing.assert_close(found, wanted)
            count += 1
    assert count == 3 * len(SIZES) and refcompiler.counters()["captures"] == 1


def test_gradients_under_inductor() -> None:
    weight = torch.randn(4, 3, requires_grad=True)

    def loss(x: Any) -> Any:
        return (x @ weight).tanh().sum() / x.shape[0]

    compiled = refcompiler.compile(loss, backend="inductor", dynamic=True)
    count = 0
    for s in SIZES:
        x = torch.randn(s, 4)
        (wanted,) = torch.autograd.grad(loss(x), weight)
        (found,) = torch.autograd.grad(compiled(x), weight)
        torch.testing.assert_close(found, wanted)
        count += 1
    assert count == len(SIZES) and refcompiler.counters()["captures"] == 1


def test_the_fast_path_has_a_program_for_each_combination() -> None:
    compiled = refcompiler.compile(lambda x: x * 2 + len(x), backend="fastpath", dynamic=True)
    for s in (3, 5, 3, 5, 7):
        x = torch.randn(s, 4)
        torch.testing.assert_close(compiled(x), x * 2 + s)
        report = fastpath.last_report()
        assert report is not None and report.fallback is None and report.kernels == 1
    assert refcompiler.counters()["captures"] == 1


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.n = x.shape[0]
        return x * ctx.n

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * ctx.n


_WEIGHT = torch.randn(4, 4)
REGIONS: dict[str, Callable] = {
    "checkpoint": lambda x: checkpoint(
        lambda a: (a @ _WEIGHT).view(a.shape[0] * 4).relu(), x, use_reentrant=False
    ),
    "vmap": lambda x: torch.vmap(lambda r: r * r.shape[0] + 1)(x),
    "grad": lambda x: torch.func.grad(lambda a: a.sum() * a.shape[0])(x),
    "custom": lambda x: _Scaled.apply(x),
    "autocast": lambda x: _autocast(x),
    "in place": lambda x: x.clone().mul_(x.shape[0])[1:].add_(1),
}


def _autocast(x: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x.t()


@pytest.mark.parametrize("name", REGIONS)
def test_regions(name: str) -> None:
    calls = [(torch.randn(s, 4),) for s in SIZES]
    compare(REGIONS[name], [*calls, *calls], dynamic=True)
    assert refcompiler.counters()["breaks"] == 0


def test_what_torchs_compiler_decides_is_guarded() -> None:
    from refcompiler.backends.symbols import TorchSymbols

    env = ShapeEnv()
    size = env.size(6)
    graph = torch.fx.Graph()
    graph.placeholder("s0").meta["example_value"] = size
    graph.output((graph.call_function(torch.ones, (2,)),))
    given = TorchSymbols(torch.fx.GraphModule({}, graph), [size])
    (theirs,) = given.inputs
    assert theirs.node.shape_env is not env and theirs.node.hint == 6
    assert bool(theirs > 4) and bool(theirs % 3 == 0) and not bool(theirs == 8)
    given.learn()
    found = [str(relation.condition) for relation in env.relations]
    assert (
        len(found) == 3
        and "> 4" in found[0]
        and "% 3" in str(found[1]).replace("Mod(s0, 3)", "% 3")
    )
