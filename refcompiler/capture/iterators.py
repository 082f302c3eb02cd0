"""Advancing iterators that were made outside the graph.

What one gives is read ahead of it, item by item and as lazily as everything from outside; that
it was advanced is replayed after the graph. ``map``, ``filter``, ``compress``, ``zip`` and
``enumerate`` over what runs the user's code are taken apart instead: it then runs interpreted.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from types import AsyncGeneratorType, CellType
from typing import Any

from refcompiler.capture.numbered import Numbers
from refcompiler.capture.signals import Break, Restart
from refcompiler.capture.values import External
from refcompiler.guards.iterators import (
    COMPOSITES,
    NUMBERED,
    Ahead,
    account,
    fed,
    is_over,
    nested,
    shape,
)
from refcompiler.interpreter.continued import Continued, continued, continues, suspension
from refcompiler.interpreter.driven import DELEGATES, delegate_of, driven_by, is_driven
from refcompiler.interpreter.frame import UNSET, Frame, is_mark
from refcompiler.interpreter.generators import make_generator


class View:
    """An iterator from outside: ``taken`` of its items were used, and its end if ``ended``."""

    def __init__(self, machine: Any, external: External):
        self.iterator = external.value
        self.source = external.source
        self.taken = 0
        self.ended = False
        self.step = machine.steps
        if type(self.iterator) in COMPOSITES:
            machine.guard("SHAPE", self.source, shape(self.iterator))
        self.items = machine.sources.make("ahead", self.source)
        try:
            self.ahead = Ahead(self.iterator)
        except RuntimeError as error:  # what it goes over was changed
            raise Break("external-iterator", str(error)) from error
        machine.lazy(self.items, self.ahead)

    def next(self, machine: Any) -> Any:
        if self.ended:
            return UNSET
        try:
            value = self.ahead[self.taken]
        except IndexError:
            machine.guard("ENDS", self.items, self.taken)
            self.ended = True
            return UNSET
        except RuntimeError as error:
            raise Break("external-iterator", str(error)) from error
        found = machine.lazy(machine.item(self.items, self.taken), value)
        self.taken += 1
        return found


class Parts:
    """An iterator from outside over iterators that cannot be read ahead."""

    def __init__(self, machine: Any, external: External, advance: Callable):
        self.iterator, self.source = external.value, external.source
        self.advance = advance
        self.taken = 0
        self.parts: list[Any] = []
        _, args, *rest = account(self.iterator)
        if rest:
            raise Break("external-iterator", "a strict zip from outside")
        if type(self.iterator) is enumerate:
            inner = fed(self.iterator)
            if inner is None:
                raise Break("external-iterator", "an enumeration from outside")
            self.parts.append(machine.lazy(machine.sources.make("fed", self.source), inner))
            start = machine.sources.make("start", self.source)
            self.parts.append(machine.lazy(start, args[1]))
            return
        machine.guard("SHAPE", self.source, shape(self.iterator))
        for i, part in enumerate(args):
            self.parts.append(machine.lazy(machine.sources.make("part", self.source, i), part))

    def next(self, machine: Any) -> Any:
        found = self.advance(machine, self, self.parts)
        if found is not UNSET:
            self.taken += 1
        return found


def _together(machine: Any, parts: list[Any]) -> Any:
    items = []
    for part in parts:
        item = machine.next(part)
        if item is UNSET:
            return UNSET
        items.append(machine.force(item))
    return tuple(items)


def _zip(machine: Any, view: Parts, parts: list[Any]) -> Any:
    return _together(machine, parts)


def _map(machine: Any, view: Parts, parts: list[Any]) -> Any:
    items = _together(machine, parts[1:])
    return items if items is UNSET else machine.invoke(machine.frame, parts[0], items)


def _filter(machine: Any, view: Parts, parts: list[Any]) -> Any:
    function, iterator = parts
    while (item := machine.next(iterator)) is not UNSET:
        passes = item
        if not machine.is_none(function):
            passes = machine.invoke(machine.frame, function, [item])
        if machine.truth(passes):
            return item
    return UNSET


def _compress(machine: Any, view: Parts, parts: list[Any]) -> Any:
    items, selectors = parts
    while (item := machine.next(items)) is not UNSET:
        selects = machine.next(selectors)
        if selects is UNSET:
            break
        if machine.truth(selects):
            return item
    return UNSET


def _enumerate(machine: Any, view: Parts, parts: list[Any]) -> Any:
    iterator, start = parts
    item = machine.next(iterator)
    if item is UNSET:
        return UNSET
    number = machine.binary(operator.add, start, view.taken)
    return number, machine.force(item)


_APART: dict[type, Callable] = {
    zip: _zip,
    map: _map,
    filter: _filter,
    itertools.compress: _compress,
    enumerate: _enumerate,
}


def view_of(machine: Any, iterator: Any) -> Any:
    """The view of an iterator from outside; a break where there is none."""
    view = machine.views.get(id(iterator))
    if view is None:
        external = machine.external[id(iterator)]
        found: dict[int, Any] = {}
        kind = type(iterator)
        if nested(iterator, found):
            view = View(machine, external)
        elif kind is NUMBERED:
            view = Numbers(machine, external)
        elif kind in _APART:
            view = Parts(machine, external, _APART[kind])
        else:
            raise Break("external-iterator", f"a {kind.__name__} from outside")
        machine.views[id(iterator)] = view
    return view


def shadow_generator(machine: Any, external: External) -> Any:
    """A generator that goes on, in the symbolic domain, where one from outside is suspended."""
    value, source = external.value, external.source
    activation = continues(value)
    if activation is None or (activation.delegates and type(value) is AsyncGeneratorType):
        return value
    machine.guard("SUSPENDED", source, suspension(value))
    real = activation.frame
    assert real is not None
    place = machine.sources.make("activation", source)
    machine.lazy(place, activation)
    frame = Frame(real.program, real.globals, real.builtins, None)
    frame.ip = real.ip
    for i, item in enumerate(real.fast):
        if item is UNSET:
            continue
        inner = machine.sources.make("local", place, i, real.program.names[i])
        frame.fast[i] = machine.lazy(inner, item)
        if type(item) is CellType:
            machine.external.setdefault(id(item), External(item, inner))
            frame.fast[i] = item
    for i, item in enumerate(real.stack):
        inner = machine.sources.make("stacked", place, i)
        frame.stack.append(item if is_mark(item) else machine.lazy(inner, item))
    handled, delegate = None, UNSET
    if activation.exc is not None:
        handled = machine.observe(machine.lazy(machine.member(place, "exc"), activation.exc))
    if activation.delegates:
        switch = machine.member(source, DELEGATES[type(value)])
        machine.lazy(switch, delegate_of(value))
        inner = machine.member(switch, "inner")
        delegate = machine.delegate(machine.lazy(inner, delegate_of(value).inner)).inner
    made = continued(machine, frame, handled, delegate, (value.__name__, value.__qualname__))
    external.original = driven_by(made)
    machine.drive(made, external.original)
    external.shadow = made
    machine.external[id(made)] = external
    return made


def adopt_running(machine: Any, frame: Frame) -> None:
    """The generator whose frame ``frame`` is, which lies on the stack as a capture begins."""
    lazy, saved, *rest = frame.extra
    value, source = lazy.value, lazy.source
    activation = Continued(machine, frame)
    made = make_generator(activation)
    made.__name__, made.__qualname__ = value.__name__, value.__qualname__
    activation.running = True
    activation.runs = 1
    external = External(value, source)
    external.shadow, external.original = made, activation
    machine.external[id(value)] = machine.external[id(made)] = external
    machine.forced[source] = made
    machine.drive(made, activation)
    machine.is_none(saved)
    frame.extra = (made, machine.force(saved), *rest)


def state_of(machine: Any, generator: Any, name: str) -> Any:
    """``gi_running`` and its like, of a generator that the symbolic domain runs."""
    found = getattr(generator, name)
    if is_driven(generator):
        activation = driven_by(generator)
        asked = name == DELEGATES[type(generator)]
        if isinstance(activation, Continued) and activation.running:
            return None if asked else name.endswith("_running")
        if asked:
            return machine.delegate_of(found)
    return found


def guard_views(machine: Any, changed: list[External]) -> None:
    """That the iterators have nothing in common with each other, or with what was changed."""
    views = [view for view in machine.views.values() if type(view) in (View, Numbers)]
    seen: set[int] = set()
    for view in views:
        inner: dict[int, Any] = {}
        nested(view.iterator, inner)
        if not seen.isdisjoint(inner) or is_over(view.iterator, [e.value for e in changed]):
            what = f"a {type(view.iterator).__name__} over what is changed"
            raise Restart(view.step, "external-iterator", what)
        seen |= inner.keys()
    if views and (len(views) > 1 or changed):
        sources = tuple([view.source for view in views])
        machine.guard("APART", None, (sources, tuple([external.source for external in changed])))
