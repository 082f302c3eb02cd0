"""Compiled modules under DistributedDataParallel: two processes of this machine, gloo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

WAYS = ["eager", "outside", "inside"]


def _train(way: str) -> tuple[list[torch.Tensor], list[Any], int]:
    """Gradients of three steps, in which order buckets and the last gradient came, graphs."""
    import refcompiler

    refcompiler.reset()
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(128, 128), torch.nn.Tanh())]
    module: Any = torch.nn.Sequential(*layers)
    parameters = list(module.parameters())
    if way == "inside":
        module = refcompiler.compile(module, backend="aot_eager")
    ddp: Any = torch.nn.parallel.DistributedDataParallel(module, bucket_cap_mb=0.08)
    call = refcompiler.compile(ddp, backend="aot_eager") if way == "outside" else ddp
    events: list[Any] = []

    def reduce(state, bucket):  # type: ignore[no-untyped-def]  # ddp reads annotations
        events.append(bucket.index())
        future = distributed.all_reduce(bucket.buffer(), async_op=True).get_future()
        return future.then(lambda done: done.value()[0] / 2)

    ddp.register_comm_hook(None, reduce)
    parameters[0].register_hook(lambda gradient: events.append("last"))
    torch.manual_seed(1 + distributed.get_rank())
    gradients: list[torch.Tensor] = []
    for _ in range(3):
        call(torch.randn(8, 128)).square().mean().backward()
        for p in parameters:
            assert p.grad is not None
            gradients.append(p.grad.clone())
            p.grad = None
    return gradients, events, refcompiler.counters()["graphs"]


def _worker(rank: int, folder: str) -> None:
    store = f"file://{folder}/store"
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    found = {way: _train(way) for way in WAYS}
    torch.save(found, f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder: Path = tmp_path_factory.mktemp("ddp")
    torch.multiprocessing.spawn(_worker, (str(folder),), nprocs=2)
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("way", ["outside", "inside"])
def test_gradients_are_eagers(found: list[dict[str, Any]], way: str) -> None:
    for rank in found:
        ours, theirs = rank[way][0], rank["eager"][0]
        assert len(ours) == len(theirs) == 24
        assert all(map(torch.equal, ours, theirs))


def test_both_processes_have_the_same_gradients(found: list[dict[str, Any]]) -> None:
    for way in WAYS:
        assert all(map(torch.equal, found[0][way][0], found[1][way][0]))


def test_what_is_inside_is_compiled(found: list[dict[str, Any]]) -> None:
    assert found[0]["inside"][2] == 1
