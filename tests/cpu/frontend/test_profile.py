"""The profile of automatic dynamic shapes: what one process learns, the next one knows."""

import contextlib
import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

import refcompiler
from refcompiler.runtime.profile import Profile
from tests import forked

PROGRAM = """
import sys
import torch
import refcompiler
from model import Scale, doubled

graphs = []


def backend(graph, inputs):
    graphs.append(graph)
    return graph.forward


def broken(x):
    y = x + 1
    print(y.sum().item(), file=sys.stderr)
    return y * 2


for made in (doubled, Scale(), broken):
    compiled = refcompiler.compile(made, backend=backend)
    before = len(graphs)
    for n in (3, 4, 5):
        compiled(torch.ones(n, 2))
    print(len(graphs) - before)
"""
MODEL = """
import torch


def doubled(x):
    return x * 2


class Scale(torch.nn.Module):
    def forward(self, x):
        return x * x.shape[0]
"""


def run(folder, job="job-1", **environment):
    known = {k: v for k, v in os.environ.items() if "JOB_ID" not in k and k != "RANK"}
    known |= {"REFCOMPILER_CACHE_DIR": str(folder / "cache"), **environment}
    if job:
        known["REFCOMPILER_JOB_ID"] = job
    script = folder / "script.py"
    script.write_text(PROGRAM)
    done = forked.run(script, known, folder)
    assert done.returncode == 0, done.stderr
    return list(map(int, done.stdout.split())), done.stderr


def files(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*.json"))


def test_the_second_process_compiles_once(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    assert run(tmp_path)[0] == [2, 2, 4]
    assert files(tmp_path) == ["cache/profiles/job-1/rank-0.json"]
    assert run(tmp_path)[0] == [1, 1, 2]
    assert run(tmp_path, job="job-2")[0] == [2, 2, 4]
    assert run(tmp_path, job="", TORCH_COMPILE_JOB_ID="job-1")[0] == [1, 1, 2]
    # Another rank has a file of its own.
    assert run(tmp_path, RANK="3")[0] == [2, 2, 4]
    assert "cache/profiles/job-1/rank-3.json" in files(tmp_path)
    # A changed file invalidates what comes from it, and nothing else.
    (tmp_path / "model.py").write_text(MODEL + "\n# changed\n")
    assert run(tmp_path)[0] == [2, 2, 2]


def test_without_a_job_nothing_is_written(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    assert run(tmp_path, job="")[0] == [2, 2, 4]
    assert files(tmp_path) == []


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 0, "sites": {}}', '{"version": 1, "sites": {"a": 3}}']
)
def test_a_corrupt_file_is_reported_and_begun_anew(tmp_path, text):
    path = tmp_path / "rank-0.json"
    path.write_text(text)
    with pytest.warns(UserWarning, match="it is begun anew"):
        profile = Profile(path)
    profile.note("site", {(("arg", "x"), 2, "size", 0)})
    assert json.loads(path.read_text())["sites"]
    assert Profile(path).changing("site") == {(("arg", "x"), 2, "size", 0)}


def test_writers_at_the_same_time_lose_nothing(tmp_path):
    path = tmp_path / "deep" / "rank-0.json"

    def write(i):
        Profile(path).note(f"site {i % 7}", {(("arg", f"x{i}"), i)})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(70)))
    script = tmp_path / "script.py"
    script.write_text(
        "import sys; from pathlib import Path; from refcompiler.runtime.profile import Profile;"
        "[Profile(Path(sys.argv[1])).note(f's{i}', {(sys.argv[2], i)}) for i in range(20)]"
    )
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    running = [
        forked.start(script, os.environ, tmp_path / name, str(path), name) for name in ("a", "b")
    ]
    assert [done().returncode for done in running] == [0, 0]
    found = Profile(path)
    assert sum(len(found.changing(f"site {i}")) for i in range(7)) == 70
    assert all(found.changing(f"s{i}") == {("a", i), ("b", i)} for i in range(20))


@pytest.mark.parametrize("name", ["config.job_id", "REFCOMPILER_JOB_ID", "TORCH_COMPILE_JOB_ID"])
def test_a_job_id_that_names_no_file_is_refused(name, monkeypatch):
    import torch

    with contextlib.ExitStack() as stack:
        if name == "config.job_id":
            stack.enter_context(refcompiler.config.patch(job_id="../else"))
        else:
            monkeypatch.setenv(name, "../else")
        compiled = refcompiler.compile(lambda x: x + 1, backend="eager")
        with pytest.raises(ValueError, match=rf"{name} is '\.\./else', but names a file"):
            compiled(torch.ones(2))
