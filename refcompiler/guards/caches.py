"""What the caches of ``functools.lru_cache`` know, read without asking the function.

Source of the rules: the documentation of ``functools.lru_cache``, and what its wrappers refer to.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from refcompiler.guards.sources import NOT_SET

ABSENT: Any = object()
#: C code asks a wrapper for these alone as they are, where there is no more than one argument.
_PLAIN_KEYS = (int, str)


def parts_of(function: Any) -> list[Any]:
    """What a wrapper in C holds.

    Its entries (a key, a value, and a class each), the dict of its keys, the function, the mark
    before keywords, and two classes.
    """
    parts = gc.get_referents(function)
    return parts[:-1] if type(parts[-1]) is dict else parts


#: The dict of keys of a wrapper in C, for as long as that lives.
_CACHES: weakref.WeakKeyDictionary[Any, dict] = weakref.WeakKeyDictionary()


class Known:
    """What the cache of ``function`` knows of one call, without counting as a call."""

    __slots__ = ("function", "call", "key", "entry")

    def __init__(self, function: Any, args: Sequence, kwargs: Mapping):
        self.function = weakref.ref(function)
        self.call = tuple(args), dict(kwargs)
        parts = parts_of(function)
        mark = parts[-3]
        assert type(parts[-5]) is dict
        _CACHES[function] = parts[-5]
        told: Any = getattr(function, "cache_parameters", dict)()
        typed = told.get("typed", False)
        key = tuple(args)
        if kwargs:
            key += (mark, *[part for pair in kwargs.items() for part in pair])
        if typed:
            key += (*map(type, args), *map(type, kwargs.values()))
        plain = len(key) == 1 and type(key[0]) in _PLAIN_KEYS
        self.key = key[0] if plain else key
        self.entry: Any = ABSENT  # one whose value was looked up already

    def value(self) -> Any:
        """The value; ``ABSENT`` if there is none."""
        function = self.function()
        found = _CACHES[function].get(self.key, ABSENT)
        known = parts_of(function)
        if type(found) is not known[-2]:  # the class of entries, of which each import has its own
            return found
        parts = known[:-5]
        keys = iter(parts[len(parts) % 3 :: 3])
        values = iter(parts[len(parts) % 3 + 1 :: 3])
        for key, value in zip(keys, values, strict=True):
            if key == self.key:
                return value
        return ABSENT

    def agrees(self, value: Any, needed: bool) -> bool:
        """Whether ``value`` is what the function gives, or it would compute it anew."""
        function = self.function()
        if function is None:
            return False
        found = _CACHES[function].get(self.key, ABSENT)
        if found is ABSENT:
            return not needed
        if found is not self.entry:
            known = self.value()
            if known is not value and (type(known) is not type(value) or known != value):
                return False
            self.entry = found
        return True


def cached(function: Any, call: tuple[tuple, tuple]) -> Any:
    """What the cache knows of a call with these arguments and (name, value) pairs, or NOT_SET."""
    found = Known(function, call[0], dict(call[1])).value()
    return NOT_SET if found is ABSENT else found
