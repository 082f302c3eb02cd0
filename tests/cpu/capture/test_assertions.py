"""``assert`` and ``raise`` by what tensors hold: part of the graph, and eager's where they fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import refcompiler
from refcompiler.runtime.counters import reasons
from tests.cpu.capture import asserting


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    refcompiler.reset()
    yield
    refcompiler.reset()


def seen(function: Callable, x: Any) -> Any:
    log: list = []
    try:
        answer: Any = function(x, log).tolist()
    except Exception as error:
        answer = type(error), str(error)
    return repr((answer, log, x.tolist()))


PROGRAMS = (
    "plain both negated computed_text written raising looping nested by_torch number as_numbers "
    "cleaned_up distribution checked written_and_negated"
).split()
STARTS = (0.0, -9.0, 5.0, -3.0, 30.0, float("nan"), 1.0)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "fastpath"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_one_graph_and_eager_s_errors(program: str, backend: str) -> None:
    function = getattr(asserting, program)
    compiled = refcompiler.compile(function, backend=backend, fullgraph=True)
    count = 0
    for start in STARTS:
        x = torch.arange(4.0) + start
        assert seen(compiled, x.clone()) == seen(function, x), start
        count += 1
    assert count == len(STARTS) and refcompiler.counters()["graphs"] == 1


@pytest.mark.parametrize(
    "program", ["plain", "raising", "nested", "cleaned_up", "distribution", "checked"]
)
def test_no_break_without_fullgraph_either(program: str) -> None:
    function = getattr(asserting, program)
    compiled = refcompiler.compile(function, backend="eager")
    for start in (0.0, 5.0):
        x = torch.arange(4.0) + start
        assert seen(compiled, x.clone()) == seen(function, x)
    assert refcompiler.counters()["graphs"] == 1 and not refcompiler.counters()["breaks"]


def test_what_the_program_catches_is_a_way_on() -> None:
    def function(x: Any) -> Any:
        try:
            if x.sum() > 0:
                raise LookupError
        except LookupError:
            return x + 1
        return x * 2

    compiled = refcompiler.compile(function, backend="eager")
    for sign in (1, -1, 1):
        assert torch.equal(compiled(torch.ones(3) * sign), function(torch.ones(3) * sign))
    assert refcompiler.counters()["breaks"] == 1


def test_a_text_of_what_the_graph_has_changed_since_is_made_before() -> None:
    function = asserting.checked_after_a_change
    compiled = refcompiler.compile(function, backend="eager")
    for start in STARTS:
        x = torch.arange(4.0) + start
        assert seen(compiled, x.clone()) == seen(function, x), start
    (reason,) = {reason.context for reason in reasons("breaks")} - {"Tensor.item"}
    assert reason == "a tensor is formatted"


def test_an_initialiser_that_does_nothing_breaks_nothing_behind_a_break() -> None:
    class Counted:
        def __init__(self, x: Any) -> None:
            self.count = (x > 0).sum().item()
            super().__init__()
            object.__init__(self)

    def function(x: Any) -> Any:
        return x * Counted(x).count

    compiled = refcompiler.compile(function, backend="eager")
    for start in (0.0, -2.0):
        x = torch.arange(4.0) + start
        assert torch.equal(compiled(x), function(x))
    assert refcompiler.counters()["breaks"] == 1


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_numbers_of_data_without_other_symbols(backend: str) -> None:
    """Torch's compilers get its own symbols for them too."""

    def function(x: Any) -> Any:
        return x * (x > 0).sum().item() + x.sum().item()

    compiled = refcompiler.compile(function, backend=backend, fullgraph=True)
    for start in (0.0, -2.0):
        x = torch.arange(4.0) + start
        assert torch.equal(compiled(x), function(x))
    assert refcompiler.counters()["graphs"] == 1
