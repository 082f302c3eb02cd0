"""Where a compiled program parts from eager, and whether that is a fault at all.

In: a program (a script, or a function and its calls) and a compiler's name. Out: a
:class:`~conformance.faults.result.Located`: a verdict, and for a failure its stage, its graph, its
operator and a script that shows it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conformance.faults.library import locate
    from conformance.faults.result import Located

__all__ = ["Located", "locate"]

_HOMES = {"Located": "result", "locate": "library"}


def __getattr__(name: str) -> Any:
    """Each name when it is asked for: the command is there without torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"conformance.faults.{_HOMES[name]}"), name)
