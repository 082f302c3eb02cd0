"""Rebuilding of instances and exceptions: made empty, then filled as they were."""

from __future__ import annotations

import collections
import contextlib
import functools
import types
from typing import Any

import torch

from refcompiler.capture.lookup import find, is_heap, namespace_of
from refcompiler.capture.values import DELETED, External
from refcompiler.guards.sources import (
    SCALARS,
    contents_of,
    plain_scalar,
    rules_of,
    shows_namespace,
)
from refcompiler.interpreter.tracebacks import without_values
from refcompiler.plan.writing import Writing

#: What C keeps of a container besides its items.
_MAXLEN: Any = collections.deque.__dict__["maxlen"]
_FACTORY: Any = collections.defaultdict.__dict__["default_factory"]


class Objects(Writing):
    """Instances of classes that a program may define."""

    #: What the frame wrote to each object from outside (by its id) and no line has written yet.
    unsettled: dict[int, list[tuple[str, Any]]] | None = None

    def new(self, value: Any) -> str:
        kind = self.kind(type(value))
        containers: tuple[type, ...] = (dict, list, set, collections.OrderedDict)
        for base in (*containers, collections.deque):
            if issubclass(type(value), base):
                return f"{self.writer.constant(base)}.__new__({kind})"
        if any(not is_heap(b) and b is not object for b in type(value).__mro__):
            for scalar in (*SCALARS, frozenset):
                if issubclass(type(value), scalar):
                    if scalar is frozenset and (items := self.in_order(value)) is not None:
                        return f"frozenset.__new__({kind}, {items})"
                    read = contents_of if scalar is frozenset else plain_scalar
                    plain = self.expression(read(value))
                    return f"{scalar.__name__}.__new__({kind}, {plain})"
            raise self.refuse(value)
        return f"object.__new__({kind})"

    def instance(self, value: Any, text: str) -> str:
        name = self.assign(value, text)
        self.unfinished.add(id(value))
        self.fill(value, name)
        self.unfinished.discard(id(value))
        return name

    def fill(self, value: Any, name: str) -> None:
        """Contents and attributes of an instance that was made empty."""
        if issubclass(type(value), dict):
            ordered = issubclass(type(value), collections.OrderedDict)
            base: Any = collections.OrderedDict if ordered else dict
            lines = self.lines
            held = {id(key): item for key, item in dict.items(value)}  # no key is asked its hash
            for key in base.__iter__(value):
                pair = self.expression(key), self.expression(held[id(key)])
                if not self.is_hashable_yet(key):
                    lines = self.late
                lines.append(self.put(name, value, key, *pair, type(value)))
        elif issubclass(type(value), list):
            self.lines.append(f"list.extend({name}, [{self.many(list.__iter__(value))}])")
        elif issubclass(type(value), set):
            self.lines.append(self.set_items(name, value))
        elif issubclass(type(value), collections.deque):
            make = self.writer.constant(collections.deque.__init__)
            items = self.many(collections.deque.__iter__(value))
            self.lines.append(f"{make}({name}, [{items}], {_MAXLEN.__get__(value)})")
        if issubclass(type(value), collections.defaultdict):
            factory = self.expression(_FACTORY.__get__(value))
            self.lines.append(f"{self.writer.constant(_FACTORY)}.__set__({name}, {factory})")
        namespace = namespace_of(value)
        if namespace:
            text = self.literal(namespace)
            self.lines.append(f"{self.namespace(value, name)}.update({text})")
        for slot, member in _slots(type(value)):
            try:
                item = member.__get__(value, type(value))
            except AttributeError:
                continue
            text = self.expression(item)
            if find(type(value), slot)[1] is member:
                setter = self.writer.constant(object.__setattr__)
                self.lines.append(f"{setter}({name}, {slot!r}, {text})")
            else:  # a derived class has another attribute of that name
                self.lines.append(f"{self.writer.constant(member)}.__set__({name}, {text})")

    def namespace(self, value: Any, name: str) -> str:
        """The ``__dict__`` of an object of that name, whatever its class says of that."""
        plain = (object.__getattribute__, BaseException.__getattribute__)
        if type(value).__getattribute__ in plain and shows_namespace(type(value)):
            return f"{name}.__dict__"
        return f"{self.writer.constant(namespace_of)}({name})"

    def settle(self, owner: int) -> None:
        """What the frame has written to an object from outside, once."""
        if self.unsettled is None:
            self.unsettled = {}
            for (id_, name), value in self.machine.overlay.items():
                self.unsettled.setdefault(id_, []).append((name, value))
        for name, value in self.unsettled.pop(owner, ()):
            self.lines.append(self.written(self.machine.changed[owner], name, value))
            if name == "data" and owner in self.machine.given_contents:
                self._count_writes(owner)

    def _count_writes(self, owner: int) -> None:
        """Writes to a tensor that had been given other contents by then."""
        machine = self.machine
        inputs = [machine.lazies[source].value for source in machine.fakes_of_inputs.values()]
        times = machine.given_contents[owner].writes(inputs)
        if times:
            count = self.writer.constant(torch.autograd.graph.increment_version)
            target = self.writer.read(self.machine.changed[owner].source)
            self.lines.append(f"{count}([{target}] * {times})")

    def written(self, external: External, name: str, value: Any) -> str:
        """The statement that sets or deletes one attribute, cell or global."""
        constant = self.writer.constant
        target = self.writer.read(external.source)
        kind = type(external.value)
        if kind is dict:  # a module's globals, or a namespace
            if value is DELETED:  # it may be what the frame itself had put there
                return f"{target}.pop({constant(name)}, None)"
            return f"{target}[{constant(name)}] = {self.expression(value)}"
        if issubclass(kind, types.CellType):
            place = f"{target}.cell_contents"
            return f"del {place}" if value is DELETED else f"{place} = {self.expression(value)}"
        if value is DELETED:
            return f"{constant(_discard)}({target}, {name!r})"
        setter = constant(rules_of(kind).__setattr__)
        return f"{setter}({target}, {name!r}, {self.expression(value)})"

    def is_hashable_yet(self, key: Any) -> bool:
        """Not before the object has its attributes: those made again, and those written after."""
        if type(key) in (tuple, frozenset):
            return all(map(self.is_hashable_yet, key))
        if id(key) in self.machine.changed:
            self.settle(id(key))
        return id(key) not in self.unfinished

    def traceback(self, value: types.TracebackType) -> str:
        """A copy that keeps nothing alive; the same for all that refer to it, or to its parts."""
        if id(value) in self.machine.external:
            return self.expression(value)
        return self.writer.constant(without_values(value, self.tracebacks))

    def exception(self, value: BaseException) -> str:
        """With its traceback, whose entries hold no values, and what C keeps in it."""
        kind_: Any = type(value)
        kind = self.kind(kind_)
        name = self.assign(value, f"{kind}.__new__({kind}, {self.many(value.args)})")
        self.lines.append(f"{name}.args = {self.expression(value.args)}")
        for attribute in ("__cause__", "__context__"):
            linked = getattr(value, attribute)
            if linked is not None:
                self.lines.append(f"{name}.{attribute} = {self.expression(linked)}")
        if value.__suppress_context__ != (value.__cause__ is not None):
            self.lines.append(f"{name}.__suppress_context__ = {value.__suppress_context__}")
        if value.__traceback__ is not None:
            self.lines.append(f"{name}.__traceback__ = {self.traceback(value.__traceback__)}")
        for attribute in _kept_in_c(kind_):
            found = getattr(value, attribute, None)
            if found is not None:
                self.lines.append(f"{name}.{attribute} = {self.expression(found)}")
        if value.__dict__:
            text = self.literal(value.__dict__)
            self.lines.append(f"{self.namespace(value, name)}.update({text})")
        return name


def _discard(owner: Any, name: str) -> None:
    """Delete an attribute, unless only the frame itself had made it."""
    with contextlib.suppress(AttributeError):
        rules_of(type(owner)).__delattr__(owner, name)


@functools.cache
def _kept_in_c(cls: type) -> tuple[str, ...]:
    """The attributes that the classes of exceptions in C keep outside of ``__dict__``."""
    return tuple(
        name
        for base in cls.__mro__
        if not is_heap(base) and base not in (BaseException, BaseExceptionGroup)
        for name, found in base.__dict__.items()
        if type(found) is types.MemberDescriptorType and not name.startswith("__")
    )


def _slots(cls: type) -> list[tuple[str, types.MemberDescriptorType]]:
    return [
        (name, member)
        for base in cls.__mro__
        if "__slots__" in base.__dict__
        for name, member in base.__dict__.items()
        if type(member) is types.MemberDescriptorType
    ]
