"""Results of a compiled graph that the program lets go of behind a break."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch

import refcompiler


def program(x: Any, w: Any) -> Any:
    h = x @ w
    places = h.argmax(-1).tolist()
    y = h.sin()
    h = y * 2
    for n in places:
        y = y + h[:n].sum()
    return y


def referring(x: Any, w: Any) -> Any:
    h = x @ w
    reference = weakref.ref(h)
    h.sum().item()
    y = h.sin()
    h = y * 2
    return y, h, reference() is None


@pytest.mark.parametrize("backend", ["aot_eager", "fastpath"])
def test_what_refers_to_them_for_the_backward_ends_no_graph(backend: str) -> None:
    refcompiler.reset()
    compiled = refcompiler.compile(program, backend=backend)
    x, w = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
    found = compiled(x, w)
    torch.testing.assert_close(found, program(x, w))
    counts = refcompiler.counters()
    assert (counts["graphs"], counts["breaks"], counts["uncompiled"]) == (2, 1, 0)


@pytest.mark.parametrize("backend", ["aot_eager", "fastpath"])
@pytest.mark.parametrize("recorded", [False, True])
def test_the_programs_references_tell_of_their_ends(recorded: bool, backend: str) -> None:
    """Without a graph of autograd's, which would keep the tensor, it is over."""
    refcompiler.reset()
    compiled = refcompiler.compile(referring, backend=backend)
    x, w = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
    with torch.set_grad_enabled(recorded):
        assert compiled(x, w)[2] is referring(x, w)[2] is not recorded
