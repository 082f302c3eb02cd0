"""Scripts in processes of their own that need not import torch once more.

A process is forked from the test's, which costs milliseconds where a new one costs five seconds of
imports. What a script tells of its process alone (its memory, its files, its exit) is as in a new
one; what happens while torch or the compiler is imported is not, and needs :mod:`subprocess`.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple


class Done(NamedTuple):
    """As ``subprocess.CompletedProcess`` with ``capture_output`` and ``text``."""

    returncode: int
    stdout: str
    stderr: str


def run(script: Path, environment: Mapping[str, str], folder: Path) -> Done:
    """Run ``script`` as the main module; modules beside it are imported anew.

    What it prints goes through files in ``folder``.
    """
    return start(script, environment, folder)()


def start(script: Path, environment: Mapping[str, str], folder: Path) -> Callable[[], Done]:
    """As :func:`run`, beside others: what it gives waits for the end."""
    out, err = folder / "stdout", folder / "stderr"
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _become(script, environment, out, err)

    def done() -> Done:
        _, status = os.waitpid(pid, 0)
        return Done(os.waitstatus_to_exitcode(status), out.read_text(), err.read_text())

    return done


def _become(script: Path, environment: Mapping[str, str], out: Path, err: Path) -> None:
    """Never returns."""
    status = 1
    try:
        for number, path in ((1, out), (2, err)):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(descriptor, number)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)
        os.environ.clear()
        os.environ.update(environment)
        sys.path.insert(0, str(script.parent))
        names = {"__name__": "__main__", "__file__": str(script)}
        exec(compile(script.read_text(), str(script), "exec"), names)
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
