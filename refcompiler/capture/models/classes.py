"""Class statements, and calls of ``type``: the body is interpreted, the class is the frame's own.

A class with a metaclass, or one that tells its bases of it (``__init_subclass__``), is made
natively behind a break: making it again after the graph would repeat what that does.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any

import torch

from refcompiler.capture.lookup import find, is_heap
from refcompiler.capture.models.registry import model
from refcompiler.capture.natively import natively
from refcompiler.capture.signals import Break
from refcompiler.capture.values import Lazy
from refcompiler.interpreter.frame import CALLED

_FUNCTION_META = type(torch.autograd.Function)


@model(builtins.__build_class__)
def _build_class(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    body, name, *bases = [m.force(value) for value in args]
    if kwargs or not all(map(_is_quietly_derived, bases)):
        raise Break("c-function", f"the statement of class {name}")
    step = m.steps
    metaclass = _FUNCTION_META if any(type(base) is _FUNCTION_META for base in bases) else type

    def make(name: str, bases: tuple, namespace: dict) -> type:
        return _adopted(m, natively(m, metaclass, name, bases, namespace), step)

    found = m.call(frame, body, [], {})
    assert found is CALLED
    new = m.frame
    new.mapping = {}
    new.on_return, new.extra = "class", (make, name, tuple(bases), new.mapping, {})
    m.class_bodies.append((new, step))
    return CALLED


def call_type(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> type:
    """``type(name, bases, namespace)``, which is a class statement without one."""
    given = [m.pass_native(value, iterates=False) for value in args]
    bases = given[1] if len(given) == 3 and type(given[1]) is tuple else ()
    if kwargs or not all(map(_is_quietly_derived, bases)):
        raise Break("c-function", "type with arguments of a class statement")
    if len(given) == 3 and type(given[2]) is dict:
        given[2] = {"__module__": frame.globals.get("__name__", "builtins"), **given[2]}
    return _adopted(m, natively(m, type, *given), m.steps)


@model(type.__new__)
def _by_metaclass(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    raise Break("c-function", "the __new__ of a metaclass")


def _adopted(m: Any, made: type, step: int) -> type:
    """A class that the frame has made at ``step``."""
    m.own_classes[made] = step
    m.reentry.adopt(made)
    return made


@model(FunctionType)
def _function(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    """Of code, with the globals of a module: other ones would not be seen to be read or written."""
    given = dict(zip(("code", "globals"), args, strict=False)) | dict(kwargs)
    space = given.get("globals")
    if type(space) is not Lazy or space.source.kind != "const" or id(space.value) in m.external:
        raise Break("c-function", "a function with globals of its own")
    args = [space.value if value is space else value for value in args]
    named = {k: space.value if value is space else value for k, value in kwargs.items()}
    return m.call_builtin_class(frame, FunctionType, args, named)


class _Detached:
    """The base of classes that only a capture has made, once it is over."""


def detach(made: Iterable[type]) -> None:
    """Bases know the classes derived from them, and are to know those of the program only.

    One that derives from a class of C alone stays, until garbage is collected, as does one laid out
    otherwise than a class without slots.
    """
    for cls in made:
        if type(cls) is type and any(map(is_heap, cls.__bases__)):
            with contextlib.suppress(TypeError):
                type.__dict__["__bases__"].__set__(cls, (_Detached,))


@model(collections.namedtuple)
def _namedtuple(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    """Its text runs natively, and tells nobody of the class that it makes."""
    given = [m.pass_native(value, iterates=i == 1) for i, value in enumerate(args)]
    named = {k: m.pass_native(v, iterates=k != "typename") for k, v in kwargs.items()}
    if named.get("module") is None:
        named["module"] = frame.globals.get("__name__", "__main__")
    return _adopted(m, natively(m, collections.namedtuple, *given, **named), m.steps)


def _is_quietly_derived(base: Any) -> bool:
    """An ``autograd.Function`` is too: its metaclass only makes the class of the graph's nodes."""
    return type(base) in (type, _FUNCTION_META) and find(base, "__init_subclass__")[0] is object


@model(dataclasses._process_class)  # type: ignore[attr-defined]
def _dataclass(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    raise Break("c-function", "dataclasses.dataclass, which runs text that it writes")
