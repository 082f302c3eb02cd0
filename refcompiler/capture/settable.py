"""The table of a set: where its items lie, what discarded ones have left, where ``pop`` goes on.

Which order a set has, now and after what the program does next, is decided by its table alone
(CPython, Objects/setobject.c), which depends on all that has been done to it. Python does not show
it: it is read from memory, and made again by operations that lead to it. Where it does not lie as
is known of CPython 3.11 to 3.13, nothing is read.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

SMALLEST = 7  # the mask of the table that lies in the object itself
_FEWEST = 5  # keys of a dict for which an empty set makes room in advance
_HEAD = ctypes.c_ssize_t * 8  # references, class, fill, used, mask, table, hash, finger
_WORD = ctypes.sizeof(ctypes.c_ssize_t)
_DISCARDED = -1  # the hash of what is no more, which no item has


class Table(NamedTuple):
    """``hashes``: by place, the hash of the item there, -1 where one was discarded, or None.

    ``finger``: the place at which the next ``pop`` begins to look, or a multiple of the size more.
    """

    hashes: tuple[int | None, ...]
    finger: int

    @property
    def mask(self) -> int:
        return len(self.hashes) - 1

    def discarded(self) -> list[int]:
        return [place for place, number in enumerate(self.hashes) if number == _DISCARDED]

    def taken(self) -> list[int]:
        """The places of items, in the order in which the set gives them."""
        return [
            place for place, number in enumerate(self.hashes) if number not in (None, _DISCARDED)
        ]


def _read(value: Any) -> Table:
    _, _, _, _, mask, table, _, finger = _HEAD.from_address(id(value))
    words = memoryview(ctypes.string_at(table, 2 * _WORD * (mask + 1))).cast("q").tolist()
    pairs = zip(words[::2], words[1::2], strict=True)
    return Table(tuple(number if key else None for key, number in pairs), finger)


def _lies_as_known() -> bool:
    """Whether the memory of a set is what :func:`_read` takes it for."""
    if sys.implementation.name != "cpython" or set().__sizeof__() != 200:
        return False
    known = {0, 8, 3}  # 8 has the place behind 0's
    known.discard(3)
    _, _, fill, used, mask, table, _, finger = _HEAD.from_address(id(known))
    if (fill, used, mask, finger) != (3, 2, SMALLEST, 0) or not 0 < table - id(known) < 200:
        return False
    return _read(known) == Table((0, 8, None, _DISCARDED, None, None, None, None), 0)


_READABLE = _lies_as_known()


def table_of(value: Any) -> Table | None:
    """The table of ``value``, a set or frozenset; None where it cannot be read."""
    return _read(value) if _READABLE else None


class _Stops:
    """Equal to nothing; once it is ``armed``, being compared ends what compares."""

    def __init__(self, key: Any):
        self.hash = hash(key)
        self.armed = False

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        if self.armed:
            raise _Stopped
        return False


class _Stopped(Exception):
    pass


def grow(made: Any, mask: int, key: int) -> None:
    """Give ``made``, an empty set with the smallest table, ``key`` and a table of ``mask + 1``.

    A set makes room in advance for a dict that it is updated with; the second key ends that.
    """
    if mask <= SMALLEST:
        set.add(made, key)
        return
    last = _Stops(key)
    room = max((mask + 1) // 4, _FEWEST)
    given = dict.fromkeys([key, last, *range(-2, -room, -1)])
    last.armed = True
    try:
        set.update(made, given)
    except _Stopped:
        pass


class Filling(NamedTuple):
    """How an empty set with the smallest table gets a known one.

    ``places``: numbers that come to lie where its items are to be, in their order; ``discarded``:
    where there is to be nothing any more; ``mask``: of the table; ``finger``: where ``pop`` is to
    go on, 0: as it is.
    """

    places: tuple[int, ...]
    discarded: tuple[int, ...]
    mask: int
    finger: int


def filling(table: Table, items: Iterable[Any]) -> Filling:
    """How ``items`` come to lie as in ``table``, which gives them in this order."""
    known = list(items)
    found = [at_places(at, table.mask, known) for at in (table.taken(), table.discarded())]
    return Filling(found[0], found[1], table.mask, table.finger)


def at_places(places: Iterable[int], mask: int, items: Iterable[Any]) -> tuple[int, ...]:
    """Numbers that come to lie at ``places`` of an empty table, and equal none of ``items``."""
    known = {item for item in items if isinstance(item, (int, float, complex))}
    found = []
    for place in places:
        while place in known:
            place += mask + 1
        found.append(place)
    return tuple(found)


def filled(
    made: Any, items: Iterable[Any], filling: tuple[Any, ...], add: Callable[..., Any] = set.add
) -> Any:
    """``made``, an empty set with the smallest table, with ``items``, each at its place.

    ``filling``: the four parts of a :class:`Filling`. ``add``: puts one of ``items`` into a set.

    An item takes the first place that it comes to where nothing is, or nothing any more. So numbers
    lie at all places first, and each leaves its own to an item.
    """
    places, discarded, mask, finger = filling
    if finger:
        grow(made, (1 << (finger - 1).bit_length()) - 1, finger - 1)
        set.pop(made)
        set.clear(made)
    first = next(iter(places + discarded), None)
    if first is None:
        return made
    grow(made, mask, first)
    set.update(made, places)
    set.update(made, discarded)
    for number, item in zip(places, items, strict=True):
        set.discard(made, number)
        add(made, item)
    for number in discarded:
        set.discard(made, number)
    return made


def changed(
    made: Any, gone: Iterable[Any], new: Iterable[Any], passing: Iterable[int] = ()
) -> None:
    """Let the set ``made`` lose ``gone`` and get ``new``, one by one, and ``passing`` for a while.

    (``difference_update`` would do away with the places of what has been discarded.)
    """
    for item in gone:
        set.discard(made, item)
    set.update(made, new)
    set.update(made, passing)
    for number in passing:
        set.discard(made, number)
