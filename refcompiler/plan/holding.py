"""What a finished plan names, and what of it the plan knows by weak references only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from refcompiler.guards.held import may_go, named
from refcompiler.guards.kinds import Guard
from refcompiler.guards.sources import Source
from refcompiler.plan.entry import Entry
from refcompiler.plan.writer import Writer


def weaken(entry: Entry, writer: Writer) -> Entry:
    """``entry`` without strong references to what may die before it."""
    guards = [found for guard in entry.guards for found in _weak(guard, writer)]
    for source in _sources(entry):
        if source.kind in ("const", "space") and may_go(source.key):
            source.key = writer.hold(source.key)
            source.fixed = None
    return entry._replace(guards=guards)


def _weak(guard: Guard, writer: Writer) -> Iterator[Guard]:
    want, source = guard.expected, guard.source
    if guard.kind == "ID" and type(want) is tuple and source is not None and source.parent:
        if source.key == "__mro__" and may_go(named(source.parent.key)):
            yield guard._replace(kind="LENGTH", expected=len(want))
            for i, base in enumerate(want[1:], 1):  # the first is the class itself
                item = guard._replace(source=Source("item", source, i, ""), expected=base)
                yield from _weak(item, writer)
            return
    if guard.kind in _WAYS:
        guard = guard._replace(expected=_WAYS[guard.kind](want, writer))
    yield guard


def _held(value: Any, writer: Writer) -> Any:
    return writer.hold(value) if may_go(value) else value


def _tensor(want: Any, writer: Writer) -> Any:
    return want._replace(cls=_held(want.cls, writer))


def _sized(want: Any, writer: Writer) -> Any:
    return want._replace(meta=_tensor(want.meta, writer))


def _state(want: Any, writer: Writer) -> Any:
    """A function and its arguments; what it gave is a constant."""
    function, given, value = want
    return _held(function, writer), tuple([_held(item, writer) for item in given]), value


#: Of the kinds that name objects: what they expect, with those that may go held.
_WAYS = {"ID": _held, "TYPE": _held, "TENSOR": _tensor, "SIZED": _sized, "STATE": _state}


def _sources(entry: Entry) -> Iterable[Source]:
    """All from which the entry reads, each once."""
    found: dict[Source, None] = {}

    def add(source: Source | None) -> None:
        while source is not None and source not in found:
            found[source] = None
            source = source.parent

    for guard in entry.guards:
        add(guard.source)
        guard.wanted(add)
    for source in entry.needed:
        add(source)
    return found
