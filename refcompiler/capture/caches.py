"""Functions under ``functools.lru_cache``: what they know is read without asking them.

A call with constants, or with objects that are keys by their identity, is answered from the cache,
or computed by the interpreter where the cache lacks it, and guarded by the cache still knowing that
answer, or none. After the graph the function is called once for each call of the program, so that
it counts its hits and misses, orders its entries and fills itself as in eager. What ``cache_info``
tells is then CPython's own.

Source of the rules: the documentation of ``functools.lru_cache``.
"""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from refcompiler.capture.effects import effects
from refcompiler.capture.kinds import CONSTANT_TYPES
from refcompiler.capture.natively import QUIET
from refcompiler.capture.signals import Restart
from refcompiler.capture.values import Asked
from refcompiler.guards.sources import Source

_ABSENT: Any = object()
#: C code asks a wrapper for these alone as they are, where there is no more than one argument.
_PLAIN_KEYS = (int, str)


def parts_of(function: Any) -> list[Any]:
    """What a wrapper in C holds.

    Its entries (a key, a value, and a class each), the dict of its keys, the function, the mark
    before keywords, and two classes.
    """
    parts = gc.get_referents(function)
    return parts[:-1] if type(parts[-1]) is dict else parts


_ENTRY: Any = parts_of(functools.lru_cache(len))[-2]


#: The dict of keys of a wrapper in C, for as long as that lives.
_CACHES: weakref.WeakKeyDictionary[Any, dict] = weakref.WeakKeyDictionary()


class Known:
    """What the cache of ``function`` knows of one call, without counting as a call."""

    __slots__ = ("function", "key", "entry")

    def __init__(self, function: Any, args: Sequence, kwargs: Mapping):
        self.function = weakref.ref(function)
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
        self.entry: Any = _ABSENT  # one whose value was looked up already

    def value(self) -> Any:
        """The value; ``_ABSENT`` if there is none."""
        function = self.function()
        found = _CACHES[function].get(self.key, _ABSENT)
        if type(found) is not _ENTRY:
            return found
        parts = parts_of(function)[:-5]
        keys = iter(parts[len(parts) % 3 :: 3])
        values = iter(parts[len(parts) % 3 + 1 :: 3])
        for key, value in zip(keys, values, strict=True):
            if key == self.key:
                return value
        return _ABSENT

    def agrees(self, value: Any, needed: bool) -> bool:
        """Whether ``value`` is what the function gives, or it would compute it anew."""
        function = self.function()
        if function is None:
            return False
        found = _CACHES[function].get(self.key, _ABSENT)
        if found is _ABSENT:
            return not needed
        if found is not self.entry:
            known = self.value() if type(found) is _ENTRY else found
            if known is not value and (type(known) is not type(value) or known != value):
                return False
            self.entry = found
        return True


def is_data(value: Any) -> bool:
    """Constants, also in lists, tuples and dicts."""
    kind = type(value)
    if kind in (list, tuple):
        return all(map(is_data, value))
    if kind is dict:
        return all(map(is_data, value)) and all(map(is_data, value.values()))
    return kind in CONSTANT_TYPES


def _identity(value: Any) -> tuple:
    return (type(value), value) if type(value) in CONSTANT_TYPES else (id(value),)


def _is_key(m: Any, value: Any) -> bool:
    """An object from outside that is the same key as itself alone, whatever is in it."""
    cls = type(value)
    plain = cls.__hash__ is object.__hash__ and cls.__eq__ is object.__eq__
    return plain and m.is_foreign(value)


def call_cached(m: Any, frame: Any, function: Any, args: Sequence, kwargs: Mapping) -> Any:
    """A call of a wrapper that ``functools.lru_cache`` has made."""
    source = m.source_of(function)
    forced = [m.sizes.plain(m.force(a)) for a in args]
    named = {k: m.sizes.plain(m.force(v)) for k, v in kwargs.items()}
    if source is None:  # made in the frame, of a callback
        return m.call_pure(function, forced, named)
    given = [*map(_identity, forced), *[(k, _identity(v)) for k, v in named.items()]]
    asked = id(function), *given
    objects = [v for v in (*forced, *named.values()) if type(v) not in CONSTANT_TYPES]
    if not all(_is_key(m, value) for value in objects):
        if asked not in m.answers:
            m.answers[asked] = _compute(m, frame, function, source, forced, named)
        return m.answers[asked]
    for value in objects:
        m.guard("ID", m.source_of(value), value)  # which the cache keeps alive too
    made = False
    if asked not in m.answers:
        found = _answer(m, frame, function, source, forced, named)
        if len(found) == 1:  # not one of the cache
            return found[0]
        m.answers[asked], made = found
    if (getattr(function, "__module__", None) or "").partition(".")[0] not in QUIET:
        m.deferred.append((Asked(function, named, made), tuple(forced)))
    return m.answers[asked]


def _answer(
    m: Any, frame: Any, function: Any, source: Source, args: Sequence, kwargs: Mapping
) -> tuple:
    """The answer to constants, and whether the function was called for it."""
    m.guard("ID", source, function)
    known = Known(function, args, kwargs)
    value = known.value()
    needed, made = value is not _ABSENT, False
    if not needed:
        operations, said = m.recorder.operations, len(m.deferred)
        value = m.sizes.plain(_compute(m, frame, function, source, args, kwargs))
        if m.recorder.operations != operations or not is_data(value):
            return (value,)
        del m.deferred[said:]  # calls of other such functions, which this one makes again
        if type(value) not in CONSTANT_TYPES:  # the object that the cache keeps
            _, _, most, size = function.cache_info()
            if most is not None and size >= most:
                raise Restart(m.steps, "c-function", "a function under a full lru_cache")
            value, needed, made = function(*args, **kwargs), True, True
    if not is_data(value):
        return (_compute(m, frame, function, source, args, kwargs),)
    m.guard("STATE", None, (functools.partial(known.agrees, value, needed), (), True))
    if type(value) not in CONSTANT_TYPES:
        value = m.lazy(m.sources.constant(value, function.__name__), value)
    return value, made


def _compute(
    m: Any, frame: Any, function: Any, source: Source, args: Sequence, kwargs: Mapping
) -> Any:
    """What a cached function computes, which it then does at each call."""
    before = effects(m)
    wrapped = parts_of(function)[-4]
    if function.__dict__.get("__wrapped__") is wrapped:
        place = m.member(source, "__wrapped__")
    else:
        m.guard("ID", source, function)
        place = m.sources.constant(wrapped, "__wrapped__")
    value = m.invoke(frame, m.observe(m.lazy(place, wrapped)), args, kwargs)
    if effects(m) != before:
        why = "a function under lru_cache has side effects"
        raise Restart(m.steps, "c-function", why)
    return value
