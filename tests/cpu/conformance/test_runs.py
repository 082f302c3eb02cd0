"""Whole runs over worker processes: isolation, repro scripts, reports and exit statuses."""

import functools
import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

import conformance
from conformance import cli, worker
from conformance.case import Call, Case, Compiles, Literal, Program, Storage, Tensor, Tolerance
from conformance.pool import CannotRun
from conformance.runner import Progress
from conformance.suites import SUITES, Family, Suite
from conformance.verdict import Kind
from tests import forked

ROOT = Path(__file__).parents[3]
BROKEN = "tests.cpu.conformance.broken"


def case(label, values):
    return Case(
        suite="small",
        subject="double",
        variant="float32",
        program=Program("def program(x):\n    return x * 2\n"),
        inputs=(Storage("_x", "float32", len(values), Literal(values)),
                Tensor("x", "_x", (len(values),))),
        history=(Call("f(x)", Compiles.YES, "no_grad"), Call("f(x)", Compiles.NO, "no_grad")),
        tolerance=Tolerance(1.0),
        label=label,
    )  # fmt: skip


pytestmark = pytest.mark.usefixtures("one_zygote")

CASES = (
    case("ones", (1.0, 1.0)),
    case("mixed", (0.5, 3.0, 1.25, 7.0)),
    case("tens", (10.0, 11.0)),
)


def use(monkeypatch, cases):
    """Let the suite ``small`` of these cases be the only one."""
    family = Family("small", "double", "float32", cases=cases)
    suite = Suite("small", "cases made by hand", lambda device: iter((family,)))
    monkeypatch.setattr(SUITES, "_rows", {"small": suite})


@pytest.fixture(autouse=True)
def small_suite(monkeypatch):
    """Three cases of one family, run from the root of the repository."""
    use(monkeypatch, CASES)
    monkeypatch.chdir(ROOT)


def run(backend, **options):
    options = {"frontend": "torch", "jobs": 1, "timeout": 60.0} | options
    return conformance.run(backend, **options)


def standalone(path):
    # One that shows how a process ends starts another, which has to find the backend too.
    done = forked.fresh(path, os.environ | {"PYTHONPATH": str(ROOT)}, path.parent)
    return done.returncode, done.stdout


def test_a_right_backend_conforms():
    report = run(f"{BROKEN}:right")
    assert report.conforms and report.comparisons > 100
    assert [r.case.label for r in report.results] == ["ones", "mixed", "tens"]
    assert report.versions["torch"]


def test_a_state_left_behind_is_told_of_by_the_case_that_leaves_it(monkeypatch):
    """Each case starts from the process's own state, or the second would find nothing changed."""
    use(monkeypatch, CASES[:2])
    report = run(f"{BROKEN}:leaves_a_state")
    assert [r.verdict.worst.aspect for r in report.results] == ["ambient state"] * 2
    assert [r.verdict.worst.where for r in report.results] == ["precision of products"] * 2


def test_a_dead_process_costs_one_case_and_shrinks_to_what_kills_it(tmp_path):
    report = run(f"{BROKEN}:exits_for_threes", report=tmp_path)
    kinds = {r.case.label: r.verdict.kind for r in report.results}
    assert kinds == {"ones": Kind.PASS, "mixed": Kind.CRASH, "tens": Kind.PASS}
    (failure,) = report.failures
    assert failure.verdict.worst.found == "exited with status 7"
    smallest, _ = failure.shrunk
    (storage,) = smallest.storages()
    assert 3.0 in storage.contents.values and set(storage.contents.values) <= {0.0, 1.0, 3.0}
    assert len(smallest.history) == 1
    assert failure.confirmed
    status, printed = standalone(tmp_path / failure.repro)
    assert status == 1 and "expected: a living process" in printed and "status 7" in printed


def test_a_segfault_names_its_signal():
    report = run(f"{BROKEN}:segfaults")
    assert {r.verdict.worst.found for r in report.results} == {"killed by signal 11 (SIGSEGV)"}
    assert "Segmentation fault" in report.results[0].verdict.worst.evidence["log"]


