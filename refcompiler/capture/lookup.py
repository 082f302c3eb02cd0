"""Lookup of names along a class's bases, and the guards that it costs.

Source of the rules: the descriptor guide of CPython's documentation and ``type.__mro__``.
"""

from __future__ import annotations

import functools
import sys
import threading
import types
from abc import ABCMeta
from enum import Enum
from types import FunctionType, ModuleType
from typing import Any

import torch

from refcompiler.capture.kinds import IDENTITY_TYPES, is_made
from refcompiler.capture.namespaces import Namespaces
from refcompiler.capture.natively import QUIET
from refcompiler.capture.signals import Break
from refcompiler.capture.values import DELETED, External, Lazy
from refcompiler.capture.written import looked_into
from refcompiler.guards import sources
from refcompiler.guards.classes import FIELD
from refcompiler.guards.permanence import lasts
from refcompiler.guards.sources import Source
from refcompiler.interpreter.frame import UNSET
from refcompiler.shapes.node import SYMBOLS

CACHE: type = functools._lru_cache_wrapper
_PLAIN_METACLASSES = (type, ABCMeta)
#: The assignments of these mean more.
_NOT_WRITTEN = (torch.Tensor, torch.autograd.Function, Enum)
#: Descriptors that do nothing but call a function.
_WRAPPERS = (staticmethod, classmethod, property)
_IMMUTABLE_TYPE = 1 << 8
_HEAP_TYPE = 1 << 9
_NAMESPACE = type.__dict__["__dict__"].__get__


def is_heap(cls: type) -> bool:
    """A class made by a ``class`` statement (or like one), whose attributes may change."""
    return cls.__flags__ & (_HEAP_TYPE | _IMMUTABLE_TYPE) == _HEAP_TYPE and cls not in SYMBOLS


def shown_name(value: Any) -> str:
    """The name of the class of ``value`` as CPython's errors have it: in C with its module."""
    kind = type(value)
    if not is_heap(kind):
        try:
            object.__getattribute__(value, "")
        except AttributeError as error:
            return str(error).split("'")[1]
    return kind.__name__


_SLOTS_SAY_MODULES = sys.version_info >= (3, 13)


def name_at_slots(kind: type) -> str:
    """The name of a class in Python as errors of its empty slots have it: in full since 3.13."""
    module = kind.__module__
    in_full = _SLOTS_SAY_MODULES and type(module) is str and module not in ("builtins", "__main__")
    return f"{module}.{kind.__qualname__}" if in_full else kind.__name__


def is_iterable(kind: type) -> bool:
    """Whether ``iter`` of an instance of ``kind`` gives anything but an error."""
    iterate = find(kind, "__iter__")[1]
    return iterate is not None and (
        iterate is not UNSET or find(kind, "__getitem__")[1] is not UNSET
    )


def find(cls: type, name: str) -> tuple[type | None, Any]:
    """The first class of the MRO whose namespace has ``name``, and what it has there."""
    for base in cls.__mro__:
        namespace = base.__dict__
        if type(namespace) is not types.MappingProxyType:  # its metaclass answers something else
            namespace = _NAMESPACE(base)
        if name in namespace:
            return base, namespace[name]
    return None, UNSET


def slot_of(method: Any) -> Any:
    """The descriptor behind a bound method in C, which a subclass may hide; None if unknown."""
    owner = method.__self__
    for base in type(owner).__mro__:
        found = base.__dict__.get(method.__name__)
        if type(found) in (types.MethodDescriptorType, types.WrapperDescriptorType):
            return found
    return None


def is_of_fixed_class(method: types.MethodType) -> bool:
    """Whether its function is one that a class in C has for good, under the function's name."""
    name: Any = getattr(method.__func__, "__name__", None)
    return any(
        base.__dict__.get(name) is method.__func__
        for base in type(method.__self__).__mro__
        if not is_heap(base)
    )


def namespace_of(value: Any) -> dict | None:
    """The instance's ``__dict__``, whatever its class says of that name, or None."""
    try:
        return sources.namespace_of(value)
    except AttributeError:
        return None


_NO_NAME = "no attribute has this name"


def is_plain(value: Any) -> bool:
    """Whether ``object``'s rules for attributes hold for ``value``; C may have others."""
    if issubclass(type(value), threading.local):  # in the namespace of the thread
        return True
    if namespace_of(value) is None:
        for base in type(value).__mro__[:-1]:
            for name in ("__setattr__", "__delattr__"):
                if type(base.__dict__.get(name)) is types.WrapperDescriptorType:
                    return False
    try:
        object.__delattr__(value, _NO_NAME)
    except TypeError:
        return False
    except AttributeError:
        pass
    return True


