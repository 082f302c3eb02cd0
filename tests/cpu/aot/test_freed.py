"""A backward by one result of a function of several lets go of all that the function has saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import refcompiler


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    refcompiler.reset()


class _Pair(torch.autograd.Function):
    """Each result's gradient is of one tensor that it has saved."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x, y)
        ctx.set_materialize_grads(False)
        return x.exp(), y.sin()

    @staticmethod
    def backward(ctx: Any, first: Any, second: Any) -> Any:
        x, y = ctx.saved_tensors
        return (
            None if first is None else first * x.exp(),
            None if second is None else second * y.cos(),
        )


PROGRAMS: dict[str, tuple[Callable[..., Any], bool]] = {  # and whether eager raises
    "a list's": (lambda x, y: torch._foreach_exp([x, y]), True),
    "a list's, read by nobody": (lambda x, y: torch._foreach_sub([x, y], 1), True),
    "a list's, of another result": (
        lambda x, y: (torch._foreach_mul([x, y], [y, x])[0].sin(), y * 2),
        False,
    ),
    "a list's that saves nothing": (lambda x, y: torch._foreach_neg([x, y]), False),
    "a custom function's": (lambda x, y: _Pair.apply(x, y), True),
    "each its own": (lambda x, y: (x.exp(), y.exp()), False),
    "statistics": (lambda x, y: torch.var_mean(x * y, -1), True),
    "behind operators of their own": (
        lambda x, y: [t * s for t, s in zip(torch._foreach_exp([x, y]), (y, x), strict=True)],
        True,
    ),
}


@pytest.mark.parametrize("backend", ["aot_eager", "fastpath"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_has_run_once(name: str, backend: str) -> None:
    program, raises = PROGRAMS[name]
    call = refcompiler.compile(program, backend=backend)
    told = 0
    for first in (0, 1):
        seen: list[Any] = []
        for function in (program, call):
            x, y = (torch.linspace(-n, n, 6).view(2, 3).requires_grad_() for n in (1, 2))
            results = function(x, y)
            results[first].sum().backward(retain_graph=True)
            results[first].sum().backward()
            error = ""
            try:
                results[1 - first].sum().backward()
            except RuntimeError as found:
                error = str(found)
            seen.append((error, x.grad, y.grad))
        (expected, *gradients), (found, *ours) = seen
        assert found == expected and ("second time" in found) is raises
        told += bool(found)
        torch.testing.assert_close(ours, gradients)
    assert told == 2 * raises
    counts = refcompiler.counters()
    assert (counts["graphs"], counts["uncompiled"]) == (1, 0)
