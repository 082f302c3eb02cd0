"""The class statement."""

from __future__ import annotations

from types import CellType, FunctionType
from typing import Any

from refcompiler.interpreter.entries import meet
from refcompiler.interpreter.frame import CALLED, UNSET, Frame
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS


def build_class(machine: Any, frame: Frame, function: Any, args: Any, kwargs: Any) -> Any:
    """The class statement (CPython's ``builtin___build_class__``), its body interpreted."""
    if machine.native_calls:
        return function(*args, **kwargs)
    body, name, *bases = args
    given = tuple(bases)
    bases = resolve_bases(given)
    keywords = dict(kwargs)
    metaclass = metaclass_of(bases, keywords)
    prepare = getattr(metaclass, "__prepare__", None)
    namespace = {} if prepare is None else machine.invoke(frame, prepare, (name, bases), keywords)
    if not hasattr(type(namespace), "__getitem__"):
        shown = metaclass.__name__ if isinstance(metaclass, type) else "<metaclass>"
        raise TypeError(
            f"{shown}.__prepare__() must return a mapping, not {type(namespace).__name__}"
        )
    if bases is not given:
        namespace["__orig_bases__"] = given
    new = machine.make_frame(body, (), {})
    meet(namespace)
    new.mapping = namespace
    new.on_return = "class"
    new.extra = metaclass, name, bases, namespace, keywords
    machine.push(frame, new)
    return CALLED


def resolve_bases(given: tuple) -> tuple:
    """The bases that ``given`` stand for (``__mro_entries__``); itself where they are classes."""
    found: list[Any] = []
    changed = False
    for base in given:
        entries = None if isinstance(base, type) else getattr(base, "__mro_entries__", None)
        if entries is None:
            found.append(base)
            continue
        meet(base)
        replaced = entries(given)
        if not isinstance(replaced, tuple):
            raise TypeError("__mro_entries__ must return a tuple")
        found.extend(replaced)
        changed = True
    return tuple(found) if changed else given


def metaclass_of(bases: tuple, keywords: dict[str, Any]) -> Any:
    """What makes the class; takes ``metaclass`` from ``keywords``."""
    if "metaclass" in keywords:
        found = keywords.pop("metaclass")
        if not isinstance(found, type):
            return found
    else:
        found = type(bases[0]) if bases else type
    for base in bases:
        kind = type(base)
        if _is_subtype(found, kind):
            continue
        if not _is_subtype(kind, found):
            raise TypeError(
                "metaclass conflict: the metaclass of a derived class must be a (non-strict) "
                "subclass of the metaclasses of all its bases"
            )
        found = kind
    return found


def _is_subtype(cls: type, base: type) -> bool:
    return any(entry is base for entry in _MRO.__get__(cls))


_MRO: Any = type.__dict__["__mro__"]


def finish_class(machine: Any, frame: Frame, cell: Any, extra: Any) -> None:
    """The body returned its ``__class__`` cell or None: make the class and push it."""
    metaclass, name, bases, namespace, keywords = extra
    meet(metaclass)
    for base in bases:
        meet(base)
    if isinstance(namespace, dict):
        for value in dict.values(namespace):  # for their ``__set_name__``
            if type(value) is not FunctionType:
                meet(value)
    cls = metaclass(name, bases, namespace, **keywords)
    if type(cell) is CellType and isinstance(cls, type):
        held = machine.load_cell(cell)
        if held is UNSET:
            raise RuntimeError(
                f"__class__ not set defining {name!r} as {cls!r}. Was __classcell__ propagated "
                "to type.__new__?"
            )
        if held is not cls:
            raise TypeError(f"__class__ set to {held!r} defining {name!r} as {cls!r}")
    frame.stack.append(cls)
