"""Results that are views, made by a custom function.

In eager a view of an input has the memory of the input, and its gradients go by the function's
backward. So the graph computes it as any other result, and a call gives back a view of its own
input, whose gradient goes to that result. A view of what nobody else has is one of the result's own
memory: writes to it are refused as in eager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from refcompiler.aot.layout import Layout
from refcompiler.remade import made, maker


@dataclass(frozen=True)
class Through:
    """``slot``: where the graph gives it; ``place``: the input that it is a view of (None: none).

    ``layout``: how it lies there, its offset from where that begins; ``name``: autograd's.
    """

    slot: int
    place: int | None
    layout: Layout
    name: str


class _Through(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        given: torch.Tensor,
        result: torch.Tensor,
        size: Sequence[int],
        stride: Sequence[int],
        offset: int,
    ) -> torch.Tensor:
        return given.as_strided(size, stride, given.storage_offset() + offset)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return None, gradient, None, None, None


@maker
def through(name: str) -> Callable[..., torch.Tensor]:
    """``call(given, result, size, stride, offset)``: a view of ``given`` with the gradients of
    ``result``, as eager's of the function ``name``, which autograd tells of in errors."""
    kind: Any = type(name, (_Through,), {})

    def call(*given: Any) -> torch.Tensor:
        return kind.apply(*given)

    return made(call, through, name)
