"""What eager rejects is rejected, and numbers that a dtype does not hold are treated as eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import refcompiler

REJECTED: dict[str, tuple[Callable[..., Any], torch.Tensor]] = {
    "sub bool": (lambda x: torch.sub(x, x > 0), torch.ones(3, dtype=torch.int8)),
    "rsub bool": (lambda x: torch.rsub(x, True), torch.ones(3)),
    "view": (lambda x: x.view(-1) + 1, torch.ones(3).as_strided((2, 1, 3), (0, 0, 1))),
    "full": (lambda x: x + torch.full((3,), 1e30, dtype=torch.float16), torch.ones(3).half()),
    "new_full": (lambda x: x.new_full((3,), 300), torch.ones(3, dtype=torch.uint8)),
    "masked_fill": (lambda x: x.masked_fill(x > 0, 1e30), torch.ones(3).half()),
    "clamp": (lambda x: torch.clamp(x, max=300), torch.ones(3, dtype=torch.uint8)),
    "clamp_min": (lambda x: torch.clamp_min(x, 3.4e38), torch.ones(3).half()),
    "clamp_max": (lambda x: torch.clamp_max(x, -129), torch.ones(3, dtype=torch.int8)),
    "an exponent": (lambda x: torch.pow(x, 7e4), torch.ones(3).half()),
    "an integer exponent": (lambda x: torch.pow(x, 300), torch.ones(3, dtype=torch.uint8)),
    "a divisor that wraps": (lambda x: x % 2**32, torch.ones(3, dtype=torch.int16)),
    "alpha": (lambda x: torch.add(x, x, alpha=300), torch.ones(3, dtype=torch.int8)),
    "a bool of numbers": (lambda x: torch.add(x, x, alpha=True), torch.ones(3)),
    "a bool of one bool": (lambda x: torch.add(x > 0, 1, alpha=True), torch.ones(3)),
    "a bool of complex numbers": (lambda x: x.sub(x, alpha=True), torch.ones(3) + 0j),
    "a float wraps nowhere": (lambda x: x.new_full((3,), -0.5), torch.ones(3, dtype=torch.uint8)),
    "argmax of bools": (lambda x: (x > 0).argmax(0), torch.ones(3)),
    "index_add": (
        lambda x: x.index_add(0, torch.tensor([2, 0]), torch.ones(2, dtype=torch.int32)),
        torch.ones(3),
    ),
    "logsumexp": (lambda x: torch.logsumexp(x, []), torch.ones(2, 3)),
}


@pytest.mark.parametrize("name", REJECTED)
def test_what_eager_rejects_raises(name: str) -> None:
    program, x = REJECTED[name]
    with torch.no_grad():
        with pytest.raises(RuntimeError) as expected:
            program(x)
        with pytest.raises(RuntimeError) as found:
            refcompiler.compile(program, backend="fastpath")(x)
    first = str(expected.value).splitlines()[0]
    assert str(found.value).splitlines()[0] == first


BYTES = torch.tensor([1, 44, 254], dtype=torch.uint8)
ACCEPTED: dict[str, tuple[Callable[..., Any], torch.Tensor]] = {
    "a number wraps around in add": (lambda x: torch.add(x, 300), BYTES),
    "and in a comparison": (lambda x: torch.eq(x, 300), BYTES),
    "a number between two fills": (lambda x: x.new_full((3,), 1e-39), torch.ones(3).bfloat16()),
    "a negative number fills": (lambda x: torch.full_like(x, -2), BYTES),
    "infinity by rounding": (lambda x: torch.add(x, 1e30), torch.ones(3).half()),
    "a threshold below the smallest": (
        lambda x: torch.ops.aten.threshold_backward(x, x * 0, -1e-40),
        torch.ones(3).half(),
    ),
    "no dimension of all": (lambda x: torch.all(x, []), BYTES.reshape(3, 1) - 1),
    "no dimension of any": (lambda x: torch.any(x, []), BYTES.reshape(3, 1) - 1),
    "nothing to compute": (lambda x: (x[:0] + 1).exp(), torch.ones(3, 2)),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_eager_accepts_is_compiled(name: str) -> None:
    import fastpath

    program, x = ACCEPTED[name]
    with torch.no_grad():
        expected = program(x)
        found = refcompiler.compile(program, backend="fastpath")(x)
    assert torch.equal(expected, found), (expected, found)
    assert (expected.dtype, expected.stride()) == (found.dtype, found.stride())
    report = fastpath.last_report()
    assert report is not None and report.fallback is None and not report.aten_calls, report


def test_capture_takes_the_branch_that_eager_takes_where_a_view_is_impossible() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        try:
            return x.view(-1) + 1
        except RuntimeError:
            return x.reshape(-1) * 3

    compiled = refcompiler.compile(program, backend="eager")
    broadcast = torch.ones(3).as_strided((2, 1, 3), (0, 0, 1))
    for x in (broadcast, torch.ones(2, 3)):
        assert torch.equal(compiled(x), program(x))
