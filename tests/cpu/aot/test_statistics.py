"""Writes that a schema does not tell: the running statistics of the GPU's batch norms.

Operators of CUDA alone, which run here on the CPU's kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import fastpath
import refcompiler

_aten = torch.ops.aten


def _forward(
    x: Any, w: Any, b: Any, mean: Any, var: Any, training: bool, m: float, e: float
) -> Any:
    found = torch.native_batch_norm(x, w, b, mean, var, training, m, e)
    return (*found, x.new_zeros(0, dtype=torch.uint8))


def _backward(x: Any, g: Any, w: Any, mean: Any, var: Any, m: Any, r: Any, e: float, _: Any) -> Any:
    every = [True, True, True]
    return _aten.native_batch_norm_backward(g, x, w, None, None, m, r, True, e, every)


def _gathered(
    x: Any, m: Any, r: Any, mean: Any, var: Any, momentum: float, e: float, n: int
) -> Any:
    if mean is not None:
        mean.lerp_(m.mean(0), momentum)
        var.lerp_((r**-2).mean(0), momentum)
    return m.mean(0), r.mean(0)


@pytest.fixture(autouse=True)
def _on_the_cpu() -> Iterator[None]:
    library = torch.library.Library("aten", "IMPL")
    library.impl("cudnn_batch_norm", _forward, "CPU")
    library.impl("cudnn_batch_norm_backward", _backward, "CPU")
    library.impl("batch_norm_gather_stats", _gathered, "CPU")
    yield
    library._destroy()
    refcompiler.reset()


def _given() -> list[Tensor]:
    torch.manual_seed(0)
    x = torch.randn(4, 3, 5, 5)
    return [x, torch.rand(3), torch.rand(3), torch.zeros(3), torch.ones(3)]


def _normed(x: Tensor, w: Tensor, b: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    return _aten.cudnn_batch_norm(x, w, b, mean, var, True, 0.1, 1e-5)[0]


def _read_between(x: Tensor, w: Tensor, b: Tensor, mean: Tensor, var: Tensor) -> Any:
    before = mean + 1
    return _normed(x, w, b, mean, var), before, mean + var


def _twice(x: Tensor, w: Tensor, b: Tensor, mean: Tensor, var: Tensor) -> Any:
    first = _normed(x, w, b, mean, var)
    return _normed(first * 2 + 1, w, b, mean, var), mean * 2


def _instances(x: Tensor, w: Tensor, b: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    each = [t.repeat(x.shape[0]) for t in (w, b, mean, var)]
    out = _normed(x.reshape(1, -1, *x.shape[2:]), *each)
    mean.copy_(each[2].view(x.shape[0], -1).mean(0))
    var.copy_(each[3].view(x.shape[0], -1).mean(0))
    return out.view(x.shape)


def _in_inference(x: Tensor, w: Tensor, b: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    return _aten.cudnn_batch_norm(x, w, b, mean, var, False, 0.1, 1e-5)[0]


def _synchronised(x: Tensor, w: Tensor, b: Tensor, mean: Tensor, var: Tensor) -> Any:
    rows = torch.stack([w, b])
    found = _aten.batch_norm_gather_stats(x, rows, rows + 1, mean, var, 0.1, 1e-5, 7)
    return found[0], mean * 2, var - 1


PROGRAMS = (_normed, _read_between, _twice, _instances, _in_inference, _synchronised)


@pytest.mark.parametrize("backend", ["aot_eager", "fastpath"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__.strip("_"))
def test_what_a_batch_norm_writes_is_eagers(program: Callable[..., Any], backend: str) -> None:
    compiled = refcompiler.compile(program, backend=backend, fullgraph=True)
    compared = 0
    for scale in (1.0, 3.0):
        ours, eagers = _given(), _given()
        ours[0], eagers[0] = ours[0] * scale, eagers[0] * scale
        found, expected = compiled(*ours), program(*eagers)
        torch.testing.assert_close(found, expected)
        for a, b in zip(ours, eagers, strict=True):
            torch.testing.assert_close(a, b)
            compared += 1
        moved = not torch.equal(eagers[3], torch.zeros(3))
        assert moved == (program is not _in_inference)
    assert compared == 10 and refcompiler.counters()["captures"] == 1
    if backend == "fastpath":
        report = fastpath.last_report()
        assert report is not None and report.fallback is None


def test_the_gradient_of_one_whose_statistics_are_read_behind_it() -> None:
    compiled = refcompiler.compile(_read_between, backend="fastpath", fullgraph=True)
    for _ in range(2):
        found = []
        for function in (compiled, _read_between):
            x, w, b, *statistics = _given()
            leaves = [t.requires_grad_() for t in (x, w, b)]
            out, before, after = function(*leaves, *statistics)
            (out.square() * torch.arange(25.0).view(5, 5)).sum().backward()
            found.append([*(t.grad for t in leaves), before, after, *statistics])
        for ours, eagers in zip(*found, strict=True):
            torch.testing.assert_close(ours, eagers, rtol=1e-4, atol=1e-4)
    assert refcompiler.counters()["captures"] == 1
