"""Scripts in processes of their own that need not import torch once more.

A process is forked, which costs milliseconds where a new one costs seconds of imports: by
:func:`run` from the test's own process, by :func:`fresh` from one that was forked off when torch
was imported, and nothing of this project yet. What a script tells of its process alone (its memory,
its files, its exit) is as in a new one; in a fresh one so is what happens while the compiler or
numba are imported. What happens while torch is, and what Python reads from the environment when it
starts, needs :mod:`subprocess`.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_SECONDS = 240  # after which a fresh process is killed, before pytest is done with the test
_zygote: list[socket.socket] = []


class Done(NamedTuple):
    """As ``subprocess.CompletedProcess`` with ``capture_output`` and ``text``."""

    returncode: int
    stdout: str
    stderr: str


def run(script: Path, environment: Mapping[str, str], folder: Path, *arguments: str) -> Done:
    """Run ``script`` as the main module; modules beside it are imported anew.

    What it prints goes through files in ``folder``.
    """
    return start(script, environment, folder, *arguments)()


def start(
    script: Path, environment: Mapping[str, str], folder: Path, *arguments: str
) -> Callable[[], Done]:
    """As :func:`run`, beside others: what it gives waits for the end."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _become(script, environment, folder, arguments)

    def done() -> Done:
        _, status = os.waitpid(pid, 0)
        return _done(folder, status)

    return done


def fresh(script: Path, environment: Mapping[str, str], folder: Path, *arguments: str) -> Done:
    """As :func:`run`, of a process that has imported torch alone; it runs in ``folder``."""
    (control,) = _zygote
    job = [str(script), dict(environment), str(folder), arguments]
    control.send(json.dumps(job).encode())
    return _done(folder, int(control.recv(64)))


def keep_fresh() -> None:
    """Fork off the process that :func:`fresh` forks from. It ends with this one."""
    assert not {"refcompiler.runtime", "fastpath", "numba"} & sys.modules.keys()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork():
        theirs.close()
        _zygote[:] = [ours]
        return
    ours.close()
    _forget("refcompiler", "specs")  # of which pytest has imported the errors, for its filters
    gc.freeze()
    try:
        while job := theirs.recv(1 << 20):
            script, environment, folder, arguments = json.loads(job)
            pid = os.fork()
            if pid == 0:
                theirs.close()
                os.chdir(folder)
                signal.alarm(_SECONDS)
                if "TRITON_INTERPRET" in environment:  # which its decorators ask
                    _forget("triton")
                _become(Path(script), environment, Path(folder), arguments)
            theirs.send(str(os.waitpid(pid, 0)[1]).encode())
    finally:
        os._exit(0)


def _forget(*packages: str) -> None:
    """Let modules in Python be imported anew."""
    for name in [*sys.modules]:
        if name.split(".")[0] in packages and "._C" not in name:
            del sys.modules[name]


def _done(folder: Path, status: int) -> Done:
    out, err = ((folder / name).read_text() for name in ("stdout", "stderr"))
    return Done(os.waitstatus_to_exitcode(status), out, err)


def _become(
    script: Path, environment: Mapping[str, str], folder: Path, arguments: Sequence[str]
) -> None:
    """Never returns."""
    status = 1
    try:
        for number, name in ((1, "stdout"), (2, "stderr")):
            descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(descriptor, number)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)
        os.environ.clear()
        os.environ.update(environment)
        if (torch := sys.modules.get("torch")) is not None:  # before other threads ask for its own
            torch.set_num_threads(torch.get_num_threads())
        sys.path.insert(0, str(script.parent))
        sys.argv = [str(script), *arguments]
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
