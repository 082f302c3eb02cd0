"""Functions and methods of torch's in whose place the program has put its own.

A graph names what it calls by where torch has it, also as Python. Where something else stands
there, as where a program wraps ``F.relu`` and calls what was there before, the graph has to hold
the function itself; and torch tells modes of what stands there, which is not what runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import Any

import torch
from torch.fx.node import _get_qualified_name

from refcompiler.capture.policy import LEAF_MODULES

_METHODS = dict(vars(torch.Tensor))
#: What the modules had by their names when this was imported.
_SPACES = {name: dict(vars(sys.modules[name])) for name in LEAF_MODULES if name in sys.modules}
_READ: dict[CodeType, tuple[tuple[str, str], ...]] = {}
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


def calls_replaced(function: FunctionType) -> bool:
    """Whether a function of ``LEAF_MODULES``, or one that it calls there, has been given another
    one to call: ``F.multi_head_attention_forward`` calls what stands in ``F``."""
    return any(
        vars(sys.modules[module]).get(name) is not _SPACES[module].get(name)
        for module, name in _read_by(function)
    )


def _read_by(function: FunctionType) -> tuple[tuple[str, str], ...]:
    found = _READ.get(function.__code__)
    if found is None:
        pending, seen = [function], {function}
        read: set[tuple[str, str]] = set()
        while pending:
            one = pending.pop()
            space = _SPACES.get(one.__module__, {})
            for name in one.__code__.co_names:
                if name in space:
                    read.add((one.__module__, name))
                    value = space[name]
                    if type(value) is FunctionType and value not in seen:
                        seen.add(value)
                        pending.append(value)
        found = _READ[function.__code__] = tuple(sorted(read))
    return found


def held(function: Callable) -> Callable:
    """``function`` as a target that a graph holds by itself."""
    known = _HELD.get(function)
    if known is None:

        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        call.__name__ = call.__qualname__ = f"original_{function.__name__.strip('_')}"
        known = _HELD[function] = call
    return known
