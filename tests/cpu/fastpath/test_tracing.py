"""What the fast path leaves behind for its users to read: trace files, and names in profiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import refcompiler
from refcompiler import config


def network(x: Any, w: Any) -> Any:
    return torch.softmax(torch.nn.functional.silu(x @ w), -1).sum(0)


def test_files_and_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refcompiler.reset()
    monkeypatch.setattr(config, "trace", str(tmp_path))
    x, w = torch.randn(6, 8), torch.randn(8, 8, requires_grad=True)
    run = refcompiler.compile(network, backend="fastpath", dynamic=False)
    run(x, w).square().sum().backward()
    (folder,) = tmp_path.glob("run-*/0001-*")
    texts = {p.name: p.read_text() for p in folder.iterdir()}
    kinds = ("aten.py", "ir.txt", "fused.txt", "wrapper.py", "kernels.py")
    assert {f"{stage}.{kind}" for stage in ("forward", "backward") for kind in kinds} <= set(texts)
    assert "torch.ops.aten.mm" in texts["forward.aten.py"]
    assert "= aten.mm.default(in0, in1)" in texts["forward.ir.txt"]
    assert "exp(" in texts["forward.ir.txt"] and "sum over" in texts["forward.ir.txt"]
    assert "stage 0" in texts["forward.fused.txt"] and "load(" in texts["forward.fused.txt"]
    assert texts["forward.wrapper.py"].startswith("def call(")
    assert texts["forward.kernels.py"].count("def kernel(") == texts["forward.fused.txt"].count(
        "\nkernel_"
    ) + texts["forward.fused.txt"].startswith("kernel_")

    eager = network(x, w)
    with profile(activities=[ProfilerActivity.CPU]) as found:
        seen = run(x, w)
        seen.sum().backward()
    torch.testing.assert_close(seen, eager)
    names = {e.key for e in found.key_averages() if e.key.startswith("fastpath kernel")}
    assert any("softmax" in name for name in names) and len(names) >= 2, names
