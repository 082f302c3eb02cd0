"""The command that measures how accurate the texts of the scalar rows are."""

from __future__ import annotations

import dataclasses

import pytest

from specs.scalars import SCALARS, measured
from tests.cpu.specs import measure

pytest.importorskip("triton")
ROWS = [(SCALARS[name], dtype) for name in ("exp", "tanh") for dtype in measure.FLOATS]


def test_the_figures_are_those_of_the_texts() -> None:
    oracle = measure.Oracle(200)
    found = {"numba": ({}, measure.by_numba(oracle, ROWS))}
    figures = [figure for by in found["numba"][1].values() for figure in by.values()]
    assert len(figures) == 4
    assert all(0 < f.ulp <= 2 and f.operands >= 200 and len(f.at) == 1 for f in figures)
    lines: list[str] = []
    assert measure.show(found, lines.append) == 0 and len(lines) == 5
    # A text that is wrong by an ULP more than its row allows is named.
    wrong = dataclasses.replace(ROWS[0][0], numba="m.exp_{T}({0}) * np.float32(1.000001)")
    by = measure.by_numba(oracle, [(wrong, "float32")])
    assert measure.show({"numba": ({}, by)}, lines.append) == 1
    assert "BEYOND" in lines[-1]


def test_every_row_is_measured() -> None:
    """The committed figures are of the rows that there are, and keep their bounds."""
    found = measured.read()
    assert set(found) <= set(measured.PLACES) and "numba" in found
    wanted = {(row.name, d) for row, d in measure.measured_rows() if row.template("numba", d)}
    known = {(name, d) for name, by in found["numba"][1].items() for d in by}
    assert known == wanted and len(known) > 80
    for place, (_, rows) in found.items():
        for name, by in rows.items():
            for dtype, figure in by.items():
                assert figure.ulp <= measure.limit(SCALARS[name], dtype, place), (place, name)


def test_what_the_interpreter_lacks_is_not_measured_there() -> None:
    assert measure.needs_libdevice("libdevice.exp(a)")
    assert measure.needs_libdevice("m.remainder_float(a, b)")
    assert not measure.needs_libdevice("tl.abs(a)") and not measure.needs_libdevice(
        "m.pow_int(a, b)"
    )
