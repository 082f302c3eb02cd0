"""What instances of subclasses of C's containers and numbers from outside hold.

Such an object stays itself, with its attributes and methods; only its items are kept apart, once
they are asked for, in a container that C code reads and writes in its place. Changes are replayed
after the graph. Where the class says how it is read, that is an instance of the class in C, so that
C code does not ask the methods, which are interpreted and have been asked already.

The value of an instance of a number's or text's subclass is guarded, and never changes: C code is
given the plain number.
"""

from __future__ import annotations

import collections
import operator
from types import FunctionType
from typing import Any

import torch

from refcompiler.capture.kinds import CONSTANT_TYPES
from refcompiler.capture.lookup import find, is_heap
from refcompiler.capture.natively import natively
from refcompiler.capture.setorder import alike
from refcompiler.capture.signals import Break
from refcompiler.capture.values import External, Items
from refcompiler.guards.sources import SCALARS, contents_of, plain_scalar
from refcompiler.interpreter.frame import UNSET

_BASES = (
    *(dict, collections.OrderedDict, collections.defaultdict),
    *(list, tuple, collections.deque, set, frozenset),
)
#: What C code asks of a container, and a class may answer by itself.
_READS = ("__iter__", "__len__", "__getitem__", "keys", "values", "items")
#: What C keeps besides the items.
_KEPT = {collections.deque: "maxlen", collections.defaultdict: "default_factory"}


def base_of(kind: type) -> Any:
    """The class in C of which ``kind`` is a subclass, if its contents can be kept apart."""
    for base in kind.__mro__:
        if not is_heap(base):
            return base if base in _BASES else None
    return None


def _is_read_by_c(kind: type) -> bool:
    """Whether no class of the user's says how ``kind`` is read."""
    return all(not is_heap(owner) for name in _READS if (owner := find(kind, name)[0]) is not None)


def contents(machine: Any, value: Any) -> Any:
    """What stands for the contents of ``value``; ``value`` itself where nothing does."""
    known = machine.insides.get(id(value))
    if known is not None:
        return known
    kind = type(value)
    if not is_heap(kind) or not machine.is_foreign(value):
        return value
    if issubclass(kind, SCALARS):
        return plain_scalar(value)
    base = base_of(kind)
    if base is None or not _is_told(base, value):
        return value
    source = machine.external[id(value)].source
    external, given = External(value, source), value
    kept = (
        machine.lazy(machine.member(source, _KEPT[base]), getattr(value, _KEPT[base]))
        if (base in _KEPT)
        else None
    )
    if _is_read_by_c(kind) and not issubclass(kind, (set, frozenset)):
        for name in _READS:
            machine.find_guarded(kind, name)
    else:
        source, given, kind = machine.sources.make("contents", source), contents_of(value), base
        machine.lazy(source, given)
    made: Any
    if issubclass(base, dict):
        made = base.__new__(kind)
        if base is collections.defaultdict:
            made.default_factory = machine.observe(kept)
    elif base is list or base is collections.deque:
        made = base.__new__(kind)
        if base is collections.deque:
            base.__init__(made, (), machine.observe(kept))
    elif base is tuple:
        made = tuple.__new__(kind, _items(machine, source, given))
    else:
        machine.guard("EQUALS", source, given)
        made = alike(value, base) if base is set else contents_of(value)
        if made is None:
            raise Break("external-object", f"{source} is a set whose order depends on its past")
    external.shadow = made
    machine.external[id(made)], machine.insides[id(value)] = external, made
    try:
        if issubclass(base, dict):
            machine.guard("KEYS", source, tuple(given))
            for key, item in (dict if type(given) is dict else base).items(given):
                place = machine.sources.make("dict_item", source, key)
                base.__setitem__(made, key, machine.observe(machine.lazy(place, item)))
        elif base is list or base is collections.deque:
            base.extend(made, _items(machine, source, given))
    except BaseException:
        del machine.external[id(made)], machine.insides[id(value)]
        raise
    external.original = _unchanged(base, made)
    machine.recorder.keep.append(made)
    return made


