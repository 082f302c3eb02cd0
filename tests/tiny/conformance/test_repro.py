"""A script is valid Python for every aspect, and contains what it needs."""

import ast
from dataclasses import replace

import pytest

from conformance.case import Call
from conformance.repro import _READ, Origin, file_name, script
from conformance.verdict import Finding, Kind
from tests.tiny.conformance.samples import case

VALUES = {"index": (2,), "reference": 1.5, "allowed": 0.1, "complex": False}


def wrong(aspect, where="outs[0]", kind=Kind.WRONG, found="2", **evidence):
    return Finding(kind, aspect, where, 2, "1", found, evidence=evidence)


FINDINGS = [
    *(wrong(aspect, other="x") for aspect in _READ),
    wrong("values", **VALUES),
    wrong("values", **VALUES, signed_zero=True),
    wrong("values", **VALUES | {"complex": True, "index": (2, 1)}),
    wrong("values", kind=Kind.NONDETERMINISM, side="compiled"),
    wrong("structure", "outs[0]['k']"),
    wrong("rng state", "random"),
    wrong("exception", "error", Kind.REFUSED, 'E: """quoted""" \\ text'),
    wrong("process", "", Kind.CRASH, "exited with status 3"),
    wrong("hang", "", Kind.CRASH, "no answer in 3 s"),
]
ORIGINS = [
    Origin(backend, frontend, "refcompiler conform --backend b", {"torch": "2.13.0"}, 60.0)
    for backend in ("inductor", "my.package:Backends.best")
    for frontend in ("torch", "refcompiler")
]


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda f: f"{f.kind}-{f.aspect}")
@pytest.mark.parametrize("origin", ORIGINS, ids=lambda o: f"{o.backend}-{o.frontend}")
def test_every_script_parses_and_stands_alone(finding, origin):
    text = script(case(), finding, origin)
    tree = ast.parse(text)
    names = {
        (node.module if isinstance(node, ast.ImportFrom) else alias.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    standard = {"contextlib", "importlib", "io", "os", "random", "subprocess", "sys", "math"}
    assert names <= standard | {"torch", "refcompiler", "my"}
    assert ("refcompiler" in names) == (origin.frontend == "refcompiler")
    assert "torch.sin(x)" in text and "_x = torch.tensor([1.0, 2.0, 3.0, 4.0]" in text
    assert ast.get_docstring(tree).endswith("0: it is gone.")


def test_history_stops_at_the_step_that_shows_it():
    first = Finding(Kind.WRONG, "dtype", "outs[0]", 0, "a", "b")
    text = script(case(), first, ORIGINS[0])
    assert text.count("outs.append(") == 1 and "x.add_(1)" not in text
    later = replace(first, step=2)
    text = script(case(), later, ORIGINS[0])
    assert text.count("outs.append(") == 2 and "x.add_(1)" in text


def test_backward_steps_bring_their_cotangents():
    chosen = replace(case(), history=(Call("f(x)", mode="inference_mode", backward=True),))
    text = script(
        chosen, Finding(Kind.WRONG, "values", "x.grad", 0, "1", "2", evidence=VALUES), ORIGINS[0]
    )
    assert "def backward(out):" in text and "with torch.inference_mode():" in text
    ast.parse(text)


def test_file_names_hold_no_separators():
    assert (
        file_name("operators/aten.add.Tensor/int8/0 1:2")
        == "operators-aten.add.Tensor-int8-0-1-2.py"
    )


@pytest.mark.parametrize("finding", [*FINDINGS, wrong("structure", "seen[1]")], ids=str)
def test_a_step_that_raises_in_eager_does_not_end_the_script(finding):
    """The case goes on behind it, as the runner's did: the script has to come to what it shows."""
    later = replace(case(), history=(Call("f(y)"), Call("f(x)"), Call("f(x)")))
    text = script(later, finding, ORIGINS[0], raises=True)
    (body,) = [n for n in ast.parse(text).body if isinstance(n, ast.If)][:1]
    calls = [n for n in ast.walk(body) if isinstance(n, ast.Try)]
    assert len(calls) == 3 and "earlier[1] = raised" in text and "error = raised" in text
    plainly = script(later, finding, ORIGINS[0])
    assert "earlier" not in plainly
