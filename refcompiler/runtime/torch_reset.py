"""torch's own reset, ``torch.compiler.reset``, which also forgets what was compiled here.

A program calls it between models, sizes or options that it measures or tests, so that each begins
anew, and no limit of recompilations counts what was before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from refcompiler.runtime.at_import import when_loaded

_HOME = "torch._dynamo"
_RESET = "reset"


def follow_torch(forget: Callable[[], None]) -> None:
    """From now on torch's reset calls ``forget`` too."""
    when_loaded(_HOME, "set_recursion_limit", functools.partial(_listen, forget))


def _listen(forget: Callable[[], None], module: Any) -> None:
    reset = getattr(module, _RESET, None)
    if reset is None or hasattr(reset, "__refcompiler_listens__"):
        return

    @functools.wraps(reset)
    def reset_both() -> None:
        reset()
        forget()

    reset_both.__refcompiler_listens__ = True  # type: ignore[attr-defined]
    setattr(module, _RESET, reset_both)
