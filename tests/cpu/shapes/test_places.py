"""A place beyond a dimension raises as in eager, though nothing reads what would be there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import refcompiler

PROGRAMS: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "index": lambda x, n: x[n],
    "behind another": lambda x, n: x[:, n],
    "select": lambda x, n: x.select(0, n),
    "function": lambda x, n: torch.select(x, 0, n),
    "scatter": lambda x, n: torch.select_scatter(x, torch.zeros(2), 0, n),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_place_that_changes_is_asked_for(name: str) -> None:
    taken = PROGRAMS[name]

    def program(x: torch.Tensor, n: int) -> Any:
        try:
            taken(x, n)
        except IndexError as error:
            return x + 1, str(error)
        return x + 2, ""

    call = refcompiler.compile(program, backend="aot_eager")
    said = set()
    for n in (1, 5, 0, 2, 7, -3, -1, -2):
        x = torch.arange(4.0).view(2, 2)
        (ours, found), (eager, expected) = call(x, n), program(x, n)
        assert found == expected and torch.equal(ours, eager)
        said.add(bool(found))
    assert said == {True, False}
