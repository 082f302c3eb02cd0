"""What the operations of torch are called, whichever way a program calls them.

``torch.add``, ``Tensor.add``, ``torch.ops.aten.add`` and ``torch.ops.aten.add.Tensor`` are one
operation: what is decided by a name holds of all four.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket

_DATA = torch._C._autograd._get_data_attr
_OPERATORS = (OpOverload, OpOverloadPacket)
_INPLACE = frozenset(
    f"__i{name}__"
    for name in "add sub mul truediv floordiv mod pow and or xor lshift rshift matmul".split()
)


def operation_name(function: Any) -> str:
    """The bare name of a torch function; of a getter or setter, the attribute's.

    Of an operator of another library than ATen, with the library's name. ATen's questions for what
    a symbol may stand for (``sym_size``) are those of the methods.
    """
    kind = type(function)
    if kind is OpOverload:
        function = function.overloadpacket
    if kind in _OPERATORS:
        name: str = function._qualified_op_name
        return name.removeprefix("aten::sym_").removeprefix("aten::")
    if kind is types.MethodWrapperType:  # Tensor.shape.__get__
        owner = function.__self__
        name = getattr(owner, "__name__", "")
        return name if function.__name__ == "__get__" else f"{name}.{function.__name__}"
    return getattr(function, "__name__", str(function))


def target_name(target: Any) -> str:
    """The same of what a node of a graph calls: a function, or a method by name."""
    return target if type(target) is str else operation_name(target)


def writes(function: Any, name: str) -> bool:
    """Whether the operation with that ``name`` changes an argument: as its schema says, else by
    torch's convention for names."""
    kind = type(function)
    if kind is OpOverload:
        return bool(function._schema.is_mutable)
    if kind is OpOverloadPacket and "::" in name:  # of ATen's, one of each writes to ``out``
        return any(getattr(function, each)._schema.is_mutable for each in function.overloads())
    if name.endswith("_") and not name.endswith("__"):
        return True
    return name in _INPLACE or name == "__setitem__"


def takes_data(target: Any, args: Sequence[Any]) -> bool:
    """Whether a call is ``x.data``, here or as torch's front end spells it."""
    if target is getattr:
        return args[1] == "data"
    return target is _DATA or type(target) in _OPERATORS and operation_name(target) == "data"
