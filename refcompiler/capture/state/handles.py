"""Handles of hooks that the frame registers in dicts from outside, such as those of modules.

Handles are numbered for the process, so that no two calls make the same one. In a capture a number
is a :class:`Number`, which stands for the one that the handle gets when it is made after the graph.
So are the numbers of handles from outside, once captures have seen others in their place: which of
them are the same is guarded then, and not which they are.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from torch.utils.hooks import RemovableHandle

from refcompiler.capture.models.registry import model
from refcompiler.capture.signals import Again, Break
from refcompiler.capture.values import External
from refcompiler.guards.sources import Source

_DICTS = ("hooks_dict", "extra_dict")
_HOOKS = "hooks of "  # in a history, before the place of a dict


class Number(int):
    """The number of a handle that is not made yet; numbers of others are positive."""


class Registered:
    """A handle of one capture, and the dicts of hooks it may be removed from."""

    def __init__(self, dicts: list[External], number: int):
        self.dicts = dicts
        self.handle = handle = object.__new__(RemovableHandle)
        handle.id = Number(-number)
        handle.hooks_dict_ref = weakref.ref(dicts[0].shadow)
        handle.extra_dict_ref = tuple([weakref.ref(each.shadow) for each in dicts[1:]])


@model(RemovableHandle)
def _make(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    named = {**dict(zip(_DICTS, args, strict=False)), **kwargs}
    first, extra = m.force(named.get("hooks_dict")), m.force(named.get("extra_dict"))
    more = extra if isinstance(extra, list) else [] if extra is None else [extra]
    dicts = [m.external.get(id(m.force(each))) for each in (first, *more)]
    if m.recorder.scope.outer is not None or any(
        each is None or not issubclass(type(each.shadow), dict) for each in dicts
    ):
        raise Break("operation-not-modelled", "registration of a hook")
    made = Registered(dicts, len(m.numbered) + 1)
    m.numbered[id(made.handle)] = made
    return made.handle


def remove(m: Any, handle: RemovableHandle) -> bool:
    """Take the hook of a handle out of its dicts; False for a handle of another kind."""
    made = m.numbered.get(id(handle))
    if made is None:
        return False
    for each in made.dicts:
        each.shadow.pop(handle.id, None)
    return True


# ---- handles from outside ---------------------------------------------------------------------


class Outside:
    """The dicts of hooks that a capture has looked into, and the numbers of their handles."""

    def __init__(self) -> None:
        self.removed: set[int] = set()  # dicts of which a hook is removed after the graph
        self.plain = False  # whether numbers are constants in one of the dicts
        self.numbers: dict[int, tuple[int, Number, Source]] = {}  # and the object that is one

    def change(self, m: Any) -> bool:
        return any(str(key).startswith(_HOOKS) for key in m.sizes.policy.history.changing)

    def keys(self, m: Any, source: Source, hooks: dict[Any, Any]) -> list[Number] | None:
        """The keys of a dict of hooks; None where they are constants, or it is another dict."""
        if not hooks or type(source.key) is not str or "_hooks" not in source.key:
            return None
        if not all(type(key) is int for key in hooks):
            return None
        m.sizes.policy.history.changes(f"{_HOOKS}{source}", tuple(hooks))
        if not self.change(m):
            self.plain = True
            return None
        if self.plain:
            raise Again
        places = m.sources.make("keys", source)
        return [self.number(m, m.item(places, i), key) for i, key in enumerate(hooks)]

    def number(self, m: Any, source: Source, value: int) -> Number:
        """The number that is read at ``source``, and its guards."""
        known = self.numbers.get(value)
        m.lazy(source, value)
        if known is not None and known[0] is not value:
            raise Break("external-object", "the numbers of hooks that were copied")
        for _, other, place in self.numbers.values():
            m.guard("SAME" if other == value else "DISTINCT", source, place)
        if known is None:
            known = self.numbers[value] = value, Number(value), source
        return known[1]

    def place(self, number: Number) -> Source | None:
        known = self.numbers.get(int(number))
        return known[2] if known is not None and known[1] is number else None

    def remove(self, m: Any, handle: RemovableHandle, source: Source) -> bool:
        """As the handle's method does where numbers are no constants."""
        if not self.numbers or not self.change(m):
            return False
        first, more = (m.getattr(handle, name) for name in ("hooks_dict_ref", "extra_dict_ref"))
        number = self.number(m, m.member(source, "id"), handle.id)
        for ref in (first, *m.force(more)):
            hooks = m.force(m.referent(m.force(ref)))
            if hooks is not None:
                hooks.pop(number, None)
        return True


# ---- the end of a capture ---------------------------------------------------------------------


def make_handles(m: Any, rebuilder: Any, writer: Any) -> None:
    """Make the handles in their order, those that were removed too, for the numbers."""
    for made in m.numbered.values():
        first, *more = [writer.read(each.source) for each in made.dicts]
        given = f"{first}, extra_dict=[{', '.join(more)}]" if more else first
        name = rebuilder.assign(made.handle, f"{writer.constant(RemovableHandle)}({given})")
        rebuilder.assign(made.handle.id, f"{name}.id")
