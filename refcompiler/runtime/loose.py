"""Plans that check only what tells them apart (``skip_guard_eval_unsafe``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from refcompiler.guards.kinds import Guard
from refcompiler.plan.build import Plan

_NAMES = re.compile(r"__s\d+")
_READ = re.compile(r"(__s\d+) = ")


def loosened(plans: Sequence[Plan], parameters: Sequence[str]) -> list[Callable]:
    """For each plan its function without the guards that every other plan has too."""
    return [_without(plan, _shared(plan, plans)) for plan in plans]


def _shared(plan: Plan, plans: Sequence[Plan]) -> set[str]:
    """The lines of the guards of ``plan`` that all others have."""
    others = [other for other in plans if other is not plan]
    wanted: dict[str, bool] = {}
    for guard, line in plan.checks:
        common = all(any(_same(guard, known) for known, _ in o.checks) for o in others)
        wanted[line] = wanted.get(line, False) or not common
    return {line for line, is_wanted in wanted.items() if not is_wanted}


def _same(a: Guard, b: Guard) -> bool:
    if a.kind != b.kind or str(a.source) != str(b.source):
        return False
    if a.expected is b.expected:
        return True
    try:
        return type(a.expected) is type(b.expected) and bool(a.expected == b.expected)
    except Exception:  # what cannot be compared may differ
        return False


def _without(plan: Plan, dropped: set[str]) -> Callable:
    """The plan's function without these lines, and without reads that nothing needs any more."""
    lines = [line for line in plan.source.splitlines() if line.strip() not in dropped]
    used: set[str] = set()
    kept = []
    for line in reversed(lines):
        text = line.partition("  # ")[0]
        read = _READ.match(text.strip())
        if read and read.group(1) not in used:
            continue
        used.update(_NAMES.findall(text))
        kept.append(line)
    source = "\n".join(kept[::-1]).replace("try:\n    except", "try:\n        pass\n    except")
    made: dict[str, Any] = {}
    exec(compile(source, plan.run.__code__.co_filename, "exec"), made)
    # The names that the function reads are the plan's own, which its first run changes.
    return FunctionType(made["plan"].__code__, plan.run.__globals__, "plan")
