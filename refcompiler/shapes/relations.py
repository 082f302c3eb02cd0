"""What a program decided by looking at sizes, and the user's line that did."""

from __future__ import annotations

from typing import Any, NamedTuple

import sympy


class Relation(NamedTuple):
    """``condition`` held at capture; ``place`` is the user's (file, line).

    ``fixed`` are the symbols that it leaves no choice of.
    """

    condition: Any
    place: tuple[str, int]

    @property
    def symbols(self) -> tuple[sympy.Symbol, ...]:
        return tuple(sorted(self.condition.free_symbols, key=str))

    def __str__(self) -> str:
        return f"{self.condition} ({self.place[0]}:{self.place[1]})"


class Assertion(NamedTuple):
    """A condition that the run of the program has to check, since it depends on data."""

    condition: Any
    place: tuple[str, int]
