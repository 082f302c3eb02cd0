"""What was measured of the rows' texts against their meanings: figures by place, row and dtype.

``python -m tests.cpu.specs.measure --write`` measures them and writes the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

PATH = Path(__file__).with_name("measured.json")
#: Where texts run, in the order of the documentation's columns.
PLACES = ("numba", "triton interpreted", "triton compiled")


class Figure(NamedTuple):
    """The largest error in ULP, of how many ``operands``, and ``at`` which (Python texts)."""

    ulp: float
    operands: int
    at: list[str]


#: By place: what it was measured with (versions, device, operands), and figures.
Measured = dict[str, tuple[dict[str, str], dict[str, dict[str, Figure]]]]


def read() -> Measured:
    """The figures of the file; none where there is no file."""
    if not PATH.exists():
        return {}
    return {
        place: (made, _figures(rows))
        for place, (made, rows) in json.loads(PATH.read_text()).items()
    }


def _figures(rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, Figure]]:
    return {name: {d: Figure(*figure) for d, figure in by.items()} for name, by in rows.items()}
