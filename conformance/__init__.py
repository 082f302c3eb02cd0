"""Tests any ``torch.compile`` backend. In: a compiler by name. Out: verdicts and a report.

:func:`run` is the library's entry point; ``refcompiler conform`` the command line's. A
:class:`~conformance.case.Case` is a program, inputs and a history of calls; what a user can see of
it is an :class:`~conformance.observe.Observation`; eager's and the compiler's are compared, and
what differs is judged against float64, into a :class:`~conformance.verdict.Verdict`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conformance.faults import Located, locate
    from conformance.pool import CannotRun
    from conformance.random import rng_ledger
    from conformance.report import Report, Result
    from conformance.runner import run
    from conformance.verdict import Finding, Kind, Verdict

__all__ = [
    "CannotRun", "Finding", "Kind", "Located", "Report", "Result", "Verdict", "locate",
    "rng_ledger", "run",
]  # fmt: skip

_HOMES = {
    "CannotRun": "pool",
    "Finding": "verdict",
    "Kind": "verdict",
    "Located": "faults",
    "Report": "report",
    "Result": "report",
    "Verdict": "verdict",
    "locate": "faults",
    "rng_ledger": "random",
    "run": "runner",
}


def __getattr__(name: str) -> Any:
    """Each name when it is asked for: the ledger of random numbers needs torch, a run hypothesis,
    and the command says in one line what is missing."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"conformance.{_HOMES[name]}"), name)
