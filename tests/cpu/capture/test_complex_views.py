"""Inputs that read pairs of real numbers as complex ones, of memory that is no pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import refcompiler

VIEWS: dict[str, Callable[[Any], Any]] = {
    "pairs": torch.view_as_complex,
    "conjugate": lambda w: torch.view_as_complex(w).conj(),
    "transposed": lambda w: torch.view_as_complex(w).mH,
    "a part": lambda w: torch.view_as_complex(w)[1:],
    "negative": lambda w: torch._neg_view(torch.view_as_complex(w)),
}


def _rotated(x: Any, turns: Any) -> Any:
    return torch.view_as_real(torch.view_as_complex(x) * turns)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("grown", [None, "leaf", "no leaf"])
@pytest.mark.parametrize("name", VIEWS)
def test_an_input_of_pairs(name: str, grown: str | None, backend: str) -> None:
    """The base of such a view is flat, or of other sizes, as that of ``flat.view(n, 4, 2)`` is."""
    refcompiler.reset()
    call = refcompiler.compile(_rotated, backend=backend, fullgraph=True)
    compared = 0
    for n in (4, 4, 6):
        sides = []
        for each in (call, _rotated):
            leaf = torch.linspace(-1, 1, 8 * n).requires_grad_(grown is not None)
            flat = leaf * 1 if grown == "no leaf" else leaf
            turns = VIEWS[name](flat.view(n, 4, 2))
            pairs = torch.linspace(0, 1, 2 * turns.numel()).view(*turns.shape, 2)
            result = each(pairs, turns)
            found = [result.detach()]
            if grown is not None:
                found += torch.autograd.grad(result.cos().sum(), leaf)
            sides.append(found)
        for one, other in zip(*sides, strict=True):
            assert torch.equal(one, other)
            compared += 1
    assert compared == (3 if grown is None else 6)
    assert refcompiler.counters()["breaks"] == 0
