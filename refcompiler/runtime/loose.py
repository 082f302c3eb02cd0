"""Plans that check only what tells them apart (``skip_guard_eval_unsafe``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from refcompiler.guards.held import named
from refcompiler.guards.kinds import Guard
from refcompiler.plan.build import Plan


def loosened(plans: Sequence[Plan]) -> list[Callable]:
    """For each plan its function without the guards that every other plan has too."""
    return [plan.checking(_own(plan, plans)) for plan in plans]


def _own(plan: Plan, plans: Sequence[Plan]) -> list[Guard]:
    """The guards of ``plan`` that not all others have."""
    others = [other for other in plans if other is not plan]
    return [
        guard
        for guard in plan.guards
        if not all(any(_same(guard, known) for known in other.guards) for other in others)
    ]


def _same(a: Guard, b: Guard) -> bool:
    if a.kind != b.kind or str(a.source) != str(b.source):
        return False
    first, second = named(a.expected), named(b.expected)
    if first is second:
        return True
    try:
        return type(first) is type(second) and bool(first == second)
    except Exception:  # what cannot be compared may differ
        return False
