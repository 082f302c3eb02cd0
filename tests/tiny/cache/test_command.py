"""``refcompiler cache``."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from refcompiler.cache import folder
from refcompiler.cache.command import cache
from refcompiler.cache.store import Store, key_of


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv(folder.VARIABLE, str(tmp_path))
    found = Store(folder.private(tmp_path / "compiled"), 1 << 20)
    found.put("kernel", key_of("1"), b"code")
    found.put("kernel", key_of("2"), b"code")
    return found


def test_it_shows_what_there_is(kept: Store) -> None:
    shown = CliRunner().invoke(cache, [])
    assert shown.exit_code == 0
    size = sum(entry.bytes for entry in kept.entries())
    assert f"{kept.root}: 2 entries, {size} bytes" in shown.output
    assert "kernel        2 entries" in shown.output
    lines = CliRunner().invoke(cache, ["show", "--entries"]).output
    assert key_of("1") in lines and key_of("2") in lines


def test_it_clears(kept: Store) -> None:
    assert "2 entries removed" in CliRunner().invoke(cache, ["clear"]).output
    assert kept.entries() == []
    assert "0 entries, 0 bytes" in CliRunner().invoke(cache, ["show"]).output


def test_a_folder_that_is_refused_is_one_line(kept: Store) -> None:
    kept.root.chmod(0o755)
    refused = CliRunner().invoke(cache, ["clear"])
    assert refused.exit_code == 2
    assert refused.output.startswith("refcompiler cache: ") and "chmod 700" in refused.output
    assert refused.output.count("\n") == 1
