"""Containers that the frame makes: what they hold stays unobserved until something looks into them.

A list, tuple or dict display, and the tuple or dict of a call's ``*args`` and ``**kwargs``, only
pass their items on. While that is all, a :class:`Literal` stands on the stack in the container's
place, with its items as lazy as they were; a plan makes the container from it. Whatever asks for
more than one item by its place forces it, like any lazy value, and it becomes the container. The
instructions that make containers and fill them, or cells, are at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import CellType, FunctionType
from typing import Any

import torch

from refcompiler.capture.entering import ENTERING, enters
from refcompiler.capture.kinds import CONSTANT_TYPES
from refcompiler.capture.lookup import find
from refcompiler.capture.values import Lazy, Literal, Unread, items_in
from refcompiler.guards.classes import FIELD
from refcompiler.interpreter.frame import UNSET, Frame
from refcompiler.interpreter.registry import HANDLERS

DISPLAYED = frozenset({list, tuple, dict})
#: What is a key without more ado; a torch.Size may hold symbols.
_KEYS = CONSTANT_TYPES - {torch.Size}
#: What may be asked of a container in which nothing has looked.
METHODS: dict[type, frozenset[str]] = {
    list: frozenset({"append", "extend"}),
    dict: frozenset({"get", "update"}),
}


def is_open(m: Any, value: Any) -> bool:
    """Whether observing ``value`` would say something that is not guarded yet."""
    kind = type(value)
    if kind is Lazy:
        return value.source not in m.forced
    if kind is Unread:
        return value.made is None and value.is_of_numbers()
    return kind is Literal and value.made is UNSET


def sequence(m: Any, kind: type, items: Sequence[Any]) -> Any:
    """A list or tuple of ``items``, which stay unobserved where they are."""
    if any(is_open(m, item) for item in items):
        return Literal(kind, list(items))
    return kind([m.own(item) for item in items])


def mapping(m: Any, items: dict[Any, Any]) -> Any:
    """A dict of ``items``, whose keys are constants."""
    if any(is_open(m, item) for item in items.values()):
        return Literal(dict, items)
    return {key: m.own(item) for key, item in items.items()}


def construct(m: Any, cls: type, args: Sequence, kwargs: Mapping) -> Any:
    """``cls(...)`` of what nothing has to look at; or UNSET."""
    if cls is dict:
        items = items_in(args[0], dict) if len(args) == 1 else UNSET if args else {}
        return UNSET if items is UNSET else Literal(dict, {**items, **kwargs})
    items = items_in(args[0], list, tuple) if len(args) == 1 and not kwargs else UNSET
    if items is UNSET:
        return UNSET
    if cls is tuple:
        return args[0] if args[0].kind is tuple else sequence(m, tuple, items)
    return Literal(list, list(items))


#: What a class of named tuples may say for itself; such a one is looked into at once.
_SAYS = frozenset(
    """
    __len__ __bool__ __getitem__ __iter__ __contains__ __getattribute__ __getattr__ __add__
    """.split()
)


def named(m: Any, args: Sequence, kwargs: Mapping) -> Any:
    """``tuple.__new__(cls, items)`` for a class of named tuples; or UNSET."""
    if len(args) != 2 or kwargs:
        return UNSET
    cls, items = m.force(args[0]), items_in(args[1], list, tuple)
    plain = issubclass(type(cls), type) and cls.__bases__ == (tuple,) and hasattr(cls, "_fields")
    if items is UNSET or not plain or _SAYS & cls.__dict__.keys():
        return UNSET
    return Literal(cls, list(items)) if len(items) == len(cls._fields) else UNSET


def field_of(m: Any, literal: Literal, name: str) -> Any:
    """A field of a named tuple, or UNSET."""
    fields: tuple[str, ...] = getattr(literal.kind, "_fields", ())
    if literal.made is not UNSET or name not in fields:
        return UNSET
    found = m.find_guarded(literal.kind, name)[1]
    return literal.items[fields.index(name)] if type(found) is FIELD else UNSET


def field_from_outside(m: Any, lazy: Lazy, name: str) -> Any:
    """A field of a named tuple in which nothing has looked, and may not have to; or UNSET."""
    value, source = lazy.value, lazy.source
    kind = type(value)
    fields: tuple[str, ...] = getattr(kind, "_fields", ())
    if name not in fields or len(value) != len(fields) or not m.is_unread(lazy):
        return UNSET
    if find(kind, "__getitem__")[1] is not tuple.__dict__["__getitem__"]:
        return UNSET
    m.guard("TYPE", source, kind)  # first, since a class made anew is read from there
    if type(m.find_guarded(kind, "__getattribute__")[1]) is FunctionType:
        return UNSET
    descriptor = m.find_guarded(kind, name)[1]
    if type(descriptor) is not FIELD:
        return UNSET
    m.guard("LENGTH", source, len(value))
    place = descriptor.__reduce__()[1][0]
    return m.lazy(m.item(source, place), tuple.__getitem__(value, place))


def make(kind: type, items: Any) -> Any:
    """The container itself."""
    if kind in DISPLAYED:
        return kind(items)
    return tuple.__new__(kind, items)


def item_of(m: Any, literal: Literal, key: Any) -> Any:
    """One item, or UNSET where the container itself has to answer."""
    items = literal.items
    if literal.made is not UNSET:
        return UNSET
    if literal.kind is dict:
        return items.get(key, UNSET) if type(key) in _KEYS else UNSET
    if type(key) is int:
        return items[key] if -len(items) <= key < len(items) else UNSET
    if type(key) is slice:
        parts = (key.start, key.stop, key.step)
        if all(part is None or type(part) is int for part in parts) and key.step != 0:
            kind = literal.kind if literal.kind in DISPLAYED else tuple
            taken = items[key]
            if literal.kind is tuple and len(taken) == len(items) and (key.step or 1) == 1:
                return literal  # a tuple's slice of all is the tuple
            return sequence(m, kind, taken)
    return UNSET


def put_item(m: Any, literal: Literal, key: Any, new: Any) -> bool:
    """``literal[key] = new``, if nothing has to look for it; whether it did."""
    if literal.made is not UNSET or _holds(new, literal):
        return False
    items = literal.items
    if literal.kind is dict and type(key) in _KEYS:
        items[key] = new
        return True
    if literal.kind is list and type(key) is int and -len(items) <= key < len(items):
        items[key] = new
        return True
    return False


def append(literal: Literal, value: Any) -> bool:
    if literal.made is not UNSET or literal.kind is not list or _holds(value, literal):
        return False
    literal.items.append(value)
    return True


def extend(m: Any, literal: Any, value: Any) -> bool:
    """Add the items of another list or tuple, if nothing has to look for it."""
    target, items = items_in(literal, list), plain_items(m, value)
    if target is UNSET or items is UNSET or any(_holds(item, literal) for item in items):
        return False
    target.extend(list(items))
    return True


def update(literal: Any, value: Any) -> bool:
    """Take over the items of another dict display."""
    target, items = items_in(literal, dict), items_in(value, dict)
    if target is UNSET or items is UNSET or target is items:
        return False
    if any(_holds(item, literal) for item in items.values()):
        return False
    target.update(items)
    return True


def plain_items(m: Any, value: Any) -> Any:
    """The items of a list or tuple of the frame's; or UNSET."""
    if type(value) in (list, tuple):
        return value
    return items_in(value, list, tuple)


