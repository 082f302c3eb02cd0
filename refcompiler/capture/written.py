"""Dicts and lists from outside of which nothing but single items is read and written.

What else such a container holds, and what was overwritten, is no matter then, and not guarded. Once
something asks for more than that, it is observed, but for what was overwritten in a dict before.

``losses[i] = loss`` of an ``i`` that changes from call to call writes :class:`At` a place that only
the call knows, as long as nothing else is asked of the container; then the place is a constant.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from refcompiler.capture.kinds import CONSTANT_TYPES
from refcompiler.capture.values import DELETED, External, Lazy, Literal
from refcompiler.interpreter.frame import UNSET

_DICTS = (dict, OrderedDict)
#: Dicts that are read as attributes or names besides.
_NAMESPACES = frozenset(("dict", "hidden_dict", "space", "const", "globals"))


class At:
    """A key that is a symbol, by what it computes.

    As it was when this was made: what the program decides later may make a constant of it.
    """

    __slots__ = ("expr", "number")

    def __init__(self, number: torch.SymInt):
        self.number = number
        self.expr = number.node.expr

    def __hash__(self) -> int:
        return hash(self.expr)

    def __eq__(self, other: object) -> bool:
        return type(other) is At and self.expr == other.expr


def settle(machine: Any, known: External | None) -> None:
    """What was written at a place that is a symbol is at a constant one from here on."""
    if known is None or not known.written or not any(type(k) is At for k in known.written):
        return
    places = {k: machine.sizes.plain(k.number) if type(k) is At else k for k in known.written}
    settled = {places[k]: new for k, new in known.written.items()}
    known.written.clear()
    known.written.update(settled)


def is_closed(machine: Any, lazy: Lazy) -> bool:
    """Whether nothing has looked into a container as a whole: single items are read from it."""
    value = lazy.value
    known = machine.external.get(id(value))
    if known is None:
        return id(value) not in machine.outside.removed
    if known.written is not None:
        return known.source is lazy.source
    return known.shadow is None and id(value) in machine.globals_written


def is_written_list(machine: Any, lazy: Lazy) -> bool:
    """A closed list, whose length is what it was."""
    return type(lazy.value) is list and is_closed(machine, lazy)


def is_appended(machine: Any, lazy: Lazy) -> bool:
    """Whether nothing was done to a list but that items were appended."""
    known = machine.external.get(id(lazy.value))
    return known is not None and known.tail is not None


def length_of_list(machine: Any, lazy: Lazy) -> Any:
    """The length of a list behind a break, as a symbol; None if it is to be a constant."""
    source, known = lazy.source, machine.external.get(id(lazy.value))
    if not machine.continues:
        return None
    if known is not None and known.source is not source:
        machine.guard("SAME", source, known.source)
        source = known.source
    number = machine.sizes.number(len(lazy.value), machine.sources.make("length", source))
    if number is None:
        return None
    machine.guard("TYPE", source, list)
    return number + len(known.tail) if known is not None and known.tail else number


def item_at(machine: Any, lazy: Lazy, key: int) -> Any:
    """An item of a list or tuple of which single items are read: that is there at other lengths.

    One from the end is another item at another length, and so it is read; what was appended comes
    behind what the list had.
    """
    value, known = lazy.value, machine.external.get(id(lazy.value))
    source, tail = lazy.source, known.tail if known is not None and known.tail is not None else ()
    if known is not None and known.source is not source:
        machine.guard("SAME", source, known.source)
        source = known.source
    if -len(tail) <= key < 0:
        return tail[key]
    place = key + len(tail) if key < 0 else key
    if not -len(value) <= place < len(value):
        machine.guard("LENGTH", source, len(value))
        return [*value, *tail][key]
    if known is not None and known.written:
        machine.guard("LENGTH", source, len(value))
        found = written_item(machine, lazy, place % len(value))
        if found is not UNSET:
            return found
    return machine.lazy(machine.item(source, place), value[place])


def written_item(machine: Any, lazy: Lazy, key: Any) -> Any:
    """What was written under ``key`` of a closed container: maybe DELETED, or UNSET."""
    known = machine.external.get(id(lazy.value))
    if known is not None and known.written is not None:
        settle(machine, known)
        return known.written.get(key, UNSET)
    return machine.written_at(lazy, key)


def key_of_size(machine: Any, key: Any) -> Any:
    """A size that a closed dict is asked for is the numbers in it: it is no :class:`At`."""
    return machine.sizes.plain(key) if type(key) is torch.Size else key


def has_item(machine: Any, lazy: Lazy, key: Any) -> bool:
    """Whether a closed dict has a key, which is guarded."""
    found = written_item(machine, lazy, key)
    if found is UNSET:
        machine.guard("HAS" if key in lazy.value else "ABSENT", lazy.source, key)
        return key in lazy.value
    return found is not DELETED


def read_item(machine: Any, lazy: Lazy, key: Any) -> Any:
    """The item of a closed dict; UNSET where there is none."""
    found = written_item(machine, lazy, key)
    if found is DELETED:
        return UNSET
    if found is not UNSET:
        return found
    if key not in lazy.value:
        machine.guard("ABSENT", lazy.source, key)
        return UNSET
    return machine.lazy(machine.item(lazy.source, key), lazy.value[key])


def write_item(machine: Any, target: Any, key: Any, new: Any) -> bool:
    """``target[key] = new``, if ``target`` is a container that stays closed."""
    if type(key) is torch.SymInt:
        key = _place(machine, target, key)
    if _ends(machine, target, key):
        return False
    if type(target) is Lazy and type(target.value) is list:
        return _write_to_list(machine, target, key, new)
    written = _opened(machine, target, key)
    if written is None or written.get(key) is DELETED:  # it is the last one from now on
        return False
    written[key] = new
    return True


def _place(machine: Any, target: Any, key: torch.SymInt) -> Any:
    """``key`` of a closed container as what may stay a symbol, or the number that it is here."""
    if type(target) is not Lazy or type(target.value) not in (list, *_DICTS):
        return key
    if machine.dropping is None and key.node.has_hint() and is_closed(machine, target):
        known = machine.external.get(id(target.value))
        written = (known and known.written) or {}
        if {*written} <= {At(key)}:
            if type(target.value) is not list:
                return At(key)
            if 0 <= key and key < len(target.value):
                return At(key)
    return machine.sizes.plain(key)


def _ends(machine: Any, target: Any, key: Any) -> bool:
    """Whether something of which the program can tell ends where it is overwritten: the container
    itself keeps it until the graph is over."""
    if machine.dropping is None or type(target) is not Lazy:
        return False
    value = target.value
    if type(value) is list:
        if type(key) is not int or not -len(value) <= key < len(value):
            return False
        return machine.dropping.ends_tell(value[key])
    if type(value) not in _DICTS or type(key) not in CONSTANT_TYPES:
        return False
    return machine.dropping.ends_tell(value.get(key))


def delete_item(machine: Any, target: Any, key: Any) -> bool:
    """``del target[key]``, if ``target`` is a dict that stays closed and has the key."""
    if type(target) is not Lazy or type(target.value) not in _DICTS:
        return False
    if type(key) not in CONSTANT_TYPES or not is_closed(machine, target):
        return False
    if not has_item(machine, target, key):
        return False
    if _ends(machine, target, key):
        return False
    written = _opened(machine, target, key)
    if written is None:
        return False
    if key in target.value:
        machine.guard("HAS", target.source, key)
        written[key] = DELETED
    else:
        machine.guard("ABSENT", target.source, key)
        del written[key]
    return True


def call_method(machine: Any, lazy: Lazy, name: str, args: Sequence, kwargs: Mapping) -> Any:
    """A dict's method that leaves it closed; UNSET where it does not."""
    if name == "update":
        return _update(machine, lazy, args, kwargs)
    key = key_of_size(machine, machine.force(args[0])) if args else UNSET
    if type(key) not in CONSTANT_TYPES or len(args) > 2 or kwargs or not is_closed(machine, lazy):
        return UNSET
    if name == "get":
        found = read_item(machine, lazy, key)
        return found if found is not UNSET else args[1] if len(args) > 1 else None
    if name == "pop":
        found = read_item(machine, lazy, key)
        if found is UNSET:
            return args[1] if len(args) > 1 else UNSET
        found = machine.force(found)
        return found if delete_item(machine, lazy, key) else UNSET
    if len(args) > (name == "setdefault") + 1:
        return UNSET
    if name == "__contains__":
        return machine.contains(key, lazy)
    if name == "setdefault" and not has_item(machine, lazy, key):
        new = machine.force(args[1]) if len(args) > 1 else None
        return new if write_item(machine, lazy, key, new) else UNSET
    return machine.getitem(lazy, key)


