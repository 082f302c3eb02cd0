"""Graphs in parts, one for each bucket of gradients that DistributedDataParallel sends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

import refcompiler
from refcompiler import errors
from refcompiler.aot import function
from refcompiler.backends.parts import compile_parts, cuts_of, operations

SIZE = 16
BYTES = SIZE * SIZE * 4


class Net(torch.nn.Module):
    def __init__(self, forward: Callable[..., Any]):
        super().__init__()
        make = torch.nn.Parameter
        self.a, self.b, self.c = [make(torch.randn(SIZE, SIZE) / 4) for _ in range(3)]
        self.run = forward

    def forward(self, x: torch.Tensor) -> Any:
        return self.run(self, x)


def _graph(forward: Callable[..., Any]) -> tuple[torch.fx.GraphModule, list[Any], Net]:
    found: list[Any] = []

    def backend(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        found.append((graph, list(inputs)))
        return graph.forward

    refcompiler.reset()
    torch.manual_seed(0)
    net = Net(forward)
    refcompiler.compile(net, backend=backend, dynamic=False)(torch.randn(4, SIZE))
    ((graph, inputs),) = found
    return graph, inputs, net


def _chain(net: Net, x: torch.Tensor) -> Any:
    return torch.tanh(torch.tanh(torch.tanh(x @ net.a) @ net.b) @ net.c)


def _tied(net: Net, x: torch.Tensor) -> Any:
    return torch.tanh(torch.tanh(x @ net.a) @ net.b) @ net.a


def _without_gradients(net: Net, x: torch.Tensor) -> Any:
    x = torch.tanh(x @ net.a)
    with torch.no_grad():
        y = torch.tanh(x @ net.b @ net.c)
    return x + y


def _split(net: Net, x: torch.Tensor) -> Any:
    first, second = torch.tanh(x @ net.a).split(8, 1)
    return torch.cat([second, first], 1) @ net.b


def _in_place(net: Net, x: torch.Tensor) -> Any:
    y = x @ net.a
    z = (y + 1) @ net.b
    y.unsqueeze_(0)
    return y.sum(), z @ net.c


def _autocast(net: Net, x: torch.Tensor) -> Any:
    x = torch.tanh(x @ net.a)
    with torch.autocast("cpu"):
        x = torch.tanh(x @ net.b @ net.c)
    return x


# Program, limits in parameters, and the parameters of each part.
CUTS: dict[str, tuple[Callable[..., Any], tuple[float, ...], list[str]]] = {
    "one each": (_chain, (1,), ["a", "b", "c"]),
    "the first sent is smaller": (_chain, (1, 2), ["ab", "c"]),
    "the last sent is smaller": (_chain, (2,), ["a", "bc"]),
    "everything is one bucket": (_chain, (4,), ["abc"]),
    "used twice: whole at its first use": (_tied, (1,), ["a", "ba"]),
    "not where gradients are off": (_without_gradients, (1,), ["a", "bc"]),
    "no tuple goes from part to part": (_split, (1,), ["a", "b"]),
    "nothing that changes later goes from part to part": (_in_place, (1,), ["ab", "c"]),
    "not within autocast": (_autocast, (1,), ["a", "bc"]),
}


@pytest.mark.parametrize("name", CUTS)
def test_parts_have_the_parameters_of_a_bucket(name: str) -> None:
    program, limits, wanted = CUTS[name]
    graph, inputs, net = _graph(program)
    cuts = cuts_of(graph, inputs, [int(n * BYTES) for n in limits])
    nodes = operations(graph)
    values = dict(zip(graph.graph.find_nodes(op="placeholder"), inputs, strict=True))
    names = {id(p): n for n, p in net.named_parameters()}
    parts = [nodes[i:j] for i, j in zip([0, *cuts], [*cuts, len(nodes)], strict=True)]
    found = [
        "".join(names.get(id(values.get(n)), "") for node in part for n in node.all_input_nodes)
        for part in parts
    ]
    assert found == wanted


@pytest.mark.parametrize("name", CUTS)
def test_parts_compute_what_the_graph_does(name: str) -> None:
    program, limits, wanted = CUTS[name]
    graph, inputs, net = _graph(program)
    backend = refcompiler.lookup_backend("aot_eager")
    call = compile_parts(backend, graph, inputs, [int(n * BYTES) for n in limits])
    assert len(getattr(call, "parts", [call])) == len(wanted) and call.fallback is None
    results = []
    for run in (net, lambda x: call(*[x if v is inputs[0] else v for v in inputs])):
        found = run(inputs[0].clone())
        found = found if isinstance(found, tuple) else (found,)
        sum(t.float().square().sum() for t in found).backward()
        grads = [None if p.grad is None else p.grad.clone() for p in net.parameters()]
        results.append([*found, *grads])
        net.zero_grad()
    for ours, theirs in zip(*results, strict=True):
        assert (ours is None and theirs is None) or torch.equal(ours, theirs)


def test_symbols_reach_every_part() -> None:
    refcompiler.reset()
    torch.manual_seed(0)
    net = Net(_chain)
    backend = refcompiler.lookup_backend("aot_eager")
    counts = []

    def parts(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        made = compile_parts(backend, graph, inputs, [BYTES])
        counts.append(len(made.parts))
        assert made.fallback is None
        return made

    parts.takes_symbols = True  # type: ignore[attr-defined]
    call = refcompiler.compile(net, backend=parts, dynamic=True)
    for rows in (3, 5, 7):
        x = torch.randn(rows, SIZE)
        for run in (call, net):
            run(x).square().sum().backward()
        doubled = [p.grad.clone() for p in net.parameters() if p.grad is not None]
        net.zero_grad()
        net(x).square().sum().backward()
        for both, one in zip(doubled, net.parameters(), strict=True):
            assert one.grad is not None and torch.equal(both, 2 * one.grad)
        net.zero_grad()
    assert counts == [3]


# ---- DistributedDataParallel, one process ------------------------------------------------------


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    store = f"file://{tmp_path}/store"
    distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.parametrize("optimize", [True, "ddp_optimizer", False, "no_optimization"])
@pytest.mark.parametrize("inside", [False, True])
def test_the_first_bucket_is_sent_before_the_last_part_goes_backward(
    group: None, inside: bool, optimize: bool | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refcompiler.reset()
    torch.manual_seed(0)
    net: Any = Net(_chain)
    module = refcompiler.compile(net, backend="aot_eager") if inside else net
    ddp: Any = DistributedDataParallel(module, bucket_cap_mb=BYTES / 2**20)
    call = ddp if inside else refcompiler.compile(ddp, backend="aot_eager")
    events: list[Any] = []

    def send(state, bucket):  # type: ignore[no-untyped-def]  # ddp reads annotations
        events.append(bucket.index())
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    ddp.register_comm_hook(None, send)
    net.a.register_hook(lambda gradient: events.append("last"))
    kind: Any = function.Compiled._backward_cls
    name = "apply_boxed" if function.BOXED else "apply"
    backward = getattr(kind, name)
    monkeypatch.setattr(kind, name, lambda *given: (events.append("graph"), backward(*given))[1])
    with refcompiler.config.patch(optimize_ddp=optimize):
        for _ in range(3):
            events.clear()
            call(torch.randn(4, SIZE)).square().mean().backward()
    early = optimize in (True, "ddp_optimizer")
    parts = ["graph", 0, "graph", 1, "graph", "last", 2]
    assert events == (parts if early else ["graph", 0, 1, "last", 2])
    count = refcompiler.counters()
    assert (count["graphs"], count["breaks"]) == (1, 0 if inside else 2)


def test_one_graph_is_what_the_module_inside_has(group: None) -> None:
    ddp = DistributedDataParallel(Net(_chain))
    with pytest.raises(errors.GraphBreakError, match=r"DistributedDataParallel\(compile\("):
        refcompiler.compile(ddp, backend="aot_eager", fullgraph=True)(torch.randn(4, SIZE))
    inside: Any = refcompiler.compile(Net(_chain), backend="aot_eager", fullgraph=True)
    DistributedDataParallel(inside)(torch.randn(4, SIZE)).sum().backward()


def test_ways_that_need_another_reducer_are_refused() -> None:
    with pytest.raises(TypeError, match="takes a bool, 'ddp_optimizer' or 'no_optimization', not"):
        refcompiler.config.optimize_ddp = "python_reducer"
