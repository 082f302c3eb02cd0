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
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

ONE, DONE = "one\n", "done\n"  # what is answered: that a job is done, that all are


class Server:
    """The end of who asks: starts ``python -m module``, and waits for it."""

    def __init__(self, module: str, *arguments: str) -> None:
        self.owner = os.getpid()  # a child that this process forks must not talk to it
        self._begun = 0  # times that jobs were handed over, and nobody waited for their end yet
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

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def begin(self, jobs: Sequence[dict[str, Any]], most: int | None = None) -> None:
        """Hand over ``jobs``: what the other end compiles one of by; ``most`` of them at once, from
        now on."""
        sent = self._process.stdin
        assert sent is not None
        self._begun += 1
        with contextlib.suppress(OSError):
            if most is not None:
                sent.write(f"{most}\n")
            for job in jobs:
                sent.write(json.dumps(job) + "\n")
            sent.write("\n")
            sent.flush()

    def end(self, one_more: Callable[[], None] = lambda: None) -> None:
        """Return when all jobs are done that were handed over, or the process is no more;
        ``one_more`` is called for each that is."""
        answers = self._process.stdout
        assert answers is not None
        with contextlib.suppress(OSError):
            while self._begun:
                said = answers.readline()
                if said == DONE:
                    self._begun -= 1
                elif said == ONE:
                    one_more()
                else:
                    break


def serve(
    compile: Callable[[dict[str, Any]], None],
    most: int,
    wanted: Callable[[dict[str, Any]], bool] = lambda job: True,
    idle: int = 0,
) -> None:
    """The other end: ``compile`` the jobs that come in, ``most`` at once, until the input ends.

    Those that are not ``wanted`` when their turn comes are passed over. With ``idle`` the process
    ends when nobody has asked for anything for so many seconds.
    """
    gc.freeze()
    running = 0

    def one_ended() -> None:
        nonlocal running
        os.wait()
        running -= 1
        print(ONE, end="", flush=True)

    signal.alarm(idle)  # which a child does not inherit
    for line in sys.stdin:
        signal.alarm(0)
        job = json.loads(line) if line.strip() else None
        if isinstance(job, int):
            most = job
        elif job is not None:
            if not wanted(job):
                print(ONE, end="", flush=True)
                continue
            while running >= most:
                one_ended()
            running += 1
            if os.fork() == 0:
                failed = 1
                with contextlib.suppress(BaseException):
                    compile(job)
                    failed = 0
                os._exit(failed)
        else:
            while running:
                one_ended()
            print(DONE, end="", flush=True)
            signal.alarm(idle)
