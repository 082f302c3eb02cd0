"""A process of its own that compiles kernels, many at once: ``python -m fastpath.gpu.server``.

Compiling a kernel needs no GPU; what is compiled is found in Triton's cache
(:mod:`fastpath.beside`).
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from fastpath.beside import Server, serve

FEW = 3  # kernels, below which nothing is gained

_lock = threading.Lock()
_server: list[Server] = []


def start() -> None:
    """Have the process ready by the time that there are kernels."""
    with _lock, contextlib.suppress(OSError):
        if _server and _server[0].owner != os.getpid():
            _server.clear()
        if not _server and sys.executable and (os.cpu_count() or 1) > 1:
            _server.append(Server("fastpath.gpu.server"))


def compile_together(
    jobs: Sequence[dict[str, Any]], meanwhile: Callable[[], None] = lambda: None
) -> None:
    """Compile the ``jobs`` beside each other into Triton's cache, as far as that goes, and do
    ``meanwhile`` here."""
    if len(jobs) < FEW:
        return
    start()
    with _lock:
        for server in _server:
            server.begin(jobs)
            try:
                meanwhile()
            finally:
                server.end()


def _compile(job: dict[str, Any]) -> None:
    from fastpath.gpu.build import build

    kernel = build(**job)
    with contextlib.suppress(Exception):  # what launches it is compiled as well, once a signature
        from triton.backends.nvidia.driver import CudaLauncher

        CudaLauncher(kernel.src, kernel.metadata)


def main() -> None:
    """Serve until the input ends."""
    from fastpath.gpu import build

    build.prepare()  # once, for all children
    serve(_compile, len(os.sched_getaffinity(0)))


if __name__ == "__main__":
    main()