def _update(machine: Any, lazy: Lazy, args: Sequence, kwargs: Mapping) -> Any:
    new: dict[Any, Any] = {}
    if args:
        given = args[0] if type(args[0]) is not Literal else machine.force(args[0])
        if len(args) > 1 or type(given) is not dict or id(given) in machine.external:
            return UNSET
        new.update(given)
    if not all(type(key) in CONSTANT_TYPES for key in new):
        return UNSET
    new.update({key: machine.force(value) for key, value in kwargs.items()})
    if not new or not is_closed(machine, lazy):
        return UNSET
    if any(written_item(machine, lazy, key) is DELETED for key in new):
        return UNSET
    done = [write_item(machine, lazy, key, value) for key, value in new.items()]
    return None if done[0] else UNSET


def _opened(machine: Any, target: Any, key: Any) -> dict[Any, Any] | None:
    """What is written to a closed dict."""
    if type(target) is not Lazy or type(target.value) not in _DICTS:
        return None
    if type(key) not in (At, *CONSTANT_TYPES) or target.source.kind in _NAMESPACES:
        return None
    return _written(machine, target, key)


def _write_to_list(machine: Any, target: Lazy, index: Any, new: Any) -> bool:
    size = len(target.value)
    if type(index) is int:
        if not -size <= index < size:
            return False
        index %= size
    elif type(index) is not At:
        return False
    written = _written(machine, target, index)
    if written is None:
        return False
    machine.guard("LENGTH", target.source, size)
    written[index] = new
    return True


def _written(machine: Any, target: Lazy, key: Any) -> dict[Any, Any] | None:
    value, source = target.value, target.source
    known = machine.external.get(id(value))
    if known is None:
        if not machine.is_unread(target) or id(value) in machine.handed_out:
            return None
        machine.guard("TYPE", source, type(value))
        known = machine.external[id(value)] = External(value, source)
        known.written = {}
    elif known.written is None or known.source is not source:
        return None
    elif type(key) is not At:
        settle(machine, known)
    return known.written


def looked_into(machine: Any, known: Any) -> Any:
    """``known``, an :class:`External` or None, as one that is read and written as any other."""
    if known is None or known.written is None:
        return known
    settle(machine, known)
    written, known.written = known.written, None
    is_list = type(known.value) is list
    try:
        if is_list:
            machine.shadow_sequence(known)
        else:
            machine.shadow_mapping(known, written)
    except BaseException:  # it stays one that nothing has looked into
        machine.external.pop(id(known.shadow), None)
        known.shadow, known.written = None, written
        raise
    for key, new in written.items():
        if new is DELETED:
            del known.shadow[key]
        else:
            known.shadow[key] = new
    return known
