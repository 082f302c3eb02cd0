"""A sample of the batteries: python -m tests.slow.batteries runs all of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.slow.batteries.__main__ import Worker
from tests.slow.batteries.idioms.__main__ import run, summary
from tests.slow.batteries.idioms.common import IDIOMS, Adapted, Compiled, Idiom
from tests.slow.batteries.idioms.judge import difference, judge
from tests.slow.batteries.libraries import PROGRAMS, NotInstalledError, libraries, library_programs
from tests.slow.batteries.measure import Outcome
from tests.slow.batteries.worker import BATTERIES

EVERY = {"operators": 40, "modules": 20, "families": 8}


@pytest.mark.parametrize("battery", EVERY)
def test_as_much_in_one_graph(battery: str) -> None:
    names = BATTERIES[battery][0]()[:: EVERY[battery]]
    worker = Worker(battery, ["refcompiler", "torch"], limit=120.0)
    whole = kept = 0
    for name in names:
        pair: dict[str, Outcome] = {}
        for answer in worker.run(name):
            assert "lost" not in answer, answer
            if "outcome" not in answer:
                continue
            outcome = pair[answer["compiler"]] = Outcome(**answer["outcome"])
            if answer["compiler"] == "refcompiler":
                assert not outcome.error and not outcome.difference, (answer, name)
            elif outcome.whole:
                whole += 1
                kept += pair["refcompiler"].whole
    worker.close()
    assert whole >= len(names) // 2
    assert kept >= 0.97 * whole


def test_a_library_that_is_not_there_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.slow.batteries.libraries.PROGRAMS", {"no_such_library": PROGRAMS})
    assert libraries() == ["no_such_library:"]
    with pytest.raises(NotInstalledError, match="no_such_library is not installed.*left out"):
        next(library_programs("no_such_library:"))


def test_idioms_are_as_in_eager_and_a_difference_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["beam_search", "running_normaliser", "curriculum"]
    found = run(names, "aot_eager")
    assert all(r.good and r.graphs and r.compared for r in found), [*map(str, found)]
    assert summary(found).startswith("3 of 3 programs are as in eager")

    def told_by_the_compiler(compiled: Compiled) -> list[Any]:
        function = compiled(lambda x: x * (2 if torch.compiler.is_compiling() else 1))
        return [function(torch.ones(3))]

    def without_a_graph(compiled: Compiled) -> list[Any]:
        return [torch.ones(3)]

    for program in (told_by_the_compiler, without_a_graph):
        monkeypatch.setitem(IDIOMS, program.__name__, Idiom(program.__name__, program))
    wrong = run(["told_by_the_compiler", "without_a_graph"], "aot_eager")
    assert [r.difference for r in wrong] == [
        "value 0 of 3: 3 of 3 numbers",
        "no graph was compiled",
    ]
    assert "0 of 2 programs" in summary(wrong)
    captured = Idiom("captured", told_by_the_compiler, captured="it asks")
    assert judge(captured, "aot_eager").good


@pytest.mark.parametrize(
    ("change", "bits", "within"),
    [
        (lambda t: t + 1e-7, "2 of 6 numbers", ""),
        (lambda t: t + 1e-3, "6 of 6 numbers", "2.0e-04 of the largest magnitude"),
        (lambda t: t.t().contiguous().t(), "strides", "strides"),
        (lambda t: t.double(), "dtype", "dtype"),
        (lambda t: t.clone().requires_grad_(), "flag", "flag"),
        (lambda t: t.masked_fill(t == 1, torch.nan), "1 of 6 numbers", "inf of the largest"),
        (lambda t: torch.where(t == 0, -0.0, t), "1 of 6 numbers", ""),
    ],
)
def test_what_is_told_of_an_idiom(change: Any, bits: str, within: str) -> None:
    ours, theirs = [change(torch.arange(6.0).view(2, 3))], [torch.arange(6.0).view(2, 3)]
    forms = {"strides": "(1, 2), False), not", "dtype": "torch.float64", "flag": "True), not"}
    for said, told in (
        (bits, difference(ours, theirs, 0.0, adapted=True)[0]),
        (within, difference(ours, theirs, 3e-5, adapted=False)[0]),
    ):
        assert (forms.get(said, said) in told) if said else not told
    adapted = [Adapted(t) for t in ours], [Adapted(t) for t in theirs]
    if bits not in forms:
        assert not difference(*adapted, 3e-5, adapted=False)[0]
        assert difference(*adapted, 0.0, adapted=True)[0]


def test_a_stride_that_reaches_nothing_is_a_difference_of_eagers_kernels_alone() -> None:
    memory = torch.arange(12.0)
    ours, theirs = [memory[:6].view(1, 2, 3)], [memory.as_strided((1, 2, 3), (9, 3, 1))]
    assert not difference(ours, theirs, 3e-5, adapted=False)[0]
    assert "(9, 3, 1)" in difference(ours, theirs, 0.0, adapted=True)[0]
