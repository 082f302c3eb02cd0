"""Graphs that set the default dtype: what depends on it says what it was.

A graph of ATen's operators has no place for the switch, and runs under the caller's. So an operator
that is traced under another default is given the dtype of its result (a factory), or its integers
as numbers of that dtype (a division of integers, the sine of one).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from refcompiler.dispatching import DispatchMode


def settled(gm: torch.fx.GraphModule) -> Any:
    """A context in which ``gm`` is traced so that its operators no more ask for the default."""
    if not gm.graph.find_nodes(op="call_function", target=torch._C._set_default_dtype):
        return contextlib.nullcontext()
    return _Settled(torch.get_default_dtype())


class _Settled(DispatchMode):
    def __init__(self, outside: torch.dtype):
        super().__init__()
        self.outside = outside

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        default = torch.get_default_dtype()
        if default is self.outside:
            return func(*args, **kwargs)
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        if not tensors and _takes_dtype(func) and kwargs.get("dtype") is None:
            return func(*args, **{**kwargs, "dtype": _dtype_made(func, args, kwargs)})
        found = func(*args, **kwargs)
        if not tensors or any(_is_inexact(t) for t in tensors) or func._schema.is_mutable:
            return found
        made = [t.dtype for t in tree_leaves(found) if isinstance(t, torch.Tensor)]
        if made[:1] != [default] or kwargs.get("dtype") is not None:
            return found
        return func(*tree_map_only(torch.Tensor, lambda t: t.to(default), args), **kwargs)


def _is_inexact(t: torch.Tensor) -> bool:
    return t.is_floating_point() or t.is_complex()


def _takes_dtype(func: Any) -> bool:
    return any(argument.name == "dtype" for argument in func._schema.arguments)


def _dtype_made(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.dtype:
    with _disable_current_modes():
        found: torch.Tensor = func(*args, **{**kwargs, "device": torch.device("meta")})
        return found.dtype
