"""``prod`` in a trace, with the derivative that eager has.

Its formula asks whether a factor is zero, and divides if none is. While tracing, where there are no
values to ask, torch takes another formula, which rounds otherwise; so that one operator of the
backward asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from refcompiler.aot.inputs import Runner

_LIBRARY = torch.library.Library("refcompiler", "FRAGMENT")
_LIBRARY.define("prod_backward(Tensor grad, Tensor x, Tensor result, int? dim) -> Tensor")


def _backward(
    grad: torch.Tensor, x: torch.Tensor, result: torch.Tensor, dim: int | None
) -> torch.Tensor:
    """``dim``: which is still there in ``grad`` and ``result``; None: there is none left."""
    if x.all():
        return grad * (result / x).conj()
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        again = x.prod() if dim is None else x.prod(dim, keepdim=True)
    return torch.autograd.grad(again, x, grad)[0]


def _fake_backward(
    grad: torch.Tensor, x: torch.Tensor, result: torch.Tensor, dim: int | None
) -> torch.Tensor:
    return grad * (result / x).conj()


_LIBRARY.impl("prod_backward", _backward, "CompositeExplicitAutograd")
torch.library.register_fake("refcompiler::prod_backward", _fake_backward, lib=_LIBRARY)


class _Prod(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, call: Callable[..., Any], dim: int | None) -> Any:
        result = call(x)
        ctx.save_for_backward(x, result)
        ctx.call, ctx.dim = call, dim
        return result

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        x, result = ctx.saved_tensors
        if torch.is_grad_enabled():  # the operator has no derivative, torch's other formula has
            return *torch.autograd.grad(ctx.call(x), x, grad, create_graph=True), None, None
        before, x = x.dtype, x.to(grad.dtype)
        dim = ctx.dim
        if dim is not None and result.dim() < x.dim():
            grad, result = grad.unsqueeze(dim), result.unsqueeze(dim)
        if x.dim() == 0:
            return grad.to(before), None, None
        found = torch.ops.refcompiler.prod_backward(grad, x, result, dim)
        return found.to(before), None, None


def prod(runner: Runner, target: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """``torch.prod`` or the method. On other devices an answer is dear, and the trace's is used."""

    def call(x: torch.Tensor) -> torch.Tensor:
        return torch.prod(x, *args, **kwargs)

    dim = kwargs.get("dim", args[0] if args else None)
    if isinstance(dim, torch.SymInt):
        dim = int(dim)  # the operator takes no symbol either
    plain = isinstance(dim, int | None) and kwargs.get("out") is None
    if not plain or x.device.type != "cpu" or not (x.requires_grad and torch.is_grad_enabled()):
        return call(x)
    return _Prod.apply(x, call, dim)
