"""Gradients of results that lie otherwise than the results, beside eager, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import refcompiler
from tests.cpu.aot.programs import Compiler


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    refcompiler.reset()


def _norm(x: Any, w: Any) -> Any:
    return F.batch_norm(x, None, None, w, w, training=True)


def _factors(x: Any, w: Any) -> Any:
    return torch.linalg.qr(x[:7] * w)[0]


def _two(x: Any, w: Any) -> Any:
    y = x.softmax(-1) * w
    return y, (y @ y.t()).logsumexp(0)


LOSSES: list[Callable[[Any], Any]] = [
    lambda t: t.sum() * 0.1,
    lambda t: (t.mean(0) * torch.arange(float(t.shape[-1]))).sum(),
    lambda t: (t.t() @ torch.linspace(-1, 1, len(t))).sum(),
    lambda t: (t * t.detach()).sum(),
]


@pytest.mark.parametrize("program", [_norm, _factors, _two])
def test_tangents_as_they_come(program: Callable[..., Any]) -> None:
    known = Compiler(separate_reads=True, tangents_as_given=True)
    call = refcompiler.compile(program, backend=known, fullgraph=True)
    count = 0
    for n, loss in enumerate(LOSSES + LOSSES):
        found = []
        for each in (program, call):
            torch.manual_seed(n)
            x, w = torch.randn(33, 7, requires_grad=True), torch.randn(7, requires_grad=True)
            results = each(x, w)
            results = results if isinstance(results, tuple) else (results,)
            sum(
                loss(t if t.dim() > 1 else t[None]) for t in results[n // 4 :] or results
            ).backward()
            found.append((x.grad, w.grad))
        for expected, got in zip(*found, strict=True):
            assert torch.equal(expected, got) and expected.stride() == got.stride()
            count += 1
    assert count == 16 and known.reasons == [None]
    assert 2 <= len(known.backward) <= 9  # one for each way to lie


def test_ways_to_lie_are_bounded() -> None:
    known = Compiler(tangents_as_given=True)
    call = refcompiler.compile(_norm, backend=known, fullgraph=True)
    w = torch.randn(7, requires_grad=True)
    for n in range(24):
        x = torch.randn(33, 7, requires_grad=True)
        tangent = torch.randn(33, 8 + n)[:, :7]
        for each in (_norm, call):
            each(x, w).backward(tangent)
            if each is _norm:
                wanted, x.grad = x.grad, None
        torch.testing.assert_close(x.grad, wanted)
    assert len(known.backward) == 17  # and one for what is laid out
