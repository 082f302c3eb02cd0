"""Programs that ``torch.export`` wrote: operators of ATen, and those of branches and loops."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops import scan, while_loop

import refcompiler


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: self.linear(x).sin(), lambda x: x.cos(), (x,))


class Looping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Parameter(torch.ones(8), requires_grad=False)

    def forward(self, x: Any) -> Any:
        def body(i: Any, x: Any) -> Any:
            return i + 1, x * 1.5 + self.step

        return while_loop(lambda i, x: i.sum() < 4, body, (torch.zeros(1), x))[1]


class Scanning(nn.Module):
    def forward(self, x: Any) -> Any:
        return scan(lambda carry, each: (carry + each, carry * 2), torch.zeros(8), x)[1]


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Any) -> Any:
        self.calls.add_(1)
        return nn.functional.dropout(self.norm(self.linear(x)), 0.3, self.training) * self.calls


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        with torch.no_grad():
            scale = y.relu()
        with torch.autocast("cpu", torch.bfloat16):
            z = self.linear(x)
        return y * scale + z.float()


MODULES = [Blocks, Branching, Looping, Scanning, Counting]


def _ran(run: Any, module: nn.Module, gradients: bool) -> list[Any]:
    torch.manual_seed(1)
    values = torch.randn(5, 8).abs()
    found: list[Any] = []
    for sign in (1, -1, 1):
        x = (values * sign).requires_grad_(gradients)
        result = run(x)
        found.append(result.detach())
        if result.requires_grad:
            result.square().sum().backward()
            found += [x.grad, *[p.grad.clone() for p in module.parameters() if p.grad is not None]]
    return [*found, *[each.clone() for each in module.buffers()], torch.rand(1)]


@pytest.mark.parametrize("kind", MODULES)
def test_exported_programs_are_one_graph(kind: Any) -> None:
    torch.manual_seed(0)
    gradients = kind is not Looping  # of which eager has none
    with torch.set_grad_enabled(gradients):
        exported = torch.export.export(kind(), (torch.randn(5, 8),), strict=False)
        modules = [exported.module(), copy.deepcopy(exported.module())]
        expected = _ran(modules[0], modules[0], gradients)
        told = refcompiler.explain(copy.deepcopy(modules[1]))(torch.randn(5, 8))
        assert told.graph_count == 1 and not told.break_reasons
        compiled = refcompiler.compile(modules[1], backend="aot_eager", fullgraph=True)
        found = _ran(compiled, modules[1], gradients)
    assert len(expected) == len(found) >= 4
    assert all(map(torch.equal, expected, found))
