"""A job in a process of its own, which tells what it does as it goes: a crash or a hang costs that
process, and what it was about to do is known."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from conformance.pool import ending

Say = Callable[[Any], None]
_FATAL = b"Fatal Python error"  # how :mod:`faulthandler` begins
_WORDS = 4000  # bytes of what a process has printed


@dataclass(frozen=True)
class Failed:
    """The job raised: what is its own, not what it was to look at."""

    line: str
    traceback: str


@dataclass(frozen=True)
class Ended:
    """How a process ended: ``done``, ``crash`` or ``hang``, with how in words, and what it had
    said and printed by then."""

    how: str
    detail: str
    said: tuple[Any, ...]
    printed: str

    @property
    def died(self) -> bool:
        return self.how != "done"


def apart(job: Callable[[Say], None], timeout: float, fresh_thread: bool = False) -> Ended:
    """Run ``job`` in a forked process. ``timeout``: seconds that it may say nothing.

    ``fresh_thread``: in a new thread of it, where this process has run torch's operators in
    parallel: a forked process has none of the threads that its main thread would wait for.
    """
    ours, theirs = Pipe(duplex=False)
    with tempfile.NamedTemporaryFile(prefix="locate-", delete=False) as log:
        path = Path(log.name)
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _become(job, theirs, path, fresh_thread)
    theirs.close()
    try:
        how, detail, said = _listen(ours, pid, timeout)
        printed = _words(path.read_bytes()).decode(errors="replace")
    finally:
        ours.close()
        path.unlink(missing_ok=True)
    return Ended(how, detail, tuple(said), printed)


def own_threads() -> None:
    """Have torch make its pool of threads anew, in a process that was just forked.

    It does so when it is asked for next, without a lock: of two threads that ask at once, as those
    that autograd starts for devices do, one finds none, and ends the process.
    """
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(torch.get_num_threads())


def _words(printed: bytes) -> bytes:
    """The last of it; of a handler of faults the first, which has the innermost frames."""
    fault = printed.rfind(_FATAL)
    return printed[-_WORDS:] if fault < 0 else printed[fault : fault + _WORDS]


def _listen(pipe: Connection, pid: int, timeout: float) -> tuple[str, str, list[Any]]:
    said: list[Any] = []
    try:
        while pipe.poll(timeout):
            said.append(pickle.loads(pipe.recv_bytes()))
    except (EOFError, OSError):
        # What it started may have outlived it.
        _, status = os.waitpid(pid, 0)
        _kill(pid)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            return "done", "", said
        return "crash", ending(status), said
    except BaseException:
        _kill(pid)
        os.waitpid(pid, 0)
        raise
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGUSR1)  # its stack, for the report
    time.sleep(0.2)
    _kill(pid)
    os.waitpid(pid, 0)
    return "hang", f"no answer in {timeout:g} s", said


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _become(job: Callable[[Say], None], pipe: Connection, log: Path, fresh_thread: bool) -> None:
    """Never returns."""
    import faulthandler

    status = 1
    try:
        os.setpgid(0, 0)
        with open(log, "wb", buffering=0) as stream, open(os.devnull) as nothing:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
            os.dup2(nothing.fileno(), 0)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)
        faulthandler.enable(file=sys.stderr)
        faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=True)
        gc.freeze()
        own_threads()

        def say(message: Any) -> None:
            pipe.send_bytes(pickle.dumps(message))

        def run() -> None:
            nonlocal status
            try:
                job(say)
            except BaseException as error:
                line = f"{type(error).__name__}: {' '.join(str(error).split())}"
                say(Failed(line, "".join(traceback.format_exception(error))[-6000:]))
            status = 0

        if fresh_thread:
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
        else:
            run()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
