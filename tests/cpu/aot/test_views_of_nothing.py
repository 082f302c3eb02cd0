"""Results that have memory of their own in eager, however a compiled graph makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import refcompiler

PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "select_scatter": lambda x, y: torch.select_scatter(x, y, 0, 1),
    "slice_scatter": lambda x, y: torch.slice_scatter(x, y.expand(2, 4), 0, 1, 3),
    "a part, unsafely": lambda x, y: torch.unsafe_chunk(x * 1, 2)[0],
    "max_pool1d": lambda x, y: F.max_pool1d(x[None], 2),
    "channel_shuffle": lambda x, y: torch.channel_shuffle(x.view(1, 4, 1, 3), 2),
}


def _told(t: Any, *inputs: Any) -> Any:
    memory = t.untyped_storage()._cdata
    own = memory not in [each.untyped_storage()._cdata for each in inputs]
    return t._is_view(), t._version, t.stride(), own, t.tolist()


@pytest.mark.parametrize("backend", ["aot_eager", "fastpath"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_result_is_no_view(name: str, backend: str) -> None:
    refcompiler.reset()
    program = PROGRAMS[name]
    call = refcompiler.compile(program, backend=backend, fullgraph=True)
    for tracked in (False, True):
        x = torch.linspace(-1, 1, 12).view(3, 4).clone().requires_grad_(tracked)
        y = torch.ones(4)
        assert _told(call(x, y), x, y) == _told(program(x, y), x, y)
    assert refcompiler.counters()["uncompiled"] == 0


CONJUGATES: dict[str, Callable[[Any], Any]] = {
    "conjugate": lambda t: t.conj(),
    "transposed": lambda t: t.mH,
    "negative": lambda t: torch._neg_view(t),
    "imaginary part": lambda t: t.conj().imag,
}


def _copied(x: Any, y: Any) -> Any:
    return x.resolve_conj().resolve_neg(), y * 2


def _parts_written(x: Any, y: Any) -> Any:
    torch.unsafe_chunk(x, 2)[0].mul_(2)
    return x * 1, y * 2


@pytest.mark.parametrize("kind", CONJUGATES)
@pytest.mark.parametrize("program", [_copied, _parts_written])
def test_copies_of_conjugates(program: Callable[..., Any], kind: str) -> None:
    """What has such a bit is copied, also by what else gives parts of its operand's memory."""
    refcompiler.reset()
    call = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    sides = []
    for each in (call, program):
        whole = torch.complex(torch.linspace(-1, 1, 12), torch.arange(12.0)).view(3, 4).clone()
        x = CONJUGATES[kind](whole)
        result, _ = each(x, torch.ones(2, requires_grad=True))
        sides.append((_told(result, x), result.is_conj(), x.tolist(), whole.tolist()))
    assert sides[0] == sides[1]
