"""Compiled ``nn.Module``s: the same module in every respect but how a call runs.

The compiled module is an instance of a subclass of the module's own class and shares its
``__dict__``, so parameters, buffers, hooks, attributes, ``state_dict`` and ``isinstance`` are
the original's.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Any

import torch


def call_module(module: Any, *args: Any, **kwargs: Any) -> Any:
    """What is captured when a compiled module is called."""
    return module(*args, **kwargs)


_CLASSES: weakref.WeakValueDictionary[type, type] = weakref.WeakValueDictionary()


def compiled_class(cls: type) -> type:
    """The subclass of ``cls`` whose instances are compiled modules."""
    found = _CLASSES.get(cls)
    if found is None:
        found = _CLASSES[cls] = type(cls)(
            cls.__name__,
            (cls,),
            {
                "__module__": cls.__module__,
                "__qualname__": cls.__qualname__,
                "__doc__": cls.__doc__,
                "__slots__": ("_refcompiler_entry", "_orig_mod", "_refcompiler_remake"),
                "__call__": _call,
                "__reduce_ex__": _reduce,
                "__deepcopy__": _deepcopy,
                "__refcompiler_class__": cls,
            },
        )
    return found


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self._refcompiler_entry(self._orig_mod, *args, **kwargs)


def _reduce(self: Any, protocol: Any) -> Any:
    return self._refcompiler_remake, (self._orig_mod,)


def _deepcopy(self: Any, memo: dict) -> Any:
    return self._refcompiler_remake(copy.deepcopy(self._orig_mod, memo))


def wrap_module(module: torch.nn.Module, entry: Callable, remake: Callable) -> Any:
    """``module`` compiled: calls go through ``entry(module, *args, **kwargs)``.

    ``remake(module)`` compiles a copy in the same way, for copying and pickling.
    """
    cls = compiled_class(type(module))
    made: Any = object.__new__(cls)
    object.__setattr__(made, "__dict__", module.__dict__)
    object.__setattr__(made, "_refcompiler_entry", entry)
    object.__setattr__(made, "_orig_mod", module)
    object.__setattr__(made, "_refcompiler_remake", remake)
    return made
