"""Tensors that writes do not change while a graph is traced: each write gives another value."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.fx.node import has_side_effect
from torch.utils import _pytree as pytree

from refcompiler.aot.effects import checks


class FunctionalMode(FunctionalTensorMode):
    """With checks, which have no result, as nodes like any other: torch's own mode has tokens."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not checks(func):
            return super().__torch_dispatch__(func, types, args, kwargs)
        unwrapped = pytree.tree_map_only(FunctionalTensor, plain, (args, kwargs or {}))
        has_side_effect(func)  # or the graph that is traced loses it
        return func(*unwrapped[0], **unwrapped[1])


def plain(t: Any) -> torch.Tensor:
    """What a functional tensor holds."""
    torch._sync(t)
    return torch._from_functional_tensor(t.elem)
