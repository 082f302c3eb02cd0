"""Iterators of the symbolic domain in the hands of native code."""

from __future__ import annotations

import operator
from typing import Any

from refcompiler.capture.natively import called_back, natively
from refcompiler.capture.signals import Break
from refcompiler.interpreter.frame import UNSET


class Pulled:
    """An iterator of the symbolic domain as something that C code may iterate."""

    __slots__ = ("machine", "iterator", "passing", "origin")

    def __init__(self, machine: Any, iterator: Any, origin: Any = None):
        self.machine = machine  # the symbolic one
        self.iterator = iterator
        self.passing = 0  # items that were taken from the iterator itself
        self.origin = origin  # what the program has given to C code

    def __length_hint__(self) -> Any:
        machine = self.machine
        if not machine.has_size(self.origin):
            return NotImplemented
        with called_back(machine):
            return machine.force(machine.invoke(machine.frame, operator.length_hint, [self.origin]))

    def __iter__(self) -> Pulled:
        return self

    def __next__(self) -> Any:
        if self.passing:
            self.passing -= 1
            return None
        with called_back(self.machine):
            found = self.machine.next(self.iterator)
            if found is UNSET:
                raise StopIteration
            return self.machine.force(found)


class Later(Pulled):
    """What C code asks for an iterator only when it gets there, as ``chain`` does.

    ``iterator`` is what the program has given.
    """

    __slots__ = ()

    def __iter__(self) -> Pulled:
        with called_back(self.machine):
            return Pulled(self.machine, self.machine.iter(self.iterator), self.iterator)


class Delegate(Pulled):
    """An iterator of the symbolic domain that native code drives for ``yield from``."""

    __slots__ = ()

    def __next__(self) -> Any:
        machine, iterator = self.machine, self.iterator
        if machine.method_of(type(iterator), "__next__") is UNSET:
            if hasattr(type(iterator), "send") and not machine.is_foreign(iterator):
                return natively(machine, next, iterator)  # such as what awaits an item
            return super().__next__()
        with called_back(machine):  # its StopIteration has a value
            return machine.force(machine.call_special(iterator, "__next__"))

    def __getattr__(self, name: str) -> Any:
        if self.machine.is_foreign(self.iterator):  # it would run for real
            kind = type(self.iterator).__name__
            raise Break("external-iterator", f"{name} of a {kind} from outside")
        return getattr(self.iterator, name)
