"""Floats of one byte on a GPU: casts as eager's there."""

from __future__ import annotations

import pytest
import torch

import fastpath
import refcompiler
from tests.cpu.fastpath.test_bytes import BYTES, GIVEN

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("given", GIVEN)
def test_casts(given: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = GIVEN[given]().cuda()

    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        cast = x.to(dtype)
        return cast, cast.float() * 0.5

    refcompiler.reset()
    for ours, eager in zip(refcompiler.compile(program, fullgraph=True)(x), program(x)):
        a, b = ours.float(), eager.float()
        assert ours.dtype == eager.dtype
        assert (((a == b) & (a.signbit() == b.signbit())) | (a.isnan() & b.isnan())).all()
    report = fastpath.last_report()
    assert report.kernels >= 1 and not report.aten_calls
