"""What is generated compiles as Python, and what is written by hand is named once."""

import ast
import textwrap

import pytest

from conformance.case import Call, Change
from conformance.strategies.generate import examples
from conformance.strategies.statements import BLOCKS, HANDLERS, Writer
from conformance.suites import SUITES
from conformance.suites.breaks import count, with_breaks

LISTED = [f for name in ("python", "mutation") for f in SUITES[name].families("cpu") if f.cases]
GENERATED = [f for name in ("programs", "mutation", "shapes") for f in SUITES[name].families("cpu")]
DRAWN = [f for f in GENERATED if not f.cases]


def test_there_are_enough_rows_and_each_has_its_own_name():
    for name, least in (("python", 80), ("mutation", 60)):
        ids = [f.cases[0].id for f in LISTED if f.suite == name]
        assert len(ids) == len(set(ids)) >= least


@pytest.mark.parametrize("family", LISTED, ids=lambda f: f"{f.subject}-{f.variant}")
def test_a_row_is_called_at_least_twice_and_defines_what_it_mentions(family):
    (case,) = family.cases
    ast.parse(case.program.source)
    calls = [step for step in case.history if isinstance(step, Call)]
    assert len(calls) >= 2
    known = {item.name for item in case.inputs}
    for step in case.history:
        names = {n.id for n in ast.walk(ast.parse(step.source)) if isinstance(n, ast.Name)}
        assert names & {"x", "x2", "m", "m2", "w", "w2", "i", "big", "long", "longer"} <= known


@pytest.mark.parametrize("family", DRAWN[::11], ids=lambda f: f"{f.subject}-{f.variant}")
def test_what_is_drawn_parses_differs_and_changes_something(family):
    cases = examples(family.strategy, 4, "seed")
    assert len({case.program.source for case in cases}) > 1
    for case in cases:
        ast.parse(case.program.source)
        calls = [step.source for step in case.history if isinstance(step, Call)]
        assert len(calls) >= 2
        assert len({(s.source, getattr(s, "mode", "")) for s in case.history}) >= 2
    assert cases == examples(family.strategy, 4, "seed")


def test_every_change_of_state_is_a_statement():
    for family in LISTED:
        for step in family.cases[0].history:
            ast.parse(step.source, mode="exec" if isinstance(step, Change) else "eval")


def test_breaks_come_after_one_statement_or_each():
    source = "import torch\n\ndef program(x):\n    y = x\n    if y:\n        y = 1\n    return y\n"
    call = "torch._dynamo.graph_break()"
    assert count(source) == 3
    lines = [with_breaks(source, (i,)).splitlines() for i in range(3)]
    assert all(text.count(f"    {call}") + text.count(f"        {call}") == 1 for text in lines)
    # inner statements have their numbers first
    assert [text[text.index(next(t for t in text if call in t)) - 1].strip() for text in lines] == [
        "y = 1",
        "y = x",
        "y = 1",
    ]
    assert "\n".join(with_breaks(source, (0, 1, 2)).splitlines()).count(call) == 3


def test_each_program_with_breaks_compiles():
    cases = [case for family in SUITES["breaks"].families("cpu") for case in family.cases]
    assert len(cases) > 150
    for case in cases:
        assert "graph_break()" in case.program.source
        compile(case.program.source, case.id, "exec")


class Nesting(Writer):
    """Puts compound statements into each other wherever that can be drawn."""

    def pick(self, choices):
        return "focus" if "focus" in choices else choices[0]


@pytest.mark.parametrize("template", [t for t in (*BLOCKS, *HANDLERS) if "|" in t])
def test_what_is_drawn_nests_no_deeper_than_python_compiles(template):
    nested = Nesting(lambda strategy: 1, (template,)).statement(2)
    assert nested.count(template.split("\n")[0].split("{")[0]) > 4
    compile("def f(n):\n" + textwrap.indent(nested, "    "), "program", "exec")
