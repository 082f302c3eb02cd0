"""The process that compiles kernels beside the one that wants them."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fastpath import beside
from fastpath.cpu import machine, server, serving
from refcompiler.runtime.config import config
from tests import forked


def test_processes_that_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is handed over, and that all is compiled here if nobody else does."""
    handed: list[Any] = []
    done: list[Any] = []

    class Beside:
        def begin(self, jobs: list[Any], most: int) -> None:
            handed.extend((job["source"], most) for job in jobs)

        def end(self, one_more: Any) -> None:
            handed.append(len(done))

    monkeypatch.setattr(serving, "_running", Beside)
    kernels: list[Any] = [machine.Printed(f"text {n}") for n in range(20)]
    missing = [n != 3 for n in range(20)]
    has_numba, meanwhile = [True], lambda: done.append("meanwhile")
    monkeypatch.setattr(serving, "numba_is_here", lambda: has_numba[0])
    with config.patch(compile_processes=2):
        server.compile_together(kernels, done.append, missing, meanwhile)
        assert done == ["meanwhile", *kernels] and handed[:2] == [("text 19", 1), ("text 18", 1)]
        assert len(handed) == 20 and handed[-1] == 21  # it waits when all is compiled here
        handed.clear()
        server.compile_together(kernels[:15], done.append, missing[:15])
        assert not handed  # which is done before another process has begun
        has_numba[0] = False
        done.clear()
        server.compile_together(kernels[:3], done.append, missing[:3], meanwhile)
        assert handed == [*((f"text {n}", 2) for n in range(3)), 1]  # before any is compiled here
        assert done == ["meanwhile", *kernels[:3]]
    done.clear()
    with config.patch(compile_processes=1):
        server.compile_together(kernels, done.append, missing, meanwhile)
    assert len(handed) == 4 and done == ["meanwhile", *kernels]


def test_another_process_compiles_for_one_that_has_no_numba(tmp_path: Path) -> None:
    """It is asked for what is compiled, and forgotten when it ends; then that is done here."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal, sys, time\n"
        "import torch, refcompiler\n"
        "from refcompiler.runtime.config import config\n"
        "config.compile_processes, config.cache_programs = 2, False\n"
        "from fastpath.cpu import serving\n"
        "assert 'numba' not in sys.modules\n"
        "serving.has_spare_core = lambda: True\n"
        "x = torch.randn(64)\n"
        "found = []\n"
        "def check(f):\n"
        "    from fastpath.cpu import objects\n"
        "    torch.testing.assert_close(refcompiler.compile(f)(x), f(x))\n"
        "    found.append((objects.made, 'numba' in sys.modules))\n"
        "    return serving._server[0][0]._process.pid\n"
        "pid = check(lambda x: x * 2 + 1)\n"
        "assert check(lambda x: x * 3 + torch.softmax(x, 0)) == pid\n"
        "os.kill(pid, signal.SIGKILL)\n"
        "serving._server[0][0]._process.wait()\n"
        "assert check(lambda x: x * 5 - 1) != pid\n"
        "from fastpath.beside import Server\n"
        "Server.begin = lambda self, jobs, most=None: self._process.kill()\n"
        "check(lambda x: x * 7 - 1)\n"
        "print(found)\n"
    )
    environment = {**os.environ, "REFCOMPILER_CACHE_DIR": str(tmp_path / "cache")}
    ended = forked.fresh(script, environment, tmp_path)
    assert ended.stdout == "[(1, False), (2, False), (3, False), (4, True)]\n", ended.stderr


def test_without_a_spare_core_there_is_no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr(serving, "_server", [])
    monkeypatch.setattr(serving, "Server", lambda *given: started.append(given[0]))
    for spare in (False, True):
        monkeypatch.setattr(serving, "has_spare_core", lambda spare=spare: spare)
        with config.patch(compile_processes=2), serving._lock:
            serving._running()
        assert len(started) == spare


def test_a_core_is_spare_where_fewer_run_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = len(os.sched_getaffinity(0))
    for running, spare in ((1, cores > 1), (cores, False), (cores + 3, False)):
        text = f"0.10 0.20 0.30 {running}/99 1234\n"
        monkeypatch.setattr(Path, "read_text", lambda self, text=text: text)
        assert serving.has_spare_core() == spare


def test_what_compiles_needs_no_torch() -> None:
    code = (
        "import sys\nfrom fastpath.cpu.machine import warm\nwarm()\nprint('torch' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"


def test_jobs_are_answered_one_by_one(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    """Those that nobody wants any longer, too; a job may fail."""

    def fails(job: dict[str, Any]) -> None:
        raise ValueError

    lines = "".join(f"{line}\n" for line in ("2", '{"n": 1}', '{"n": 0}', '{"n": 2}', ""))
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    monkeypatch.setattr(beside.gc, "freeze", lambda: None)
    beside.serve(fails, 1, lambda job: job["n"] != 0)
    assert capfd.readouterr().out.split() == ["one"] * 3 + ["done"]
