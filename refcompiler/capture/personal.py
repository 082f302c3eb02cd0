"""What only this process knows: ids, hashes of texts and objects, and so the order of sets.

A program whose capture was decided by it is right in this process, and not kept for others: see
:mod:`refcompiler.runtime.shelf`. (Python's documentation of ``object.__hash__``: texts and bytes
are hashed with a number that each process draws; ``id`` is an address.)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_SETS: tuple[Any, ...] = (set, frozenset)
#: Classes of which equal objects have one hash in every process.
_ALIKE = frozenset({int, bool, float, complex})
#: What C code does with sets whatever their order is.
_REGARDLESS = frozenset(
    """
    set frozenset sorted len add discard remove clear copy update union intersection difference
    symmetric_difference difference_update intersection_update symmetric_difference_update issubset
    issuperset isdisjoint sum any all contains __contains__ __len__ __eq__ __ne__ __or__ __and__
    __sub__ __xor__ __ior__ __iand__ __isub__ __ixor__ or_ and_ sub xor ior iand isub ixor eq ne le
    lt ge gt bool truth min max
    """.split()
)
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def has_own_order(value: Any) -> bool:
    """Whether ``value`` is a set that other processes may have in another order."""
    kind = next((kind for kind in _SETS if issubclass(type(value), kind)), None)
    if kind is None or kind.__len__(value) < 2:
        return False
    return not all(type(item) in _ALIKE for item in kind.__iter__(value))


def has_address(text: str) -> bool:
    """Whether ``text`` shows where an object lies, as ``object.__repr__`` has it."""
    return _ADDRESS.search(text) is not None


def is_personal(name: str, container: Any, given: Sequence[Any], found: Any) -> bool:
    """Whether what the C function ``name``, a method of ``container``, has ``found`` is."""
    if type(found) is str:
        return has_address(found)
    if name in _REGARDLESS:
        return False
    return has_own_order(container) or any(map(has_own_order, given))
