"""The trace folder: plain files of what was compiled, and nothing of it unless it is asked for."""

import json
import os
import warnings
from xml.etree import ElementTree

import pytest
import torch

import refcompiler
from refcompiler.errors import BackendError
from refcompiler.runtime import trace
from refcompiler.runtime.config import config
from tests import forked


@pytest.fixture(autouse=True)
def unasked(monkeypatch):
    monkeypatch.delenv("REFCOMPILER_TRACE", raising=False)


def broken(x, n):
    y = (x + n).relu()
    torch._dynamo.graph_break()
    return y * 2


def backend(graph, inputs, **given):
    return graph.forward


def run(function=broken, how=backend, **options):
    compiled = refcompiler.compile(function, backend=how, dynamic=False, **options)
    for n in (1, 1, 2):
        assert torch.equal(compiled(torch.ones(3), n), (torch.ones(3) + n) * 2)


def runs(folder):
    return sorted(folder.glob("run-*"))


def test_each_compilation_leaves_its_files(tmp_path):
    graphs = []

    def watched(graph, inputs):
        graphs.append(graph.print_readable(print_output=False))
        trace.current().write("mine.txt", f"{len(inputs)} inputs")
        return graph.forward

    with config.patch(trace=str(tmp_path)):
        run(how=watched)
    (found,) = runs(tmp_path)
    folders = sorted(path for path in found.iterdir() if path.is_dir())
    line = broken.__code__.co_firstlineno + 2
    assert [path.name for path in folders] == [
        "0001-broken",
        f"0002-broken-{line}-after-a-break",
        "0003-broken",
    ]
    assert [(path / "graph.py").read_text().strip() for path in folders] == [
        graph.strip() for graph in graphs
    ]
    first, after, again = folders
    assert "graph_break" in (first / "break.txt").read_text()
    assert f"{__file__}:{line} in broken" in (first / "break.txt").read_text()
    assert not (after / "break.txt").exists()
    assert "EQUALS n: 1  # " in (first / "guards.txt").read_text()
    assert "EQUALS n: 2  # " in (again / "guards.txt").read_text()
    assert (first / "plan.py").read_text().startswith("def plan(__fn, x, n):")
    assert "nothing was compiled yet" in (first / "summary.txt").read_text()
    assert "n: expected 1, found 2" in (again / "summary.txt").read_text()
    for path in folders:
        seconds = json.loads((path / "timings.json").read_text())
        assert seconds.keys() == {"capture", "backend", "plan", "total"}
        parts = seconds["capture"] + seconds["backend"] + seconds["plan"]
        assert parts == pytest.approx(seconds["total"]) and min(seconds.values()) > 0
        assert (path / "mine.txt").read_text() == "1 inputs\n"
    index = (found / "index.txt").read_text().splitlines()
    assert [line.split()[0] for line in index] == [path.name for path in folders]
    assert "complete, 1 operations" in index[1] and "found 2" in index[2]
    assert trace.current() is None


def test_nothing_is_written_unasked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trace, "Trace", None)  # making one would fail
    seen = []

    def watched(graph, inputs):
        seen.append(trace.current())
        return graph.forward

    run(how=watched)
    assert seen == [None, None, None] and list(tmp_path.iterdir()) == []


def test_an_option_traces_what_one_compile_call_makes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(options={"trace.enabled": True})
    run(options={"trace.enabled": False})
    (found,) = runs(tmp_path / trace.DEFAULT)
    assert len((found / "index.txt").read_text().splitlines()) == 3
    for name in ("trace.enabled", "trace.graph_diagram"):
        with pytest.raises(TypeError, match=f"{name} takes True or False, not 1"):
            refcompiler.compile(broken, options={name: 1})


def test_a_backend_with_a_trace_of_its_own_is_told_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = []

    def other(graph, inputs, *, options=None):
        told.append(options)
        return graph.forward

    for other.traces in (False, True):
        compiled = refcompiler.compile(
            lambda x: x + 1, backend=other, options={"trace.enabled": True}
        )
        compiled(torch.ones(2))
    assert told == [None, {"trace.enabled": True}]


