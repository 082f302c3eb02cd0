"""Counters: what was captured, compiled, reused, broken and given up."""

from __future__ import annotations

from collections import Counter
from typing import Any

#: Every counter, so that a reader finds zeros rather than nothing.
NAMES = (
    "captures",
    "loaded",
    "graphs",
    "breaks",
    "recompiles",
    "cache_hits",
    "fallbacks",
    "uncompiled",
    "operations",
)

_counts: Counter[str] = Counter()
_reasons: dict[str, list[Any]] = {"breaks": [], "recompiles": [], "fallbacks": [], "uncompiled": []}


def count(name: str, reason: Any = None, amount: int = 1) -> None:
    _counts[name] += amount
    if reason is not None:
        _reasons[name].append(reason)


def counters() -> dict[str, int]:
    """How often each thing happened since the last :func:`refcompiler.reset`.

    ``captures`` programs captured, ``loaded`` programs that an earlier process had captured and
    compiled, ``graphs`` graphs given to a backend, ``operations`` their
    nodes, ``breaks`` graph breaks, ``recompiles`` captures because all guards failed,
    ``fallbacks`` functions that run natively, ``uncompiled`` graphs that the backend runs as they
    are (it says why as ``callable.fallback``, and later, for a backward, by calling
    ``callable.report.tell``, if it has one), ``cache_hits`` calls that found another than the
    first plan.
    """
    return {name: _counts[name] for name in NAMES}


def reasons(name: str) -> list[Any]:
    """Why: what is counted under ``breaks``, ``recompiles``, ``fallbacks``, ``uncompiled``."""
    return list(_reasons[name])


def clear() -> None:
    _counts.clear()
    for found in _reasons.values():
        found.clear()
