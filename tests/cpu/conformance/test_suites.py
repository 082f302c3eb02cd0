"""The suites of programs catch compilers that lose what Python and aliasing promise."""

from dataclasses import replace

import pytest

from conformance.case import Call, Program
from conformance.compilers import Compiler, CompilerName, find
from conformance.judge import judge
from conformance.strategies.generate import examples
from conformance.suites import SUITES
from conformance.verdict import Kind
from tests.cpu.conformance import broken


def rows(suite, *names):
    found = [f.cases[0] for f in SUITES[suite].families("cpu") if f.cases]
    return [c for c in found if f"{c.subject}/{c.variant}" in names]


def verdict(frontend, case):
    """The verdict on a front end that is broken, with a backend that is not."""
    return judge(case, Compiler(CompilerName("right", "made"), frontend(), broken.right, True))


def aspects(found):
    return {finding.aspect for finding in found.findings if not finding.tolerated}


@pytest.mark.parametrize(
    ("frontend", "suite", "names", "aspect"),
    [
        (broken.DropsMutation, "mutation", ("inputs/added to", "views/written through"), "values"),
        (broken.CopiesResults, "mutation", ("views/of an input",), "aliasing"),
        (broken.CopiesResults, "mutation", ("inputs/returned untouched",), "identity"),
        (broken.BakesGlobals, "python", ("scopes/global read", "attributes/attribute changed"),
         "values"),
        (broken.RunsTwice, "python", ("text/printed in order",), "printed"),
        (broken.RunsTwice, "python", ("scopes/global written", "closures/counter"), "object"),
        (broken.RunsTwice, "python", ("random numbers/random",), "rng state"),
        (broken.RunsTwice, "breaks", ("text/printed in order, everywhere",), "printed"),
    ],
)  # fmt: skip
def test_a_broken_compiler_is_caught(frontend, suite, names, aspect):
    cases = rows(suite, *names)
    assert len(cases) == len(names)
    for case in cases:
        found = verdict(frontend, case)
        assert aspect in aspects(found), (case.id, found.findings)


NUMBERED = """
def made(rows, columns):
    return (torch.arange(rows * columns).to(torch.get_default_dtype())).reshape(rows, columns)

def program(x, y, k):
    return x * k + x.shape[0], y[:k]
"""


def test_sizes_and_numbers_that_are_baked_in_are_caught():
    drawn = examples(SUITES["shapes"].families("cpu").__next__().strategy, 1, "seed")[0]
    calls = [Call(f"f(made(3, 4), made(4, 3), {k})") for k in (2, 3)]
    case = replace(drawn, program=Program(f"import torch\n{NUMBERED}"), history=tuple(calls))
    assert "values" in aspects(verdict(broken.BakesNumbers, case))
    assert judge(case, find(CompilerName("eager"))).conforms


@pytest.mark.parametrize("frontend", ["refcompiler", "torch"])
def test_generated_programs_about_sizes(frontend):
    """A small sample; ``refcompiler conform --suite shapes`` draws more."""
    compiler, count = find(CompilerName("eager", frontend)), 0
    families = list(SUITES["shapes"].families("cpu"))[:: 9 if frontend == "torch" else 4]
    for family in families:
        for case in examples(family.strategy, 1, f"sample/{family.subject}/{family.variant}"):
            found = judge(case, compiler)
            assert found.conforms, (case.id, found.findings, case.program.source)
            assert found.comparisons > 20
            count += 1
    assert count == len(families)


@pytest.mark.parametrize("frontend", ["refcompiler", "torch"])
def test_generated_training_programs(frontend):
    """A small sample; ``refcompiler conform --suite ahead`` draws more."""
    compiler = find(CompilerName("aot_eager" if frontend == "refcompiler" else "eager", frontend))
    families, compiled = list(SUITES["ahead"].families("cpu")), 0
    comparisons = 0
    families = families[:: 16 if frontend == "torch" else 4]
    for family in families:
        for case in examples(family.strategy, 1, f"sample/{family.subject}/{family.variant}"):
            found = judge(case, compiler)
            serious = [f for f in found.findings if not f.tolerated]
            wrong = [f for f in serious if f.kind is not Kind.NOT_COMPILED]
            assert not wrong, (case.id, wrong, case.program.source)
            comparisons += found.comparisons
            compiled += found.compiled.calls > found.compiled.eager_calls
    assert comparisons > 200 * len(families)
    assert frontend == "torch" or compiled > len(families) // 2


def test_generated_programs_that_draw():
    """A small sample; ``refcompiler conform --suite random`` draws more."""
    compiler, comparisons = find(CompilerName("aot_eager")), 0
    families = [f for f in SUITES["random"].families("cpu") if f.variant == "grad"]
    for family in families:
        (case,) = examples(family.strategy, 1, f"sample/{family.subject}/{family.variant}")
        found = judge(case, compiler)
        serious = [f for f in found.findings if not f.tolerated]
        wrong = [f for f in serious if f.kind is not Kind.NOT_COMPILED]
        assert not wrong, (case.id, wrong, case.program.source)
        comparisons += found.comparisons
    assert len(families) == 6 and comparisons > 500 * len(families)


def test_a_draw_that_is_left_out_is_caught():
    (drawn,) = examples(next(SUITES["random"].families("cpu")).strategy, 1, "seed")
    text = "import torch\n\n\ndef program(u, v, g):\n    torch.rand(3)\n    return u + v,\n"
    case = replace(drawn, program=Program(text))
    right = find(CompilerName("aot_eager"))
    assert judge(case, right).conforms
    found = judge(case, replace(right, backend=broken.drops_what_is_unused))
    assert "rng state" in aspects(found)


def test_one_that_is_right_is_not():
    names = ("scopes/global read", "closures/counter", "text/printed in order")
    cases = [*rows("python", *names), *rows("mutation", "views/of an input", "inputs/added to")]
    cases += rows("breaks", "closures/counter, everywhere")
    assert len(cases) == 6
    compiler = find(CompilerName("eager"))
    for case in cases:
        found = judge(case, compiler)
        assert found.conforms and found.comparisons > 20, (case.id, found.findings)
