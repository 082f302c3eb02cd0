"""Dicts and sets of keys whose ``__hash__`` is Python, made again without asking it.

A program sees how often its ``__hash__`` runs, that it raises by now, or that it says something
else than when the key was put there. CPython's own containers keep each key's hash and never ask
again; what is made again after a graph is given the hashes that capture was told.

Two keys of one hash are still compared with each other as they are put there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

_set_item: Any = ctypes.pythonapi._PyDict_SetItem_KnownHash
_set_item.restype = ctypes.c_int
_set_item.argtypes = (ctypes.py_object, ctypes.py_object, ctypes.py_object, ctypes.c_ssize_t)
_get_item: Any = ctypes.pythonapi._PyDict_GetItem_KnownHash
_get_item.restype = ctypes.c_void_p  # a borrowed reference, which is only compared with NULL
_get_item.argtypes = (ctypes.py_object, ctypes.py_object, ctypes.c_ssize_t)
#: Up to here a set has the table that lies in the object, however it was filled.
FEW = 4


def put(target: dict, key: Any, value: Any, known: int) -> None:
    """``dict.__setitem__(target, key, value)`` of a key with the hash ``known``.

    ``target`` is no ordered dict, which keeps hashes of its own.
    """
    _set_item(target, key, value, known)


def lies_at(target: dict, key: Any, known: int) -> bool:
    """Whether ``target`` has ``key`` under this hash: it may have changed what it says of that."""
    return _get_item(target, key, known) is not None


def keyed(items: Sequence[Any], hashes: Sequence[int]) -> dict:
    """A dict with these keys, from which a set takes them with their hashes."""
    made: dict[Any, None] = {}
    for item, known in zip(items, hashes, strict=True):
        _set_item(made, item, None, known)
    return made


class Hashed:
    """Has a hash, as a part of what is hashed: that of the number ``known`` from ``__hash__``.

    It is the number itself, of 64 bits, where ``hash(known)`` would be its remainder.
    """

    __slots__ = ("known",)

    def __init__(self, known: int):
        self.known = known

    def __hash__(self) -> int:
        return self.known
