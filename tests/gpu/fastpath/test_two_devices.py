"""Two GPUs: compiled code on the second one, and DistributedDataParallel over NCCL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed
from torch.nn import functional as F

import fastpath
import refcompiler

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
MODES = [None, "reduce-overhead", "max-autotune-no-cudagraphs"]


def work(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.softmax(F.gelu(x @ w), -1) + F.dropout(x, 0.5)


@pytest.mark.parametrize("mode", MODES)
def test_compiled_code_runs_where_its_inputs_are(mode: str | None) -> None:
    refcompiler.reset()
    compiled = refcompiler.compile(work, mode=mode)
    compared = 0
    for number in (1, 0, 1, 1, 0):
        device = torch.device("cuda", number)
        x, w = (torch.randn(512, 512, device=device, requires_grad=True) for _ in range(2))
        torch.cuda.manual_seed_all(number)
        eager = work(x, w)
        wanted = [eager, *torch.autograd.grad(eager.sum() + eager[0, 0], [x, w])]
        states = [torch.cuda.get_rng_state(d) for d in range(2)]
        torch.cuda.manual_seed_all(number)
        found = compiled(x, w)
        got = [found, *torch.autograd.grad(found.sum() + found[0, 0], [x, w])]
        assert torch.cuda.current_device() == 0
        for g, e in zip(got, wanted, strict=True):
            assert g.device == device
            torch.testing.assert_close(g, e, rtol=1e-4, atol=1e-4)
            compared += g.numel()
        for d, state in enumerate(states):
            assert torch.equal(torch.cuda.get_rng_state(d), state)
    assert compared == 5 * 3 * 512 * 512
    report = fastpath.last_report()
    assert report is not None and report.fallback is None and report.kernels
    assert refcompiler.counters()["graphs"] == 2


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(256, 256) for _ in range(5)])
        self.norm = torch.nn.BatchNorm1d(256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + F.gelu(layer(x))
        return self.norm(x)


def train(rank: int, backend: str | None) -> tuple[list[torch.Tensor], list[str]]:
    """Parameters' gradients and buffers of three steps, and in which order buckets were sent."""
    refcompiler.reset()
    torch.manual_seed(0)
    module = Net().cuda(rank)
    first = next(module.parameters())
    ddp: Any = torch.nn.parallel.DistributedDataParallel(
        module, device_ids=[rank], bucket_cap_mb=0.3
    )
    events: list[str] = []

    def reduce(state, bucket):  # type: ignore[no-untyped-def]  # ddp reads annotations
        events.append(str(bucket.index()))
        future = distributed.all_reduce(bucket.buffer(), async_op=True).get_future()
        return future.then(lambda done: done.value()[0] / 2)

    ddp.register_comm_hook(None, reduce)
    first.register_hook(lambda gradient: events.append("last"))
    call = ddp if backend is None else refcompiler.compile(ddp, backend=backend)
    torch.manual_seed(1 + rank)
    found: list[torch.Tensor] = []
    for _ in range(3):
        events.append("step")
        call(torch.randn(64, 256, device=f"cuda:{rank}")).square().mean().backward()
        for p in module.parameters():
            assert p.grad is not None
            found.append(p.grad.cpu())
            p.grad = None
        found += [t.cpu() for t in module.buffers()]
    return found, " ".join(events).split("step")[1:]


def worker(rank: int, folder: str) -> None:
    torch.cuda.set_device(rank)
    distributed.init_process_group(
        "nccl", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    try:
        found = {}
        for backend in (None, "aot_eager", "fastpath"):
            tensors, steps = train(rank, backend)
            report = fastpath.last_report() if backend == "fastpath" else None
            kernels = report.kernels if report is not None else 0
            fallback = report.fallback if report is not None else None
            found[backend] = (tensors, steps, refcompiler.counters()["graphs"], kernels, fallback)
        torch.save(found, Path(folder) / f"{rank}.pt")
    finally:
        distributed.destroy_process_group()


def test_gradients_over_nccl_are_eagers(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(worker, args=(str(tmp_path),), nprocs=2)
    compared = early = 0
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=False)
        eager, steps, *_ = found[None]
        for backend, bits in (("aot_eager", True), ("fastpath", False)):
            tensors, order, graphs, kernels, fallback = found[backend]
            assert graphs >= 1 and fallback is None and (kernels > 0) == (backend == "fastpath")
            for t, e in zip(tensors, eager, strict=True):
                assert torch.equal(t, e) if bits else torch.allclose(t, e, rtol=1e-3, atol=1e-5)
                compared += t.numel()
            for ours, theirs in zip(order, steps, strict=True):
                # Where a bucket leaves before the last gradient is there, one does here.
                assert ours.startswith(" last") <= theirs.startswith(" last")
            early += sum(not ours.startswith(" last") for ours in order)
    assert compared > 4 * 3 * 5 * 256 * 256
    assert early >= 2 * 2 * 2
