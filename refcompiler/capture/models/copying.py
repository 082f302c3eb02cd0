"""``copy.copy`` and ``copy.deepcopy`` in the symbolic domain.

The library's own implementation asks for ``id`` and for C reductions of objects from outside. What
an object's class says of its copies in Python (``__copy__``, ``__reduce__``, ``__getstate__`` ...)
is interpreted; what C says of plain objects is short, so it is said here.

Source of the rules: the documentation of ``copy`` and of ``pickle`` ("Pickling Class Instances").
"""

from __future__ import annotations

import collections
import copy
import copyreg
import enum
from collections.abc import Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any

import torch

from refcompiler.capture.addresses import Address, address_of
from refcompiler.capture.calls import Calls
from refcompiler.capture.kinds import (
    CONSTANT_TYPES,
    IDENTITY_TYPES,
    MAPPINGS,
    SEQUENCES,
    SETS,
    is_numpy_scalar,
)
from refcompiler.capture.lookup import find, is_heap, namespace_of
from refcompiler.capture.models.registry import model
from refcompiler.capture.signals import Break
from refcompiler.interpreter.frame import UNSET

#: They are their own copies.
_SELF = (
    type,
    FunctionType,
    enum.Enum,
    torch.SymInt,
    torch.SymFloat,
    torch.SymBool,
    *IDENTITY_TYPES,
)


