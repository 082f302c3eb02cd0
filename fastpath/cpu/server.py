"""A process of its own that compiles kernels: ``python -m fastpath.cpu.server processes``.

It has no torch, and numba by the time that the first job comes. What it compiles is found in the
cache on disk (:mod:`fastpath.beside`), where it and who asked see what the other one is at.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fastpath.beside import Server, serve
from fastpath.cpu.machine import is_made, keep, warm
from fastpath.cpu.printer import Printed
from fastpath.progress import told
from refcompiler.cache import store
from refcompiler.runtime.config import config

FEW = 16  # kernels, below which a process has hardly begun when they are all compiled

_lock = threading.Lock()
_server: list[Server] = []


def _start() -> Server | None:
    if _server and _server[0].owner != os.getpid():
        _server.clear()
    if not _server and sys.executable:
        with contextlib.suppress(OSError):
            others = str(config.compile_processes - 1)
            _server.append(Server("fastpath.cpu.server", others))
    return _server[0] if _server else None


def compile_together(
    kernels: Sequence[Printed], compile: Callable[[Printed], object], missing: Iterable[bool]
) -> None:
    """``compile`` all ``kernels``, of which those ``missing`` are in no cache yet; the last of them
    are compiled by other processes while this one begins with the first."""
    asked = [(kernel, absent) for kernel, absent in zip(kernels, missing, strict=True)]
    wanted = [kernel for kernel, absent in asked if absent]
    beside = len(wanted) >= FEW and config.compile_processes > 1 and store.current() is not None
    with contextlib.ExitStack() as stack:
        if beside:
            stack.enter_context(_lock)
            server = _start()
            if server is not None:
                server.begin([{"source": k.source, "names": k.names} for k in reversed(wanted)])
        one_more = stack.enter_context(told("compiling kernels", len(wanted)))
        for kernel, absent in asked:
            compile(kernel)
            if absent:
                one_more()


def _printed(job: dict[str, Any]) -> Printed:
    return Printed(job["source"], {name: tuple(what) for name, what in job["names"].items()})


def main() -> None:
    """Serve until the input ends."""
    warm()  # what all children need, once
    serve(
        lambda job: keep(_printed(job)),
        max(int(sys.argv[1]), 1),
        lambda job: not is_made(_printed(job)),
    )


if __name__ == "__main__":
    main()
