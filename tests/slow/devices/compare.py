"""Two runs of one program, compared: values, dtypes, shapes, strides, devices and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

ROOM = {torch.float32: (2e-4, 2e-5), torch.bfloat16: (3e-2, 3e-2), torch.float16: (4e-3, 4e-3)}
ROOM |= {torch.float64: (1e-7, 1e-7), torch.complex128: (1e-7, 1e-7)}
ROOM |= {torch.complex64: (2e-4, 2e-5)}
#: The parts of what :func:`run` gives.
WHAT = ("", "gradient: ", "argument: ", "random state: ")


def exact_products() -> None:
    """Products of float32 in float32, also where a device has a faster format."""
    with torch.backends.__allow_nonbracketed_mutation():  # torch's own tests freeze these
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def copied(value: Any) -> Any:
    """``value`` with memory of its own, for programs that write what they are given."""

    def copy(t: Any) -> Any:
        if not isinstance(t, torch.Tensor) or t.layout is not torch.strided:
            return t
        return t.detach().clone().requires_grad_(t.requires_grad)

    return pytree.tree_map(copy, value)


def run(function: Callable[..., Any], args: Any, kwargs: Any, gradients: bool) -> list[Any]:
    """Results, gradients of what is given, what is given and the random state, from a seed."""
    args, kwargs = copied((args, kwargs))
    torch.manual_seed(7)
    found: Any = []
    if not gradients:
        with torch.no_grad():
            result = function(*args, **kwargs)
        return [result, found, (args, kwargs), _random_state()]
    result = function(*args, **kwargs)
    after = _random_state()
    wanted = [t for t in pytree.tree_leaves(result) if _differentiable(t)]
    given = [t for t in pytree.tree_leaves((args, kwargs)) if _differentiable(t)]
    if wanted and given:
        torch.manual_seed(9)
        seeds = [torch.randn_like(t) for t in wanted]
        found = torch.autograd.grad(wanted, given, seeds, allow_unused=True)
    return [result, list(found), (args, kwargs), [*after, *_random_state()]]


def _random_state() -> list[torch.Tensor]:
    states = [torch.get_rng_state()]
    if torch.cuda.is_initialized():
        states.append(torch.cuda.get_rng_state())
    return states


def _differentiable(t: Any) -> bool:
    return isinstance(t, torch.Tensor) and t.requires_grad and t.dtype.is_floating_point


def difference(got: list[Any], eager: list[Any], exact: bool = False) -> tuple[str, int]:
    """In what two :func:`run` differ, or "", and how many elements were compared.

    ``exact``: every bit and each stride has to be the same, that of gradients too.
    """
    count = 0
    for what, ours, theirs in zip(WHAT, got, eager, strict=True):
        left, right = pytree.tree_leaves(ours), pytree.tree_leaves(theirs)
        if len(left) != len(right):
            return f"{what}{len(left)} tensors for {len(right)}", count
        for a, b in zip(left, right):
            if told := _differ(a, b, strides=exact or not what, exact=exact):
                return what + told, count
            if what != WHAT[-1]:
                count += a.numel() if isinstance(a, torch.Tensor) else 1
    return "", count


def _differ(a: Any, b: Any, strides: bool, exact: bool) -> str:
    if type(a) is not type(b):
        return f"{type(a).__name__} for {type(b).__name__}"
    if not isinstance(a, torch.Tensor):
        return "" if a == b or a != a else f"{a} for {b}"
    for seen in ("dtype", "shape", "layout", "device", "requires_grad"):
        if getattr(a, seen) != getattr(b, seen):
            return f"{seen} {getattr(a, seen)} for {getattr(b, seen)}"
    if a.layout is not torch.strided:
        return ""
    if strides and a.numel() > 1 and a.stride() != b.stride():
        return f"strides {a.stride()} for {b.stride()} of {tuple(a.shape)}"
    relative, absolute = (0.0, 0.0) if exact else ROOM.get(a.dtype, (0.0, 0.0))
    if a.dtype.is_floating_point and bool(b.isfinite().any()):
        absolute *= max(1.0, float(b.detach()[b.isfinite()].abs().max()))
    try:
        torch.testing.assert_close(a, b, rtol=relative, atol=absolute, equal_nan=True)
    except AssertionError as error:
        return " ".join(str(error).split())[:200]
    return ""
