"""Compiled modules under DistributedDataParallel: two processes of this machine, gloo."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

WAYS = ("eager", "outside", "inside", "outside, whole")
SIZE = 128
EVENTS: list[Any] = []  # of this process: buckets that were sent, by number, and what MARK says
MARK = "last"  # the backward of the first layer begins


@torch.library.custom_op("distributed_tests::passes", mutates_args=())
def _passes(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@torch.library.custom_op("distributed_tests::marks", mutates_args=())
def _marks(gradient: torch.Tensor) -> torch.Tensor:
    EVENTS.append(MARK)
    return gradient.clone()


for each in (_passes, _marks):
    each.register_fake(lambda t: torch.empty_like(t))
_passes.register_autograd(lambda ctx, gradient: _marks(gradient))


class Net(torch.nn.Module):
    """Layers, the second of which is used or not; the first is the last to get a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(SIZE, SIZE) for _ in range(5)])
        self.norm = torch.nn.BatchNorm1d(SIZE)
        self.drop = torch.nn.Dropout(0.25)

    def forward(self, x: torch.Tensor, skip: bool = False) -> torch.Tensor:
        for n, layer in enumerate(self.layers):
            if not (skip and n == 1):
                x = torch.tanh(layer(x))
            if n == 0:
                x = _passes(x)
            if n == 2:
                x = self.drop(self.norm(x))
        return x


class Case:
    """``options`` of DistributedDataParallel; ``step(call, ddp, data)`` does one step."""

    def __init__(self, step: Callable[..., None], **options: Any):
        self.step, self.options = step, options


def _plain(call: Any, ddp: Any, data: list[torch.Tensor]) -> None:
    call(data[0]).square().mean().backward()


def _not_sent(call: Any, ddp: Any, data: list[torch.Tensor]) -> None:
    """Two steps' gradients are kept here, and sent with the third's."""
    for n, x in enumerate(data):
        with ddp.no_sync() if n < 2 else contextlib.nullcontext():
            call(x).square().mean().backward()


def _unused(call: Any, ddp: Any, data: list[torch.Tensor]) -> None:
    """One process leaves a layer out, then both."""
    call(data[0], skip=distributed.get_rank() == 0).square().mean().backward()
    call(data[1], skip=True).square().mean().backward()
    call(data[2]).square().mean().backward()


def _twice(call: Any, ddp: Any, data: list[torch.Tensor]) -> None:
    """Two forwards, one backward."""
    (call(data[0]).square().mean() + call(data[1]).cos().mean()).backward()


def _under_no_grad(call: Any, ddp: Any, data: list[torch.Tensor]) -> None:
    with torch.no_grad():
        call(data[0])
    call(data[1]).square().mean().backward()


CASES = {
    "plain": Case(_plain),
    "no_sync": Case(_not_sent),
    "find_unused_parameters": Case(_unused, find_unused_parameters=True),
    "static_graph": Case(_plain, static_graph=True),
    "gradient_as_bucket_view": Case(_plain, gradient_as_bucket_view=True),
    "views and no_sync": Case(_not_sent, gradient_as_bucket_view=True),
    "two forwards": Case(_twice, broadcast_buffers=False),
    "no_grad": Case(_under_no_grad),
}


