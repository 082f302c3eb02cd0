"""Fake results of common operators by their own rules, which are quicker than torch's stand-ins.

A rule answers for arguments that are plainly right, and with None for all else: then torch is
asked, which knows the rest and raises what is to be raised.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from refcompiler.fake_results import Output, Result
from specs import strides

_aten = torch.ops.aten
_FLOATS = (torch.float32, torch.float64)


def by_rule(func: Any, args: Sequence, kwargs: Any) -> Result | None:
    """What ``func`` gives; None where no rule says it."""
    rule = _RULES.get(func)
    return None if rule is None or kwargs else rule(*args)


def _view(tensor: Any, shape: Any) -> Result | None:
    if not _static(tensor) or not all(type(n) is int and n >= -1 for n in shape):
        return None
    if tensor.is_conj() or tensor.is_neg() or tensor._is_zerotensor():  # so is its view
        return None
    if torch.is_inference_mode_enabled():  # a view of a tensor from before is no inference tensor
        return None
    size, count = list(shape), math.prod(tensor.shape)
    if -1 in size:
        known = -math.prod(size)
        if size.count(-1) > 1 or not known or count % known:
            return None
        size[size.index(-1)] = count // known
    if not count or math.prod(size) != count:
        return None
    steps = strides.viewed(tensor.shape, tensor.stride(), size)
    if steps is None:
        return None
    offset = tensor.storage_offset()
    return _result(_like(tensor, tuple(size), steps, offset, memory=0))


def _addmm(bias: Any, a: Any, b: Any, *rest: Any) -> Result | None:
    if not _alike(bias, a, b) or rest or (bias.dim(), a.dim(), b.dim()) != (1, 2, 2):
        return None
    (rows, inner), (other, columns) = a.shape, b.shape
    if inner != other or bias.shape[0] != columns or not rows * columns:
        return None
    return _result(_new(a, (rows, columns)))


def _layer_norm(x: Any, normalized: Any, weight: Any, bias: Any, eps: Any) -> Result | None:
    given = [t for t in (x, weight, bias) if t is not None]
    size, rank = tuple(x.shape), len(normalized)
    if not _alike(*given) or not rank or size[-rank:] != tuple(normalized):
        return None
    if not x.is_contiguous() or not math.prod(size):
        return None
    if any(tuple(t.shape) != tuple(normalized) for t in given[1:]):
        return None
    rows = (*size[:-rank], *[1] * rank)
    return _result(_new(x, size), _new(x, rows), _new(x, rows), kind=tuple)


_RULES: dict[Any, Callable[..., Result | None]] = {
    _aten.view.default: _view,
    _aten.addmm.default: _addmm,
    _aten.native_layer_norm.default: _layer_norm,
}


def _static(tensor: Any) -> bool:
    return not tensor._has_symbolic_sizes_strides


def _alike(*tensors: Any) -> bool:
    """Of one class of floating numbers, on the CPU."""
    dtype = tensors[0].dtype
    return dtype in _FLOATS and all(
        t.dtype is dtype and t.fake_device.type == "cpu" and _static(t) for t in tensors
    )


def _new(like: Any, shape: tuple[int, ...]) -> Output:
    return _like(like, shape, strides.contiguous(shape), 0, memory=-1)


def _like(
    tensor: Any, shape: tuple[int, ...], steps: tuple[int, ...], offset: int, memory: int
) -> Output:
    last = offset + sum([(n - 1) * step for n, step in zip(shape, steps, strict=True)])
    end = (last + 1) * tensor.dtype.itemsize
    return Output(shape, steps, offset, tensor.dtype, tensor.fake_device, -1, memory, end)


def _result(*outputs: Output, kind: type | None = None) -> Result:
    return Result(kind, outputs)
