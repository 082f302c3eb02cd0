"""What a mask assigns has a gradient without sizes that depend on data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import fastpath
import refcompiler

Program = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def rows(h: torch.Tensor, mask: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
    h = h * 1.0
    h[mask] = e.to(h.dtype) * 2
    return torch.nn.functional.layer_norm(h, (8,))


def one_number(h: torch.Tensor, mask: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
    h = h.clone()
    h[mask] = e.sum()
    return h.sin()


def middle(h: torch.Tensor, mask: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
    h = h * 1.0
    h[:, mask[0]] = e
    return h.cos()


def columns(h: torch.Tensor, mask: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
    h = h * 1.0
    h[mask, :4] = e[:4]
    return h * h.sum()


def whole(h: torch.Tensor, mask: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
    h = h * 1.0
    h[h.detach() > 0] = e[0]
    return h * h


@pytest.mark.parametrize(
    ("program", "dynamic"),
    [
        (rows, True),
        (rows, None),
        (one_number, True),
        (middle, True),
        (columns, True),
        (whole, True),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_what_a_mask_assigns_is_compiled(program: Program, dynamic: bool | None) -> None:
    found: list[Any] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        found.append(fastpath.backend(graph, inputs))
        return found[-1]

    call = refcompiler.compile(program, backend=backend, dynamic=dynamic)
    count = 0
    for size, share in ((5, 0.5), (5, 0.0), (7, 1.0)):
        h = torch.randn(2, size, 8, requires_grad=True)
        e, mask = torch.randn(8, requires_grad=True), torch.rand(2, size) < share
        results = []
        for run in (program, call):
            y = run(h, mask, e)
            tangent = torch.arange(y.numel(), dtype=y.dtype).view_as(y).sin()
            results.append((y.detach(), *torch.autograd.grad(y, [h, e], tangent)))
        for ours, eager in zip(*reversed(results), strict=True):
            torch.testing.assert_close(ours, eager)
            count += 1
    assert count == 9
    assert len(found) == (1 if dynamic else 2)
    for made in found:
        (backward,) = made.report.backwards
        assert made.fallback is None and backward.fallback is None
        assert backward.kernels and not any("index.Tensor" in name for name in backward.aten_calls)