def joined(m: Any, a: Any, b: Any) -> Any:
    """``a + b`` of two lists or two tuples of the frame's, one of them open; or UNSET."""
    first, second = items_in(a, list, tuple), items_in(b, list, tuple)
    if first is UNSET and second is UNSET:
        return UNSET
    kind = a.kind if first is not UNSET else b.kind
    parts = [
        (value if type(value) is kind else UNSET) if items is UNSET else items
        for value, items in ((a, first), (b, second))
    ]
    kinds = [value.kind if type(value) is Literal else type(value) for value in (a, b)]
    if kinds != [kind, kind] or any(part is UNSET for part in parts):
        return UNSET
    return sequence(m, kind, [*parts[0], *parts[1]])


def call_method(m: Any, literal: Literal, name: str, args: Sequence, kwargs: Mapping) -> Any:
    """A method of an open literal, if nothing has to look for it; or UNSET."""
    if name == "append" and len(args) == 1 and not kwargs:
        return None if append(literal, args[0]) else UNSET
    if name == "extend" and len(args) == 1 and not kwargs:
        return None if extend(m, literal, args[0]) else UNSET
    if name == "get" and 1 <= len(args) <= 2 and not kwargs and literal.made is UNSET:
        key = m.force(args[0])
        if type(key) in _KEYS:
            return literal.items.get(key, args[1] if len(args) > 1 else None)
    if name == "update" and len(args) <= 1 and literal.made is UNSET:
        if any(_holds(item, literal) for item in kwargs.values()):
            return UNSET
        if not args or update(literal, args[0]):
            literal.items.update(kwargs)
            return None
    return UNSET