def _train(way: str, case: Case) -> dict[str, Any]:
    """Gradients and buffers of three steps; in which order buckets and the last layer came.

    A hook on a parameter would not tell: one compiled function gives autograd all gradients, of
    which that then adds up one after the other.
    """
    import refcompiler

    refcompiler.reset()
    torch.manual_seed(0)
    module: Any = Net()
    parameters = list(module.parameters())
    if way == "inside":
        module = refcompiler.compile(module, backend="aot_eager")
    options: dict[str, Any] = {"bucket_cap_mb": 0.06, **case.options}
    ddp: Any = torch.nn.parallel.DistributedDataParallel(module, **options)
    call: Any = ddp
    if way.startswith("outside"):
        call = refcompiler.compile(ddp, backend="aot_eager")
    EVENTS.clear()

    def reduce(state, bucket):  # type: ignore[no-untyped-def]  # ddp reads annotations
        EVENTS.append(bucket.index())
        future = distributed.all_reduce(bucket.buffer(), async_op=True).get_future()
        return future.then(lambda done: done.value()[0] / 2)

    ddp.register_comm_hook(None, reduce)
    torch.manual_seed(1 + distributed.get_rank())
    found: list[torch.Tensor] = []
    for _ in range(3):
        EVENTS.append("step")
        with refcompiler.config.patch(optimize_ddp=way != "outside, whole"):
            case.step(call, ddp, [torch.randn(8, SIZE) for _ in range(3)])
        for p in parameters:
            assert p.grad is not None
            found.append(p.grad.clone())
            p.grad = None
        found += [t.clone() for t in module.buffers()]
    count = refcompiler.counters()
    steps = " ".join(map(str, EVENTS)).split("step")[1:]
    return {"tensors": found, "steps": steps, "graphs": count["graphs"], "breaks": count["breaks"]}


def _enter_together(rank: int) -> list[int]:
    """How much was compiled after each call, of which some differ between the processes."""
    import refcompiler

    refcompiler.reset()
    refcompiler.set_enable_guard_collectives(True)
    compiled = refcompiler.compile(lambda x: x * 2, backend="eager", dynamic=False)
    made = []
    for size in (3, 3, 3 + rank, 3, 3 + rank):
        compiled(torch.ones(size))
        made.append(refcompiler.counters()["captures"])
    refcompiler.set_enable_guard_collectives(False)
    compiled(torch.ones(3 + 2 * rank))
    return [*made, refcompiler.counters()["captures"]]


def _worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    found: dict[Any, Any] = {
        (way, name): _train(way, case) for name, case in CASES.items() for way in WAYS
    }
    found["together"] = _enter_together(rank)
    torch.save(found, f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[Any, Any]]:
    folder: Path = tmp_path_factory.mktemp("ddp")
    torch.multiprocessing.spawn(_worker, (str(folder),), nprocs=2)
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("way", WAYS[1:])
def test_gradients_and_buffers_are_eagers(found: list[dict], way: str, name: str) -> None:
    for rank in found:
        ours, theirs = rank[way, name]["tensors"], rank["eager", name]["tensors"]
        assert len(ours) == len(theirs) == 3 * (12 + 3)
        assert all(map(torch.equal, ours, theirs))


@pytest.mark.parametrize("name", CASES)
def test_both_processes_have_the_same_gradients(found: list[dict], name: str) -> None:
    for way in WAYS:
        first, second = [rank[way, name]["tensors"] for rank in found]
        for step in range(3):
            gradients = slice(15 * step, 15 * step + 12)
            assert all(map(torch.equal, first[gradients], second[gradients]))


def _early(step: str) -> bool:
    """Whether the first bucket was sent before the step's last layer was computed."""
    events = step.split()
    return events.index("0") < len(events) - 1 - events[::-1].index(MARK)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("way", ["outside", "inside"])
def test_buckets_are_sent_while_the_backward_goes_on(
    found: list[dict], way: str, name: str
) -> None:
    """As in eager, whose first step (of a static graph, the second too) has one bucket for all."""
    for rank in found:
        ours, theirs, whole = [
            [_early(step) for step in rank[each, name]["steps"]]
            for each in (way, "eager", "outside, whole")
        ]
        assert ours == theirs and ours[-1]
        if name not in ("no_sync", "find_unused_parameters", "views and no_sync"):
            assert not any(whole)  # each of those does several backwards


@pytest.mark.parametrize("way", WAYS[1:])
def test_the_module_is_one_graph_within_what_ddp_does(found: list[dict], way: str) -> None:
    for rank in found:
        assert rank[way, "plain"]["graphs"] == 1
        assert rank[way, "plain"]["breaks"] == (0 if way == "inside" else 2)


def test_all_processes_compile_when_one_has_to(found: list[dict]) -> None:
    assert [rank["together"] for rank in found] == [[1, 1, 2, 2, 2, 2], [1, 1, 2, 2, 2, 3]]
