"""Sizes as keys: a cache by shape is no break, and holds what eager's holds."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch

import refcompiler


def looked_up(x: torch.Tensor, held: Any, places: Any) -> torch.Tensor:
    if x.shape not in held:
        held[x.shape] = torch.ones(x.shape)
    return x + held[x.shape]


def asked(x: torch.Tensor, held: Any, places: Any) -> torch.Tensor:
    found = held.get(x.shape)
    return x + (held.setdefault(x.shape, torch.ones(x.shape)) if found is None else found * 2)


def tried(x: torch.Tensor, held: Any, places: Any) -> torch.Tensor:
    try:
        return x + held[x.shape]
    except KeyError:
        held[x.shape] = x.sum()
    return x


def within_a_key(x: torch.Tensor, held: Any, places: Any) -> torch.Tensor:
    key = x.shape, (x.dtype, x.shape[:1])
    if key not in held:
        held[key] = x.sum()
    return x + held[key]


def removed(x: torch.Tensor, held: Any, places: Any) -> torch.Tensor:
    held[x.shape] = held[x.shape, 1] = 2
    return x + held.pop(x.shape) + held.pop((x.shape, 1))


def deleted(x: torch.Tensor, held: Any, places: Any) -> torch.Tensor:
    held[x.shape] = held[x.shape, 1] = 2
    del held[x.shape], held[x.shape, 1]
    return x + len(held)


def in_a_set(x: torch.Tensor, held: Any, places: Any) -> torch.Tensor:
    places.add(x.shape)
    places.add((x.shape, 1))
    return x + len(places) + (x.shape in places) + ((x.shape, 2) in places)


def counted(x: torch.Tensor, held: Any, places: Any) -> torch.Tensor:
    counts: dict[Any, int] = defaultdict(int)
    ordered: dict[Any, Any] = OrderedDict()
    for key in (x.shape, x.shape[:1], (x.shape, 1)):
        counts[key] += 1
        ordered[key] = x.sum()
    held.update({x.shape: 1})
    return x + len(counts) + sum(ordered.values())


PROGRAMS: list[Callable] = [
    looked_up, asked, tried, within_a_key, removed, deleted, in_a_set, counted
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_size_is_a_key(program: Callable) -> None:
    refcompiler.reset()
    call = refcompiler.compile(program, backend="eager", fullgraph=True)
    ours, eager = (({}, set()), ({}, set()))
    for rows in (3, 3, 4, 5, 4, 3):
        x = torch.arange(rows * 2.0).view(rows, 2)
        assert torch.equal(call(x, *ours), program(x, *eager))
        assert list(ours[0]) == list(eager[0]) and ours[1] == eager[1]
        assert all(torch.equal(a, b) for a, b in zip(map(torch.as_tensor, ours[0].values()),
                   map(torch.as_tensor, eager[0].values()), strict=True))  # fmt: skip
        assert all(type(n) is int for key in ours[0] if type(key) is torch.Size for n in key)
    counts = refcompiler.counters()
    assert counts["breaks"] == counts["fallbacks"] == 0 and counts["graphs"] >= 2
