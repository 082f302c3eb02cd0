"""Side effects: statements that replay on the outside what a frame did to its shadows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refcompiler.capture.contents import base_of
from refcompiler.capture.iterators import Parts
from refcompiler.capture.lookup import is_heap
from refcompiler.capture.numbered import Numbers
from refcompiler.capture.personal import has_own_order
from refcompiler.capture.setorder import difference
from refcompiler.capture.settable import changed
from refcompiler.capture.values import DELETED, External, Rethrown, is_changed, is_in_place
from refcompiler.capture.written import At
from refcompiler.guards.iterators import advance, count_on, move_on
from refcompiler.interpreter.continued import finish, replace
from refcompiler.interpreter.driven import DRIVEN, frame_of
from refcompiler.interpreter.tracebacks import new_entries, with_entries, without_values
from refcompiler.plan.rebuild import Rebuilder
from refcompiler.plan.writer import Writer


def replay(machine: Any, rebuilder: Rebuilder, writer: Writer) -> list[str]:
    """Statements that replay what the frame did to objects from outside, but for attributes."""
    lines = [line for view in machine.views.values() for line in _advance(view, writer)]
    lines += [f"{writer.read(source)}.{call}" for source, call in machine.after]
    before = machine.speech.settled or 0  # said while the filters were as they had been
    lines += _said(machine.deferred[:before], rebuilder, writer)
    for external in list(machine.external.values()):
        if external.tail:
            target = writer.read(external.source)
            lines.append(f"{target}.extend([{rebuilder.many(external.tail)}])")
        for key, value in (external.written or {}).items():
            number = rebuilder.expression(key.number if type(key) is At else key)
            place = f"{writer.read(external.source)}[{number}]"
            deleted = value is DELETED
            lines.append(f"del {place}" if deleted else f"{place} = {rebuilder.expression(value)}")
    for external in shadows(machine):
        lines += _container_effect(external, rebuilder, writer)
    for rethrown in machine.rethrown.values():
        lines += _rethrow(rethrown, rebuilder, writer)
    return lines + _said(machine.deferred[before:], rebuilder, writer)


def set_attributes(machine: Any, rebuilder: Rebuilder) -> None:
    """Attributes, cells and globals that the frame wrote to or deleted.

    They come before the containers that are made again, for which keys may be asked for hashes.
    """
    for owner, _ in list(machine.overlay):
        rebuilder.settle(owner)


def _said(deferred: Sequence[tuple], rebuilder: Rebuilder, writer: Writer) -> list[str]:
    return [f"{writer.constant(call)}({rebuilder.many(values)})" for call, values in deferred]


def _advance(view: Any, writer: Writer) -> list[str]:
    """What an iterator gave to the frame is taken from it."""
    if type(view.iterator) is enumerate and type(view) is Parts:
        arguments = f"{writer.read(view.source)}, {view.taken}"
        return [f"{writer.constant(count_on)}({arguments})"] if view.taken else []
    if type(view) is Numbers:
        arguments = f"{writer.read(view.source)}, {view.taken}"
        return [f"{writer.constant(move_on)}({arguments})"] if view.taken else []
    if type(view) is Parts or not (view.taken or view.ended):
        return []
    arguments = f"{writer.read(view.source)}, {view.taken}, {view.ended}"
    return [f"{writer.constant(advance)}({arguments})"]


def _rethrow(rethrown: Rethrown, rebuilder: Rebuilder, writer: Writer) -> list[str]:
    """The links and the traceback entries that an exception got as it was raised again."""
    target = writer.read(rethrown.source)
    lines = [
        f"{target}.{name} = {rebuilder.expression(value)}"
        for name, value in rethrown.changes().items()
    ]
    added = new_entries(rethrown.error, rethrown.traceback)
    if added is None:
        constant = writer.constant(without_values(rethrown.error.__traceback__))
        lines.append(f"{target}.__traceback__ = {constant}")
    elif added:
        entries = writer.constant(with_entries)
        constant = writer.constant(tuple(added))
        lines.append(f"{target}.__traceback__ = {entries}({target}.__traceback__, {constant})")
    return lines


def shadows(machine: Any) -> list[External]:
    seen: dict[int, External] = {}
    for external in machine.external.values():
        if external.shadow is not None:
            seen[id(external)] = external
    return list(seen.values())


def _contents_effect(
    base: Any, external: External, rebuilder: Rebuilder, writer: Writer
) -> list[str]:
    """Of an instance of a subclass, past its own methods."""
    target = writer.read(external.source)
    if base is list:
        setter = writer.constant(base.__setitem__)
        return [f"{setter}({target}, slice(None), [{rebuilder.many(external.shadow)}])"]
    if is_in_place(external):
        return _items_written(external, writer.constant(base.__setitem__), rebuilder, writer)
    if not issubclass(base, dict):
        clear = f"{writer.constant(base.clear)}({target})"
        if base is set:
            return _set_effect(target, external, rebuilder)
        items = rebuilder.many(external.shadow)
        return [clear, f"{writer.constant(base.extend)}({target}, [{items}])"]
    kind = type(external.value)
    lines = [f"{writer.constant(base.clear)}({target})"]
    for key, value in external.shadow.items():
        pair = rebuilder.expression(key), rebuilder.expression(value)
        lines.append(rebuilder.put(target, external.shadow, key, *pair, kind))
    return lines


def _set_effect(target: str, external: External, rebuilder: Rebuilder) -> list[str]:
    """What it loses and gets, if it becomes what it is to be so; else all of it."""
    sides = external.original, external.shadow
    rebuilder.machine.is_personal |= any(map(has_own_order, sides))  # what follows is by places
    found = difference(*sides)
    if found is None:
        return [f"set.clear({target})", rebuilder.set_items(target, external.shadow)]
    parts = ", ".join(f"[{rebuilder.many(items)}]" for items in found)
    return [f"{rebuilder.writer.constant(changed)}({target}, {parts})"]


def _items_written(
    external: External, setter: str, rebuilder: Rebuilder, writer: Writer
) -> list[str]:
    """One by one, so that the deque's iterators stay what they are."""
    target = writer.read(external.source)
    pairs = enumerate(zip(external.shadow, external.original, strict=True))
    return [
        f"{setter}({target}, {i}, {rebuilder.expression(item)})"
        for i, (item, before) in pairs
        if item is not before
    ]


