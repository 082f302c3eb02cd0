"""A process of its own that compiles kernels, many at once: ``python -m fastpath.gpu.server``.

Compiling a kernel needs no GPU, and most of it holds Python's lock, so that threads gain little. A
process that has a GPU in use, and threads, cannot be forked safely; this one has neither. It reads
jobs, one JSON object a line, and forks a child for each. What a child compiles lies in Triton's
cache, in which whoever asked then finds it; a child that fails leaves nothing there, and the error
is raised where the kernel is compiled again.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

FEW = 3  # kernels, below which nothing is gained


class Server:
    """The other end: starts the process, and waits for it."""

    def __init__(self) -> None:
        self.owner = os.getpid()  # a child that this process forks must not talk to it
        path = os.pathsep.join(dict.fromkeys(p for p in sys.path if p))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fastpath.gpu.server"],
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

    def compile(self, jobs: Sequence[dict[str, Any]]) -> None:
        """Return when all ``jobs`` (arguments of a build) are done, or the process ends."""
        sent, answers = self._process.stdin, self._process.stdout
        assert sent is not None and answers is not None
        with contextlib.suppress(OSError):
            for job in jobs:
                sent.write(json.dumps(job) + "\n")
            sent.write("\n")
            sent.flush()
            answers.readline()


_lock = threading.Lock()
_server: list[Server] = []


def start() -> None:
    """Have the process ready by the time that there are kernels."""
    with _lock, contextlib.suppress(OSError):
        if _server and _server[0].owner != os.getpid():
            _server.clear()
        if not _server and sys.executable and (os.cpu_count() or 1) > 1:
            _server.append(Server())


def compile_together(jobs: Sequence[dict[str, Any]]) -> None:
    """Compile the ``jobs`` beside each other into Triton's cache, as far as that goes."""
    if len(jobs) < FEW:
        return
    start()
    with _lock:
        for server in _server:
            server.compile(jobs)


def _compile(job: dict[str, Any]) -> None:
    from fastpath.gpu.build import build

    kernel = build(**job)
    with contextlib.suppress(Exception):  # what launches it is compiled as well, once a signature
        from triton.backends.nvidia.driver import CudaLauncher

        CudaLauncher(kernel.src, kernel.metadata)


def main() -> None:
    """Serve until the input ends."""
    from triton.runtime.cache import triton_key

    triton_key()  # part of what a kernel is found by in the cache: made once, for all children
    gc.freeze()
    most = len(os.sched_getaffinity(0))
    running = 0
    for line in sys.stdin:
        if line.strip():
            if running >= most:
                os.wait()
                running -= 1
            running += 1
            if os.fork() == 0:
                failed = 1
                with contextlib.suppress(BaseException):
                    _compile(json.loads(line))
                    failed = 0
                os._exit(failed)
            continue
        while running:
            os.wait()
            running -= 1
        print("done", flush=True)


if __name__ == "__main__":
    main()
