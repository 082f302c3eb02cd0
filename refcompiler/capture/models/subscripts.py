"""Subscripts of :mod:`typing`'s forms and generic classes, as ``torch.jit.annotate`` is given.

What they give is a fact about classes, which typing remembers, and of which no program reads more
than its parts; so typing itself makes it at capture, and a plan by its own account.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from refcompiler.capture.models.registry import model

#: What types are written with, beside classes and what is of :mod:`typing`.
_PARTS = (
    type(None),
    type(...),
    str,
    bytes,
    int,
    bool,
    types.GenericAlias,
    types.UnionType,
)
_SUBSCRIPTS = ("__getitem__", "__class_getitem__")


def _is_known(m: Any, value: Any) -> bool:
    kind = type(value)
    if kind in (tuple, list):  # a Callable's arguments are a list
        return all(_is_known(m, m.force(item)) for item in value)
    if issubclass(kind, type):
        return value not in m.own_classes
    if kind.__module__ != "typing":
        return kind in _PARTS
    place = m.source_of(value)
    if place is not None and place.kind != "const":  # unions of another order are equal
        m.guard("ID", place, value)
    return True


def _made_by(function: types.FunctionType) -> None:
    @model(function)
    def subscript(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
        forced = [m.force(value) for value in args]
        if kwargs or len(forced) != 2 or not all(_is_known(m, value) for value in forced):
            return m.call_function(frame, function, args, kwargs)
        of, parts = forced
        made = of[parts]  # the one that typing gives each time
        return m.force(m.lazy(m.sources.constant(made, repr(made)), made))


_CLASSES = {c for c in vars(typing).values() if type(c) is type and c.__module__ == "typing"}
_FOUND = [vars(cls).get(name) for cls in _CLASSES for name in _SUBSCRIPTS]
for _function in {getattr(found, "__func__", found) for found in _FOUND}:
    if isinstance(_function, types.FunctionType):
        _made_by(_function)
