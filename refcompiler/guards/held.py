"""What plans name without keeping it alive: classes, functions, modules and objects that may go.

A plan knows each of them by a weak reference, which it asks once at its entry; from there on the
call holds the object, whatever another thread does. When the object dies, so does the plan.
"""

from __future__ import annotations

import enum
import weakref
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from refcompiler.guards.permanence import CACHE, is_of_library, lasts

_HEAP_TYPE = 1 << 9
_WEAK = (type, FunctionType, ModuleType, CACHE)


class Held:
    """A value that lives as long as others want; called, it gives the value, or None."""

    __slots__ = ("reference", "__weakref__")

    def __init__(self, value: Any, gone: Callable[[Any], None]):
        self.reference = weakref.ref(value, gone)

    def __call__(self) -> Any:
        return self.reference()


class Gone:
    """Tells ``to`` that a value has died, once somebody wants to know."""

    __slots__ = ("to",)

    def __init__(self) -> None:
        self.to: Callable[[], None] | None = None

    def __call__(self, reference: Any) -> None:
        if self.to is not None:
            self.to()


def named(value: Any) -> Any:
    """``value``, or what it holds; a tuple with what its items hold."""
    if type(value) is Held:
        return value()
    if issubclass(type(value), tuple):
        items = list(map(named, value))
        if any(a is not b for a, b in zip(items, value, strict=True)):
            return value._make(items) if hasattr(value, "_make") else tuple(items)
    return value


def may_go(value: Any) -> bool:
    """Whether it would die if plans alone named it, and can be named weakly."""
    if issubclass(type(value), _WEAK):
        return not lasts(value)
    kind = type(value)
    if not kind.__flags__ & _HEAP_TYPE or not kind.__weakrefoffset__:
        return False
    if issubclass(kind, enum.Enum):  # which lives as long as its class
        return not lasts(kind)
    return not is_of_library(kind.__module__)
