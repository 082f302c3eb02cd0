"""Products of groups of rows on a CPU: one graph in any dtype that eager's kernel has."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import refcompiler
from refcompiler.fakes.mode import EagerFakeMode

GROUPED = getattr(torch.ops.aten, "_grouped_mm", None)
pytestmark = pytest.mark.skipif(GROUPED is None, reason="torch has no _grouped_mm")
ENDS = torch.tensor([4, 4, 12], dtype=torch.int32)


def factors(kind: str, dtype: torch.dtype) -> tuple[Any, ...]:
    shapes = {
        "rows": ((12, 8), (3, 8, 16), ENDS),
        "turned": ((12, 8), (3, 16, 8), ENDS),
        "batches": ((3, 4, 8), (3, 8, 16), None),
        "terms": ((8, 16), (16, 8), torch.tensor([4, 4, 16], dtype=torch.int32)),
        "columns": ((3, 4, 8), (8, 16), torch.tensor([4, 4, 16], dtype=torch.int32)),
    }
    a, b, ends = shapes[kind]
    draw = torch.Generator().manual_seed(0)
    x, y = (torch.randn(shape, generator=draw).to(dtype) for shape in (a, b))
    return x, y.transpose(1, 2) if kind == "turned" else y, ends


KINDS = ["rows", "turned", "batches", "terms", "columns"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_stand_in_is_as_eagers_result(kind: str, dtype: torch.dtype) -> None:
    a, b, ends = factors(kind, dtype)
    expected = torch._grouped_mm(a, b, offs=ends)
    with EagerFakeMode() as mode:
        fakes = [None if t is None else mode.from_tensor(t) for t in (a, b, ends)]
        found = torch._grouped_mm(fakes[0], fakes[1], offs=fakes[2])
    known = expected.shape, expected.stride(), expected.dtype
    assert (found.shape, found.stride(), found.dtype) == known


def test_a_mixture_of_experts_is_one_graph() -> None:
    def experts(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor, ends: Any) -> Any:
        hidden = F.silu(torch._grouped_mm(x * 2, up, offs=ends))
        return torch._grouped_mm(hidden, down.transpose(1, 2), offs=ends) + x

    x, up, ends = factors("rows", torch.float32)
    down = torch.randn(3, 8, 16, generator=torch.Generator().manual_seed(1))
    seen = []
    for function in (experts, refcompiler.compile(experts, backend="aot_eager", fullgraph=True)):
        given = [t.clone().requires_grad_() for t in (x, up, down)]
        result = function(*given, ends)
        seen.append([result, *torch.autograd.grad(result.square().sum(), given)])
    for expected, found in zip(*seen, strict=True):
        assert torch.equal(expected, found) and expected.stride() == found.stride()


def test_what_eager_rejects_is_rejected() -> None:
    a, b = torch.randn(12, 8), torch.randn(3, 8, 6)  # rows that begin at no multiple of 16 bytes
    for function in (torch._grouped_mm, refcompiler.compile(torch._grouped_mm, backend="eager")):
        with pytest.raises(RuntimeError):
            function(a, b, offs=ENDS)
