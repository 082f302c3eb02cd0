"""Small models of the families that the benchmarks time: a forward, and one with a cache."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.family_models import BOTH, GROWING, IMAGES, SOUND, TEXT, calls
from tests.slow.batteries.entries import Program

__all__ = ["GROWING", "families", "family_programs"]


def families() -> list[str]:
    return [*TEXT, *BOTH, *IMAGES, *SOUND]


def family_programs(name: str, layers: int | None = None) -> Iterator[tuple[str, Program]]:
    """A forward of the model, and one generation step where it keeps a cache."""
    for title, model, inputs in calls(name, layers):
        yield title, Program(model, (), inputs)
