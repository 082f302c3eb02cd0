"""Functions of the program that leave the interpreter: native code runs them with the graph.

What a closure's cells hold, the interpreter reads as it is: unobserved, as a container into which
nothing has looked, or as the shadow of one from outside. Native code needs the objects themselves.
So what is handed over is observed, all that it leads to, and where a shadow stands for an object
from outside, functions and containers of the frame's are made again around that object.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from types import CellType, FunctionType, MethodType
from typing import Any

import torch

from refcompiler.capture.effects import reachable
from refcompiler.capture.kinds import CONSTANT_TYPES
from refcompiler.capture.lookup import is_heap, namespace_of
from refcompiler.capture.signals import Break, Restart
from refcompiler.capture.values import is_changed
from refcompiler.interpreter.frame import UNSET
from refcompiler.shapes.node import SYMBOLS


def handed(m: Any, value: Any) -> Any:
    """``value`` as native code may have it, which keeps it: it may not change in this capture."""
    found = _Handing(m).object(value)
    if type(found) not in CONSTANT_TYPES:
        given = m.force(value)
        m.released.append((given, reachable(given, m), m.steps))
    return found


def check_handed(m: Any) -> None:
    """At the end of a capture: what was handed over is still what it was."""
    for value, before, step in m.released:
        if reachable(value, m) != before:
            why = "what a function reads that native code runs is changed after that"
            raise Restart(step, "higher-order", why)


class _Handing:
    def __init__(self, m: Any):
        self.machine = m
        self.seen: dict[int, tuple[Any, Any]] = {}  # what was asked, and what is given for it
        self.open: set[int] = set()
        self.used: set[int] = set()  # of those that were open when something led to them

    def object(self, value: Any) -> Any:
        value = self.machine.force(value)
        if type(value) in CONSTANT_TYPES:
            return value
        known = self.seen.get(id(value))
        if known is not None:
            if id(value) in self.open:
                self.used.add(id(value))
            return known[1]
        self.seen[id(value)] = value, value
        self.open.add(id(value))
        found = self._object(value)
        self.open.discard(id(value))
        if found is not value and id(value) in self.used:
            self._refuse("leads to itself and to an object from outside")
        self.seen[id(value)] = value, found
        return found

    def _object(self, value: Any) -> Any:
        m, kind = self.machine, type(value)
        if issubclass(kind, torch.Tensor) or kind in SYMBOLS:
            self._refuse("reads a tensor or a symbol")
        external = m.external.get(id(value))
        if external is not None and external.shadow is not None:
            if is_changed(external) or external.tail or external.written:
                self._refuse("reads what the frame has changed")
            if isinstance(external.shadow, dict):
                for item in external.shadow.values():
                    self.object(item)
            elif isinstance(external.shadow, (list, tuple, set, frozenset)):
                for item in external.shadow:
                    self.object(item)
            return external.value
        if kind is FunctionType:
            return self._function(value)
        if external is not None:
            if any(owner == id(value) for owner, _ in m.overlay):
                self._refuse("reads what the frame has changed")
            return value
        if kind is functools.partial:
            parts = (value.func, value.args, value.keywords)
            function, args, kwargs = (self.object(part) for part in parts)
            if (function, args, kwargs) == parts:
                return value
            return functools.partial(function, *args, **kwargs)
        if kind is MethodType:
            function, owner = self.object(value.__func__), self.object(value.__self__)
            is_same = function is value.__func__ and owner is value.__self__
            return value if is_same else MethodType(function, owner)
        if kind in (list, tuple, set, frozenset):
            return self._made(value, kind([self.object(item) for item in value]), value)
        if kind is dict:
            made = {key: self.object(item) for key, item in value.items()}
            return self._made(value, made, value.values(), made.values())
        if is_heap(kind) and not issubclass(kind, type):
            if any(owner == id(value) for owner, _ in m.overlay):
                self._refuse(f"reads a {kind.__name__} that the frame has made")
            self._parts(kind, [*(namespace_of(value) or {}).values(), kind])
        if issubclass(kind, type) and value in m.own_classes:
            self._parts(value, [*value.__mro__[1:], *vars(value).values()])
        if kind in (staticmethod, classmethod):
            self._parts(kind, [value.__func__])
        if kind is property:
            self._parts(kind, [value.fget, value.fset, value.fdel])
        return value

    def _parts(self, kind: type, parts: Iterable[Any]) -> None:
        """Those of what cannot be made again."""
        for part in parts:
            if self.object(part) is not part:
                self._refuse(f"reads a {kind.__name__} that the frame has made")

    def _made(self, value: Any, made: Any, before: Any, after: Any = None) -> Any:
        pairs = zip(before, made if after is None else after, strict=True)
        return value if all(a is b for a, b in pairs) else made

    def _function(self, function: FunctionType) -> FunctionType:
        m = self.machine
        cells = function.__closure__ or ()
        if m.source_of(function) is not None:  # its own objects are what it runs with
            if any(owner in map(id, (function, *cells)) for owner, _ in m.overlay):
                self._refuse("reads what the frame has changed")
            return function
        filled = []
        for cell in cells:
            held = m.load_cell(cell)
            if held is UNSET:
                filled.append(cell)
                continue
            own = m.force(held)
            if own is not held and id(cell) not in m.external:
                m.store_cell(cell, own)
            given = self.object(own)
            filled.append(cell if given is _content(cell) else CellType(given))
        defaults, named = function.__defaults__, function.__kwdefaults__
        given_defaults, given_named = self.object(defaults), self.object(named)
        pairs = zip(cells, filled, strict=True)
        if all(a is b for a, b in pairs) and given_defaults is defaults and given_named is named:
            return function
        made = FunctionType(
            function.__code__,
            function.__globals__,
            function.__name__,
            given_defaults,
            tuple(filled),
        )
        made.__kwdefaults__ = given_named
        made.__dict__.update(function.__dict__)
        return made

    def _refuse(self, why: str) -> None:
        raise Break("higher-order", f"a function that native code runs {why}")


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return UNSET
