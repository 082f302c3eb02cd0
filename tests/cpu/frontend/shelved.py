"""What tests of programs that are kept on disk ask of the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import refcompiler
from refcompiler.cache import store
from refcompiler.runtime.config import config

BEFORE: set[str] = set()


@pytest.fixture(autouse=True)
def _nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The cache has no programs for this environment. (It has kernels, which stay loaded.)"""
    monkeypatch.setenv("TORCH_ENVIRONMENT_OF_A_TEST", str(tmp_path))
    BEFORE.clear()
    BEFORE.update(entry.key for entry in entries())
    with config.patch(cache_programs=True):
        refcompiler.reset()
        yield
        refcompiler.reset()


def entries() -> list[store.Entry]:
    found = store.current()
    assert found is not None
    known = [entry for entry in found.entries() if entry.kind == "program"]
    return [
        entry
        for entry in known
        if entry.key not in BEFORE and (entry.kind, entry.key) in found.seen
    ]


def counted() -> tuple[int, int, int]:
    """Programs that were found, captured, and graphs that ran as they are."""
    known = refcompiler.counters()
    return known["loaded"], known["captures"], known["uncompiled"]


def again(function: Callable, **more: Any) -> Any:
    """``function`` compiled in a process that has compiled nothing."""
    refcompiler.reset()
    return refcompiler.compile(function, **more)


def kept() -> int:
    """How many programs are, not counting why others are not."""
    return sum(entry.bytes > 1000 for entry in entries())


def close(found: Any, expected: Any) -> None:
    if isinstance(found, dict) and "n" in found:
        assert found.pop("n") == expected.pop("n")
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6, equal_nan=True)
