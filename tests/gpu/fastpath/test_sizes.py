"""One program for all sizes on a GPU: its kernels take them, and no size compiles another one."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import fastpath
import refcompiler
from tests.cpu.fastpath.test_sizes import CASES, compiled

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
SIZES = ((6, 7), (8, 3), (3, 33), (16, 16), (320, 16), (40, 2), (2, 70), (300, 999), (64, 1024))


@pytest.mark.parametrize("name", CASES)
def test_one_program_serves_all_sizes(name: str) -> None:
    function, make = CASES[name]
    if name == "scaled":  # it makes its numbers where it is not told to

        def function(x: torch.Tensor) -> torch.Tensor:
            more = x.mean(1, keepdim=True) / x.shape[1] - torch.arange(x.shape[1], device=x.device)
            return x * x.shape[0] + more

    torch.manual_seed(0)
    ours, reports = compiled(function)
    compared = 0
    with torch.no_grad():
        for n, m in SIZES:
            inputs = [x.cuda() for x in make(n, m)]
            got, eager = ours(*inputs), function(*inputs)
            if isinstance(got, torch.Tensor):
                got, eager = (got,), (eager,)
            for a, b in zip(got, eager, strict=True):
                room = 2e-2 if a.dtype is torch.bfloat16 else 2e-5
                torch.testing.assert_close(a, b, rtol=room, atol=room)
                assert a.stride() == b.stride() or 1 in a.shape
                compared += 1
    assert compared >= len(SIZES)
    (report,) = reports
    assert report.fallback is None and report.kernels and not report.crowded


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_training(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(48, 96), nn.GELU(), nn.LayerNorm(96), nn.Linear(96, 5), nn.LogSoftmax(-1)]
    model = nn.Sequential(*layers).cuda().to(dtype)
    other, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    refcompiler.reset()
    ours = refcompiler.compile(other, dynamic=True, fullgraph=True)
    reports: list[Any] = []
    compared = 0
    for n, m in ((8, 12), (3, 5), (64, 16), (17, 31), (1024, 7)):
        x = torch.randn(n, m, 48, device="cuda", dtype=dtype)
        results = []
        for module, given in ((model, x), (other, x), (exact, x.double())):
            run = ours if module is other else module
            module.zero_grad()
            given = given.clone().requires_grad_()
            out = run(given)
            out.square().mean().backward()
            results.append([out.detach(), given.grad, *(p.grad for p in module.parameters())])
        for eager, got, best in zip(*results, strict=True):
            assert (got.dtype, got.shape, got.stride()) == (
                eager.dtype,
                eager.shape,
                eager.stride(),
            )
            scale = torch.finfo(dtype).eps * best.abs().max()
            room = 4 * (eager.double() - best).abs().max() + 4 * scale
            assert (got.double() - best).abs().max() <= room
            compared += 1
        reports.append(fastpath.last_report())
    assert compared == 5 * 8
    assert all(report is reports[0] for report in reports) and reports[0].fallback is None


def test_recordings_keep_a_program_for_each_size() -> None:
    refcompiler.reset()
    ours = refcompiler.compile(
        lambda x: (x * 2).relu().sum(-1), mode="reduce-overhead", dynamic=True
    )
    for n in (8, 8, 8, 24, 24, 24, 31, 31, 31):
        x = torch.randn(n, 64, device="cuda")
        assert torch.allclose(ours(x).clone(), (x * 2).relu().sum(-1), atol=1e-4)
    report = fastpath.last_report()
    assert report is not None and report.graphs and not report.why_ungraphed