def test_the_environment_and_processes_apart(tmp_path, monkeypatch):
    program = "import torch, refcompiler; f = refcompiler.compile(lambda x: x + 1, backend='eager')"
    program += "; f(torch.ones(2)); print(refcompiler.counters()['captures'])"
    monkeypatch.setenv("REFCOMPILER_TRACE", str(tmp_path))
    refcompiler.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    script = tmp_path / "script.py"
    script.write_text(program)
    done = forked.fresh(script, os.environ, tmp_path)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    found = runs(tmp_path)
    assert len(found) == 2
    for path in found:
        assert list(path.glob("0001-*lambda/plan.py"))


def test_what_ends_a_compilation_is_told(tmp_path):
    def fails(graph, inputs):
        raise ValueError("no such thing")

    compiled = refcompiler.compile(broken, backend=fails)
    with config.patch(trace=str(tmp_path)), pytest.raises(BackendError):
        compiled(torch.ones(3), 1)
    (found,) = runs(tmp_path)
    assert "ValueError: no such thing" in (found / "0001-broken" / "error.txt").read_text()
    assert "failed, 0 operations" in (found / "index.txt").read_text()


def test_a_folder_that_cannot_be_written_costs_a_warning(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with warnings.catch_warnings(record=True) as caught, config.patch(trace=str(blocked)):
        warnings.simplefilter("always")
        run()
    (warning,) = caught
    assert str(warning.message) == f"the trace folder {blocked} cannot be written: Not a directory"
    assert refcompiler.counters()["captures"] > 0 and blocked.read_text() == ""


def test_a_picture_of_each_graph(tmp_path):
    graphs = []

    def watched(graph, inputs):
        graphs.append(graph.graph)
        return graph.forward

    with config.patch(trace=str(tmp_path)):
        run(how=watched, options={"trace.graph_diagram": True})
        run()
    drawn = sorted(tmp_path.glob("*/*/graph.svg"))
    assert [path.parent.name[:4] for path in drawn] == ["0001", "0002", "0003"]
    for path, graph in zip(drawn, graphs, strict=True):
        root = ElementTree.fromstring(path.read_text())
        boxes = [group[0].text for group in root.iter("{http://www.w3.org/2000/svg}g")]
        lines = list(root.iter("{http://www.w3.org/2000/svg}path"))
        assert len(boxes) == len(graph.nodes) >= 3
        assert len(lines) == sum(len(node.all_input_nodes) for node in graph.nodes) >= 2
        for node in graph.nodes:
            assert any(f"%{node.name} " in box or node.op == "output" for box in boxes)


def test_profiles_name_compiled_regions():
    """One for each run of a graph, with what runs in it below; none where nobody profiles."""
    refcompiler.reset()
    compiled = refcompiler.compile(broken, backend="eager", dynamic=False)
    x = torch.ones(3)
    for n in (1, 2):
        compiled(x, n)
    with torch.profiler.profile() as found:
        for n in (1, 2, 1):
            assert torch.equal(compiled(x, n), (x + n) * 2)
    line = broken.__code__.co_firstlineno + 2
    places = {f"broken/{i}": "aten::relu" for i in (0, 1)}
    places[f"broken:{line} (after a break)/0"] = "aten::mul"
    events = [event for event in found.events() if event.name.startswith("Compiled Region: ")]
    names = [event.name.removeprefix("Compiled Region: ") for event in events]
    assert sorted(names) == sorted([*places, "broken/0", *2 * [[*places][-1]]])
    for name, event in zip(names, events, strict=True):
        assert places[name] in [child.name for child in event.cpu_children]
    with torch.autograd.profiler.profile() as again:
        compiled(x, 1)
    assert sum(event.name.startswith("Compiled Region: ") for event in again.function_events) == 2
