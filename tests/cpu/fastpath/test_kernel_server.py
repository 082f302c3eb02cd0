"""Kernels compiled beside each other by a process of its own, and found in Triton's cache."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("triton")

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys, time, torch
from fastpath.gpu import build, compile, server
from fastpath.gpu.vectors import print_kernel
from tests.cpu.fastpath.triton_kernels import kernels_of, program_of

functions = [torch.sin, torch.cos, torch.exp, lambda x: x.softmax(-1), lambda x: x.sum(0)]
found = [kernels_of(program_of(f, [torch.empty(64, 32)]))[0] for f in functions]
printed = [print_kernel(kernel) for kernels in found for kernel in kernels]
dtypes = [tuple(b.dtype for b in kernel.buffers) for kernels in found for kernel in kernels]
jobs = [compile._job(p, d, 90, True) for p, d in zip(printed, dtypes)]
if "bad" in sys.argv:
    jobs.insert(1, {**jobs[0], "text": "def nothing(", "name": "nothing"})
if "gone" in sys.argv:
    server.start()
    server._server[0]._process.kill()
server.compile_together(jobs)
import triton
compiled = []
triton.knobs.compilation.listener = lambda **seen: compiled.append(seen["cache_hit"])
for p, d in zip(printed, dtypes):
    assert compile.machine_code(p, d, 90).asm["cubin"]
print(len(printed), sum(compiled))
"""


def run(folder: Path, *arguments: str) -> tuple[int, int]:
    """How many kernels there were, and how many the process then found compiled."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
            "TRITON_CACHE_DIR": str(folder),
        },
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    count, found = map(int, done.stdout.split())
    return count, found


def test_what_the_process_compiled_is_found(tmp_path: Path) -> None:
    assert run(tmp_path) == (5, 5)


def test_a_job_that_fails_costs_only_itself(tmp_path: Path) -> None:
    assert run(tmp_path, "bad") == (5, 5)


def test_without_the_process_kernels_are_compiled_all_the_same(tmp_path: Path) -> None:
    assert run(tmp_path, "gone") == (5, 0)


def test_keys_of_functions_that_kernels_call_are_there_before_the_first_kernel() -> None:
    """In one order in every process: with Triton 3.6 a kernel's own key depends on them."""
    from triton.runtime import JITFunction

    from fastpath.gpu import build, maths

    build.prepare()
    called = [f for f in vars(maths).values() if isinstance(f, JITFunction)]
    assert len(called) > 10 and all(function.hash is not None for function in called)


def test_what_is_done_meanwhile_is_done_before_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastpath.gpu import server

    seen: list[object] = []

    class Known:
        owner = os.getpid()

        def begin(self, jobs: list[object]) -> None:
            seen.append(len(jobs))

        def end(self) -> None:
            seen.append("end")

    monkeypatch.setattr(server, "_server", [Known()])
    server.compile_together([{}] * 4, lambda: seen.append("meanwhile"))
    assert seen == [4, "meanwhile", "end"]
    with pytest.raises(ZeroDivisionError):  # and the next one's answer is not taken for it
        server.compile_together([{}] * 4, lambda: seen.append(1 / 0))
    assert seen[3:] == [4, "end"]


def test_equal_kernels_of_a_program_have_one_text() -> None:
    from fastpath.profiles import kernel_name

    names = ["_to_copy_3_17", "gelu_12", "gelu_2_30", "sum_9"]
    assert kernel_name(names) == "kernel_to_copy_gelu_sum" == kernel_name(n + "_7" for n in names)
    many: Callable[[int], str] = lambda n: kernel_name(f"operator{k}" for k in range(n))  # noqa: E731
    assert len(many(40)) <= 80 and many(40).isidentifier()


def test_a_forked_child_has_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastpath.gpu import server

    monkeypatch.setattr(server, "_server", [])
    server.start()
    (first,) = server._server
    server.start()
    assert server._server == [first]
    first.owner += 1  # as it looks in a child
    server.start()
    (second,) = server._server
    assert second is not first and second._process.pid != first._process.pid
    first.owner -= 1
    for each in (first, second):
        each.close()
        assert each._process.wait(timeout=60) == 0  # it may still be about to begin
