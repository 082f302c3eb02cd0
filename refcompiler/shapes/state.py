"""What an environment of symbols is made of, so that another process can have one like it.

Whoever compiles the same graph in both comes to the same decisions: they follow from what is known
of the symbols, and from their values at capture.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from refcompiler.shapes.ranges import Knowledge, Range


class State(NamedTuple):
    """Of a :class:`refcompiler.shapes.env.ShapeEnv` at one time; see its attributes.

    ``names``: by prefix, the number that the next symbol gets. ``recorded``: conditions that hold
    and were said. ``takes``: whether graphs may have numbers from tensors, and sizes from data.
    """

    ranges: Mapping[Any, Range]
    facts: Mapping[frozenset, Range]
    divisible: frozenset[tuple[Any, Any]]
    told: Mapping[Any, bool]
    hints: Mapping[Any, int | float]
    initial: Mapping[Any, Range]
    expected: Mapping[Any, int]
    replacements: Mapping[Any, Any]
    recorded: frozenset[Any]
    made: tuple[Any, ...]
    names: Mapping[str, int]
    takes: tuple[bool, bool]

    def knowledge(self) -> Knowledge:
        found = Knowledge()
        for symbol, range_ in self.ranges.items():
            found.bound(symbol, range_)
        found.facts.update(self.facts)
        found.divisible.update(self.divisible)
        found.told.update(self.told)
        return found
