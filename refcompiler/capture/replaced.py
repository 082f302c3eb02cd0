"""Functions and methods of torch's in whose place the program has put its own.

A graph names what it calls by where torch has it, also as Python. Where something else stands
there, as where a program wraps ``F.relu`` and calls what was there before, the graph has to hold
the function itself; and torch tells modes of what stands there, which is not what runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch.fx.node import _get_qualified_name

_METHODS = dict(vars(torch.Tensor))
_NAMES: dict[Callable, list[str]] = {}
_HELD: dict[Callable, Callable] = {}


def is_replaced_method(name: str) -> bool:
    """Whether a tensor's method of that name is another one than torch's."""
    return torch.Tensor.__dict__.get(name) is not _METHODS.get(name)


def is_replaced(function: Any) -> bool:
    """Whether what a graph would find by the name of a function of torch's is another one."""
    if type(function) not in (FunctionType, BuiltinFunctionType):
        return False
    if function.__module__ == "torch._tensor":
        return is_replaced_method(function.__name__)
    path = _NAMES.get(function)
    if path is None:
        try:
            path = _get_qualified_name(function).split(".")
        except RuntimeError:  # it is nowhere any more
            return True
    found: Any = sys.modules.get(path[0])
    for part in path[1:]:
        found = getattr(found, part, None)
    if found == function:  # methods in C are made anew for each that asks
        _NAMES[function] = path
    return found != function and path[0] == "torch"


def running(function: Any) -> Any:
    """The method of torch's that runs where torch tells of ``function``, which stands there."""
    if type(function) is FunctionType and not (function.__module__ or "").startswith("torch"):
        for name, found in torch.Tensor.__dict__.items():
            if found is function and is_replaced_method(name):
                return _METHODS.get(name, getattr(torch._C.TensorBase, name, function))
    return function


def held(function: Callable) -> Callable:
    """``function`` as a target that a graph holds by itself."""
    known = _HELD.get(function)
    if known is None:

        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        call.__name__ = call.__qualname__ = f"original_{function.__name__.strip('_')}"
        known = _HELD[function] = call
    return known
