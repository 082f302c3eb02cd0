"""``x.data = y`` of a tensor that has its memory, and its version, with others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import refcompiler


def _other_written(a: Any, b: Any) -> Any:
    a.data = torch.ones(3) * 2
    with torch.no_grad():
        b.mul_(2)
    return a * 2, b * 3


def _same_written(a: Any, b: Any) -> Any:
    a.data = torch.ones(3) * 2
    with torch.no_grad():
        a.mul_(2)
    return a * 2, b * 3


def _of_its_own(a: Any, b: Any) -> Any:
    a.data = a.data * 2
    return a[1:], b * 3


def _older_view(a: Any, b: Any) -> Any:
    older = a[1:]
    a.data = a.data * 2
    return older, a * 2, b * 3


PAIRS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "two views": lambda leaf: (leaf.view(-1), leaf[1:3]),
    "a base and a view": lambda leaf: (leaf, leaf.view(2, 6)),
    "parts": lambda leaf: (leaf[:2], leaf[2:]),
    "detached": lambda leaf: (leaf.detach(), leaf.detach()),
    "apart": lambda leaf: (leaf * 1, leaf * 2),
    "one": lambda leaf: (leaf, leaf),
}


@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize("program", [_other_written, _same_written, _of_its_own, _older_view])
def test_data_of_one_of_several(program: Callable[..., Any], tracked: bool) -> None:
    compared = 0
    for make in PAIRS.values():
        refcompiler.reset()
        call = refcompiler.compile(program, backend="aot_eager")
        sides = []
        for each in (call, program):
            leaf = torch.linspace(-1, 1, 12).view(4, 3).clone().requires_grad_(tracked)
            pair = make(leaf)
            results = each(*pair)
            with torch.no_grad():
                pair[0].add_(1)
            every = (leaf, *pair, *results)
            memory = [t.untyped_storage()._cdata for t in every]
            told = [(t._version, t._is_view(), t._base is leaf, t.tolist()) for t in every]
            sides.append((told, [*map(memory.index, memory)]))
        assert sides[0] == sides[1]
        compared += len(sides[0][0])
        assert refcompiler.counters()["graphs"] >= 1
    assert compared >= 5 * len(PAIRS)
