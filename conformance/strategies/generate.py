"""Draws cases from a strategy, and shrinks one, as functions of a seed."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis.errors import NoSuchExample, Unsatisfiable
from hypothesis.strategies import SearchStrategy

from conformance.case import Case

SKIPPED = 4


def _settings(max_examples: int, *phases: Phase) -> settings:
    return settings(
        max_examples=max_examples,
        database=None,
        deadline=None,
        derandomize=False,  # the seed is ours
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )


def examples(strategy: SearchStrategy[Case], count: int, seed: str) -> list[Case]:
    """At most ``count`` different cases: the same ones for the same seed, always.

    Hypothesis begins with the simplest draws there are, which are worth a run only when there is
    little else: the last of some more are taken.
    """
    found: dict[str, Case] = {}

    def note(case: Case) -> bool:
        found.setdefault(case.digest, case)
        return len(found) >= count + SKIPPED

    # Draws that come to nothing, or twice to the same, cost a call each.
    rule = _settings(4 * (count + SKIPPED) + 20, Phase.generate)
    with contextlib.suppress(NoSuchExample, Unsatisfiable):
        find(strategy, note, settings=rule, random=random.Random(seed))
    return list(found.values())[-count:]


def shrink(
    strategy: SearchStrategy[Case], count: int, seed: str, fails: Callable[[Case], bool]
) -> Case | None:
    """The smallest case found for which ``fails``, starting from those of :func:`examples`."""
    rule = _settings(4 * (count + SKIPPED) + 20, Phase.generate, Phase.shrink)
    with contextlib.suppress(NoSuchExample, Unsatisfiable):
        return find(strategy, fails, settings=rule, random=random.Random(seed))
    return None
