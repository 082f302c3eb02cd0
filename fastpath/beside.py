"""Processes that compile kernels beside the one that wants them.

Most of compiling a kernel holds Python's lock, so that threads gain little, and a process that has
threads, or a GPU in use, cannot be forked safely. So another one is started that has neither. It
reads jobs, one JSON object a line, and forks a child for each. What a child compiles lies in a
cache on disk, in which whoever asked then finds it; a child that fails leaves nothing there, and
the error is raised where the kernel is compiled again.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any


class Server:
    """The end of who asks: starts ``python -m module``, and waits for it."""

    def __init__(self, module: str, *arguments: str) -> None:
        self.owner = os.getpid()  # a child that this process forks must not talk to it
        path = os.pathsep.join(dict.fromkeys(p for p in sys.path if p))
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
            text=True,
        )
        atexit.register(self.close)

    def close(self) -> None:
        """Let the process end: with its input."""
        if self.owner == os.getpid():
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                self._process.communicate(timeout=5)

    def begin(self, jobs: Sequence[dict[str, Any]]) -> None:
        """Hand over ``jobs``: what the other end compiles one of by."""
        sent = self._process.stdin
        assert sent is not None
        with contextlib.suppress(OSError):
            for job in jobs:
                sent.write(json.dumps(job) + "\n")
            sent.write("\n")
            sent.flush()

    def end(self) -> None:
        """Return when all jobs are done that were handed over, or the process is no more."""
        answers = self._process.stdout
        assert answers is not None
        with contextlib.suppress(OSError):
            answers.readline()


def serve(
    compile: Callable[[dict[str, Any]], None],
    most: int,
    wanted: Callable[[dict[str, Any]], bool] = lambda job: True,
) -> None:
    """The other end: ``compile`` the jobs that come in, ``most`` at once, until the input ends.

    Those that are not ``wanted`` when their turn comes are passed over.
    """
    gc.freeze()
    running = 0
    for line in sys.stdin:
        if line.strip():
            if not wanted(json.loads(line)):
                continue
            if running >= most:
                os.wait()
                running -= 1
            running += 1
            if os.fork() == 0:
                failed = 1
                with contextlib.suppress(BaseException):
                    compile(json.loads(line))
                    failed = 0
                os._exit(failed)
            continue
        while running:
            os.wait()
            running -= 1
        print("done", flush=True)
