"""Whether what a plan names lives as long as the program does.

Plans name classes, functions and the globals of modules. Those that a loaded module has under their
names live on anyway, so what was compiled for them may be kept for the next function or module that
fits. The others would live for the sake of their plans alone.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable
from types import FunctionType, ModuleType
from typing import Any

#: What ``functools.lru_cache`` makes.
CACHE: type = type(functools.lru_cache(len))
#: Packages whose functions stay, also those that were made inside of others.
_LASTING = frozenset({"torch", "numpy", "refcompiler", "fastpath", *sys.stdlib_module_names})


_namespace: Any = vars(ModuleType)["__dict__"]


def all_last(values: Iterable[Any]) -> bool:
    """Whether all of ``values`` would live on without whoever asks."""
    return all(map(lasts, values))


def lasts(value: Any) -> bool:
    """Whether a class, function, module or the globals of one is what a module holds.

    A container does if its items do, and any other object if its class does.
    """
    kind = type(value)  # an object's own __class__ may be code of the program's
    if issubclass(kind, (type, FunctionType, CACHE)):
        return _is_found(value)
    if issubclass(kind, ModuleType):
        space: Any = _namespace.__get__(value)  # whatever its class says of this name
        name = space.get("__name__") if space else None
        return isinstance(name, str) and sys.modules.get(name) is value
    if issubclass(kind, (tuple, frozenset)):
        return all_last(value)
    if type(value) is dict and "__name__" in value:
        module = sys.modules.get(value["__name__"])
        return module is not None and module.__dict__ is value
    return _is_found(type(value))


def _is_found(value: Any) -> bool:
    """Whether its module has it under its name."""
    try:
        name = getattr(value, "__module__", None)  # of a cached object in C there is none
    except Exception:  # a metaclass's own way to say it
        return False
    if not isinstance(name, str) or not hasattr(value, "__qualname__"):
        return False
    if is_of_library(name):
        return True
    found: Any = sys.modules.get(name)
    for part in value.__qualname__.split("."):
        space = getattr(found, "__dict__", {})
        if part not in space:
            return False
        found = space[part]
    for _ in range(10):  # what decorators have put around it
        if found is value or found is None:
            break
        space = getattr(found, "__dict__", {})
        found = space.get("__wrapped__") or getattr(found, "__func__", None) or _getter(found)
    return found is value


def is_of_library(module: Any) -> bool:
    """Whether what a module of that name has made stays."""
    return isinstance(module, str) and module.partition(".")[0] in _LASTING


def _getter(found: Any) -> Any:
    return found.fget if isinstance(found, property) else None