def test_what_eager_does_not_survive_is_not_held_against_the_compiler(monkeypatch):
    deadly = "import os\n\n\ndef program(x):\n    os._exit(4)\n"
    use(monkeypatch, (replace(CASES[0], program=Program(deadly)), CASES[2]))
    report = run(f"{BROKEN}:right")
    assert [r.verdict.kind for r in report.results] == [Kind.REFUSED, Kind.PASS]
    assert report.conforms and report.results[0].verdict.worst.found == "exited with status 4"


def test_a_hang_costs_its_timeout_and_shows_its_stack(monkeypatch):
    use(monkeypatch, CASES[:1])
    report = run(f"{BROKEN}:hangs", timeout=4.0)
    assert [r.verdict.worst.aspect for r in report.results] == ["hang"]
    assert "broken.py" in report.results[0].verdict.worst.evidence["log"]
    assert report.seconds < 60


@pytest.mark.parametrize("backend", ["wrong_value", "returns_input"])
def test_a_failure_becomes_a_script_that_fails_when_run(tmp_path, monkeypatch, backend):
    use(monkeypatch, CASES[:1])
    report = run(f"{BROKEN}:{backend}", report=tmp_path)
    (failure,) = report.failures
    assert failure.confirmed, failure.printed
    assert "found" in failure.printed


def test_a_script_needs_nothing_of_this_package_and_tells_when_it_is_mended(tmp_path):
    backend = "silently_eager"
    report = run(f"{BROKEN}:{backend}", report=tmp_path)
    assert len(report.failures) == 3
    scripts = [tmp_path / r.repro for r in report.failures]
    assert all(script.exists() for script in scripts)
    shown = [r for r in report.failures if r.shrunk]
    assert len(shown) == 1 and shown[0].confirmed, shown[0].printed
    text = (tmp_path / shown[0].repro).read_text()
    assert "conformance" not in text.split('"""')[2].replace(BROKEN, "")
    status, printed = standalone(tmp_path / shown[0].repro)
    assert status == 1 and "expected" in printed and "found" in printed
    # mended, the script says so
    mended = text.replace(f"import {backend}", "import right").replace(
        f"backend = {backend}", "backend = right"
    )
    (tmp_path / "mended.py").write_text(mended)
    assert standalone(tmp_path / "mended.py")[0] == 0


def test_the_same_seed_gives_the_same_report():
    one, two = run(f"{BROKEN}:wrong_value"), run(f"{BROKEN}:wrong_value", jobs=2)
    assert [(r.case.id, r.verdict) for r in one.results] == [
        (r.case.id, r.verdict) for r in two.results
    ]


# -- the command ---------------------------------------------------------------------------------


def command(*words):
    done = CliRunner().invoke(cli.main, ["conform", "--frontend", "torch", "--jobs", "1", *words])
    return done.exit_code, done.output


def test_an_interrupt_leaves_a_report_of_what_was_judged(monkeypatch, tmp_path, request):
    # Started in the background of a shell, a process ignores the signal from the start.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    pressed = Progress(judged=lambda result: os.kill(os.getpid(), signal.SIGINT))
    report = run(f"{BROKEN}:hangs_for_threes", progress=pressed, report=tmp_path)
    assert [r.case.label for r in report.results] == ["ones"]
    assert report.stopped == "interrupted: 1 of 1 families were begun"
    assert report.comparisons and not report.conforms and report.seconds < 50

    monkeypatch.setattr(cli, "lines", lambda: pressed)
    status, printed = command("--backend", f"{BROKEN}:hangs_for_threes", "--report", str(tmp_path))
    assert status == 2 and "interrupted: 1 of 1 families were begun" in printed
    data = json.loads((tmp_path / "report.json").read_text())
    assert len(data["results"]) == 1 and data["stopped"] and not data["conforms"]
    assert "interrupted: 1 of 1" in (tmp_path / "index.html").read_text()


