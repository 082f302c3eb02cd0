"""The committed tables are those of the rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from specs import docs
from specs.operators import ON_COMPLEX, OPERATORS
from specs.scalars import PAIRED, SCALARS


@pytest.mark.parametrize("name", docs.pages())
def test_a_committed_page_is_current(name: str) -> None:
    path = docs.FOLDER / name
    assert path.read_text() == docs.pages()[name], "run `python -m specs.docs`"


def test_every_row_has_a_line() -> None:
    pages = docs.pages()
    assert pages["scalars.md"].count("\n| `") == len(SCALARS) + len(PAIRED)
    assert pages["operators.md"].count("\n| `") == len(OPERATORS) + len(ON_COMPLEX)


def test_check_names_stale_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert docs.main([str(tmp_path)]) == 0
    assert docs.main([str(tmp_path), "--check"]) == 0
    (tmp_path / "rules.md").write_text("old")
    assert docs.main([str(tmp_path), "--check"]) == 1
    assert "rules.md" in capsys.readouterr().err
    assert (tmp_path / "rules.md").read_text() == "old"
