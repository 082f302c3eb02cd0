"""``copy.copy`` and ``copy.deepcopy`` in the symbolic domain.

The library's own implementation asks for ``id`` and for C reductions of objects from outside;
what it means for plain objects is short, so it is said here. Whatever brings its own protocol
(``__reduce__``, ``__getstate__`` ...) is left to run natively, behind a break.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any

import torch

from refcompiler.capture.calls import Calls
from refcompiler.capture.lookup import find, is_heap
from refcompiler.capture.models.registry import model
from refcompiler.capture.observe import (
    CONSTANT_TYPES,
    IDENTITY_TYPES,
    MAPPINGS,
    SEQUENCES,
    SETS,
    is_numpy_scalar,
)
from refcompiler.capture.operators import python_method
from refcompiler.capture.signals import Break
from refcompiler.interpreter.frame import UNSET

_PROTOCOL = (
    *("__reduce_ex__", "__reduce__", "__getstate__", "__setstate__", "__copy__"),
    *("__getnewargs__", "__getnewargs_ex__", "__new__"),
)


@model(copy.deepcopy)
def _deepcopy(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    if len(args) > 1 or kwargs:
        raise Break("c-function", "copy.deepcopy with a memo")
    return _deep(m, args[0], {})


def _deep(m: Calls, value: Any, memo: dict[int, Any]) -> Any:
    value = m.force(value)
    kind = type(value)
    if kind in CONSTANT_TYPES or is_numpy_scalar(kind):
        return value
    if isinstance(value, (type, FunctionType, *IDENTITY_TYPES)) or hasattr(kind, "_member_map_"):
        return value
    if isinstance(value, torch.Tensor):
        raise Break("operation-not-modelled", "deepcopy of a tensor")
    known = memo.get(id(value))
    if known is not None:
        return known
    if kind is list or kind in MAPPINGS[:2]:
        made: Any = kind()
        memo[id(value)] = made
        if kind is list:
            made.extend([_deep(m, item, memo) for item in value])
        else:
            for key, item in value.items():
                made[_deep(m, key, memo)] = _deep(m, item, memo)
        return made
    if kind is tuple or kind in SETS:
        return kind([_deep(m, item, memo) for item in value])
    if python_method(kind, "__deepcopy__") is not UNSET:
        raise Break("c-function", f"deepcopy of a {kind.__name__}, which has __deepcopy__")
    made = memo[id(value)] = _blank(m, value)
    for name, item in _namespace(m, value):
        made.__dict__[name] = _deep(m, item, memo)
    return made


@model(copy.copy)
def _copy(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    value = m.force(args[0])
    kind = type(value)
    if kind in CONSTANT_TYPES or isinstance(value, (type, FunctionType, *IDENTITY_TYPES)):
        return value
    if isinstance(value, torch.Tensor):
        raise Break("operation-not-modelled", "copy of a tensor")
    if kind in (*SEQUENCES, *MAPPINGS, *SETS):
        return copy.copy(value)
    made = _blank(m, value)
    for name, item in _namespace(m, value):
        made.__dict__[name] = m.force(item)
    return made


def _blank(m: Calls, value: Any) -> Any:
    """An empty object of the class of ``value``, if copying it is no more than its namespace."""
    kind = type(value)
    plain = is_heap(kind) and object.__new__ is kind.__new__ and hasattr(value, "__dict__")
    for name in _PROTOCOL:
        plain = plain and find(kind, name)[0] in (None, object)
    if not plain or any("__slots__" in base.__dict__ for base in kind.__mro__[:-1]):
        raise Break("c-function", f"copy of a {kind.__name__}")
    made = object.__new__(kind)
    m.recorder.keep.append(made)
    return made


def _namespace(m: Calls, value: Any) -> list[tuple[str, Any]]:
    """The instance's attributes, guarded to be all there are."""
    external = m.external.get(id(value))
    if external is None:
        return list(value.__dict__.items())
    if any(owner == id(value) for owner, _ in m.overlay):
        raise Break("external-object", f"copy of a {type(value).__name__} after writing to it")
    source = m.namespace(value, external.source)
    m.lazy(source, value.__dict__)
    m.guard("KEYS", source, tuple(value.__dict__))
    return [
        (name, m.lazy(m.item(source, name, "member", name), item))
        for name, item in value.__dict__.items()
    ]
