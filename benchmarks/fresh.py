"""A figure that only a process of its own can give: a first call, the most that memory has held."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

LIMIT = 600  # seconds


def figure(script: str, environment: Mapping[str, str] | None = None) -> float:
    """What ``script`` prints last, a number, run by this interpreter from the repository's root
    with ``environment`` over this process's.

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
    return float(done.stdout.split()[-1])
