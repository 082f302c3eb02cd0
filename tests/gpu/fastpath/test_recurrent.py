"""Recurrent networks of the vendor's library, between parts that are compiled."""

from __future__ import annotations

import copy

import pytest
import torch

import fastpath
import refcompiler
from refcompiler.aot.alone import REASON
from refcompiler.runtime.counters import reasons
from tests.cpu.aot.test_alone import Recurrent

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("backend", ["aot_eager", "fastpath"])
@pytest.mark.parametrize("training", [False, True])
def test_what_is_around_is_compiled(backend: str, training: bool) -> None:
    refcompiler.reset()
    torch.manual_seed(0)
    net = Recurrent().cuda().train(training)
    other = copy.deepcopy(net)
    run = refcompiler.compile(net, backend=backend, fullgraph=True)
    for _ in range(2):
        x = torch.randn(2, 3, 4, device="cuda", requires_grad=training)
        y = x.detach().clone().requires_grad_(training)
        with torch.set_grad_enabled(training):
            got, want = run(x), other(y)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        if training:
            for results in (got, want):
                sum(t.square().sum() for t in results).backward()
            torch.testing.assert_close(x.grad, y.grad, rtol=1e-4, atol=1e-5)
            for p, q in zip(net.parameters(), other.parameters(), strict=True):
                torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-4)
    assert f"2 of its 5 parts: {REASON}" in str(reasons("uncompiled"))
    if backend == "fastpath":
        report = fastpath.last_report()
        assert report.fallback is None and report.kernels
