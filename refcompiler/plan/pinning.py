"""Where a plan names a class that a function makes anew, it holds for that class alone."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterable, Iterator
from types import BuiltinFunctionType, MappingProxyType, MethodType, MethodWrapperType
from typing import Any

import torch

from refcompiler.capture.lookup import is_heap
from refcompiler.guards.classes import Build
from refcompiler.guards.kinds import NAMESPACE, Guard
from refcompiler.guards.sources import Source
from refcompiler.plan.writer import Writer

_BOUND = (MethodType, BuiltinFunctionType, MethodWrapperType)


def pins(
    machine: Any, writer: Writer, guards: Iterable[Guard], graph: torch.fx.GraphModule | None
) -> list[Guard]:
    """Guards on which classes they are, for those that are not read from where they come from."""
    anew = {cls for cls, build in machine.made_anew.items() if build}
    if not anew:
        return []
    named: list[Any] = [v for name, v in writer.namespace.items() if name not in NAMESPACE]
    for guard in guards:
        if guard.kind != "CLASS":
            named.append(guard.expected)
        named += _constants(guard.source)
    for source in writer.needed:
        named += _constants(source)
    if graph is not None:
        named += [(node.target, node.args, node.kwargs) for node in graph.graph.nodes]
    found = {cls for value in named for cls in _classes(value, set()) if cls in anew}
    known = {cls: machine.external[id(cls)].source for cls in anew if id(cls) in machine.external}
    if not found <= known.keys():  # it was reached through one of the others
        found = set(known)
    return [Guard("ID", known[cls], cls, machine.place()) for cls in found]


def origins(machine: Any) -> list[weakref.ref[type]]:
    """The classes made anew that the capture was given, for which others may stand in later."""
    given = [cls for cls, build in machine.made_anew.items() if build]
    return [weakref.ref(cls) for cls in given if id(cls) in machine.external]


def _constants(source: Source | None) -> Iterator[Any]:
    while source is not None:
        if source.kind in ("const", "space"):
            yield source.key
        source = source.parent


def _classes(value: Any, seen: set[int]) -> Iterator[type]:
    """The classes that ``value`` is, or names."""
    kind = type(value)  # an object's own __class__ may be code of the program's
    if id(value) in seen or issubclass(kind, (str, Source, Build)):
        return
    seen.add(id(value))
    if issubclass(kind, type):
        yield value
    elif issubclass(kind, (dict, MappingProxyType)):
        if "__name__" not in value:  # the globals of a module
            for item in value.values():
                yield from _classes(item, seen)
    elif issubclass(kind, (tuple, list, set, frozenset)):
        for item in value:
            yield from _classes(item, seen)
    elif issubclass(kind, functools.partial):
        yield from _classes((value.func, value.args, value.keywords), seen)
    elif issubclass(kind, _BOUND):
        yield from _classes(value.__self__, seen)
    else:
        yield kind
        owner = None if is_heap(kind) else getattr(value, "__objclass__", None)
        if owner is not None:
            yield owner
