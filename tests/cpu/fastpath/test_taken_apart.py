"""Operators that are taken apart, or are a rule's, are kernels alone, with eager's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fastpath
import refcompiler

aten = torch.ops.aten
Function = Callable[[torch.Tensor], Any]


def elu_gradient(x: torch.Tensor) -> Any:
    return aten.elu_backward(x * 0 + 2, 1.3, 1.0, 1.0, False, x)


CASES: dict[str, Function] = {
    "copies": lambda x: [aten.permute_copy(x, [1, 0]), aten.diagonal_copy(x), aten.t_copy(x)],
    "more copies": lambda x: [
        aten.unbind_copy(x)[1],
        aten.unsqueeze_copy(x, 1),
        aten.alias_copy(x),
    ],
    "diagonals": lambda x: [torch.diag_embed(x, 1), torch.diagflat(x[0]), torch.trace(x)],
    "an outer product": lambda x: [torch.addr(x, x[:, 0], x[0], beta=2, alpha=0.5)],
    "counted": lambda x: [torch.count_nonzero(x), x.nansum(), x.nansum(0)],
    "classes": lambda x: [x.isposinf(), x.isneginf(), x.angle(), (x > 0).angle()],
    "norms": lambda x: [torch.linalg.vector_norm(x, p) for p in (3, 0.5, -2.5)],
    "rows": lambda x: [torch.linalg.cross(x[:3], x[1:4], dim=0), x.renorm(2, 0, 1.0)],
    "elu's gradient": elu_gradient,
    "shuffled": lambda x: [F.channel_shuffle(x.view(1, 6, 4, 2), 3)],
    "without elements": lambda x: [x[:0].flip(0), x[:0].repeat(2, 3), x[:0].new_ones(2) + x[0, 0]],
}


@pytest.mark.parametrize("name", CASES)
def test_they_are_eagers(name: str) -> None:
    function = CASES[name]
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(1))
    call = fastpath.compile_graph(torch.fx.symbolic_trace(function), [x])
    assert call.report.fallback is None and not call.report.aten_calls, call.report
    other = x * 2
    other[0, 1], other[1, 4], other[2] = torch.nan, -0.0, 0.0
    if name != "norms":
        other[3, 2], other[4, 0] = torch.inf, -torch.inf
    for given in (x, other):
        found, expected = call(given), function(given)
        pairs = [(found, expected)] if isinstance(expected, torch.Tensor) else list(
            zip(found, expected, strict=True)
        )  # fmt: skip
        assert pairs
        for a, b in pairs:
            torch.testing.assert_close(a, b, equal_nan=True)
            assert a.stride() == b.stride()


@pytest.mark.parametrize(
    "function", [lambda x: x.cumsum(0, dtype=torch.bool), lambda x: torch.add(x, x, alpha=0.5)]
)
def test_what_eager_rejects_is_rejected(function: Function) -> None:
    x = torch.arange(5)
    with pytest.raises((RuntimeError, NotImplementedError)) as expected:
        function(x)
    with pytest.raises(expected.type) as found:
        refcompiler.compile(function, backend="fastpath")(x)
    assert str(found.value).startswith(str(expected.value))
