"""Fake tensors that lie in memory as eager's tensors do.

Torch's own fake tensors get some strides wrong (operators whose stand-in is a composition of
others) and let some views pass that eager rejects. Python code that looks at a tensor's strides
while it is captured, and a compiler that allocates results, need eager's answer.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from refcompiler.overlap import refuse_overlap, writes
from specs import strides
from specs.operators import OPERATORS, Operator

_VIEW = torch.ops.aten.view.default
# Their result is new memory: channels last if the input is, else contiguous.
_BATCH_NORMS = frozenset(
    {
        "aten.native_batch_norm.default",
        "aten._native_batch_norm_legit.default",
        "aten._native_batch_norm_legit.no_stats",
        "aten._native_batch_norm_legit_functional.default",
        "aten._native_batch_norm_legit_no_training.default",
        "aten._batch_norm_no_update.default",
    }
)

# Contiguous whatever the operands are.
_CONTIGUOUS = frozenset({"aten._log_softmax_backward_data.default"})


class EagerFakeMode(FakeTensorMode):
    """A ``FakeTensorMode`` with eager's strides, views and refusals (sizes that are numbers)."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _VIEW:
            _check_view(*args)
        if writes(func):
            refuse_overlap(func, args, kwargs or {})
        result = super().__torch_dispatch__(func, types, args, kwargs)
        name = _name(func)
        if name in _BATCH_NORMS and isinstance(result, tuple):
            wanted = _like_input(args[0])
            return (self._laid(result[0], wanted), *result[1:])
        if name in _CONTIGUOUS and isinstance(result, torch.Tensor) and _static(result):
            return self._laid(result, strides.contiguous(result.shape))
        row = _row(func)
        if row is None or not isinstance(result, torch.Tensor) or not _static(result):
            return result
        given = {a.name: v for a, v in zip(func._schema.arguments, args)}
        given.update(kwargs or {})
        if not all(_static(v) for v in given.values() if isinstance(v, torch.Tensor)):
            return result
        return self._laid(result, row.strides(tuple(result.shape), given))

    def _laid(self, result: torch.Tensor, wanted: strides.Strides | None) -> torch.Tensor:
        if wanted is None or result.stride() == wanted:
            return result
        with self:
            return torch.empty_strided(
                result.shape, wanted, dtype=result.dtype, device=result.device
            )


@functools.cache
def _name(func: Any) -> str:
    return str(func)


@functools.cache
def _row(func: Any) -> Operator | None:
    """The row of a function that allocates its one result by the rule of elementwise operators."""
    row = OPERATORS.get(_name(func))
    if row is None or row.strides((), {}) is None or len(func._schema.returns) != 1:
        return None
    return row


def _static(t: torch.Tensor) -> bool:
    if t.layout is not torch.strided:
        return False
    return all(type(n) is int for n in (*t.shape, *t.stride()))


def _like_input(t: torch.Tensor) -> strides.Strides | None:
    if not _static(t):
        return None
    if strides.is_channels_last(t.shape, t.stride()):
        return strides.channels_last(t.shape)
    return strides.contiguous(t.shape)


def _check_view(t: torch.Tensor, shape: Any) -> None:
    if not _static(t) or not all(type(n) is int for n in shape):
        return
    known = math.prod(n for n in shape if n != -1)
    full = [t.numel() // known if n == -1 and known else n for n in shape]
    if math.prod(full) != t.numel():
        return  # torch says so itself
    if not strides.viewable(t.shape, t.stride(), full):
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one "
            "dimension spans across two contiguous subspaces). Use .reshape(...) instead."
        )
