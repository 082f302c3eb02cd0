"""What runs in a worker process: it judges the cases it is sent, one after the other.

Importing this module imports no torch: the parent process uses its message types.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from conformance.case import Case
from conformance.verdict import MISSING_PACKAGE, Finding, Kind, Verdict


@dataclass(frozen=True)
class Hello:
    """The first message to a worker: what to test, where, with how many threads for torch."""

    backend: str
    frontend: str
    threads: int
    device: str = "cpu"


@dataclass(frozen=True)
class Ready:
    """The worker's answer: the compiler was found. ``versions`` by name."""

    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Refusal:
    """The worker's answer: nothing can be tested; ``line`` says why and what to do."""

    line: str


@dataclass(frozen=True)
class Script:
    """A standalone script to run; answered with its exit status."""

    path: str


@dataclass(frozen=True)
class Stage:
    """Sent before the answer: whose code runs from now on, ``eager``'s or ``compiled``'s."""

    name: str


@dataclass(frozen=True)
class Judged:
    """The answer to a case. ``memory``: bytes that the process holds. ``left``: what the case has
    left behind of another state (:mod:`conformance.ambient`), so that no other may run here."""

    verdict: Verdict
    seconds: float
    memory: int
    left: tuple[str, ...] = ()


# Versions that the project supports; anything else is refused by name.
PYTHONS = ((3, 11), (3, 13))
TORCHES = ((2, 11), (2, 13))


def unsupported(python: tuple[int, ...], torch: str) -> str | None:
    """One line that says which version is not supported, or ``None``."""
    if not PYTHONS[0] <= python[:2] <= PYTHONS[1]:
        found = ".".join(map(str, python[:2]))
        return f"Python {found} is not supported; use Python 3.11, 3.12 or 3.13"
    numbers = tuple(int(part) for part in torch.split(".")[:2])
    if not TORCHES[0] <= numbers <= TORCHES[1]:
        return f"torch {torch} is not supported; use torch 2.11, 2.12 or 2.13"
    return None


def serve(connection: Connection) -> None:
    """Answer messages until the other side goes away."""
    try:
        hello = connection.recv()
        connection.send(_start(hello))
        while True:
            message = connection.recv()
            match message:
                case Case():
                    connection.send(_judge(message, functools.partial(_begin, connection)))
                case Script(path):
                    connection.send(_run_script(path))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def _start(hello: Hello) -> Ready | Refusal:
    import torch

    line = unsupported(sys.version_info[:3], torch.__version__)
    if line:
        return Refusal(line)
    from conformance import compilers

    torch.set_num_threads(hello.threads)
    try:
        torch.ones(1, device=hello.device)
    except Exception as error:
        why = str(error).strip().splitlines()[0]
        return Refusal(f"device {hello.device!r} cannot be used here: {why}")
    name = compilers.CompilerName(hello.backend, hello.frontend)
    try:
        _state["compiler"] = compilers.find(name)
    except compilers.Unusable as error:
        return Refusal(str(error))
    return Ready(
        {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        }
    )


#: What a worker ends with whose device is lost.
LOST = 70
# The compiler that ``_start`` found.
_state: dict[str, object] = {}


def _begin(connection: Connection, name: str) -> None:
    _end_without_device()
    connection.send(Stage(name))


def _end_without_device() -> None:
    """A kernel's assertion takes the device from its process for good: another one is started, and
    who was at work then is known by the stage."""
    import torch

    if torch.cuda.is_available() and torch.cuda.is_initialized():
        try:
            torch.cuda.synchronize()
        except Exception as error:
            print(f"the device is lost: {str(error).strip().splitlines()[0]}", flush=True)
            os._exit(LOST)


def _judge(case: Case, stage: Callable[[str], None] = lambda name: None) -> Judged:
    from conformance.ambient import ambient, changed
    from conformance.judge import judge

    before = ambient()
    start = time.perf_counter()
    missing = [name for name in case.program.needs if importlib.util.find_spec(name) is None]
    if missing:
        verdict = _not_run(missing)
    else:
        try:
            verdict = judge(case, _state["compiler"], stage)  # type: ignore[arg-type]
        except Exception as error:
            verdict = _malformed(error)
    _end_without_device()
    left = tuple(changed(before, ambient()))
    return Judged(verdict, time.perf_counter() - start, _memory(), left)


def _not_run(missing: list[str]) -> Verdict:
    names = ", ".join(missing)
    finding = Finding(
        Kind.REFUSED, MISSING_PACKAGE, "", 0, f"the package {names}",
        f"not installed: pip install {' '.join(missing)}", tolerated=True,
    )  # fmt: skip
    return Verdict((finding,))


def _malformed(error: Exception) -> Verdict:
    """The case itself is at fault: eager could not even be set up."""
    finding = Finding(
        Kind.CRASH, "case", "", 0, "a case that can be built", f"{type(error).__name__}: {error}",
        evidence={"traceback": "".join(traceback.format_exception(error))[-6000:]},
    )  # fmt: skip
    return Verdict((finding,))


def _memory() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _run_script(path: str) -> int:
    import runpy

    status = 0
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 99  # the script itself failed, which is not the failure that it should show
    sys.stdout.flush()
    return status
