"""The collector, while large packages are imported."""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Iterator

import pytest

from refcompiler import importing as module
from refcompiler.importing import importing


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the collector is told, of which nothing reaches this process's own frozen objects."""
    said: list[str] = []
    collector = types.SimpleNamespace(
        isenabled=gc.isenabled,
        disable=gc.disable,
        enable=gc.enable,
        get_freeze_count=lambda: said.count("frozen by the user"),
        freeze=lambda: said.append("freeze"),
        unfreeze=lambda: said.append("unfreeze"),
    )
    monkeypatch.setattr(module, "gc", collector)
    before = gc.isenabled()
    gc.enable()
    yield said
    (gc.enable if before else gc.disable)()


def test_what_modules_make_is_old_at_once(told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with importing():
        assert not gc.isenabled()
        monkeypatch.setitem(sys.modules, "a_module_of_this_test", types.ModuleType("it"))
    assert gc.isenabled() and told == ["freeze", "unfreeze"]


def test_without_a_new_module_nothing_grows_old(told: list[str]) -> None:
    with importing():
        assert not gc.isenabled()
    assert gc.isenabled() and not told


def test_what_the_user_has_frozen_stays_frozen(
    told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told.append("frozen by the user")
    with importing():
        monkeypatch.setitem(sys.modules, "another_of_this_test", types.ModuleType("it"))
    assert gc.isenabled() and told == ["frozen by the user"]


def test_a_collector_that_is_off_stays_off(told: list[str]) -> None:
    gc.disable()
    with pytest.raises(ValueError), importing():
        raise ValueError
    assert not gc.isenabled() and not told
