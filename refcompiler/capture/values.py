"""What the symbolic domain keeps on the stack besides real objects."""

from __future__ import annotations

from typing import Any

from refcompiler.guards.sources import Source


class Lazy:
    """A value from outside that nothing has observed yet, so that no guard depends on it."""

    __slots__ = ("source", "value")

    def __init__(self, source: Source, value: Any):
        self.source = source
        self.value = value

    def __repr__(self) -> str:
        return f"<lazy {self.source}>"


class LazyMethod:
    """A reading method of an unobserved dict, so that the other keys stay unguarded."""

    __slots__ = ("lazy", "name")

    def __init__(self, lazy: Lazy, name: str):
        self.lazy = lazy
        self.name = name


class External:
    """An object from outside, known by identity. ``original`` is what a shadow started with.

    ``tail`` is what was appended to a list that nothing has looked into.
    """

    __slots__ = ("value", "source", "shadow", "original", "tail")

    def __init__(self, value: Any, source: Source):
        self.value = value
        self.source = source
        self.shadow: Any = None
        self.original: Any = None
        self.tail: list[Any] | None = None


class _Deleted:
    def __repr__(self) -> str:
        return "DELETED"


DELETED: Any = _Deleted()
