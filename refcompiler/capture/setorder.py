"""The order of a set: in which order to insert its items so that another set gives them likewise.

A set gives its items by their places in a table. An item's place is the first free one of those
that its hash leads to (CPython, Objects/setobject.c), so the order depends on the sizes that the
table had, on what was inserted first and on what has been discarded, and a set that is made of
another's items, one after the other, often has another order. The places are read
(:mod:`refcompiler.capture.settable`); from them follows who has to be there first.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FunctionType, ModuleType, WrapperDescriptorType
from typing import Any, NamedTuple

import torch

from refcompiler.capture.settable import (
    Filling,
    Table,
    at_places,
    changed,
    filled,
    filling,
    table_of,
)

#: Classes whose instances have the same hash in the whole process, made again or not.
_HASHES = frozenset(
    {
        *(int, bool, float, complex, str, bytes, type(None), type(...), type(NotImplemented), type),
        *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, range),
        *(FunctionType, BuiltinFunctionType, ModuleType),
    }
)
_ROW, _SHIFT, _WORD = 9, 5, 2**64 - 1  # LINEAR_PROBES, PERTURB_SHIFT, size_t
_MOST = 1 << 16  # places of a table: above, only the plain order is tried


class Insertion(NamedTuple):
    """How to make a set that gives its items in a known order, now and after what is done next."""

    items: list[Any]
    at_once: bool = False  # into a table of the final size: set(dict.fromkeys(items))
    filling: Filling | None = None  # into a table that is made before


def insertion(value: Any, is_same: Callable[[Any], bool]) -> Insertion:
    """In which order to insert the items of ``value``.

    ``is_same`` says of an item of which more is known than its class whether it is the very object
    that will be inserted. In the order in which ``value`` gives the items where no better one is
    found (for frozensets that were another's rest), and where one of them will have another hash
    then, or asks Python code for it.
    """
    base = _base(value)
    items = list(base.__iter__(value))
    plain = Insertion(items)
    if len(items) < 2 and base is frozenset or not all(_keeps_hash(i, is_same) for i in items):
        return plain
    other = None
    table = table_of(value)
    for tried in _tries(items, table, base):
        made = _made(tried)
        if _in_order(made, items):
            if table_of(made) == table or base is frozenset:
                return tried
            other = other or tried
    return other or plain


def is_ordered(value: Any, is_same: Callable[[Any], bool]) -> bool:
    """Whether the set that :func:`insertion` says how to make has the order of ``value``."""
    tried = insertion(value, is_same)
    return len(tried.items) < 2 or (
        all(_keeps_hash(item, is_same) for item in tried.items)
        and _in_order(_made(tried), list(value))
    )


def _made(tried: Insertion) -> set[Any]:
    if tried.filling is not None:
        return filled(set(), tried.items, tried.filling)
    return set(dict.fromkeys(tried.items) if tried.at_once else tried.items)


def _tries(items: list[Any], table: Table | None, base: type) -> Iterator[Insertion]:
    yield Insertion(items)
    yield Insertion(items, at_once=True)
    if table is None or len(table.hashes) > _MOST or table.finger > _MOST:
        return
    order = _by_place(items, table)
    yield Insertion(order)
    yield Insertion(order, at_once=True)
    if base is set:
        yield Insertion(items, filling=filling(table, items))


def alike(value: Any, kind: Any = None) -> Any:
    """A copy of ``value``, a set or frozenset, that gives the items in the same order, and does so
    after what is done to both of them; None where no order is found.

    ``kind``: its class, if not that of ``value``, of which no method runs.
    """
    kind = kind or type(value)
    copy = kind(value)
    if _in_order(copy, value) and table_of(copy) == table_of(value):
        return copy
    if not all(_keeps_hash(item, lambda item: True) for item in _items(value)):
        copy = _twin(value) if kind is set else copy
    else:
        tried = insertion(value, lambda item: True)
        order = tried.items
        if tried.filling is not None:
            copy = filled(kind(), order, tried.filling)
        else:
            copy = kind(dict.fromkeys(order) if tried.at_once else order)
    return copy if copy is not None and _in_order(copy, value) else None


def _twin(value: Any) -> set[Any] | None:
    """A set with the table of ``value`` and the same items, none of which is asked for its hash.

    Sets take hashes over from sets: each item comes out of a set that has only it. None where two
    items have one hash, since they would be compared, and where the table cannot be read.
    """
    table = table_of(value)
    if table is None:
        return None
    hashes = [table.hashes[place] for place in table.taken()]
    if len(set(hashes)) < len(hashes):
        return None
    places = filling(table, [*set(value), *hashes])
    ones = {id(item): one for one in _ones(set(value)) for item in one}
    in_order = [ones[id(item)] for item in _items(value)]
    # (an update makes room before it, which this does not)
    made = filled(set(), in_order, places, set.symmetric_difference_update)
    return made if table_of(made) == table else None


def _ones(value: set[Any]) -> Iterator[set[Any]]:
    """Sets of one item each of ``value``."""
    if len(value) < 2:
        yield value
        return
    behind = set(value)
    for _ in range(len(value) // 2):
        behind.pop()
    yield from _ones(value - behind)
    yield from _ones(behind)


def likewise(value: Any, items: list[Any]) -> set[Any] | None:
    """A set of ``items``, which are what ``value`` gives, made again; each at the same place.

    None where the items do not have the same hashes.
    """
    table = table_of(value)
    if table is None or not all(_keeps_hash(item, lambda item: True) for item in items):
        return None
    return filled(set(), items, filling(table, items))


class Difference(NamedTuple):
    """What a set loses, gets, and gets and loses again, to become another in all that shows."""

    gone: list[Any]
    new: list[Any]
    passing: tuple[int, ...]


def difference(before: set[Any], after: set[Any]) -> Difference | None:
    """How ``before`` becomes ``after``; None if it gives its items in another order so, or would
    after what is done next."""
    known, now = set(map(id, before)), set(map(id, after))
    gone = [item for item in before if id(item) not in now]
    new = [item for item in after if id(item) not in known]
    table, had = table_of(after), table_of(before)
    if table is None or not all(_keeps_hash(item, lambda item: True) for item in (*before, *new)):
        return None
    made = alike(before, set)
    if made is None:
        return None
    changed(made, gone, new)
    passing: tuple[int, ...] = ()
    if table_of(made) != table and had is not None and had.mask == table.mask:
        at = [place for place in table.discarded() if had.hashes[place] is None]
        passing = tuple(at_places(at, table.mask, [*before, *after]))
        changed(made, (), (), passing)
    return Difference(gone, new, passing) if table_of(made) == table else None


def _in_order(one: Any, other: Any) -> bool:
    """Whether two sets, or lists, have the same objects in the same order."""
    return all(a is b for a, b in zip(_items(one), _items(other), strict=True))


def _items(value: Any) -> Iterator[Any]:
    return iter(value) if type(value) is list else _base(value).__iter__(value)


def _base(value: Any) -> Any:
    return set if issubclass(type(value), set) else frozenset


def _keeps_hash(item: Any, is_same: Callable[[Any], bool]) -> bool:
    kind = type(item)
    if kind in (tuple, frozenset):
        return all(_keeps_hash(part, is_same) for part in item)
    return kind in _HASHES or (type(kind.__hash__) is WrapperDescriptorType and is_same(item))


def _places(number: int, mask: int) -> Iterator[int]:
    """Where an item of the hash ``number`` may lie, the first choice first."""
    perturb, place = number & _WORD, number & mask
    while True:
        yield from range(place, place + (_ROW if place + _ROW <= mask else 0) + 1)
        perturb >>= _SHIFT
        place = (place * 5 + 1 + perturb) & mask


def _by_place(items: list[Any], table: Table) -> list[Any]:
    """``items``, each behind those that lie where it would have come to lie before."""
    places = table.taken()
    at = {place: i for i, place in enumerate(places)}

    def before_it(i: int) -> Iterator[int]:
        number = table.hashes[places[i]]
        assert number is not None
        passed = itertools.takewhile(places[i].__ne__, _places(number, table.mask))
        return iter([at[place] for place in passed if place in at])

    order: list[Any] = []
    seen: set[int] = set()
    for start in range(len(items)):
        if start in seen:
            continue
        seen.add(start)
        stack = [(start, before_it(start))]
        while stack:
            i, waiting = stack[-1]
            for before in waiting:
                if before not in seen:
                    seen.add(before)
                    stack.append((before, before_it(before)))
                    break
            else:
                order.append(items[i])
                stack.pop()
    return order
