"""Classes that a function makes anew at each call, told by what their statement gives them.

Two runs of one ``class`` statement make two classes that differ in nothing but which they are. So
where a program reads such a class from a variable, what is guarded is how it is built: its bases,
the names it has in their order, what kind of value each is, and the code of its functions. What its
attributes are is asked where they are read.
"""

from __future__ import annotations

import collections
import enum
from abc import ABC, ABCMeta
from types import CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType
from typing import Any, NamedTuple

import torch

from refcompiler.guards.permanence import lasts

_HEAP_TYPE = 1 << 9
_METACLASSES = (type, ABCMeta)
#: Classes that torch, an enumeration or a module's state tell by which they are.
_APART = (torch.Tensor, torch.nn.Module, torch.autograd.Function, enum.Enum)
#: Values of these are asked for where they are read.
_READ = (
    *(int, float, complex, bool, str, bytes, type(None), range),
    *(list, tuple, dict, set, frozenset, collections.OrderedDict, collections.deque),
    *(FunctionType, MethodType, property, staticmethod, classmethod),
    *(GetSetDescriptorType, MemberDescriptorType),
)
_OWN: type = type(ABC.__dict__["_abc_impl"])


class Member(NamedTuple):
    """An attribute: its class, and the code of the functions in it."""

    kind: type
    codes: tuple[CodeType | None, ...]


class Build(NamedTuple):
    """How a class is built. Of ``bases``, None stands for one that is told like this itself."""

    metaclass: type
    module: str
    qualname: str
    bases: tuple[type | None, ...]
    names: tuple[str, ...]
    members: tuple[Member, ...]

    def __str__(self) -> str:
        return f"a class {self.qualname} with {', '.join(self.names)}"


def is_made_anew(cls: type) -> bool:
    """Whether no module holds a class, so that the next call may bring another one."""
    return (
        type(cls) in _METACLASSES
        and bool(cls.__flags__ & _HEAP_TYPE)
        and not issubclass(cls, _APART)
        and not lasts(cls)
    )


def build_of(cls: type) -> Build | None:
    """None where what the class holds says which one it is."""
    members = []
    for value in cls.__dict__.values():
        kind = type(value)
        if kind in _READ or kind is _OWN:
            members.append(Member(kind, _codes(value)))
        elif kind in _METACLASSES and is_made_anew(value):
            members.append(Member(kind, ()))
        else:
            return None
    return Build(
        type(cls),
        cls.__module__,
        cls.__qualname__,
        tuple([None if is_made_anew(base) else base for base in cls.__mro__[1:]]),
        tuple(cls.__dict__),
        tuple(members),
    )


def is_built(value: Any, want: Build) -> bool:
    """Whether ``value`` is a class that is built like this; no code of the user's runs."""
    if type(value) is not want.metaclass:
        return False
    cls: Any = value
    bases, space = cls.__mro__, cls.__dict__
    if cls.__qualname__ != want.qualname or cls.__module__ != want.module:
        return False
    if len(bases) != len(want.bases) + 1 or tuple(space) != want.names:
        return False
    for base, known in zip(bases[1:], want.bases, strict=True):
        if known is not None and base is not known:
            return False
    for value, member in zip(space.values(), want.members, strict=True):
        if type(value) is not member.kind or (member.codes and _codes(value) != member.codes):
            return False
    return True


def _codes(value: Any) -> tuple[CodeType | None, ...]:
    """Of the functions that a class's attribute is made of."""
    kind = type(value)
    if kind is FunctionType:
        return (value.__code__,)
    if kind is property:
        return (_code(value.fget), _code(value.fset), _code(value.fdel))
    if kind is staticmethod or kind is classmethod:
        return (_code(value.__func__),)
    return ()


def _code(function: Any) -> CodeType | None:
    return function.__code__ if type(function) is FunctionType else None
