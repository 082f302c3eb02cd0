"""The order of a set: in which order to insert its items so that another set gives them likewise.

A set gives its items by their places in a table. An item's place is the first free one of those
that its hash leads to (CPython, Objects/setobject.c), so the order depends on the sizes that the
table had and on what was inserted first, and a set that is made of another's items, one after the
other, often has another order. Here the places are found that agree with the order that is seen,
and from them who has to be there first.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from types import BuiltinFunctionType, FunctionType, ModuleType, WrapperDescriptorType
from typing import Any, NamedTuple

import torch

#: Classes whose instances have the same hash in the whole process, made again or not.
_HASHES = frozenset(
    {
        *(int, bool, float, complex, str, bytes, type(None), type(...), type(NotImplemented), type),
        *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, range),
        *(FunctionType, BuiltinFunctionType, ModuleType),
    }
)
_ROW, _SHIFT, _WORD = 9, 5, 2**64 - 1  # LINEAR_PROBES, PERTURB_SHIFT, size_t
_REACH = 24  # how many places of an item are looked at
_FEWEST = 7  # the mask of the table that lies in the object itself
_ENTRY = 16  # bytes
_EMPTY = set().__sizeof__()
_MOST = 4096  # items: above, only the plain order is tried


class Insertion(NamedTuple):
    """How to make a set that gives its items in a known order."""

    items: list[Any]
    at_once: bool = False  # into a table of the final size: set(dict.fromkeys(items))
    fillers: Sequence[int] = ()  # what has to be in the table before, and is discarded then


def insertion(value: Any, is_same: Callable[[Any], bool]) -> Insertion:
    """In which order to insert the items of ``value``.

    ``is_same`` says of an item of which more is known than its class whether it is the very object
    that will be inserted. In the order in which ``value`` gives the items where no better one is
    found (for half of the large sets from which much was discarded), and where one of them will
    have another hash then, or asks Python code for it.
    """
    base = set if issubclass(type(value), set) else frozenset
    items = list(base.__iter__(value))
    plain = Insertion(items)
    if len(items) < 2 or not all(_keeps_hash(item, is_same) for item in items):
        return plain
    size = base.__sizeof__(value) - (type(value).__basicsize__ - base.__basicsize__)
    other = None
    for tried in _tries(items, max((size - _EMPTY) // _ENTRY - 1, _FEWEST), base):
        made = _made(tried)
        if _in_order(made, items):
            if made.__sizeof__() == size:
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
    if tried.at_once:
        return set(dict.fromkeys(tried.items))
    return filled(set(), tried.items, tried.fillers)


def _tries(items: list[Any], mask: int, base: type) -> Iterator[Insertion]:
    yield Insertion(items)
    yield Insertion(items, at_once=True)
    if len(items) > _MOST:
        return
    order, passed = _by_place(items, mask)
    yield Insertion(order)
    yield Insertion(order, at_once=True)
    if base is set and passed is not None:
        fillers = _fillers(items, mask, *passed)
        if fillers:
            yield Insertion(order, fillers=fillers)


def filled(made: Any, items: Sequence[Any], fillers: Sequence[int]) -> Any:
    """``made``, an empty set, with ``items``, which find ``fillers`` in the table."""
    set.update(made, fillers)
    set.update(made, items)
    for number in fillers:
        set.discard(made, number)
    return made


def alike(value: Any) -> Any:
    """A copy of ``value``, a set or frozenset, that gives the items in the same order; None where
    none is found."""
    copy = type(value)(value)
    if not _in_order(copy, value):
        order, at_once, fillers = insertion(value, lambda item: True)
        if fillers:
            copy = filled(type(value)(), order, fillers)
        else:
            copy = type(value)(dict.fromkeys(order) if at_once else order)
    return copy if _in_order(copy, value) else None


def _in_order(one: Any, other: Any) -> bool:
    return all(a is b for a, b in zip(one, other, strict=True))


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


def _by_place(items: list[Any], mask: int) -> tuple[list[Any], tuple[set[int], set[int]] | None]:
    """``items``, each behind those that took its earlier places, in a table of ``mask + 1``; then
    the places that are taken, and the free ones that items have passed."""
    places = _assigned([list(itertools.islice(_places(hash(i), mask), _REACH)) for i in items])
    if places is None:
        return items, None
    at = {place: i for i, place in enumerate(places)}
    free: set[int] = set()

    def before_it(i: int) -> Iterator[int]:
        passed = list(itertools.takewhile(places[i].__ne__, _places(hash(items[i]), mask)))
        free.update(place for place in passed if place not in at)
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
    return order, (set(at), free)


def _fillers(items: list[Any], mask: int, taken: set[int], passed: set[int]) -> list[int]:
    """Numbers that make the table grow to ``mask + 1`` and lie where items were not to lie."""
    size, needed = _FEWEST, 0
    while size < mask:  # set_add_entry: at three fifths it becomes four times what is in it
        needed = -(-size * 3 // 5)
        size = (1 << (needed * 4).bit_length()) - 1
    places = sorted(passed)
    places += itertools.islice(
        (p for p in range(mask, -1, -1) if p not in taken and p not in passed),
        max(needed - len(places), 0),
    )
    if size != mask or (len(places) + len(items)) * 5 >= mask * 3:
        return []
    known = {item for item in items if isinstance(item, (int, float, complex))}
    found = []
    for place in places:
        while place in known:
            place += mask + 1
        found.append(place)
    return found


def _assigned(choices: list[list[int]]) -> list[int] | None:
    """A place for each item, ascending, so that they are early choices in sum; None: there is none.

    Item by item, the cheapest way to each of its places; linear in their number.
    """
    layers: list[list[tuple[int, int, int]]] = []  # (place, cost, which of the layer before)
    layer = [(-1, 0, 0)]
    for choice in choices:
        costs: dict[int, int] = {}
        for cost, place in enumerate(choice):
            costs.setdefault(place, cost)
        before, layer = layer, []
        cheapest, passed = None, 0
        for place in sorted(costs):
            while passed < len(before) and before[passed][0] < place:
                if cheapest is None or before[passed][1] <= before[cheapest][1]:
                    cheapest = passed
                passed += 1
            if cheapest is not None:
                layer.append((place, before[cheapest][1] + costs[place], cheapest))
        if not layer:
            return None
        layers.append(layer)
    places = []
    last = min(range(len(layer)), key=lambda k: layer[k][1])
    for layer in reversed(layers):
        place, _, last = layer[last]
        places.append(place)
    return places[::-1]
