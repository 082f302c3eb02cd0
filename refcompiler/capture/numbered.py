"""Iterators over an object that has a ``__getitem__`` alone: items 0, 1, ... until IndexError.

``iter(obj)`` gives CPython's own iterator, over something that asks the interpreter for an item.
Where nobody sees the iterator, as in a loop, it is a generator instead, whose frame lies on the
stack (:func:`refcompiler.interpreter.helpers.items`).

Source of the rules: CPython's ``Objects/iterobject.c``.
"""

from __future__ import annotations

import sys
from typing import Any

from refcompiler.capture.natively import called_back
from refcompiler.capture.signals import Restart
from refcompiler.guards.iterators import NUMBERED, account
from refcompiler.interpreter.frame import UNSET

#: What would show what such an iterator goes over while it is captured.
TELLING = frozenset({"__reduce__", "__reduce_ex__"})


class Items:
    """The items of ``owner`` for C code."""

    __slots__ = ("machine", "owner")

    def __init__(self, machine: Any, owner: Any):
        self.machine = machine  # the symbolic one
        self.owner = owner

    def __getitem__(self, place: int) -> Any:
        with called_back(self.machine):
            return self.machine.force(self.machine.getitem(self.owner, place))


class CountedItems(Items):
    """Those of an object that says how many there are, which C code may ask."""

    __slots__ = ()

    def __len__(self) -> int:
        machine = self.machine
        with called_back(machine):
            return machine.sizes.plain(machine.force(machine.call_special(self.owner, "__len__")))


def iterator_of(machine: Any, owner: Any) -> Any:
    counted = machine.method_of(type(owner), "__len__") is not UNSET
    return iter((CountedItems if counted else Items)(machine, owner))


def owner_of(iterator: Any) -> Any:
    """What an iterator that capture has made goes over; UNSET where it is over."""
    found = account(iterator)[1][0]
    return found.owner if isinstance(found, Items) else UNSET


class Numbers:
    """An iterator from outside, of which ``taken`` items were used."""

    ended = False

    def __init__(self, machine: Any, external: Any):
        self.iterator, self.source = external.value, external.source
        _, args, *state = account(self.iterator)
        self.taken = 0
        self.is_over = not state
        self.owner = machine.lazy(machine.sources.make("part", self.source, 0), args[0])
        if self.is_over:
            machine.observe(self.owner)  # an empty tuple
        else:
            self.place = machine.lazy(machine.sources.make("place", self.source), state[0])

    def next(self, machine: Any) -> Any:
        if self.is_over:
            return UNSET
        place = machine.force(self.place)
        if self.taken:
            place = place + self.taken
        if type(place) is int and place == sys.maxsize:
            raise OverflowError("iter index too large")
        try:
            found = machine.force(machine.getitem(self.owner, place))
        except (IndexError, StopIteration) as error:  # only CPython ends it, by asking for the item
            why = "the end of one over __getitem__"
            raise Restart(machine.steps, "external-iterator", why) from error
        self.taken += 1
        return found


def spent() -> Any:
    """One that is over."""
    made: Any = iter(_Empty())
    next(made, None)
    return made


class _Empty:
    def __getitem__(self, place: int) -> Any:
        raise IndexError(place)


assert type(spent()) is NUMBERED
