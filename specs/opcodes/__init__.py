"""The opcodes of CPython: a row for each meaning, with its effect on the stack and an example.

Source: the documentation of ``dis`` (the sections are its sections) and CPython's ``ceval.c`` and
``bytecodes.c``. A row holds for the versions that it names; where a later Python changed what an
opcode means, takes or leaves, it has another row for that.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from specs.opcodes import (
    absent,
    asynchronous,
    control,
    names,
    objects,
    operators,
    patterns,
    statements,
)
from specs.opcodes.intrinsics import INTRINSICS
from specs.opcodes.row import ABSENT, ALL, DECODED, HANDLED, Opcode, table

__all__ = [
    "ABSENT",
    "ALL",
    "DECODED",
    "HANDLED",
    "INTRINSICS",
    "OPCODES",
    "ROWS",
    "Opcode",
    "markdown",
    "table",
]

_CHAPTERS = (operators, asynchronous, statements, names, objects, control, patterns, absent)
#: Every row of every version.
ROWS: list[Opcode] = [row for part in _CHAPTERS for row in part.ROWS]
#: The rows of the Python that runs.
OPCODES = table(ROWS, sys.version_info[:2])


def _pythons(row: Opcode) -> str:
    if row.versions == ALL:
        return ""
    first, last = (f"{major}.{minor}" for major, minor in (row.versions[0], row.versions[-1]))
    if row.versions[-1] == ALL[-1]:
        return f"from {first}"
    return first if first == last else f"{first} and {last}"


def _table(rows: Iterable[Opcode]) -> str:
    lines = ["| opcode | Python | stack | meaning | |", "|---|---|---|---|---|"]
    section = ""
    for row in sorted(rows, key=lambda row: row.section):
        if row.section != section:
            section = row.section
            lines.append(f"| **{section}** | | | | |")
        note = "" if row.reason is None else f"{row.treatment}: {row.reason}"
        stack = row.stack.replace("|", "\\|")
        lines.append(f"| `{row.name}` | {_pythons(row)} | `{stack}` | {row.meaning} | {note} |")
    return "\n".join(lines) + "\n"


def markdown() -> str:
    """The page of the opcodes and of the intrinsic functions, the same on every Python."""
    return f"{_table(ROWS)}\n## What CALL_INTRINSIC names\n\n{_table(INTRINSICS)}"
