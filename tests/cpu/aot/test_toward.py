"""Backwards that are asked for some of the inputs: what they compute, read and draw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import refcompiler
from refcompiler.aot import aot_autograd, toward
from refcompiler.aot.partition import default_partition, min_cut_partition
from tests.cpu.frontend.shelved import (
    _nothing_is_kept,  # noqa: F401
    again,
    counted,
)

aten = torch.ops.aten


def _recording(into: list[list[Any]], partition: Callable[..., Any] = default_partition) -> Any:
    """A backend that notes the operators of the backwards that it compiles."""

    def backward(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        into.append([n.target for n in graph.graph.nodes if n.op == "call_function"])
        return graph.forward

    return aot_autograd(
        fw_compiler=lambda graph, inputs: graph.forward,
        bw_compiler=backward,
        partition_fn=partition,
    )


def net(x: Any, w: Any, v: Any) -> Any:
    return ((x @ w).tanh() @ v).sigmoid().square().sum()


def _tensors(*sizes: int, seed: int = 0) -> list[Any]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n, n, generator=generator, requires_grad=True) for n in sizes]


ASKED: dict[str, tuple[Callable[..., Any], int]] = {
    "of the first": (lambda loss, x, w, v: torch.autograd.grad(loss, x), 2),
    "of the last": (lambda loss, x, w, v: torch.autograd.grad(loss, v), 1),
    "of two": (lambda loss, x, w, v: torch.autograd.grad(loss, [v, w]), 3),
    "by its function": (
        lambda loss, x, w, v: torch.autograd.grad(
            loss, [torch.autograd.graph.get_gradient_edge(w)]
        ),
        2,
    ),
    "of all": (lambda loss, x, w, v: torch.autograd.grad(loss, [x, w, v]), 4),
    "backward": (lambda loss, x, w, v: [loss.backward(), x.grad, w.grad, v.grad], 4),
    "inputs": (lambda loss, x, w, v: [loss.backward(inputs=[x]), x.grad, w.grad, v.grad], 2),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_nobody_asks_for_is_not_computed(name: str) -> None:
    ask, products = ASKED[name]
    graphs: list[list[Any]] = []
    refcompiler.reset()
    compiled = refcompiler.compile(net, backend=_recording(graphs))
    for _ in range(2):
        found, expected = [
            ask(f(*given), *given) for f in (compiled, net) for given in [_tensors(4, 4, 4)]
        ]
        for a, b in zip(found, expected, strict=True):
            assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a is b
    assert [graph.count(aten.mm.default) for graph in graphs] == [products]


def test_a_devices_thread_has_the_functions_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """No frame there says what the backward was asked for."""
    monkeypatch.setattr(toward, "_caller", lambda: None)
    for name in ASKED:
        test_what_nobody_asks_for_is_not_computed(name)


def test_each_set_of_inputs_has_its_backward() -> None:
    graphs: list[list[Any]] = []
    refcompiler.reset()
    compiled = refcompiler.compile(net, backend=_recording(graphs, min_cut_partition))
    x, w, v = _tensors(4, 4, 4)
    asked: list[list[Any]] = [[x], [w, x], [x, w, v], [x], [w, x], [v]]
    for wanted in asked:
        for a, b in zip(
            torch.autograd.grad(compiled(x, w, v), wanted),
            torch.autograd.grad(net(x, w, v), wanted),
            strict=True,
        ):
            assert torch.equal(a, b)
    assert len(graphs) == 4


def test_a_derivative_of_several_operands_gives_what_is_asked_for() -> None:
    graphs: list[torch.fx.GraphModule] = []

    def backward(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        graphs.append(graph)
        return graph.forward

    backend = aot_autograd(fw_compiler=lambda graph, inputs: graph.forward, bw_compiler=backward)

    def program(x: Any, w: Any, b: Any) -> Any:
        return F.conv2d(x, w, b).square().sum()

    refcompiler.reset()
    compiled = refcompiler.compile(program, backend=backend)
    x = torch.randn(2, 3, 6, 6, requires_grad=True)
    w, b = torch.randn(4, 3, 3, 3, requires_grad=True), torch.randn(4, requires_grad=True)
    for wanted, mask in (([x], [True, False, False]), ([b, w], [False, True, True])):
        found = torch.autograd.grad(compiled(x, w, b), wanted)
        for a, other in zip(found, torch.autograd.grad(program(x, w, b), wanted), strict=True):
            assert torch.equal(a, other)
        (node,) = graphs[-1].graph.find_nodes(
            op="call_function", target=aten.convolution_backward.default
        )
        assert node.args[-1] == mask
        assert [t is not None for t in node.meta["val"]] == mask
    assert len(graphs) == 2


@pytest.mark.parametrize("backend", ["aot_eager", "fastpath"])
def test_a_write_to_what_only_others_need_is_no_error(backend: str) -> None:
    """The gradient of ``v`` is not on the way of ``w``."""
    refcompiler.reset()
    compiled = refcompiler.compile(net, backend=backend)
    compared = 0
    for asked, ok in ((2, True), (0, False), (2, True)):
        results: list[Any] = []
        for f in (compiled, net):
            given = _tensors(4, 4, 4)
            loss = f(*given)
            with torch.no_grad():
                given[1].mul_(2)
            try:
                results.append(torch.autograd.grad(loss, given[asked])[0])
            except RuntimeError as error:
                results.append(str(error)[:60])
        found, expected = results
        assert [isinstance(each, torch.Tensor) for each in results] == [ok, ok]
        if ok:
            torch.testing.assert_close(found, expected)
        else:
            assert found == expected
        compared += 1
    assert compared == 3


def _regions(x: Any, w: Any) -> Any:
    def block(t: Any) -> Any:
        return F.dropout(t.sin(), 0.5).exp()

    return checkpoint(block, x, use_reentrant=False), checkpoint(block, w, use_reentrant=False)


def test_a_region_that_nobody_asks_for_is_not_computed_again() -> None:
    graphs: list[list[Any]] = []
    refcompiler.reset()
    compiled = refcompiler.compile(_regions, backend=_recording(graphs))
    results = []
    for f in (compiled, _regions):
        torch.manual_seed(3)
        x, w = _tensors(5, 5)
        a, b = f(x, w)
        results.append((*torch.autograd.grad((a * b).sum(), w), torch.get_rng_state()))
    for found, expected in zip(*results, strict=True):
        assert torch.equal(found, expected)
    assert [graph.count(aten.sin.default) for graph in graphs] == [1]


def _two(x: Any, w: Any, v: Any) -> Any:
    return (x * w).sin().sum(), (x * v).cos().sum()


@pytest.mark.parametrize("hooked", [False, True])
def test_some_inputs_of_some_results(hooked: bool) -> None:
    """With functions for each way, where an input has a hook, and without."""
    graphs: list[list[Any]] = []
    refcompiler.reset()
    compiled = refcompiler.compile(_two, backend=_recording(graphs))
    results = []
    for f in (compiled, _two):
        told: list[Any] = []
        given = _tensors(4, 4, 4)
        if hooked:
            given[2].register_hook(told.append)
        a, b = f(*given)
        found = [*torch.autograd.grad(a, given[0], retain_graph=True)]
        found += torch.autograd.grad(a + b, [given[2], given[1]], retain_graph=True)
        (a + b).backward()
        results.append([*found, *[t.grad for t in given], *told])
    assert len(results[0]) == 6 + 2 * hooked
    for found, expected in zip(*results, strict=True):
        assert torch.equal(found, expected)
    assert len(graphs) == 3


def test_gradients_that_lie_otherwise_and_missing_results() -> None:
    refcompiler.reset()
    compiled = refcompiler.compile(
        lambda *given: [*_two(*given), given[0].exp()], backend="aot_eager"
    )
    results = []
    for f in (compiled, lambda *given: [*_two(*given), given[0].exp()]):
        x, w, v = _tensors(4, 4, 4)
        *_, y = f(x, w, v)
        found = [*torch.autograd.grad(y.sum(), x)]
        a, b, y = f(x, w, v)
        found += torch.autograd.grad(b + y.sum(), x, retain_graph=True)
        found += torch.autograd.grad(b + y.sum(), [x, v])
        results.append(found)
    for found, expected in zip(*results, strict=True):
        assert torch.equal(found, expected)
        assert found.stride() == expected.stride()


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_second_process_has_them(dynamic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def whole(kept: Any) -> Any:
        raise AssertionError("compiled again")

    compared = 0
    for process in range(3):
        compiled = again(net, backend="fastpath", dynamic=dynamic)
        for wanted in ([0], [1, 2], [0, 1, 2])[: 2 + (process == 0)]:
            given = _tensors(5, 5, 5)
            asked = [given[n] for n in wanted]
            found = torch.autograd.grad(compiled(*given), asked)
            expected = torch.autograd.grad(net(*given), asked)
            torch.testing.assert_close(found, expected)
            compared += len(found)
        assert counted() == ((1, 0, 0) if process else (0, 1, 0))
        if not process:
            from refcompiler.package.programs import Kept

            monkeypatch.setattr(Kept, "whole", property(whole))
    assert compared == 12


def test_one_that_the_disk_has_not_is_compiled() -> None:
    for process in range(3):
        compiled = again(net, backend="fastpath")
        for wanted in ([0], [1], [2])[: process + 1]:
            given = _tensors(5, 5, 5)
            asked = [given[n] for n in wanted]
            found = torch.autograd.grad(compiled(*given), asked)
            torch.testing.assert_close(found, torch.autograd.grad(net(*given), asked))
        assert counted() == ((1, 0, 0) if process else (0, 1, 0))
