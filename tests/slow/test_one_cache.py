"""Many processes at once on one cache: no error, each kernel made once, and then nothing made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

import refcompiler
from fastpath.cpu import machine
from refcompiler.cache import store
from refcompiler.runtime.config import config
from tests import forked

PROCESS = """
import torch, refcompiler
from fastpath.cpu import objects
from tests.slow import test_one_cache
before = objects.made
w = torch.randn(64, 64, requires_grad=True)
for _ in range(3):
    test_one_cache.check()
    gradients = []
    for run in (refcompiler.compile(test_one_cache.losing), test_one_cache.losing):
        logits, loss = run(torch.ones(8, 64), w)
        gradients.append(torch.autograd.grad(loss, w))
    torch.testing.assert_close(*gradients)
known = refcompiler.counters()
print(objects.made - before, known["captures"], known["loaded"])
"""


def losing(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    logits = torch.tanh(x @ w)
    torch._dynamo.graph_break()
    return logits, (logits * logits - w.sum()).mean()


def at_once(count: int, folder: Path) -> list[list[int]]:
    """What so many processes at once, which have compiled nothing, have done."""
    refcompiler.reset()
    machine._compiled.clear()
    script = folder / "process.py"
    script.write_text(PROCESS)
    waiting = []
    for n in range(count):
        (folder / str(n)).mkdir(exist_ok=True)
        waiting.append(forked.start(script, dict(os.environ), folder / str(n)))
    done = [wait() for wait in waiting]
    assert not [each.stderr for each in done if each.returncode or each.stderr]
    return [[*map(int, each.stdout.split())] for each in done]


def check() -> None:
    x, y = torch.randn(8, 64), torch.randn(8, 64)
    found = refcompiler.compile(parts)(x, y)
    torch.testing.assert_close(found, parts(x, y))


def parts(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x * y + 1, (x - y).sum(0)


def test_eight_processes_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFCOMPILER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(machine, "_compiled", {})
    kept = store.current()
    assert kept is not None
    monkeypatch.setattr(store, "_PATIENCE", 300.0)  # a machine may be busy
    with config.patch(cache_programs=True):
        first = at_once(8, tmp_path)
        kernels = [entry for entry in kept.entries() if entry.kind == "kernel"]
        assert sum(made for made, *_ in first) == len(kernels) >= 3  # each of them once
        assert all(captured + loaded == 3 for _, captured, loaded in first)
        assert at_once(8, tmp_path) == [[0, 0, 3]] * 8