def test_progress_in_a_log_is_lines(monkeypatch):
    monkeypatch.setattr(cli, "lines", functools.partial(cli.lines, 0.0))
    status, printed = command("--backend", f"{BROKEN}:right")
    assert status == 0
    assert "judging: 0 of 1, 3 cases, 0 failures" in printed
    assert "judging: 1 of 1, 3 cases, 0 failures" in printed


def test_exit_status_0_and_the_files_of_a_report(tmp_path):
    status, output = command("--backend", f"{BROKEN}:right", "--report", str(tmp_path))
    assert status == 0 and "conforms: 3 cases" in output
    data = json.loads((tmp_path / "report.json").read_text())
    assert data["conforms"] and len(data["results"]) == 3
    assert ElementTree.parse(tmp_path / "junit.xml").getroot()[0].get("tests") == "3"
    assert "</html>" in (tmp_path / "index.html").read_text()


def test_only_what_matches_is_run():
    for pattern in ("double", "small/*/float32"):
        assert len(run(f"{BROKEN}:right", only=[pattern]).results) == 3
    with pytest.raises(CannotRun, match=r"int8: nothing matches; a case is such as small/"):
        run(f"{BROKEN}:right", only=["small/*/int8"])


def test_exit_status_1_and_expected_failures(tmp_path):
    status, output = command("--backend", f"{BROKEN}:exits_for_threes")
    assert status == 1 and "does not conform" in output and "small/double/float32/mixed" in output
    known = tmp_path / "known.toml"
    known.write_text(
        '[[expect]]\nid = "small/*/mixed"\nkind = "crash"\nreason = "threes"\n'
        '[[expect]]\nid = "small/*/ones"\nreason = "was wrong once"\n'
    )
    status, output = command("--backend", f"{BROKEN}:exits_for_threes", "--xfails", str(known))
    assert status == 0 and "stale expectation" in output and "small/*/ones" in output


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--backend", "nonsense"], "unknown backend 'nonsense'; the front end 'torch' knows"),
        (["--backend", "no_such_module:f"], "cannot be imported: No module named"),
        (["--backend", f"{BROKEN}:nothing"], "has no attribute 'nothing'"),
        (["--backend", f"{BROKEN}:HERE"], "cannot be imported"),
        (["--backend", ":backend"], "is no module:callable"),
        (["--backend", "eager", "--suite", "odd"], "unknown suite 'odd'; the suites are small"),
        (["--backend", "eager", "--device", "moon"], "device 'moon' cannot be used here: "),
        (["--backend", "eager", "--max-examples", "0"], "--max-examples is 0; it has to be"),
        (["--backend", "eager", "--jobs", "-1"], "--jobs is -1; it has to be positive"),
        (["--backend", "eager", "--report", "/proc/none"], "cannot be written"),
        (["--backend", "eager", "--xfails", "/none.toml"], "cannot be read"),
    ],
)
def test_exit_status_2_says_why_in_one_line(words, line):
    status, output = command(*words)
    assert status == 2 and line in output
    assert len(output.strip().splitlines()) == 1


def test_a_backend_that_kills_the_process_on_import():
    with pytest.raises(CannotRun, match="loading the backend ended the process: exited with"):
        run("tests.cpu.conformance.deadly:backend")


def test_unsupported_versions_are_named():
    assert "Python 3.10 is not supported" in worker.unsupported((3, 10, 4), "2.13.0")
    assert "torch 2.10.1 is not supported" in worker.unsupported((3, 12, 0), "2.10.1")
    assert worker.unsupported((3, 13, 0), "2.11.0+cu126") is None


def test_a_case_that_needs_a_package_says_so(monkeypatch):
    chosen = Case("small", "s", "v", Program("import absent", needs=("absent_package",)), (), ())
    judged = worker._judge(chosen)
    assert judged.verdict.kind is Kind.REFUSED and judged.verdict.conforms
    assert "pip install absent_package" in judged.verdict.worst.found
