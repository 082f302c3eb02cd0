"""Functions that are taken apart in a trace, and for which eager has a kernel: their results lie as
that kernel's."""

from __future__ import annotations

from typing import Any

from refcompiler.aot.inputs import Runner
from refcompiler.fakes.composed import RULES, laid

FUNCTIONS = list(RULES)


def composed(runner: Runner, target: Any, *args: Any, **kwargs: Any) -> Any:
    """What ``target`` gives."""
    return laid(target, target(*args, **kwargs), args, kwargs)
