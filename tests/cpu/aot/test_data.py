"""What is returned of ``x.data`` counts writes by itself, what is detached with ``x``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import refcompiler

PROGRAMS: dict[str, Callable[[torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "data": lambda x: (x.data, x.sin()),
    "a piece of it": lambda x: (x.data[1:], x[1:], x.sin()),
    "detached": lambda x: (x.detach(), x.sin()),
    "of a result": lambda x: (lambda y: (y, y.data, y.sin()))(x * 2),
    "written to": lambda x: (x.data.mul_(2), x * 3),
}


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", PROGRAMS)
def test_versions_of_data(name: str, mode: Any) -> None:
    program = PROGRAMS[name]
    call = refcompiler.compile(program, backend="aot_eager")
    compared = 0
    for which in range(2):
        seen = []
        for run in (program, call):
            x = torch.arange(4.0, requires_grad=True)
            y = x * 1
            with mode():
                results = run(y)
            found: list[Any] = []
            try:
                with torch.no_grad():
                    results[which].mul_(2)
                found += [y._version, [(t._version, t.tolist()) for t in results]]
                if results[-1].requires_grad:
                    results[-1].sum().backward()
                    found.append(None if x.grad is None else x.grad.tolist())
            except RuntimeError as error:
                found.append(str(error)[:60])
            seen.append(found)
        compared += len(seen[0])
        assert seen[0] == seen[1]
    assert compared


def _bits_of_data(u: Any, v: Any) -> Any:
    data = u.data
    data.add_(1)
    data.add_(1)
    u.mul_(2)
    return data.view(torch.int32), v.view(torch.int32)


def _older_bits_of_data(u: Any, v: Any) -> Any:
    bits = u.data.view(torch.int32)
    u.mul_(2)
    return bits, v.data


def _bits_of_both(u: Any, v: Any) -> Any:
    u.mul_(2)
    v.add_(1)
    return v[1:], v.view(torch.int32), u.view(torch.int32), v.detach()[1:], v.data


@pytest.mark.parametrize("program", [_bits_of_data, _older_bits_of_data, _bits_of_both])
@pytest.mark.parametrize("step", [1, 2])
def test_who_counts_writes_with_bits(program: Callable[..., Any], step: int) -> None:
    """The input that a result shares its count of writes with; ``data`` has one of its own.

    With ``step`` 2, both inputs are views of one tensor, whose count is theirs.
    """
    refcompiler.reset()
    call = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    for n in range(2):
        sides = []
        for each in (call, program):
            base = (torch.arange(8.0) + n).requires_grad_() * 1
            u, v = (base[::2], base[1::2]) if step == 2 else (base[:4] * 1, base[4:] * 1)
            with torch.no_grad():
                results = [*each(u, v), u, v]
            sides.append([(t._version, t.grad_fn is None, t.tolist()) for t in results])
        assert sides[0] == sides[1] and len(sides[0]) >= 4
    assert refcompiler.counters()["uncompiled"] == 0
