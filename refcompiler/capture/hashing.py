"""What the ``__hash__`` of keys, where it is Python, has said while capturing.

A dict that the frame has made is made again after the graph with the hashes that its keys had when
they got there (:mod:`refcompiler.guards.hashes`). A dict from outside is read by what its keys say
now, which has to be what they have said to the dict.
"""

from __future__ import annotations

import collections
from typing import Any

from refcompiler.capture.kinds import CONSTANT_TYPES, SETS
from refcompiler.capture.signals import Break
from refcompiler.guards.hashes import Hashed, lies_at


def told_hash(m: Any, key: Any, found: Any) -> None:
    """The ``__hash__`` of ``key``, which is Python, has given ``found``."""
    m.hashes_told.setdefault(id(key), (key, set()))[1].add(found)


def known_hash(m: Any, key: Any, container: Any) -> int | None:
    """The hash with which ``key`` is in ``container``, a dict or set of the frame's.

    None where C code asks no Python code for it, or the key will have another hash as it is made
    again.
    """
    if not m.hashes_told or type(key) in CONSTANT_TYPES:
        return None
    said = m.hashes_told.get(id(key), (key, ()))[1]
    if len(said) > 1:  # the key has changed
        held = dict.fromkeys(container) if issubclass(type(container), SETS) else container
        numbers = [hash(Hashed(number)) for number in said]
        return next((number for number in numbers if lies_at(held, key, number)), None)
    try:
        found = hash(_hashed(m, key))
    except LookupError:
        return None
    m.is_personal = True  # of texts it is another one in each process
    return found


def _hashed(m: Any, key: Any) -> Any:
    """What has the same hash as ``key``, and asks no code of the program's."""
    kind = type(key)
    if kind in CONSTANT_TYPES:
        return key
    if kind in (tuple, frozenset):
        return kind([_hashed(m, part) for part in key])
    _, said = m.hashes_told.get(id(key), (key, ()))
    if len(said) != 1:
        raise LookupError
    (one,) = said
    return Hashed(one)


def insert_anew(m: Any, shadow: Any, key: Any, *value: Any) -> None:
    """``m.insert`` of a key that is in a container from outside: it had a hash once."""
    try:
        m.insert(shadow, key, *value)
    except Exception as error:
        raise Break("external-object", "a key that has no hash now") from error


def check_hashes(m: Any, value: dict, shadow: dict) -> None:
    """Whether the keys of ``value``, a dict from outside, lie where they do in ``shadow``.

    Not of those that have their hash in common with another key, which would be compared.
    """
    known = [known_hash(m, key, shadow) for key in shadow]
    if all(number is None for number in known):
        return
    taken = collections.Counter(
        hash(key) if number is None and type(key) in CONSTANT_TYPES else number
        for key, number in zip(shadow, known, strict=True)
    )
    for key, number in zip(shadow, known, strict=True):
        if number is not None and taken[number] == 1 and not lies_at(value, key, number):
            raise Break("external-object", "a dict with a key whose hash is another one now")
