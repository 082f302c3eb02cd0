"""The process that compiles the CPU's kernels beside this one: when it is started, and how it is
asked.

Numba takes longer to load than most programs take to be captured, and a process that only asks
never loads it. So the other one is started as soon as it is clear that kernels will be wanted,
which is before anything is captured, and loads numba on another core meanwhile. What is here
imports next to nothing itself.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fastpath.beside import Server
from refcompiler.cache import store
from refcompiler.runtime.config import config

KIND = "kernel"  # of the entries in the cache

_lock = threading.Lock()
_server: list[tuple[Server, str]] = []  # and the cache that it was started with


def numba_is_here() -> bool:
    """Whether this process has what compiles kernels."""
    return "fastpath.cpu.codegen" in sys.modules


def has_spare_core() -> bool:
    """Whether one has nothing to do at this moment: without it, both processes together take longer
    than this one alone."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
        return running < len(os.sched_getaffinity(0))
    return True


def _running() -> Server | None:
    """The server, started if need be; None where there is to be none."""
    kept = store.current()
    if kept is None or config.compile_processes < 2 or not sys.executable:
        return None
    where = str(kept.root)
    for server, known in _server:
        if server.owner == os.getpid() and server.is_running and known == where:
            return server
        server.close()
    _server.clear()
    if not has_spare_core():
        return None
    with contextlib.suppress(OSError):
        _server.append((Server("fastpath.cpu.server"), where))
    return _server[0][0] if _server else None


def start(at_first: bool = False) -> None:
    """Have the process ready by the time that there are kernels, unless this one compiles them.

    ``at_first``: only where no kernel was ever kept, so that the first program that runs has some
    to be compiled, whatever it is.
    """
    if numba_is_here():
        return
    kept = store.current()
    if kept is None or (at_first and kept.has_any(KIND)):
        return
    with _lock:
        _running()


@contextlib.contextmanager
def asked(
    jobs: Sequence[dict[str, Any]], most: int, one_more: Callable[[], None]
) -> Iterator[Callable[[], None]]:
    """Hand over ``jobs``, of which ``most`` are done at once; what it gives waits until they are
    done, and says so of each. Nobody else asks inside."""
    with _lock:
        server = _running()
        if server is None:
            yield lambda: None
            return
        server.begin(jobs, most)
        yield lambda: server.end(one_more)
