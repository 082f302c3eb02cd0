"""Guards of wrapper subclasses: tensors that say what they are made of."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from refcompiler.guards.tensors import TensorMeta


def parts(value: Any) -> dict[str, torch.Tensor]:
    """The tensors that ``value`` is made of."""
    return {name: getattr(value, name) for name in value.__tensor_flatten__()[0]}


class WrapperMeta(NamedTuple):
    """What a WRAPPER guard expects: of the tensor, of what it is made of, and what else it says."""

    outer: TensorMeta
    parts: dict[str, TensorMeta | WrapperMeta]
    context: Any

    @staticmethod
    def of(tensor: Any) -> WrapperMeta:
        inner: dict[str, TensorMeta | WrapperMeta] = {}
        for name, part in parts(tensor).items():
            wraps = hasattr(type(part), "__tensor_flatten__")
            inner[name] = WrapperMeta.of(part) if wraps else TensorMeta.of(part)
        # containers of its own: the tensor's may be changed
        context = pytree.tree_map(lambda leaf: leaf, tensor.__tensor_flatten__()[1])
        return WrapperMeta(TensorMeta.of(tensor), inner, context)

    def __str__(self) -> str:
        inner = ", ".join([f"{name}={part}" for name, part in self.parts.items()])
        return f"{self.outer} of {inner}, {self.context!r}"


def wrapper_check(value: Any, want: WrapperMeta) -> bool:
    """Whether ``value`` is such a tensor, made of such tensors.

    What else it says is compared by the class's ``__metadata_guard__``, if it has one, as torch
    does, else by ``==``.
    """
    if type(value) is not want.outer.cls:
        return False
    with torch._C.DisableTorchFunction():
        if TensorMeta.of(value) != want.outer:
            return False
        given: Any = value
        names, context = given.__tensor_flatten__()
        if list(names) != list(want.parts):
            return False
        same = getattr(want.outer.cls, "__metadata_guard__", None)
        if not (same(want.context, context) if same is not None else want.context == context):
            return False
        for name, expected in want.parts.items():
            part = getattr(value, name)
            if isinstance(expected, WrapperMeta):
                if not wrapper_check(part, expected):
                    return False
            elif not issubclass(type(part), torch.Tensor) or TensorMeta.of(part) != expected:
                return False
    return True
