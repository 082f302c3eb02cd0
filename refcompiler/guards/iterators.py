"""Iterators from outside: what they are about to give, without advancing them.

The builtin iterators tell their state when pickled (``__reduce__``), so that a copy can run ahead
of the original. An iterator over other iterators is copied with them. What would run the user's
code (``map`` of a function, a generator, what asks items for their truth) is not copied.
"""

from __future__ import annotations

import collections
import copy
import gc
import itertools
import operator
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

_EXAMPLES: tuple[Any, ...] = (
    *(iter([]), reversed([]), iter(()), reversed(()), iter("a"), iter("\u20ac"), iter(b"")),
    *(iter(bytearray()), iter(range(0)), iter(range(2**70)), iter(set())),
    *(iter({}), iter({}.values()), iter({}.items())),
    *(reversed({}), reversed({}.values()), reversed({}.items())),
    *(iter(collections.OrderedDict()), iter(collections.deque())),
    *(reversed(collections.deque()), itertools.count(), itertools.repeat(0, 0)),
    *(itertools.product(), itertools.permutations(()), itertools.combinations((), 0)),
)
#: Iterators whose state is a container and a position, or numbers alone.
LEAVES: frozenset[type] = frozenset(map(type, _EXAMPLES))
#: Iterators over an object that has a ``__getitem__`` alone.
NUMBERED: type = type(iter(type("", (), {"__getitem__": int})()))
#: Iterators over other iterators that run no code of the user's.
COMPOSITES: frozenset[type] = frozenset(
    {
        zip,
        enumerate,
        itertools.chain,
        itertools.islice,
        itertools.cycle,
        itertools.zip_longest,
    }
)


