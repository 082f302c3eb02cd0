"""Figures that only a process of its own can give: a first call, the most that memory has held,
how fast memory is where it lies as it happens to."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

LIMIT = 600  # seconds


def figure(script: str, environment: Mapping[str, str] | None = None) -> float:
    """What ``script`` prints last, a number: see :func:`figures`."""
    return figures(script, environment)[-1]


def figures(script: str, environment: Mapping[str, str] | None = None) -> list[float]:
    """The numbers in the last line that ``script`` prints, run by this interpreter from the
    repository's root with ``environment`` over this process's; words are passed over.

    Raises RuntimeError, with the end of what it wrote to standard error, if it fails.
    """
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parent.parent,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )
    if done.returncode:
        raise RuntimeError(f"a measurement in a process of its own failed:\n{done.stderr[-2000:]}")
    words = done.stdout.splitlines()[-1].split()
    return [float(word) for word in words if not word.isidentifier()]
