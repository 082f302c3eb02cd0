"""Writes to views whose dimensions lie in another order: compiled, and they lie as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import refcompiler

AT = torch.tensor([0, 2, 1])
OVER = AT.view(1, 1, 3, 1).expand(2, 2, 3, 4)
ONES = torch.ones(2, 2, 3, 4)

#: By name, what is written to heads of shape (2, 2, 5, 4), which lie as (2, 5, 2, 4).
WRITES: dict[str, Callable[[torch.Tensor], Any]] = {
    "masked_fill_": lambda v: v.masked_fill_(torch.arange(v.shape[2]).view(-1, 1) > 2, 3.0),
    "masked_scatter_": lambda v: v.masked_scatter_(v > 0, torch.arange(99.0)),
    "index_add_": lambda v: v.index_add_(2, AT, ONES),
    "index_copy_": lambda v: v.index_copy_(2, AT, ONES),
    "scatter_": lambda v: v.scatter_(2, OVER, 1.0),
    "scatter_add_": lambda v: v.scatter_add_(2, OVER, ONES),
    "cumsum_": lambda v: v.cumsum_(2),
    "tril_": lambda v: v.tril_(),
    "renorm_": lambda v: v.renorm_(2, 0, 1.0),
    "every other column": lambda v: v[..., ::2].masked_fill_(torch.ones(v.shape[2], 1) > 0, 2.0),
    "fill_diagonal_": lambda v: v[0, 1].fill_diagonal_(7.0),
    "fill_diagonal_, wrapped": lambda v: v[0, 1].fill_diagonal_(7.0, wrap=True),
}


def heads_written_to(write: Callable[[torch.Tensor], Any]) -> Callable[..., Any]:
    def program(x: torch.Tensor, weight: torch.Tensor) -> Any:
        whole = torch.nn.functional.linear(x, weight)
        rows = x.shape[1]
        heads = whole.view(2, rows, 2, 4).transpose(1, 2)
        write(heads)
        return heads * 1, heads.transpose(1, 2).reshape(2, rows, 8), whole.sin()

    return program


@pytest.mark.parametrize(
    ("name", "backend", "dynamic"),
    [
        *[(name, "aot_eager", False) for name in WRITES],
        *[(name, "fastpath", False) for name in WRITES],
        # Of a diagonal that is wrapped the front end asks sizes, and breaks.
        *[(name, "aot_eager", True) for name in WRITES if name != "fill_diagonal_, wrapped"],
    ],
)
def test_a_write_to_heads(name: str, backend: str, dynamic: bool) -> None:
    refcompiler.reset()
    program = heads_written_to(WRITES[name])
    run = refcompiler.compile(program, backend=backend, fullgraph=True, dynamic=dynamic)
    compared = 0
    for seed in (1, 2):
        generator = torch.Generator().manual_seed(seed)
        rows = 4 + seed if dynamic else 5
        x = torch.randn(2, rows, 3, generator=generator, requires_grad=True)
        weight = torch.randn(8, 3, generator=generator, requires_grad=True)
        found, expected = run(x, weight), program(x, weight)
        for a, b in zip(found, expected, strict=True):
            assert (a.stride(), a._version) == (b.stride(), b._version)
            torch.testing.assert_close(a, b)
            pairs = (
                torch.autograd.grad(t.cos().sum(), (x, weight), retain_graph=True) for t in (a, b)
            )
            for one, other in zip(*pairs, strict=True):
                torch.testing.assert_close(one, other)
                compared += 1
    assert compared == 12
    counts = refcompiler.counters()
    assert (counts["captures"], counts["uncompiled"]) == (1, 0)
