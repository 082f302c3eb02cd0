"""Attributes of classes: ``type.__getattribute__`` and what a metaclass has, guarded where the
class is the user's."""

from __future__ import annotations

import types
from types import FunctionType, MethodType
from typing import Any

from refcompiler.capture.lookup import (
    Lookup,
    find,
    is_heap,
    is_property,
)
from refcompiler.capture.natively import QUIET
from refcompiler.capture.signals import Break
from refcompiler.capture.values import (
    DELETED,
    Run,
)
from refcompiler.guards.sources import Source
from refcompiler.interpreter import helpers
from refcompiler.interpreter.frame import UNSET

NAMES_OF_CLASSES = frozenset(
    {"__name__", "__qualname__", "__module__", "__doc__", "__annotations__"}
)
SLOT_TYPES = (
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.BuiltinFunctionType,
)


class ClassAttributes(Lookup):
    """Reads of attributes of classes."""

    def find_in(self, cls: type, name: str) -> tuple[Source | None, Any]:
        """An attribute of a class, guarded if the class is the user's."""
        if (cls.__module__ or "").partition(".")[0] in QUIET:
            return None, find(cls, name)[1]
        return self.find_guarded(cls, name)

    def class_attribute(self, value: type, name: str) -> Any:
        meta_source, getattribute = self.find_in(type(value), "__getattribute__")
        if type(getattribute) is FunctionType:
            self.from_class(meta_source, getattribute)
            return self.with_fallback(value, name, getattribute)
        return self.plain_class_attribute(value, name)

    def plain_class_attribute(self, value: type, name: str) -> Any:
        """``type.__getattribute__``, then ``__getattr__`` of the metaclass."""
        if name == "__dict__":
            self.shown_classes.add(id(value))
            if id(value) in self.written_classes:
                raise Break("external-object", "the namespace of a class that was written to")
        meta = self.find_in(type(value), name)[1]
        if meta is not UNSET and hasattr(type(meta), "__set__"):
            return self.or_fallback(self.bind_meta(meta, value, name), value, name)
        overlaid = self.overlay.get((id(value), name), UNSET)
        if overlaid is not UNSET and overlaid is not DELETED:
            return overlaid
        source, found = self.find_guarded(value, name)
        if found is not UNSET:
            kind = type(found)
            if kind is staticmethod:
                return self.wrapped(source, found, "__func__")
            if kind is classmethod:
                return MethodType(self.wrapped(source, found, "__func__"), value)
            if kind is FunctionType or kind is property:
                return self.from_class(source, found)
            if issubclass(type(found), SLOT_TYPES) or not is_heap(value):
                self.from_class(source, found)
                return getattr(value, name)
            getter = find(kind, "__get__")[1]
            if getter is not UNSET:
                self.from_class(source, found)
                if type(getter) is FunctionType:
                    return self.or_fallback(Run(getter, [found, None, value]), value, name)
                return found.__get__(None, value)
            return self.plain_class_value(source, found)
        if meta is not UNSET:
            return self.or_fallback(self.bind_meta(meta, value, name), value, name)
        source, fallback = self.find_guarded(type(value), "__getattr__")
        if type(fallback) is FunctionType:
            return Run(self.from_class(source, fallback), [value, name])
        if id(value) in self.written_classes:  # it may have been deleted
            text = f"type object '{value.__name__}' has no attribute '{name}'"
            raise AttributeError(text, name=name, obj=value)
        return getattr(value, name)

    def plain_class_value(self, source: Source | None, value: Any) -> Any:
        return value if source is None else self.lazy(source, value)

    def bind_meta(self, meta: Any, value: type, name: str) -> Any:
        source, _ = self.find_guarded(type(value), name)
        if type(meta) is FunctionType:
            return MethodType(self.from_class(source, meta), value)
        if is_property(meta) and meta.fget is not None:
            return Run(self.wrapped(source, meta, "fget"), [value])
        if source is not None and find(type(meta), "__get__")[1] is UNSET:
            return self.plain_class_value(source, meta)
        if value in self.own_classes:
            return getattr(value, name)
        if is_heap(value) and name in NAMES_OF_CLASSES:
            source = self.source_of(value) or self.sources.constant(value, value.__qualname__)
            self.lazy(source, value)
            return self.lazy(self.member(source, name), getattr(value, name))
        if is_heap(value) and name == "__dict__":
            return self.lazy(self.class_namespace(value), value.__dict__)
        return getattr(value, name)

    def with_fallback(self, value: Any, name: str, getattribute: FunctionType) -> Any:
        source, fallback = self.find_guarded(type(value), "__getattr__")
        if type(fallback) is not FunctionType:
            return Run(getattribute, [value, name])
        self.from_class(source, fallback)
        return Run(helpers.attribute, [getattribute, fallback, value, name])

    def or_fallback(self, made: Any, value: Any, name: str) -> Any:
        """``made``, or what ``__getattr__`` gives where that raises AttributeError."""
        if type(made) is not Run:
            return made
        source, fallback = self.find_guarded(type(value), "__getattr__")
        if type(fallback) is not FunctionType:
            return made
        fallback = self.from_class(source, fallback)
        return Run(helpers.computed, [made.function, tuple(made.args), fallback, value, name])