@model(copy.deepcopy)
def _deepcopy(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    given = dict(zip(("x", "memo", "_nil"), args, strict=False)) | dict(kwargs)
    memo = m.force(given.get("memo"))
    if memo is None and "_nil" not in given:
        memo = {}
        m.recorder.keep.append(memo)
        m.memos.add(id(memo))
    elif "_nil" in given or id(memo) not in m.memos:  # of what C reduces to there is more in it
        raise Break("c-function", "copy.deepcopy with a memo of the program's")
    made = _deep(m, given["x"], memo)
    copied_once = {
        of.source
        for key, copied in memo.items()
        if (of := m.external.get(id(key.of) if type(key) is Address else key)) is not None
        and copied is not of.shadow
        and copied is not of.value
    }
    if len(copied_once) > 1:
        m.guard("UNIQUE", None, tuple(copied_once))
    return made


def _key(m: Calls, value: Any) -> Any:
    """What the program's ``id`` gives for ``value``: its ``__deepcopy__`` may look for it."""
    known = m.external.get(id(value))
    return id(value) if known is not None and known.value is value else address_of(m, value)


def _is_atom(value: Any) -> bool:
    kind = type(value)
    return kind in CONSTANT_TYPES or is_numpy_scalar(kind) or issubclass(kind, _SELF)


def _deep(m: Calls, value: Any, memo: dict[Any, Any]) -> Any:
    value = m.force(value)
    if _is_atom(value):
        return value
    kind = type(value)
    if issubclass(kind, torch.Tensor):
        raise Break("operation-not-modelled", "deepcopy of a tensor")
    known = memo.get(_key(m, value))
    if known is not None:
        return known
    made: Any
    if kind is list or kind in MAPPINGS or kind is collections.deque:
        made = memo[_key(m, value)] = _empty(value)
        _fill(m, made, value, memo)
        return made
    if kind is tuple:
        items = [_deep(m, item, memo) for item in value]
        if _key(m, value) in memo:  # it holds itself
            return memo[_key(m, value)]
        if all(a is b for a, b in zip(items, value, strict=True)):
            return value
        made = memo[_key(m, value)] = tuple(items)
        return made
    if kind in SETS:
        made = memo[_key(m, value)] = kind([_deep(m, item, memo) for item in value])
        return made
    if m.method_of(kind, "__deepcopy__") is not UNSET:
        made = m.force(m.call_special(value, "__deepcopy__", memo))
    else:
        made = _reconstructed(m, value, memo)
    if made is not value:
        memo[_key(m, value)] = made
        m.recorder.keep.append(value)
    return made


def _empty(value: Any) -> Any:
    kind = type(value)
    if kind is collections.defaultdict:
        return kind(value.default_factory)
    return kind(maxlen=value.maxlen) if kind is collections.deque else kind()


def _fill(m: Calls, made: Any, value: Any, memo: dict[Any, Any]) -> None:
    if isinstance(made, dict):
        for key, item in value.items():
            made[_deep(m, key, memo)] = _deep(m, item, memo)
        if own := _own_attributes(m, value):
            made.__dict__.update(_deep(m, own, memo))
    else:
        made.extend([_deep(m, item, memo) for item in value])


def _own_attributes(m: Calls, value: Any) -> dict[str, Any] | None:
    """Of a container that has some, as ordered dicts may."""
    external = m.external.get(id(value))
    own = namespace_of(value if external is None else external.value)
    if own and external is not None:
        raise Break("external-object", f"a copy of a {type(value).__name__} with attributes")
    return own


@model(copy.copy)
def _copy(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    value = m.force(args[0] if args else kwargs["x"])
    kind = type(value)
    if _is_atom(value) or kind is tuple or kind is frozenset:
        return value
    if issubclass(kind, torch.Tensor):
        raise Break("operation-not-modelled", "copy of a tensor")
    if kind in (*SEQUENCES, *MAPPINGS, *SETS):
        made = copy.copy(value)
        if own := _own_attributes(m, value):
            made.__dict__.update(own)
        return made
    if m.method_of(kind, "__copy__") is not UNSET:
        return m.force(m.call_special(value, "__copy__"))
    return _reconstructed(m, value, None)


# ---- what an object says of its copies ---------------------------------------------------------


def _reconstructed(m: Calls, value: Any, memo: dict[Any, Any] | None) -> Any:
    """A copy, deep if there is a ``memo``, by way of the reduction of ``value``."""
    kind = type(value)
    if kind in copyreg.dispatch_table or not is_heap(kind):
        raise Break("c-function", f"copy of a {kind.__name__}")
    for name, args in (("__reduce_ex__", (4,)), ("__reduce__", ())):
        if m.method_of(kind, name) is not UNSET:
            found = m.force(m.call_special(value, name, *args))
            return value if type(found) is str else _from_reduction(m, kind, found, memo)
    if issubclass(kind, tuple) and hasattr(kind, "_fields") and not namespace_of(value):
        items = value if memo is None else [_deep(m, item, memo) for item in value]
        return tuple.__new__(kind, items)
    made = _blank(m, value)
    if memo is not None:
        memo[_key(m, value)] = made
    if m.method_of(kind, "__getstate__") is not UNSET:
        _set_state(m, made, _part(m, m.call_special(value, "__getstate__"), memo), memo)
    elif m.method_of(kind, "__setstate__") is not UNSET:
        raise Break("c-function", f"copy of a {kind.__name__}, which takes its state by itself")
    else:
        for name, item in _attributes(m, value):
            object.__setattr__(made, name, _part(m, item, memo))
    return made


def _from_reduction(m: Calls, kind: type, found: Any, memo: dict[Any, Any] | None) -> Any:
    if type(found) is not tuple or not 2 <= len(found) <= 5:
        raise Break("c-function", f"copy of a {kind.__name__} by what it reduces to")
    function, args, *rest = found
    state, items, pairs = [*rest, None, None, None][:3]
    if items is not None or pairs is not None:
        raise Break("c-function", f"copy of a {kind.__name__} with items")
    args = [_part(m, a, memo) for a in m.force(args)]
    made = m.force(m.invoke(m.frame, function, args))
    if state is not None:
        _set_state(m, made, _part(m, state, memo), memo)
    return made


def _part(m: Calls, value: Any, memo: dict[Any, Any] | None) -> Any:
    return m.force(value) if memo is None else _deep(m, value, memo)


def _set_state(m: Calls, made: Any, state: Any, memo: dict[Any, Any] | None) -> None:
    if state is None:
        return
    if m.method_of(type(made), "__setstate__") is not UNSET:
        m.call_special(made, "__setstate__", state)
        return
    state, slots = state if type(state) is tuple and len(state) == 2 else (state, None)
    if m.is_foreign(made) or not all(type(s) is dict for s in (state, slots) if s is not None):
        raise Break("c-function", f"copy of a {type(made).__name__} with a state of its own")
    if state:
        made.__dict__.update(state)
    for name, item in (slots or {}).items():
        m.setattr(made, name, item)


def _blank(m: Calls, value: Any) -> Any:
    """An empty object of the class of ``value``, if C makes it from nothing."""
    kind = type(value)
    if kind.__new__ is not object.__new__ or any(
        find(kind, name)[0] not in (None, object)
        for name in ("__getnewargs__", "__getnewargs_ex__", "__reduce_ex__", "__reduce__")
    ):
        raise Break("c-function", f"copy of a {kind.__name__}")
    made = object.__new__(kind)
    m.recorder.keep.append(made)
    return made


def _attributes(m: Calls, value: Any) -> Iterable[tuple[str, Any]]:
    """The instance's attributes, also those in slots, guarded to be all there are."""
    external = m.external.get(id(value))
    found: list[tuple[str, Any]] = []
    namespace = namespace_of(value)
    if namespace is not None:
        if external is None:
            found += namespace.items()
        else:
            if any(owner == id(value) for owner, _ in m.overlay):
                raise Break("external-object", f"copy of a {type(value).__name__} written to")
            source = m.namespace(value, external.source)
            m.lazy(source, namespace)
            m.guard("KEYS", source, tuple(namespace))
            found += [
                (name, m.lazy(m.item(source, name, "member", name), item))
                for name, item in namespace.items()
            ]
    for name in copyreg._slotnames(type(value)):  # type: ignore[attr-defined]
        try:
            found.append((name, m.getattr(value, name)))
        except AttributeError:
            if external is not None:
                raise Break("external-object", f"copy of an object without its {name}") from None
    return found
