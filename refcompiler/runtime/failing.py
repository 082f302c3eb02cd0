"""Which guard of a plan does not hold for a call, by the plain meaning of guards and sources."""

from __future__ import annotations

from typing import Any

from refcompiler.guards.held import named
from refcompiler.guards.kinds import KINDS, NAMESPACE, Guard
from refcompiler.guards.sources import Source
from refcompiler.plan.build import Plan


def failure(plan: Plan, arguments: dict[str, Any]) -> str | None:
    """The first guard of ``plan`` that fails, in words; None when all hold."""
    found = failing(plan, arguments)
    return None if found is None else found[1]


def failing(plan: Plan, arguments: dict[str, Any]) -> tuple[Guard, str] | None:
    """The first guard of ``plan`` that fails, and the sentence about it."""
    for guard in plan.guards:
        try:
            value = None if guard.source is None else read(guard.source, arguments)
            wanted = named(guard.wanted(lambda source: read(source, arguments)))
            if KINDS[guard.kind].check(value, wanted):
                continue
            value = wanted if guard.source is None else value
        except Exception as error:  # as in the generated guards, what cannot be read fails
            return guard, guard.explain_unreadable(error)
        return guard, guard.explain(value)
    return None


def read(source: Source, arguments: dict[str, Any]) -> Any:
    """The value at ``source`` for the given arguments."""
    if source.kind == "arg":
        return arguments[source.key]
    if source.kind == "const":
        return named(source.key)
    if source.kind == "space":
        return named(source.key).__dict__
    parent = read(source.parent, arguments) if source.parent is not None else None
    return eval(
        source.expression("p", lambda key: "k"), {**NAMESPACE, "p": parent, "k": source.key}
    )
