"""The suite ``python``: programs written by hand, one language feature each."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.rows import (
    python_classes,
    python_coroutines,
    python_data,
    python_functions,
    python_idioms,
    python_library,
    python_methods,
    python_protocols,
    python_state,
    python_statements,
    python_tools,
    python_torch,
    python_wrappers,
)
from conformance.suites.suite import Family

ROWS = (
    *python_functions.ROWS,
    *python_classes.ROWS,
    *python_library.ROWS,
    *python_methods.ROWS,
    *python_protocols.ROWS,
    *python_torch.ROWS,
    *python_idioms.ROWS,
    *python_state.ROWS,
    *python_statements.ROWS,
    *python_tools.ROWS,
    *python_coroutines.ROWS,
    *python_wrappers.ROWS,
    *python_data.ROWS,
)


def families(device: str) -> Iterator[Family]:
    """One family per row: the feature is its subject."""
    for row in ROWS:
        yield Family("python", row.feature, row.name, cases=(row.case("python", device),))
