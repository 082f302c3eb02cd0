"""Whether dicts are as they were when their guards held, told by one number in each.

CPython numbers the states of all dicts (PEP 509, up to 3.12): after each change a dict has another
number, which no dict ever had. So guards of what is in a dict, by identity, and of what is not,
need not be asked while its number is the same. As for tensors
(:mod:`refcompiler.guards.fingerprint`) the number is found by looking, and used only if it differs
after each of :data:`CHANGES`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from refcompiler.guards.fingerprint import Unchanged, Views
from refcompiler.guards.layout import WORD, Unknown, check_interpreter, find_items, view, word
from refcompiler.logs import log_of

_HINTS = log_of("perf_hints")


class _Holder:
    """Has a ``__dict__``."""

    a: Any


def _stored_as_global(space: dict[str, Any], holder: Any) -> None:
    exec("def f():\n    global a\n    a = object()\nfor _ in range(40): f()", space)


def _union(space: dict[str, Any], holder: Any) -> None:
    space |= {"a": object()}


#: Ways to change a dict that has the key "a" and is the ``__dict__`` of an object.
CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "another value": lambda space, holder: space.__setitem__("a", object()),
    "a new key": lambda space, holder: space.__setitem__("b", 1),
    "a key that is no text": lambda space, holder: space.__setitem__(1, 2),
    "deletion": lambda space, holder: space.__delitem__("a"),
    "pop": lambda space, holder: space.pop("a"),
    "popitem": lambda space, holder: space.popitem(),
    "clear": lambda space, holder: space.clear(),
    "update": lambda space, holder: space.update(a=object()),
    "update from pairs": lambda space, holder: space.update([("a", object())]),
    "setdefault": lambda space, holder: space.setdefault("c", 1),
    "union in place": _union,
    "attribute": lambda space, holder: setattr(holder, "a", object()),
    "new attribute": lambda space, holder: setattr(holder, "d", 1),
    "object.__setattr__": lambda space, holder: object.__setattr__(holder, "a", object()),
    "deleted attribute": lambda space, holder: delattr(holder, "a"),
    "global": _stored_as_global,
}


def _stored(holder: Any) -> None:
    holder.a = object()


def find_tag() -> int:
    """The offset of the number; :class:`Unknown` where there is none, as from CPython 3.13 on."""
    check_interpreter()
    places = range(object.__basicsize__, dict.__basicsize__, WORD)
    found = [at for at in places if _differs_always(at)]
    if len(found) != 1:
        raise Unknown("no one number in a dict differs after each change")
    return found[0]


def _differs_always(at: int) -> bool:
    """Whether the word there never comes again, in any dict and after any change."""
    seen: set[int] = set()
    for change in CHANGES.values():
        for _ in range(2):
            holder = _Holder()
            holder.a = 1
            space = holder.__dict__
            before = word(id(space) + at)
            change(space, holder)
            after = word(id(space) + at)
            if before == after or before in seen or after in seen:
                return False
            seen |= {before, after}
    holder = _Holder()
    holder.a = 1
    space = holder.__dict__
    for _ in range(40):  # the interpreter stores in another way after a while
        _stored(holder)
        now = word(id(space) + at)
        if now in seen:
            return False
        seen.add(now)
    return True


@functools.cache
def _tag() -> int | None:
    try:
        return find_tag()
    except Unknown as why:
        _HINTS.info("guards ask each module at each call, which takes longer: %s", why)
        return None


def unchanged_dicts() -> Unchanged | None:
    """A new memory of dicts; None where this Python does not number their states."""
    tag = _tag()
    return None if tag is None else Unchanged(find_items(), functools.partial(_seen, tag))


def _seen(tag: int, dicts: tuple[Any, ...]) -> tuple[Views, list[bytes]]:
    if any(type(known) is not dict for known in dicts):
        raise Unknown("a dict of a subclass answers as it likes")
    views = [view(id(known) + tag, WORD) for known in dicts]
    return [views], [b"".join(views)]
