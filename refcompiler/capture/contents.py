"""What instances of subclasses of ``dict`` and ``list`` from outside hold, once it is asked for.

Such an object stays itself, with its attributes and methods; only its items are kept apart, in an
instance that C code reads and writes in its place. Changes are replayed after the graph.
"""

from __future__ import annotations

import collections
from typing import Any

from refcompiler.capture.kinds import CONSTANT_TYPES
from refcompiler.capture.lookup import find, is_heap
from refcompiler.capture.values import External

_BASES = (dict, collections.OrderedDict, list)
#: A class that says otherwise how it is read is not read here.
_READS = ("__iter__", "__len__", "keys", "values", "items")


def base_of(kind: type) -> Any:
    """The class in C of which ``kind`` is a subclass, if its contents can be kept apart."""
    for base in kind.__mro__:
        if not is_heap(base):
            if base is list and find(kind, "__getitem__")[0] is not list:
                return None
            return base if base in _BASES else None
        if any(name in base.__dict__ for name in _READS):
            return None
    return None


def contents(machine: Any, value: Any) -> Any:
    """What stands for the contents of ``value``; ``value`` itself where nothing does."""
    known = machine.insides.get(id(value))
    if known is not None:
        return known
    kind = type(value)
    base = base_of(kind) if is_heap(kind) and machine.is_foreign(value) else None
    if base is None or (base is not list and not all(type(k) in CONSTANT_TYPES for k in value)):
        return value
    source = machine.external[id(value)].source
    for name in _READS:
        machine.find_guarded(kind, name)
    made = base.__new__(kind)
    external = External(value, source)
    external.shadow = made
    machine.external[id(made)], machine.insides[id(value)] = external, made
    try:
        if base is list:
            machine.guard("LENGTH", source, len(value))
            for i, item in enumerate(value):
                list.append(made, machine.observe(machine.lazy(machine.item(source, i), item)))
        else:
            machine.guard("KEYS", source, tuple(value))
            for key, item in base.items(value):
                place = machine.sources.make("dict_item", source, key)
                found = machine.observe(machine.lazy(place, item))
                base.__setitem__(made, key, found)
    except BaseException:
        del machine.external[id(made)], machine.insides[id(value)]
        raise
    external.original = list(made) if base is list else dict(made)
    machine.recorder.keep.append(made)
    return made