def _container_effect(external: External, rebuilder: Rebuilder, writer: Writer) -> list[str]:
    shadow, original = external.shadow, external.original
    if not is_changed(external):
        return []
    if type(shadow) in DRIVEN:
        target = writer.read(external.source)
        if original.running:  # it is on the stack of frames that goes on
            return []
        if original.frame is None or frame_of(shadow) is None:
            return [f"{writer.constant(finish)}({target})"]
        parts = rebuilder.suspended(shadow, original)
        return [f"{writer.constant(replace)}({target}, {parts})"]
    kind = type(external.value)
    base = base_of(kind) if is_heap(kind) else None
    if base is not None:
        return _contents_effect(base, external, rebuilder, writer)
    if issubclass(type(shadow), dict):
        target = writer.read(external.source)
        known = list(original.items())  # in order, and without asking a key for its hash
        kept = len(shadow) >= len(known) and all(
            a is b for a, (b, _) in zip(shadow, known, strict=False)
        )
        lines = []
        if not kept:
            lines.append(f"{target}.clear()")
        for i, (key, value) in enumerate(shadow.items()):
            if not kept or i >= len(known) or known[i][1] is not value:
                pair = rebuilder.expression(key), rebuilder.expression(value)
                lines.append(rebuilder.put(target, shadow, key, *pair, kind))
        return lines
    if issubclass(type(shadow), set):
        return _set_effect(writer.read(external.source), external, rebuilder)
    target = writer.read(external.source)
    items = rebuilder.many(shadow)
    if type(shadow) is list:
        return [f"{target}[:] = [{items}]"]
    if is_in_place(external):
        setter = writer.constant(type(shadow).__setitem__)
        return _items_written(external, setter, rebuilder, writer)
    return [f"{target}.clear()", f"{target}.extend([{items}])"]