def _warns() -> bool:
    """Whether this Python warns that iterators will not tell their state for ever (3.12 does)."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        itertools.count().__reduce__()
    return bool(caught)


_WARNS = _warns()


_OVER_LISTS: frozenset[type] = frozenset({type(iter([])), type(reversed([]))})
#: How iterators are made of instances of a class that says otherwise what it gives.
_MAKERS: dict[type, Any] = {
    type(iter([])): list.__iter__,
    type(reversed([])): list.__reversed__,
    type(iter(())): tuple.__iter__,
    type(iter("")): str.__iter__,
    type(iter("\u20ac")): str.__iter__,
    type(iter(b"")): bytes.__iter__,
    type(iter(bytearray())): bytearray.__iter__,
}


def account(iterator: Any) -> Any:
    """``iterator.__reduce__()``: how it is made, from what, and its state.

    Made without asking a class that inherits from a container, as what is copied may have.
    """
    if not _WARNS:
        found = iterator.__reduce__()
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            found = iterator.__reduce__()
    maker = _MAKERS.get(type(iterator))
    if maker is None or not isinstance(found[1][0], maker.__objclass__):  # one that is over
        return found
    return maker, *found[1:]


def is_outdated(iterator: Any) -> bool:
    """The dict or set of this iterator has another size than when it was made."""
    try:
        iterator.__reduce__()
    except RuntimeError:
        return True
    return False


def outdated(make: Callable[[Any], Any], container: Any) -> Any:
    """An iterator that says that its dict or set, here ``container``, has changed its size."""
    iterator = make(container)
    container.clear()
    return iterator


def odict_view(iterator: Any, owner: Any) -> str | None:
    """How an iterator of an ordered dict is made of ``owner``: what makes one that gives the same
    from where this one is. None where none does."""
    left = list(account(iterator)[1][0])
    for text, view in ODICT_VIEWS.items():
        given = list(view(owner))
        rest = given[len(given) - len(left) :]
        if all(map(_is_alike, rest, left)):
            return text
    return None


def _is_alike(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) is tuple and all(map(operator.is_, a, b)))


_Ordered = collections.OrderedDict
#: The text of each iterator of an ordered dict, and what makes it.
ODICT_VIEWS: dict[str, Callable[[Any], Any]] = {
    "OrderedDict.__iter__({})": _Ordered.__iter__,
    "iter(OrderedDict.items({}))": _Ordered.items,
    "iter(OrderedDict.values({}))": _Ordered.values,
    "OrderedDict.__reversed__({})": _Ordered.__reversed__,
    "reversed(OrderedDict.items({}))": lambda owner: reversed(_Ordered.items(owner)),
    "reversed(OrderedDict.values({}))": lambda owner: reversed(_Ordered.values(owner)),
}


class Mutated:
    """An iterator of a deque that was changed since."""

    __slots__ = ()

    def __iter__(self) -> Mutated:
        return self

    def __next__(self) -> Any:
        raise RuntimeError("deque mutated during iteration")


def is_over_changed(iterator: Any) -> bool:
    """Whether the deque of this iterator was changed since it was made, which the next item tells:
    it is taken."""
    try:
        next(iterator, None)
    except RuntimeError:
        return True
    return False


def duplicate(iterator: Any) -> Any:
    """``copy.copy(iterator)``, which asks no class of the user's."""
    if type(iterator) in _MAKERS:
        return clone(iterator, {})
    if not _WARNS:
        return copy.copy(iterator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return copy.copy(iterator)


def restore(iterator: Any, state: Any) -> None:
    """``iterator.__setstate__(state)``.

    One over a list stands where it stood, also where the list has become shorter: CPython's method
    would cut the place to the length.
    """
    if type(iterator) in _OVER_LISTS:
        owner = account(iterator)[1][0]
        missing = state + 1 - list.__len__(owner)
        if missing > 0:
            list.extend(owner, [None] * missing)
            iterator.__setstate__(state)
            list.__delitem__(owner, slice(-missing, None))
            return
    if not _WARNS:
        iterator.__setstate__(state)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        iterator.__setstate__(state)


_CONTAINERS = (list, tuple, dict, set, frozenset, str, bytes, range, collections.deque)
_SEQUENTIAL: tuple[type, ...] = (type(iter(())), type(iter([])))
_SHAPED = COMPOSITES | {map, filter, itertools.compress}
_NUMBERS = (int, float, complex, bool)


def _parts(iterator: Any) -> Iterator[Any]:
    """What an iterator over iterators holds, however deep in its state."""
    if type(iterator) is itertools.chain:
        yield from _links(iterator) or ()
        return
    _, *state = account(iterator)
    level = [part for part in state if type(part) is tuple]
    for parts in level:
        yield from parts


def _links(chain: Any) -> list[Any] | None:
    """What a chain goes through from here on; the first is what it is in the middle of.

    None where only making them one after the other would tell.
    """
    _, _, *state = account(chain)
    if not state:
        return []
    waiting, *active = state[0]
    if type(waiting) not in _SEQUENTIAL:
        return None
    return active + list(duplicate(waiting))


def nested(iterator: Any, found: dict[int, Any]) -> bool:
    """Collect ``iterator`` and those under it by id; whether all of them can be copied."""
    if id(iterator) in found:
        return True
    found[id(iterator)] = iterator
    kind = type(iterator)
    if kind is itertools.count:  # which adds
        return all(type(number) in _NUMBERS for number in account(iterator)[1])
    if kind in LEAVES:
        return True
    if kind not in COMPOSITES:
        return False
    complete = kind is not itertools.chain or _links(iterator) is not None
    for part in _parts(iterator):
        if hasattr(type(part), "__next__"):
            complete = nested(part, found) and complete
        elif kind is itertools.chain and type(part) not in _CONTAINERS:
            complete = False  # what would make an iterator of it?
    return complete


def shape(iterator: Any, memo: dict[int, int] | None = None) -> Any:
    """The classes of ``iterator`` and of those under it, and which of them are one object."""
    memo = {} if memo is None else memo
    number = memo.get(id(iterator))
    if number is not None:
        return number
    memo[id(iterator)] = len(memo)
    kind = type(iterator)
    if kind not in _SHAPED:
        return kind
    parts = [part for part in _parts(iterator) if hasattr(type(part), "__next__")]
    return kind, *[shape(part, memo) for part in parts]


def clone(iterator: Any, memo: dict[int, Any]) -> Any:
    """An iterator in the same state, over copies of the iterators under it."""
    made = memo.get(id(iterator))
    if made is None:
        if type(iterator) is itertools.chain:
            made = itertools.chain(*[_clone(part, memo) for part in _parts(iterator)])
            memo[id(iterator)] = made
            return made
        function, args, *rest = account(iterator)
        made = function(*[_clone(part, memo) for part in args])
        if rest and rest[0] is not None:
            state = rest[0]
            if type(state) is tuple:
                state = tuple([_clone(part, memo) for part in state])
            if type(iterator) is itertools.cycle:
                state = (list(state[0]), state[1])  # it appends to what it has seen
            restore(made, state)
        memo[id(iterator)] = made
    return made


def _clone(part: Any, memo: dict[int, Any]) -> Any:
    return clone(part, memo) if hasattr(type(part), "__next__") else part


class Ahead:
    """What ``iterator`` will give: ``ahead[k]`` is the k-th item from here on.

    ``IndexError`` where it ends before, as for a sequence of what is left.
    """

    __slots__ = ("copy", "items")

    def __init__(self, iterator: Any):
        self.copy = clone(iterator, {})
        self.items: list[Any] = []

    def __getitem__(self, index: int) -> Any:
        while len(self.items) <= index:
            try:
                self.items.append(next(self.copy))
            except StopIteration:
                raise IndexError(index) from None
        return self.items[index]

    def ends(self, count: int) -> bool:
        """Whether just ``count`` items are left."""
        try:
            self[count]
        except IndexError:
            return len(self.items) == count
        return False


def advance(iterator: Any, count: int, ended: bool) -> None:
    """Take ``count`` items, and the end if that was seen."""
    if ended:
        collections.deque(iterator, 0)
    else:
        collections.deque(itertools.islice(iterator, count), 0)


def is_over(iterator: Any, containers: Sequence[Any]) -> bool:
    """Whether one of ``containers`` is what ``iterator``, or one under it, goes over."""
    found: dict[int, Any] = {}
    nested(iterator, found)
    wanted = {id(container) for container in containers}
    return any(id(part) in wanted for one in found.values() for part in _over(one))


def _over(iterator: Any) -> Sequence[Any]:
    if type(iterator).__name__.startswith(("dict_", "set_", "odict_")):
        return gc.get_referents(iterator)  # pickled as a list of what is left
    return account(iterator)[1] if type(iterator) in LEAVES else ()


def apart(iterators: Sequence[Any], containers: Sequence[Any]) -> bool:
    """Whether no two of ``iterators`` share one, and none goes over one of ``containers``."""
    found: dict[int, Any] = {}
    total = 0
    for iterator in iterators:
        own: dict[int, Any] = {}
        nested(iterator, own)
        total += len(own)
        found |= own
    if len(found) != total:
        return False
    return not containers or not any(is_over(iterator, containers) for iterator in iterators)


class Feeder:
    """The iterator under an ``enumerate`` that capture rebuilt.

    Its items can be passed over: when capture has taken them from ``inner`` already, the
    enumeration is brought up to date by counting only.
    """

    __slots__ = ("inner", "passing")

    def __init__(self, inner: Any):
        self.inner = inner
        self.passing = 0

    def __iter__(self) -> Feeder:
        return self

    def __next__(self) -> Any:
        if self.passing:
            self.passing -= 1
            return None
        return next(self.inner)


def fed(enumeration: Any) -> Any:
    """The iterator whose items ``enumeration`` numbers, if capture rebuilt it, or None."""
    feeder = account(enumeration)[1][0]
    return feeder.inner if type(feeder) is Feeder else None


def numbered(enumeration: Any, item: Any) -> tuple[Any, Any]:
    """What ``enumeration`` gives for ``item``, which was taken from the iterator itself."""
    inner, number = account(enumeration)[1]
    inner.passing += 1
    next(enumeration)
    return number, item


def count_on(enumeration: Any, count: int) -> None:
    """Number ``count`` items that were taken from the iterator itself."""
    account(enumeration)[1][0].passing += count
    advance(enumeration, count, False)


def move_on(iterator: Any, count: int) -> None:
    """``count`` items were taken of an object's ``__getitem__``, which is not asked again."""
    restore(iterator, account(iterator)[2] + count)
