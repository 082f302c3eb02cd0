"""Every test starts alike: empty caches on disk, a known seed, and nothing compiled before it."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

CACHES = ("NUMBA_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "REFCOMPILER_CACHE_DIR")
# A test that counts captures shall see them; tests of the cache of programs turn it on.
os.environ.setdefault("REFCOMPILER_CACHE_PROGRAMS", "0")
CACHE_FOLDER = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    """Compilers read these variables when they are imported, so before any test module is.

    The workers of a parallel run inherit what the first process sets.
    """
    missing = [name for name in CACHES if name not in os.environ]
    if missing:
        folder = Path(tempfile.mkdtemp(prefix="refcompiler-tests-"))
        config.stash[CACHE_FOLDER] = folder
        os.environ.update({name: str(folder / name.lower()) for name in missing})


def pytest_unconfigure(config: pytest.Config) -> None:
    if (folder := config.stash.get(CACHE_FOLDER, None)) is not None:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def fresh_start(request: pytest.FixtureRequest) -> Iterator[None]:
    """Outside ``tests/tiny``: seed torch before a test, and forget compiled code after it."""
    if "tiny" in request.path.parts:
        yield
        return
    import torch

    torch.manual_seed(0)
    yield
    if (refcompiler := sys.modules.get("refcompiler")) is not None:
        refcompiler.reset()
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
