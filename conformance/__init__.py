"""Tests any ``torch.compile`` backend. In: a compiler by name. Out: verdicts and a report.

:func:`run` is the library's entry point; ``refcompiler conform`` the command line's. A
:class:`~conformance.case.Case` is a program, inputs and a history of calls; what a user can see of
it is an :class:`~conformance.observe.Observation`; eager's and the compiler's are compared, and
what differs is judged against float64, into a :class:`~conformance.verdict.Verdict`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from conformance.pool import CannotRun
from conformance.report import Report, Result
from conformance.runner import run
from conformance.verdict import Finding, Kind, Verdict

if TYPE_CHECKING:
    from conformance.random import rng_ledger

__all__ = ["CannotRun", "Finding", "Kind", "Report", "Result", "Verdict", "rng_ledger", "run"]


def __getattr__(name: str) -> Any:
    """The ledger of random numbers needs torch, which the rest of the package does without."""
    if name == "rng_ledger":
        from conformance.random import rng_ledger

        return rng_ledger
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
