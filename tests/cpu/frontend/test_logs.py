"""Logs: each tells what it is named for, once asked, and nothing before."""

import logging
import os

import pytest
import torch

import refcompiler
from refcompiler import logs
from specs.logs import LOGS
from tests import forked

PROGRAM = """
import torch
import refcompiler


def doubled(x, n):
    y = (x + n).relu()
    print(y.sum().item())
    return y * 2


compiled = refcompiler.compile(doubled, dynamic=False)
for x in (torch.ones(3), torch.ones(4), torch.ones(2, requires_grad=True)):
    compiled(x, 1)
dynamic = refcompiler.compile(lambda x: torch.sort(x + 1)[0], dynamic=True)
dynamic(torch.ones(5))
refcompiler.compile(lambda x: torch.sort(x + 1)[0])(torch.ones(5))


def endless():
    yield torch.ones(2)


list(refcompiler.compile(endless)())
"""
#: name -> a text that it prints for the program above
SAYS = {
    "cache": "doubled is not looked for: its code is in no file",
    "bytecode": "instructions of doubled:",
    "guards": "TENSOR x: Tensor(dtype=torch.float32, shape=(3,)",
    "recompiles": "recompiling doubled: tensor x: expected Tensor(",
    "graph_breaks": "graph break in doubled: ",
    "dynamic": "x.shape[0] becomes symbolic as s0 (5 here, dynamic=True) at ",
    "graph": "return (relu,",
    "graph_code": "def forward(self",
    "plan": "def plan(__fn, x, n):",
    "fallbacks": "endless runs natively: a generator",
    "aot_graphs": "torch.ops.aten.relu.default(",
    "output_code": "def ",
    "perf_hints": "aten.sort",
}


@pytest.fixture
def run(tmp_path):
    def run(**environment):
        script = tmp_path / "script.py"
        script.write_text(f"exec({PROGRAM!r})")  # code in no file
        environment = {**os.environ, "REFCOMPILER_CACHE_PROGRAMS": "1", **environment}
        done = forked.fresh(script, environment, tmp_path)
        return done.returncode, done.stderr

    return run


def test_every_log_says_what_it_is_named_for(run):
    status, printed = run(REFCOMPILER_LOGS=",".join(row.name for row in LOGS))
    assert status == 0, printed
    assert set(SAYS) == {row.name for row in LOGS}
    for name, text in SAYS.items():
        parts = printed.split("[refcompiler.")
        assert any(p.startswith(f"{name}]") and text in p for p in parts), (name, text)


def test_nothing_is_said_unasked_and_torchs_names_count(run):
    assert run(REFCOMPILER_LOGS="") == (0, "")
    status, printed = run(TORCH_LOGS="+recompiles")
    said = {line.split("]")[0] for line in printed.splitlines() if line.startswith("[refcompiler")}
    assert status == 0 and said == {"[refcompiler.recompiles"}


def test_an_unknown_name_is_refused_in_one_line(run):
    status, printed = run(REFCOMPILER_LOGS="recompiles,recompile")
    first, *others = printed.strip().splitlines()
    assert status == 0
    assert first.startswith("REFCOMPILER_LOGS: no log is named 'recompile'; there are")
    assert others and all(line.startswith("[refcompiler.recompiles] ") for line in others)
    with pytest.raises(ValueError, match="set_logs: no log is named 'gaurds'"):
        refcompiler.set_logs(gaurds=True)
    with pytest.raises(TypeError, match="guards takes True or False, not 1"):
        refcompiler.set_logs(guards=1)


def test_the_environment_takes_all_but_some_and_tells_what_there_is(monkeypatch, capsys):
    def on():
        return {r.name for r in LOGS if logs.wanted(logs.log_of(r.name))}

    every = {row.name for row in LOGS}
    monkeypatch.setenv("TORCH_LOGS", "-guards,+recompiles,inductor")
    try:
        for text, expected in {
            "all": every,
            "all,-plan, -graph": every - {"plan", "graph"},
            "-recompiles": set(),
            "+plan": {"plan", "recompiles"},
            "-all": set(),
        }.items():
            refcompiler.set_logs(**dict.fromkeys(every, False))
            monkeypatch.setenv("REFCOMPILER_LOGS", text)
            logs.from_environment()
            assert on() == expected, text
        assert capsys.readouterr().err == ""
        monkeypatch.setenv("REFCOMPILER_LOGS", "help")
        logs.from_environment()
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == len(LOGS) + 1
        assert all(row.name in line for row, line in zip(LOGS, lines[1:], strict=True))
    finally:
        refcompiler.set_logs(**dict.fromkeys(every, False))


def test_on_and_off_by_a_call(capsys):
    def one_more(x):
        return x + 1

    compiled = refcompiler.compile(one_more, backend="eager", dynamic=False)
    refcompiler.set_logs(recompiles=True, guards=True)
    try:
        compiled(torch.ones(2))
        refcompiler.set_logs(guards=False)
        compiled(torch.ones(3))
    finally:
        refcompiler.set_logs(recompiles=False, guards=False)
    compiled(torch.ones(4))
    printed = capsys.readouterr().err
    assert printed.count("[refcompiler.guards]") == 1
    assert printed.count("[refcompiler.recompiles] recompiling") == 1
    assert not logging.getLogger("refcompiler").handlers
