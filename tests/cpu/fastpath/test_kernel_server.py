"""Kernels compiled beside each other by a process of its own, and found in Triton's cache."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import forked

pytest.importorskip("triton")

ROOT = Path(__file__).parents[3]
PROGRAM = """
import json, torch, triton
from fastpath.gpu import compile, server
from fastpath.gpu.vectors import print_kernel
from tests.cpu.fastpath.triton_kernels import kernels_of, program_of

def found(functions, spoilt=0):
    kernels = [kernels_of(program_of(f, [torch.empty(64, 32)]))[0] for f in functions]
    made = [(print_kernel(k), tuple(b.dtype for b in k.buffers)) for each in kernels for k in each]
    jobs = [compile._job(p, d, 90, True) for p, d in made]
    jobs[:0] = [{**jobs[0], "text": "def nothing(", "name": "nothing"}] * spoilt
    server.compile_together(jobs)
    compiled = []
    triton.knobs.compilation.listener = lambda **seen: compiled.append(seen["cache_hit"])
    for p, d in made:
        assert compile.machine_code(p, d, 90).asm["cubin"]
    return len(made), sum(compiled)

answers = {"all": found([torch.sin, lambda x: x.softmax(-1), lambda x: x.sum(0)])}
answers["spoilt"] = found([torch.cos], spoilt=2)
server._server[0]._process.kill()
server._server[0]._process.wait()
answers["gone"] = found([torch.sqrt, torch.abs, torch.tanh])
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    """How many kernels there were, and how many the process then found compiled; the kernels of
    each answer are others, so that none is found because of an earlier one."""
    folder = tmp_path_factory.mktemp("server")
    script = folder / "program.py"
    script.write_text(PROGRAM)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }
    done = forked.run(script, environment, folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_what_the_process_compiled_is_found(answers: dict[str, list[int]]) -> None:
    assert answers["all"] == [3, 3]


def test_a_job_that_fails_costs_only_itself(answers: dict[str, list[int]]) -> None:
    assert answers["spoilt"] == [1, 1]


def test_without_the_process_kernels_are_compiled_all_the_same(
    answers: dict[str, list[int]],
) -> None:
    assert answers["gone"] == [3, 0]


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