def check_inherited(machine: Any, value: Any, *names: str | None) -> None:
    """What stands for ``value`` does as its class does where that inherits what C code asks for.

    A class may have another function of C under a special method's name (``int.__sub__``). Those
    of ``object`` leave comparisons to the other operand, which compares contents.
    """
    kind = type(value)
    if is_heap(kind) and machine.is_foreign(value):
        for name in names:
            owner, found = find(kind, name) if name is not None else (None, UNSET)
            if owner is None or not is_heap(owner) or type(found) is FunctionType:
                continue
            if found is not vars(object).get(name or ""):
                raise Break("external-object", f"{name} of a {kind.__name__}, which is not its own")


def _is_told(base: type, value: Any) -> bool:
    """Whether guards can tell what is in ``value``, and what C keeps besides."""
    kind = type(value)
    if base in _KEPT and find(kind, _KEPT[base])[0] is not base:
        return False
    if issubclass(base, dict):
        return all(type(key) in CONSTANT_TYPES for key in dict.__iter__(value))
    if base is set or base is frozenset:
        items = list(base.__iter__(value))
        return all(type(i) in CONSTANT_TYPES for i in items) and items == list(base(items))
    return True


def _items(machine: Any, source: Any, given: Any) -> list[Any]:
    machine.guard("LENGTH", source, len(given))
    places = [machine.item(source, i) for i in range(len(given))]
    return [machine.observe(machine.lazy(place, given[i])) for i, place in enumerate(places)]


def _unchanged(base: type, made: Any) -> Any:
    """What to compare ``made`` with after the capture."""
    if base is tuple or base is frozenset:
        return made
    if base is set:
        return alike(made)
    if base is collections.deque:
        return Items(made)
    return dict(made) if issubclass(base, dict) else list(made)


def given_back(value: Any, inside: Any, found: Any) -> Any:
    """What C code that was given ``inside`` for ``value`` has answered, to the program."""
    if found is not inside or inside is value or issubclass(type(value), SCALARS):
        return found
    if type(found) in (tuple, frozenset):  # instances of subclasses are copied, then
        return type(found)(iter(found))
    return value


def dict_item(m: Any, value: Any, key: Any) -> Any:
    """An item of an instance of a dict's subclass, which may make it."""
    missing = m.method_of(type(value), "__missing__")
    if missing is UNSET and issubclass(type(value), collections.defaultdict):
        inside, key = contents(m, value), m.sizes.key(key)
        if not m.is_foreign(inside):
            return _default_item(m, inside, key)
    inside = m.insides.get(id(value), value)
    if m.is_foreign(inside):
        try:
            return m.read_foreign_dict(value, "__getitem__", [key])
        except KeyError:
            if missing is UNSET:
                raise
    elif missing is UNSET:
        return natively(m, operator.getitem, inside, key)
    elif (item := natively(m, dict.get, inside, key, UNSET)) is not UNSET:
        return item
    return m.call_special(value, "__missing__", key)


def _default_item(m: Any, value: Any, key: Any) -> Any:
    found = natively(m, dict.get, value, key, UNSET)
    if found is not UNSET:
        return found
    if value.default_factory is None:
        raise KeyError(key)
    found = m.force(m.invoke(m.frame, value.default_factory, []))
    natively(m, dict.__setitem__, value, key, found)
    return found


def merges(function: Any, name: str) -> bool:
    """Whether C code puts the items of a mapping, or pairs, into a dict."""
    if name in ("update", "__ior__"):
        owner = getattr(function, "__objclass__", type(getattr(function, "__self__", None)))
        return issubclass(owner, dict)
    return issubclass(type(function), type) and issubclass(function, dict)


def whole(machine: Any, function: Any, value: Any) -> Any:
    """``value`` for C code that merges it, or goes backwards: its class's iterator is not asked."""
    value = machine.force(value)
    kind = type(value)
    if not is_heap(kind) or issubclass(kind, torch.Tensor):
        return value
    if function is not reversed:
        return value if find(kind, "keys")[1] is UNSET else machine.mapping(value)
    backwards = find(kind, "__reversed__")[1]
    items = find(kind, "__getitem__")[1]
    if backwards is None or (backwards is UNSET and items in (UNSET, None)):
        raise TypeError(f"'{kind.__name__}' object is not reversible")
    return value if type(backwards) is FunctionType else contents(machine, value)
