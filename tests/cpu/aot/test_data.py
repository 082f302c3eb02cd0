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
