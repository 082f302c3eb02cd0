"""``wrap_numpy``: a function of numpy arrays becomes a function of tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from refcompiler.capture.arrays.array import Array, of_tensor
from refcompiler.capture.models.registry import model
from refcompiler.capture.signals import Break


def wrap_numpy(fn: Callable) -> Callable:
    """``fn``, which takes and gives numpy arrays, as a function of tensors.

    Tensors among the arguments (also in lists, tuples and dicts) become arrays, and arrays among
    the results become tensors; the rest stays as it is. Called natively it runs numpy, without
    gradients. In compiled code its numpy calls are a part of the graph, on any device that the
    tensors are on and with gradients.

    Source: ``torch.compiler.wrap_numpy``. Errors: ``TypeError`` for what cannot be called.
    """
    if not callable(fn):
        raise TypeError(f"wrap_numpy: expected a callable, not {type(fn).__name__}")

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        found = fn(*_mapped(args, _as_array), **_mapped(kwargs, _as_array))
        return _mapped(found, _as_tensor)

    return wrapped


def _mapped(value: Any, function: Callable) -> Any:
    """``value`` with ``function`` of everything in its containers."""
    if isinstance(value, (list, tuple)):
        items = [_mapped(item, function) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {key: _mapped(item, function) for key, item in value.items()}
    return function(value)


def _as_array(value: Any) -> Any:
    return value.numpy() if isinstance(value, torch.Tensor) else value


def _as_tensor(value: Any) -> Any:
    import numpy

    return torch.as_tensor(value) if isinstance(value, (numpy.ndarray, numpy.generic)) else value


@model(_as_array)
def _to_array(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    value = m.force(args[0])
    if not issubclass(type(value), torch.Tensor):
        return value
    if value.is_conj() or value.is_neg() or value.dtype is torch.bfloat16:
        raise Break("operation-not-modelled", "wrap_numpy of a tensor that numpy cannot hold")
    return of_tensor(m, value)


@model(_as_tensor)
def _to_tensor(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    value = m.force(args[0])
    return value._tensor if type(value) is Array else value
