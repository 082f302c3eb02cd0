"""Where a program parts from eager: each planted fault is named by its verdict, stage, graph and
operator, and what is no fault is told from one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import conformance
import refcompiler
from conformance import Kind
from conformance.faults.apart import apart
from conformance.faults.attach import write
from tests import forked

pytestmark = pytest.mark.usefixtures("one_zygote")

HERE = "tests.cpu.conformance.faulty"
X = torch.linspace(-1, 1, 12).view(3, 4)


def chain(x):
    a = x * 2
    b = torch.exp(a)
    c = torch.tanh(b)
    return (c.sin() + x).relu()


def three_graphs(x):
    a = x.sin()
    print(end="")
    b = a.sin().relu()
    print(end="")
    return b.cos().sin()


def writes(x):
    y = x * 2
    x.add_(1)
    return y + x


def draws(x):
    return F.dropout(x.tanh(), 0.5)


def found_in(backend, function=chain, x=X, then=None, **options):
    then = [(x.detach() + 1,)] if then is None else then
    found = conformance.locate(f"{HERE}:{backend}", **options)(function, x, then=then)
    assert found.counts.comparisons > 100, str(found)
    return found


ALIKE = {"kind": "wrong", "aspect": "values", "stage": "kernel", "event": "call 1", "graph": 0}
FORWARD = {**ALIKE, "direction": "forward", "operator": "tanh", "alone": True}
PLANTED = {
    "forward": FORWARD,
    "kernel": FORWARD,
    "decomposition": {**FORWARD, "stage": "decomposition"},
    "adjacent": {**FORWARD, "operator": "exp", "alone": False, "stage": "fusion"},
    "other_dtype": {**FORWARD, "aspect": "dtype", "operator": "mul"},
    "other_strides": {**FORWARD, "aspect": "strides", "operator": "mul"},
    "low_precision": {**FORWARD, "kind": "precision-cast difference"},
    "unsteady": {**FORWARD, "kind": "nondeterminism"},
    "raises_at_tanh": {**FORWARD, "kind": "crash", "aspect": "exception"},
    "dies_of_tanh": {**FORWARD, "kind": "crash", "aspect": "process", "event": "the process"},
    "reuses_memory": {**ALIKE, "event": "call 2", "direction": "forward"},
}


def check(found, wanted):
    told = {
        "kind": found.kind.value,
        "aspect": found.finding.aspect,
        "stage": found.stage,
        "event": found.event.partition(" of ")[0].partition(",")[0],
        "graph": found.graph and found.graph.number,
        "direction": found.direction,
        "operator": found.operator and found.operator.name.rpartition(".")[2],
        "alone": found.operator and found.operator.alone,
    }
    assert {name: told[name] for name in wanted} == wanted, str(found)
    assert found.differs


@pytest.mark.parametrize("backend", PLANTED)
def test_a_planted_fault_is_named(backend):
    found = found_in(backend)
    check(found, PLANTED[backend])
    if backend == "dies_of_tanh":  # where, as its handler of faults has it
        text = str(found)
        assert "Fatal Python error: Segmentation fault" in text and "in string_at" in text


def test_the_operator_has_its_line_and_its_errors():
    found = found_in("forward")
    assert found.operator.place.startswith("test_locate.py:")
    assert found.operator.evidence["float64"]
    assert found.operator.evidence["ulp_of_eager"] < 1 < found.operator.evidence["ulp_to_float64"]
    text = str(found)
    for told in ("stage:     kernel", "operator:  torch.tanh", "fails alone", "ulp, eager"):
        assert told in text


@pytest.mark.parametrize(
    ("backend", "stage", "operator"),
    [("backward", "kernel", "sin"), ("partition", "partition", "mul")],
)
def test_a_fault_of_the_backward(backend, stage, operator):
    found = found_in(backend, x=X.clone().requires_grad_())
    wanted = {"stage": stage, "direction": "backward", "operator": operator}
    check(found, {**FORWARD, **wanted, "event": "backward 1"})
    assert [rung.stage for rung in found.ladder if rung.differs] == [stage]
    assert all(rung.applies for rung in found.ladder)


def test_a_fault_of_one_graph_of_three():
    check(found_in("third_graph", three_graphs), {**ALIKE, "graph": 2, "direction": "forward"})


def test_a_write_that_is_dropped():
    check(found_in("drops_mutation", writes), {**FORWARD, "operator": "add_"})


def test_other_random_numbers():
    wanted = {**FORWARD, "aspect": "rng state", "stage": "RNG"}
    check(found_in("other_draws", draws), wanted)


def test_a_fault_for_symbolic_sizes_alone():
    then = [(torch.linspace(-1, 1, 4 * n).view(n, 4),) for n in (5, 6)]
    check(found_in("symbolic", then=then), {**FORWARD, "event": "call 2", "graph": 1})


def test_an_error_that_is_lost():
    def program(x):
        return F.binary_cross_entropy(x.sigmoid(), x * 2) * 3

    wanted = {**FORWARD, "aspect": "exception", "operator": "binary_cross_entropy"}
    check(found_in("checks_nothing", program), wanted)


def test_a_step_that_one_rounding_decides_is_told_of():
    def program(x):
        return torch.div(x, x * 0.1, rounding_mode="floor")

    found = found_in("other_quotient", program, x=torch.full((8,), 3.0))
    assert found.kind is Kind.REASSOCIATION and "a step, or terms that cancel" in str(found)


def test_a_forked_process_makes_its_threads_before_others_do(monkeypatch):
    """Two that made them at once ended it (torch for CUDA, whose autograd starts some)."""
    asked = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    ended = apart(lambda say: say(tuple(asked)), 60)
    assert ended.how == "done" and ended.said == ((torch.get_num_threads(),),)


def test_a_hang():
    found = found_in("hangs_at_tanh", timeout=3)
    check(found, {**FORWARD, "kind": "crash", "aspect": "hang", "event": "the process"})


def test_a_guard_that_is_missed(monkeypatch):
    compile = refcompiler.compile

    def missing(model, **options):
        compiled, kept = compile(model, **options), []
        return lambda x: kept[0] if kept else kept.append(compiled(x)) or kept[0]

    monkeypatch.setattr(refcompiler, "compile", missing)
    found = found_in("right")
    check(found, {"kind": "wrong", "stage": "capture", "event": "call 2", "graph": None})


def test_rounding_is_no_fault():
    found = found_in("noise")
    assert found.kind is Kind.REASSOCIATION and not found.differs
    assert not found.ladder and "reassociation noise" in str(found)


def test_nothing_differs():
    found = found_in("right", x=X.clone().requires_grad_())
    assert found.kind is Kind.PASS and found.finding is None
    assert (found.counts.graphs, found.counts.calls, found.counts.processes) == (2, 2, 2)


def test_a_call_that_eager_refuses_is_told_of():
    """Both sides raise alike, so nothing differs; nothing was compiled either."""
    found = conformance.locate(f"{HERE}:right")(chain, then=[(X, X)])
    assert found.kind is Kind.PASS and found.counts.graphs == 0
    text = str(found)
    assert "call 1 of chain raises in eager: TypeError: chain() missing 1" in text
    assert "and 1 calls more" in text and "nothing compiled was looked at" in text


def test_a_backend_that_runs_eager_is_told_of():
    found = found_in("only_eager")
    assert found.kind is Kind.NOT_COMPILED and found.differs


def test_an_eager_program_that_is_not_reproducible():
    def program(x):
        return x + int.from_bytes(os.urandom(2))

    found = found_in("right", program)
    assert found.kind is Kind.NONDETERMINISM and not found.differs, str(found)


def test_the_script_of_a_symbolic_fault_calls_twice():
    then = [(torch.linspace(-1, 1, 4 * n).view(n, 4),) for n in (5, 6)]
    found = found_in("symbolic", then=then, script=True)
    assert found.confirmed
    assert "outs.append(f(before_exp))\n    outs.append(f(exp))" in found.script


SCRIPT = """
import torch
from tests.cpu.conformance import faulty

