"""What every key begins with: the code that makes entries, and the versions that it works with."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import platform
import runpy
import sys
from pathlib import Path

from specs.version import VERSION


@functools.cache
def source_of(*packages: str) -> str:
    """A digest of all the Python files of ``packages``, as they are on disk."""
    digest = hashlib.sha256()
    for package in packages:
        spec = importlib.util.find_spec(package)
        assert spec is not None and spec.submodule_search_locations is not None
        for place in spec.submodule_search_locations:
            for path in sorted(Path(place).rglob("*.py")):
                data = path.read_bytes()
                digest.update(f"{path.relative_to(place)} {len(data)}\n".encode())
                digest.update(data)
    return digest.hexdigest()


@functools.cache
def release() -> str:
    """This release, Python's and torch's, and the kind of machine."""
    return "\n".join((VERSION, sys.version, _torch_version(), platform.machine()))


def _torch_version() -> str:
    """Read, not imported: that takes longer than all else in a process that compiles kernels."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    namespace = runpy.run_path(str(Path(spec.origin).with_name("version.py")))
    return str(namespace["__version__"])