def described(error: BaseException) -> str:
    """An exception in words, without asking code of the user's for them."""
    kind = type(error)
    if type(find(kind, "__str__")[1]) is FunctionType:
        return kind.__name__
    if any(is_heap(type(part)) for part in error.args):
        return kind.__name__
    return f"{kind.__name__}: {error}"


def _registers(method: functools.singledispatchmethod, known: tuple[tuple[type, Any], ...]) -> bool:
    """Whether ``known`` are the classes that a method is registered for, and their functions."""
    registry = method.dispatcher.registry
    return len(registry) == len(known) and all(registry.get(c) is f for c, f in known)


def is_property(found: Any) -> bool:
    """A property, also one of a class of the user's that leaves its rules alone."""
    kind = type(found)
    return kind is property or (
        issubclass(kind, property)
        and all(find(kind, name)[0] is property for name in ("__get__", "__set__", "__delete__"))
    )


class Lookup(Namespaces):
    """Finding attributes of classes."""

    def find_guarded(self, cls: type, name: str) -> tuple[Source | None, Any]:
        """As :func:`find`, guarding that no class before the owner has the name."""
        known = self.class_lookups.get((cls, name))
        if known is not None:
            return known
        found: tuple[Source | None, Any] = (None, UNSET)
        self.fix_bases(cls)
        for base in cls.__mro__:
            namespace = base.__dict__
            heap = is_heap(base) and base not in self.own_classes
            if heap and self.written_classes:
                written = self.overlay.get((id(base), name), UNSET)
                if written is not UNSET:
                    if written is DELETED:
                        continue
                    found = (None, written)
                    break
            if name in namespace:
                source = None
                value = namespace[name]
                if heap:
                    source = self.class_member(base, name)
                found = (source, value)
                break
            if heap:
                self.class_lacks(base, name)
        self.class_lookups[cls, name] = found
        return found

    def class_changed(self, name: str) -> None:
        """The frame has set or deleted ``name`` of a class."""
        for known in [key for key in self.class_lookups if key[1] == name]:
            del self.class_lookups[known]

    def fix_bases(self, cls: type) -> None:
        """The bases of a class of the user's may be assigned to."""
        if is_heap(cls) and cls not in self.fixed and cls not in self.own_classes:
            self.fixed.add(cls)
            known = self.external.get(id(cls))
            if known is not None and self.is_made_anew(cls):
                return  # which its guard has told
            if str(cls.__module__).partition(".")[0] not in QUIET:
                source = self.member(self.sources.constant(cls, cls.__qualname__), "__mro__")
                self.lazy(source, cls.__mro__)
                self.guard("ID", source, cls.__mro__)

    def class_namespace(self, cls: type) -> Source:
        """The source of a class's namespace; each ``__dict__`` of a class is a new proxy."""
        source = self.namespaces.get(cls)
        if source is None:
            known = self.external.get(id(cls))
            if known is not None and self.is_made_anew(cls):
                source = self.member(known.source, "__dict__")
            else:
                source = self.sources.space(cls)
            self.namespaces[cls] = source
            self.lazy(source, cls.__dict__)
        return source

    def class_member(self, cls: type, name: str) -> Source:
        """The source of an attribute that a class of the user's has."""
        source = self.item(self.class_namespace(cls), name, "member", name)
        self.lazy(source, cls.__dict__[name])
        if source not in self.members:
            self.members[source] = self.place()
        return source

    def class_lacks(self, cls: type, name: str) -> None:
        """No attribute of a class: one guard per class takes all such names."""
        namespace = self.class_namespace(cls)
        if namespace.kind != "space" and name[:1] == "_":
            return  # its guard tells all such names
        names = self.lacking.get(namespace)
        if names is None:
            names = self.lacking[namespace] = set()
            self.guard("WITHOUT", namespace, (len(cls.__dict__), names))
        names.add(name)

    def from_class(self, source: Source | None, value: Any) -> Any:
        """A function found on a class, guarded as anywhere else; a descriptor by identity."""
        if source is not None:
            kind = type(value)
            heap = is_heap(kind)
            if kind is FunctionType:
                known = self.external.get(id(value))
                if known is None or known.source is source:
                    self.observe_function(value, source)
                else:
                    self.guard("SAME", source, known.source)
            elif kind is FIELD:
                self.field_of_class(source, value)
            elif heap or kind is CACHE or issubclass(kind, IDENTITY_TYPES):
                self.guard("ID", source, value)
            # descriptors of the user's have a state of their own
            quiet = str(kind.__module__).partition(".")[0] in QUIET
            own = heap and (not quiet or kind is functools.partialmethod)
            if kind is FunctionType or kind is CACHE or own:
                if id(value) not in self.external:
                    self.external[id(value)] = External(value, source)
            if kind is functools.singledispatchmethod:
                registered = tuple(value.dispatcher.registry.items())
                self.guard("STATE", None, (_registers, (value, registered), True))
        return value

    def field_of_class(self, source: Source, field: Any) -> None:
        """What finds a field of named tuples; the guard of a class made anew tells its place."""
        if source.parent is None or source.parent.kind == "space":
            self.guard("ID", source, field)

    def wrapped(self, source: Source | None, descriptor: Any, name: str) -> Any:
        """The function inside a staticmethod, classmethod or property of a class."""
        function = getattr(descriptor, name)
        if source is None:
            return function
        inner = self.member(source, name)
        self.lazy(inner, function)
        changes = is_made(function) or not lasts(function)
        if changes and type(descriptor) in _WRAPPERS:
            self.guard("TYPE", source, type(descriptor))
            return self.from_class(inner, function)
        self.from_class(source, descriptor)
        if id(function) not in self.external:
            self.external[id(function)] = External(function, inner)
        return function

    def is_unread(self, lazy: Lazy) -> bool:
        """A container that is as the call found it, and that nothing has looked into."""
        value = lazy.value
        owners = {id(value), id(self.handed_out.get(id(value), value))}
        known = self.external.get(id(value))
        closed = known is None or (id(value) in self.globals_written and known.shadow is None)
        if id(value) in self.outside.removed:
            return False
        return closed and not any(key[0] in owners for key in self.overlay)

    def written_at(self, lazy: Lazy, key: Any) -> Any:
        """What the program has written under ``key`` of a namespace: maybe DELETED, or UNSET."""
        namespace = lazy.value
        if type(key) is not str or type(namespace) is not dict:
            return UNSET
        owner = self.handed_out.get(id(namespace))
        if owner is None or self.is_slot(owner, key):
            return self.overlay.get((id(namespace), key), UNSET)
        found = self.overlay.get((id(owner), key), UNSET)
        if found is not UNSET:
            own = self.namespace(owner, self.external[id(owner)].source)
            if own is not lazy.source:
                self.lazy(own, namespace)
                self.guard("SAME", own, lazy.source)
        return found

    def is_unseen(self, lazy: Lazy) -> bool:
        """A container that nothing has looked into yet; at most it was appended to."""
        known = self.external.get(id(lazy.value))
        return known is None or known.tail is not None

    def write_attribute(self, external: External, name: str, new: Any) -> None:
        """Into the overlay; into the shadow of ``__dict__`` if the program holds that dict."""
        namespace = namespace_of(external.value)
        if issubclass(type(external.value), ModuleType):  # its functions read it as a global
            if namespace is None:  # it has none yet
                raise Break("external-object", f"assignment to {name} of a module")
            self.write_global(namespace, name, self.force(new))
            return
        self.handed_out[id(namespace)] = external.value
        known = looked_into(self, self.external.get(id(namespace)))
        if known is None or known.shadow is None or self.is_slot(external.value, name):
            self.write(external, name, new)
        elif new is DELETED:
            del known.shadow[name]
        else:
            known.shadow[name] = self.force(new)

    def hand_out(self, external: External) -> Any:
        """``__dict__`` of an object from outside, still unobserved."""
        parent = self.namespace(external.value, external.source)
        namespace = namespace_of(external.value)
        self.handed_out[id(namespace)] = external.value
        return self.lazy(parent, namespace)

    def may_write_class(self, cls: type, name: str) -> bool:
        """Whether an attribute of a class from outside can be set after the graph."""
        return (
            type(cls) in _PLAIN_METACLASSES
            and is_heap(cls)
            and not (name.startswith("__") and name.endswith("__"))
            and not issubclass(cls, _NOT_WRITTEN)
            and not self.nested
            and id(cls) not in self.shown_classes
        )

    def write_class(self, cls: type, name: str, value: Any) -> None:
        known = self.external.get(id(cls))
        if known is None:
            source = self.sources.constant(cls, cls.__qualname__)
            self.lazy(source, cls)
            known = self.external[id(cls)] = External(cls, source)
        self.written_classes.add(id(cls))
        self.write(known, name, value)
        self.class_changed(name)

    # filled by the machine
    nested: int  # how many calls run within the instruction
    written_classes: set[int]
    shown_classes: set[int]  # whose namespaces the program has
    fixed: set[type]
    lacking: dict[Source, set[str]]
    namespaces: dict[type, Source]
    members: dict[Source, tuple[str, int]]  # attributes of classes, and where they were looked up
    class_lookups: dict[tuple[type, str], tuple[Source | None, Any]]


def asks(cls: type) -> bool:
    """Whether objects of a class that is no tensor's say themselves what operations on them are."""
    return (
        not issubclass(cls, torch.Tensor)
        and type(find(cls, "__torch_function__")[1]) is classmethod
    )
