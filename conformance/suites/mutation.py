"""The suite ``mutation``: what is written to, what shares memory, and what is the same object."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.rows import mutation
from conformance.strategies.mutations import PAIRS, cases
from conformance.suites.suite import Family

ROWS = mutation.ROWS


def families(device: str) -> Iterator[Family]:
    """One family per row, and one of generated programs per relation of their two arguments."""
    for row in ROWS:
        yield Family("mutation", row.feature, row.name, cases=(row.case("mutation", device),))
    for pair in PAIRS:
        yield Family("mutation", "generated", pair, cases(pair, device))
