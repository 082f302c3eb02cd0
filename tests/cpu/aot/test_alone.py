"""Operators that run as they are, between parts of their graph that are compiled."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import fastpath
import refcompiler
from refcompiler.aot import alone as module
from refcompiler.aot import aot_autograd
from refcompiler.runtime.counters import reasons

AUTHORS = aot_autograd(fw_compiler=lambda graph, inputs: graph.forward)
KEPT = {"recurrent network of cuDNN"}


@pytest.fixture(autouse=True)
def _as_on_a_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "_by_cudnn", lambda node: True)
    refcompiler.reset()
    yield
    refcompiler.reset()


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LSTM(4, 5, batch_first=True), nn.GRU(3, 4, bidirectional=True)
        self.between = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> Any:
        out, (hidden, cell) = self.first((x * 2).relu())
        out, last = self.second(self.between(out).tanh())
        return (out + 1).sigmoid(), hidden, last * cell.mean()


class Written(nn.Module):
    """What the network makes is written to behind it: that is the same part."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.RNN(4, 5)

    def forward(self, x: torch.Tensor) -> Any:
        out, last = self.net(x, x.new_ones(1, x.shape[1], 5))
        return out.mul_(2).exp(), last.sum()


class Cast(Recurrent):
    def forward(self, x: torch.Tensor) -> Any:
        with torch.autocast("cpu", enabled=False):
            return super().forward(x)


def _trained(run: Any, net: nn.Module, x: torch.Tensor) -> list[Any]:
    net.zero_grad()
    found = run(x)
    sum(t.square().sum() for t in found).backward()
    return [*found, x.grad, *(p.grad for p in net.parameters())]


@pytest.mark.parametrize("backend", ["aot_eager", "fastpath", AUTHORS])
@pytest.mark.parametrize(
    "kind, told, dynamic",
    [
        (Recurrent, "2 of its 5 parts: ", False),
        (Recurrent, "2 of its 5 parts: ", True),
        (Written, "1 of its 2 parts: ", False),
        (Cast, "", False),
    ],
)
def test_what_is_around_is_compiled(
    kind: type[nn.Module], told: str, dynamic: bool, backend: Any
) -> None:
    torch.manual_seed(0)
    net = kind()
    other = copy.deepcopy(net)
    run = refcompiler.compile(net, backend=backend, fullgraph=True, dynamic=dynamic)
    for turn in range(2):
        x = torch.randn(2, 3 + turn * dynamic, 4, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        got, want = _trained(run, net, x), _trained(other, other, y)
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    assert refcompiler.counters()["graphs"] == refcompiler.counters()["uncompiled"] == 1 + dynamic
    assert told + module.REASON in str(reasons("uncompiled"))
    report = fastpath.last_report()
    if backend == "fastpath" and kind is Recurrent:  # of the last part
        assert report.fallback is None and report.kernels and report.backwards[0].kernels


def test_on_the_cpu_they_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    run = refcompiler.compile(Written(), backend="aot_eager", fullgraph=True)
    run(torch.randn(2, 3, 4))
    assert not refcompiler.counters()["uncompiled"]