def _holds(value: Any, target: Literal) -> bool:
    """Whether ``target`` would hold itself."""
    pending, seen = [value], set()
    while pending:
        value = pending.pop()
        if type(value) is not Literal or value.made is not UNSET or id(value) in seen:
            continue
        if value is target:
            return True
        seen.add(id(value))
        pending.extend(value.items.values() if value.kind is dict else value.items)
    return False


# ---- the instructions -------------------------------------------------------------------------


def _take(f: Frame, count: int) -> list[Any]:
    return f.stack[len(f.stack) - count :]


def _replace(f: Frame, count: int, value: Any) -> None:
    if count:
        del f.stack[-count:]
    f.stack.append(value)


@enters("BUILD_TUPLE")
def build_tuple(m: Any, f: Frame, count: int) -> None:
    _replace(f, count, sequence(m, tuple, _take(f, count)))


@enters("BUILD_LIST")
def build_list(m: Any, f: Frame, count: int) -> None:
    _replace(f, count, Literal(list, _take(f, count)))


@enters("BUILD_CONST_KEY_MAP")
def build_const_key_map(m: Any, f: Frame, count: int) -> None:
    *values, keys = _take(f, count + 1)
    _replace(f, count + 1, Literal(dict, dict(zip(m.own(keys), values, strict=True))))


@enters("BUILD_SET")
def build_set(m: Any, f: Frame, count: int) -> None:
    made: set[Any] = set()
    for item in _take(f, count):
        m.insert(made, item)
    _replace(f, count, made)


@enters("BUILD_MAP")
def build_map(m: Any, f: Frame, count: int) -> None:
    items = _take(f, 2 * count)
    keys = [m.key(key) for key in items[::2]]
    if all(type(key) in CONSTANT_TYPES for key in keys):
        _replace(f, 2 * count, Literal(dict, dict(zip(keys, items[1::2], strict=True))))
        return
    made: dict[Any, Any] = {}
    for key, item in zip(keys, items[1::2], strict=True):
        m.insert(made, key, m.own(item))
    _replace(f, 2 * count, made)


def kept(m: Any, value: Any) -> Any:
    """What a cell holds, which the interpreter alone reads: as unobserved as it is."""
    return value if type(value) in (Lazy, Literal, Unread) else m.own(value)


@enters("MAKE_CELL")
def make_cell(m: Any, f: Frame, slot: int) -> None:
    value = f.fast[slot]
    f.fast[slot] = CellType() if value is UNSET else CellType(kept(m, value))


@enters("STORE_DEREF")
def store_deref(m: Any, f: Frame, slot: int) -> None:
    m.store_cell(f.fast[slot], kept(m, f.stack[-1]))
    f.stack.pop()


@enters("LIST_TO_TUPLE")
def list_to_tuple(m: Any, f: Frame, arg: Any) -> None:
    items = items_in(f.stack[-1], list)
    f.stack[-1] = tuple(m.own(f.stack[-1])) if items is UNSET else sequence(m, tuple, items)


_unpack = ENTERING["UNPACK_SEQUENCE"]


@enters("UNPACK_SEQUENCE")
def unpack_sequence(m: Any, f: Frame, count: int) -> None:
    value = f.stack[-1]
    items = UNSET if type(value) is not Literal else items_in(value, value.kind)
    if type(items) is not list or len(items) != count:
        _unpack(m, f, count)
    else:
        f.stack.pop()
        f.stack.extend(reversed(items))


def _joining(name: str, join: Callable[[Any, Any, Any], bool]) -> None:
    """An instruction that adds the items of the operand on top to a container below it."""
    otherwise = ENTERING.get(name, HANDLERS[name])

    @enters(name)
    def handler(m: Any, f: Frame, depth: int) -> None:
        s = f.stack
        if join(m, s[-depth - 1], s[-1]):
            s.pop()
        else:
            otherwise(m, f, depth)


def _merge(m: Any, target: Any, value: Any) -> bool:
    """Keyword arguments, of which none is given twice."""
    known, items = items_in(target, dict), items_in(value, dict)
    return (
        known is not UNSET
        and items is not UNSET
        and not known.keys() & items
        and (update(target, value))
    )


_joining("LIST_EXTEND", extend)
_joining("DICT_UPDATE", lambda m, target, value: update(target, value))
_joining("DICT_MERGE", _merge)
