"""Compiled ``nn.Module``s: the same module in every respect but how a call runs.

The compiled module is an instance of a subclass of the module's own class and shares its
``__dict__``, so parameters, buffers, hooks, attributes, ``state_dict`` and ``isinstance`` are
the original's. What torch.compile's module has saved is loaded too, whose names begin with
``_orig_mod.`` wherever a module was compiled.
"""

from __future__ import annotations

import copy
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from types import MemberDescriptorType
from typing import Any

import torch

#: What torch.compile's modules put before the names of what the original has.
PREFIX = "_orig_mod."


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
                **{name: _of_original(name) for name in _slots(cls)},
                "__slots__": ("_refcompiler_entry", "_orig_mod", "_refcompiler_remake"),
                "__call__": _call,
                "__reduce_ex__": _reduce,
                "__deepcopy__": _deepcopy,
                "_replicate_for_data_parallel": _replicate,
                "load_state_dict": _load,
                "_load_from_state_dict": _load_part,
                "__refcompiler_class__": cls,
                "aot_compile": _aot_compile,
            },
        )
    return found


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self._refcompiler_entry(self._orig_mod, *args, **kwargs)


def _aot_compile(self: Any, example_inputs: Any) -> Any:
    """One call as a program that can be saved: see :mod:`refcompiler.runtime.package`."""
    return self._refcompiler_entry.aot_compile(example_inputs)


def _reduce(self: Any, protocol: Any) -> Any:
    return self._refcompiler_remake, (self._orig_mod,)


def _deepcopy(self: Any, memo: dict) -> Any:
    return self._refcompiler_remake(copy.deepcopy(self._orig_mod, memo))


def _replicate(self: Any) -> Any:
    return self._refcompiler_remake(self._orig_mod._replicate_for_data_parallel())


def _slots(cls: type) -> set[str]:
    """The names of what instances of ``cls`` keep elsewhere than in ``__dict__``."""
    return {
        name
        for base in cls.__mro__
        for name, value in base.__dict__.items()
        if isinstance(value, MemberDescriptorType)
    }


def _of_original(name: str) -> property:
    return property(
        lambda self: getattr(self._orig_mod, name),
        lambda self, value: setattr(self._orig_mod, name, value),
        lambda self: delattr(self._orig_mod, name),
    )


# ---- what torch.compile's modules have saved ---------------------------------------------------


def _load(self: Any, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
    if isinstance(state_dict, Mapping) and any(name.startswith(PREFIX) for name in state_dict):
        found = OrderedDict((_plain(name), value) for name, value in state_dict.items())
        versions = getattr(state_dict, "_metadata", None)
        if versions is not None:
            found._metadata = OrderedDict(  # type: ignore[attr-defined]
                (_plain(f"{name}.")[:-1], value) for name, value in versions.items() if name
            )
        state_dict = found
    return self.__refcompiler_class__.load_state_dict(self, state_dict, *args, **kwargs)


def _plain(name: str) -> str:
    while name.startswith(PREFIX):
        name = name.removeprefix(PREFIX)
    return name


def _load_part(self: Any, state_dict: dict, prefix: str, *args: Any) -> None:
    """As a part of another module, whose names begin with ``prefix``."""
    for name in [name for name in state_dict if name.startswith(prefix + PREFIX)]:
        state_dict[prefix + _plain(name[len(prefix) :])] = state_dict.pop(name)
    self.__refcompiler_class__._load_from_state_dict(self, state_dict, prefix, *args)


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
