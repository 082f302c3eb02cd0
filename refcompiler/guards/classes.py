"""Classes that a function makes anew at each call, told by what their statement gives them.

Two runs of one ``class`` statement make two classes that differ in nothing but which they are. So
where a program reads such a class from a variable, what is guarded is how it is built: its bases,
and of what Python itself looks for (names that begin with an underscore, and slots) the names, what
kind of value each is, and the code of its functions. Any other attribute is asked for where it is
read, or missed.
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
_ABSTRACT = 1 << 20
_METACLASSES = (type, ABCMeta)
#: Classes that torch, an enumeration or a module's state tell by which they are.
_APART = (torch.Tensor, torch.nn.Module, torch.autograd.Function, enum.Enum)
#: By which an instance is laid out, under whatever name.
_SLOTS = (GetSetDescriptorType, MemberDescriptorType)
#: Values of these are asked for where they are read.
_READ = (
    *(int, float, complex, bool, str, bytes, type(None), range),
    *(list, tuple, dict, set, frozenset, collections.OrderedDict, collections.deque),
    *(FunctionType, MethodType, property, staticmethod, classmethod),
    *_SLOTS,
)
_OWN: type = type(ABC.__dict__["_abc_impl"])
#: What finds a field of a named tuple.
FIELD: Any = type(collections.namedtuple("_Field", "name").name)  # type: ignore[attr-defined]
#: Under a name that C code may look for, a value of another kind says which class it is; these the
#: standard library alone reads, by their names.
_BY_NAME = frozenset({"__dataclass_params__"})
#: Where ``copyreg`` keeps what the class's own slots say, once it was asked.
_KEPT = "__slotnames__"


class Member(NamedTuple):
    """An attribute: its class, and the code of the functions in it, or the place of a field."""

    kind: type
    codes: tuple[Any, ...]


class Build(NamedTuple):
    """How a class is built. Of ``bases``, None stands for one that is told like this itself.

    ``members`` has those for which :func:`is_special` holds.
    """

    metaclass: type
    module: str
    qualname: str
    bases: tuple[type | None, ...]
    abstract: frozenset[str]
    members: dict[str, Member]

    def __str__(self) -> str:
        return f"a class {self.qualname} with {', '.join(self.members)}"


def is_special(name: Any, value: Any) -> bool:
    """Whether an attribute of a class may decide about what no program reads by its name.

    Not annotations of which there are none: asking for them makes them.
    """
    kind = type(value)
    if name == _KEPT or (name == "__annotations__" and kind is dict and not value):
        return False
    return kind in _SLOTS or kind is FIELD or (type(name) is str and name[:1] == "_")


def _is_told(name: Any, value: Any) -> bool:
    """Whether classes with such an attribute may be told apart where it is read.

    What C code finds by itself has to be of a kind of which :class:`Member` says everything.
    """
    kind = type(value)
    if kind in _READ or kind is _OWN or (kind in _METACLASSES and is_made_anew(value)):
        return True
    hidden = type(name) is str and name[:2] == name[-2:] == "__" and name not in _BY_NAME
    return not hidden and not issubclass(kind, type)


def is_plain(value: Any) -> bool:
    """Whether an attribute of a class with this value is what is read, and may be written over."""
    kind = type(value)
    return not (hasattr(kind, "__get__") or hasattr(kind, "__set__") or hasattr(kind, "__delete__"))


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
    bases: list[type | None] = []
    for base in cls.__mro__[1:]:
        anew = is_made_anew(base)
        if anew and build_of(base) is None:
            return None
        bases.append(None if anew else base)
    members = {}
    for name, value in cls.__dict__.items():
        if not _is_told(name, value):
            return None
        kind = type(value)
        if is_special(name, value):
            members[name] = Member(kind, _codes(value))
    return Build(
        type(cls),
        cls.__module__,
        cls.__qualname__,
        tuple(bases),
        _abstract(cls),
        members,
    )


def is_built(value: Any, want: Build) -> bool:
    """Whether ``value`` is a class that is built like this; no code of the user's runs."""
    if type(value) is not want.metaclass:
        return False
    cls: Any = value
    bases, space = cls.__mro__, cls.__dict__
    if cls.__qualname__ != want.qualname or cls.__module__ != want.module:
        return False
    if _abstract(cls) != want.abstract:
        return False
    if len(bases) != len(want.bases) + 1:
        return False
    for base, known in zip(bases[1:], want.bases, strict=True):
        if known is not None and base is not known:
            return False
    members, seen = want.members, 0
    for name, value in space.items():
        kind = type(value)
        if is_special(name, value):
            member = members.get(name)
            if member is None or kind is not member.kind:
                return False
            if member.codes and _codes(value) != member.codes:
                return False
            seen += 1
    return seen == len(members)


def _abstract(cls: type) -> frozenset[str]:
    """The methods for which no instance can be made."""
    return cls.__dict__["__abstractmethods__"] if cls.__flags__ & _ABSTRACT else frozenset()


def _codes(value: Any) -> tuple[Any, ...]:
    """Of the functions that a class's attribute is made of; of a named tuple's field its place."""
    kind = type(value)
    if kind is FIELD:
        return value.__reduce__()[1][:1]
    if kind is FunctionType:
        return (value.__code__,)
    if kind is property:
        return (_code(value.fget), _code(value.fset), _code(value.fdel))
    if kind is staticmethod or kind is classmethod:
        return (_code(value.__func__),)
    return ()


def _code(function: Any) -> CodeType | None:
    return function.__code__ if type(function) is FunctionType else None
