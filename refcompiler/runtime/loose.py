"""Plans that check only what tells them apart, and tensors (``skip_guard_eval_unsafe``).

As torch does, the guards of all tensors but parameters are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch.nn import Parameter

from refcompiler.guards.held import named
from refcompiler.guards.kinds import Guard
from refcompiler.guards.tensors import TensorMeta
from refcompiler.plan.build import Plan


def loosened(plans: Sequence[Plan]) -> list[Callable]:
    """For each plan its function without the guards of no tensor that every other plan has too."""
    return [plan.checking(guards) for plan, guards in zip(plans, own_guards(plans), strict=True)]


def own_guards(plans: Sequence[Plan]) -> list[list[Guard]]:
    """For each plan the guards that are left."""
    return [_own(plan, plans) for plan in plans]


def _own(plan: Plan, plans: Sequence[Plan]) -> list[Guard]:
    """The guards of ``plan`` that not all others have, and those of tensors."""
    others = [other for other in plans if other is not plan]
    return [
        guard
        for guard in plan.guards
        if _is_of_tensor(guard)
        or not all(any(_same(guard, known) for known in other.guards) for other in others)
    ]


def _is_of_tensor(guard: Guard) -> bool:
    if guard.kind == "RELATION":
        return True
    if guard.kind not in ("TENSOR", "SIZED", "WRAPPER"):
        return False
    return not (isinstance(guard.expected, TensorMeta) and guard.expected.cls is Parameter)


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
