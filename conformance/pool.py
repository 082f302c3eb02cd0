"""Worker processes as seen from the parent: a crash or a hang costs the case that caused it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

from conformance.case import Case
from conformance.verdict import Kind, Verdict, crash
from conformance.worker import Hello, Judged, Ready, Refusal, Script, Stage

# A worker that holds more than this is replaced before its next case.
MEMORY_LIMIT = 3 << 30

_BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from conformance.zygote import main; main()"
)


class CannotRun(Exception):
    """Nothing can be tested: the message is one line that says why and what to do."""


class Pool:
    """Makes workers for one compiler. A context manager; leaving it ends every process.

    ``timeout``: seconds that one case may take. ``threads``: torch's threads in each worker.
    """

    def __init__(self, hello: Hello, timeout: float, preload: tuple[str, ...] = ()):
        self.hello = hello
        self.timeout = timeout
        self.preload = ("torch", *preload)
        self.lock = threading.Lock()
        self.folder = tempfile.TemporaryDirectory(prefix="conformance-")
        self.number = 0

    def __enter__(self) -> Pool:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.zygote = subprocess.Popen(
            [sys.executable, "-c", _BOOT, json.dumps(sys.path), *self.preload],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # an interrupt from the keyboard is the parent's to handle
        )
        theirs.close()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.control.close()
        try:
            self.zygote.wait(10)
        except subprocess.TimeoutExpired:
            self.zygote.kill()
        self.folder.cleanup()

    def worker(self) -> Worker:
        return Worker(self)

    def fork(self) -> tuple[int, Connection, Path]:
        """A new worker's process id, the connection to it, and the file of what it prints."""
        ours, theirs = socket.socketpair()
        with self.lock:
            self.number += 1
            log = Path(self.folder.name) / f"worker-{self.number}"
            request = json.dumps({"op": "fork", "log": str(log)}).encode()
            try:
                socket.send_fds(self.control, [request], [theirs.fileno()])
                answer = self.control.recv(65536)
            except OSError:
                answer = b""
        theirs.close()
        if not answer:
            raise CannotRun("the process that starts the workers died; is torch importable?")
        return json.loads(answer)["pid"], Connection(ours.detach()), log

    def reap(self, pid: int) -> int:
        with self.lock:
            self.control.send(json.dumps({"op": "reap", "pid": pid}).encode())
            return json.loads(self.control.recv(65536))["status"]


class Worker:
    """One worker at a time, replaced when it dies. Used by one thread."""

    def __init__(self, pool: Pool):
        self.pool = pool
        self.pid: int | None = None
        self.connection: Connection
        self.log: Path
        self.log_start = 0
        self.stage = "eager"  # whose code it runs

    def start(self) -> Ready:
        """Have a living worker that found the compiler, or raise :class:`CannotRun`."""
        self.pid, self.connection, self.log = self.pool.fork()
        status, answer = self._exchange(self.pool.hello)
        if isinstance(answer, Refusal):
            raise CannotRun(answer.line)
        if not isinstance(answer, Ready):
            what = answer or ending(status)
            raise CannotRun(f"loading the backend ended the process: {what}")
        return answer

    def judge(self, case: Case) -> Judged:
        """The verdict on ``case``, whatever it does to the process."""
        if self.pid is None:
            self.start()
        start = time.perf_counter()
        status, answer = self._exchange(case)
        if isinstance(answer, Judged):
            if answer.memory > MEMORY_LIMIT or answer.left:
                self.stop()
            return answer
        seconds = time.perf_counter() - start
        if status is None:
            verdict = crash("hang", f"no answer in {self.pool.timeout:g} s", log=answer)
        else:
            verdict = crash("process", ending(status), log=answer)
        if self.stage == "eager":
            verdict = _of_eager(verdict)
        return Judged(verdict, seconds, 0)

    def run_script(self, path: Path) -> tuple[int | None, str]:
        """Run a standalone script in a process of its own, which ends with it.

        Its exit status, ``None`` if it hangs, and what it printed.
        """
        self.start()
        status, answer = self._exchange(Script(str(path)))
        if not isinstance(answer, int):
            return status, str(answer)
        printed = self._printed()
        self.stop()
        return answer, printed

    def interrupt(self) -> None:
        """End what it runs, from another thread; its own thread sees that it died."""
        pid = self.pid
        if pid is not None:
            self._kill(pid)

    def stop(self) -> None:
        if self.pid is not None:
            pid, self.pid = self.pid, None
            self._kill(pid)
            self.connection.close()
            self.pool.reap(pid)

    def _exchange(self, message: Any) -> tuple[int | None, Any]:
        """Send and await the answer: ``(0, answer)``; ``(wait status, log)``; ``(None, log)``."""
        assert self.pid is not None
        self.log_start = self.log.stat().st_size if self.log.exists() else 0
        self.stage = "eager"
        end = time.monotonic() + self.pool.timeout
        try:
            self.connection.send(message)
            while self.connection.poll(max(0.0, end - time.monotonic())):
                answer = self.connection.recv()
                if not isinstance(answer, Stage):
                    return 0, answer
                self.stage = answer.name
        except (EOFError, OSError):
            pid, self.pid = self.pid, None
            self.connection.close()
            # What it started may have outlived it; its own status is settled by now.
            self._kill(pid)
            status = self.pool.reap(pid)
            return status, self._printed()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)  # its stack, for the report
        time.sleep(0.2)
        printed = self._printed()
        self.stop()
        return None, printed

    def _kill(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)

    def _printed(self) -> str:
        try:
            with open(self.log, "rb") as stream:
                stream.seek(self.log_start)
                return stream.read()[-4000:].decode(errors="replace")
        except FileNotFoundError:
            return ""


def _of_eager(verdict: Verdict) -> Verdict:
    """Eager itself does not survive the case, so that there is nothing to hold a compiler to."""
    (finding,) = verdict.findings
    why = replace(finding, kind=Kind.REFUSED, aspect="eager", tolerated=True)
    return replace(verdict, findings=(why,))


def ending(status: int | None) -> str:
    """How a process ended, in words."""
    if status is None:
        return "no answer in time"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"killed by signal {number} ({signal.Signals(number).name})"
    return f"exited with status {os.WEXITSTATUS(status)}"