model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
optimizer = torch.optim.SGD(model.parameters(), 0.1)
compiled = torch.compile(model, backend=faulty.{backend})
for step in range(3):
    loss = compiled(torch.ones(2, 4)).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


MINE = """
import torch


def f(x):
    return torch.tanh(torch.exp(x * 3).sin())
"""


def command(tmp_path: Path, *words: str):
    path = tmp_path / "command.py"
    path.write_text(
        f"import sys\nsys.argv = {['refcompiler', 'locate', *words]}\n"
        # Forked off from a process that may have run torch in parallel: see apart.apart.
        "import torch\n\ntorch.set_num_threads(1)\n"
        "from conformance.cli import main\n\nmain()\n"
    )
    return forked.run(path, os.environ, tmp_path)


@pytest.mark.parametrize(("backend", "status"), [("forward", 1), ("right", 0)])
def test_a_script_that_trains(tmp_path: Path, backend, status):
    program = tmp_path / "train.py"
    program.write_text(SCRIPT.format(backend=backend))
    done = command(tmp_path, str(program))
    assert done.returncode == status, done.stdout + done.stderr
    if status:
        assert "call 1 of Sequential, train.py:9" in done.stdout
        assert "operator:  torch.tanh" in done.stdout
    assert "looked at: 3 calls, 1 graphs with 3 calls" in done.stdout


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("raise ValueError('no')", "the program raises in eager: ValueError: no"),
        ("import torch", "calls nothing that it compiles"),
        ("import torch\ntorch.compile(len, backend='nobody')(())", "unknown backend 'nobody'"),
    ],
)
def test_what_cannot_be_run_is_told_in_one_line(tmp_path: Path, text, line):
    program = tmp_path / "program.py"
    program.write_text(text)
    done = command(tmp_path, str(program))
    assert done.returncode == 2 and line in done.stderr, done.stdout + done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_report_is_one_file_that_shows_it(tmp_path: Path):
    found = found_in("adjacent", script=True)
    assert found.confirmed
    report = tmp_path / "report.py"
    write(found, report)
    text = report.read_text()
    assert "# Confirmed" in text and "stage:     fusion" in text
    assert (
        "def program(x):\n    mul = x.mul(2)\n    exp = torch.exp(mul)\n    return (exp,)" in text
    )
    ran = forked.run(report, os.environ, tmp_path)
    assert ran.returncode == 1 and "expected:" in ran.stdout, ran.stdout + ran.stderr
    left = {p.name for p in tmp_path.iterdir()} - {"__pycache__"}
    assert left == {"report.py", "stdout", "stderr"}


def test_a_report_of_what_has_no_script(tmp_path: Path):
    found = found_in("reuses_memory", script=True)
    report = tmp_path / "report.py"
    write(found, report)
    ran = forked.run(report, os.environ, tmp_path)
    assert ran.returncode == 1 and "writes over out[0] of call 1 of graph 0" in ran.stdout


def test_a_callable_by_name(tmp_path: Path):
    (tmp_path / "mine.py").write_text(MINE)
    done = command(tmp_path, "mine:f", "torch.ones(3)", "--backend", f"{HERE}:adjacent")
    assert done.returncode == 1 and "Tensor.mul, torch.exp" in done.stdout, done.stdout
    assert "mine.py:6" in done.stdout
