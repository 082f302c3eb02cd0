"""The modes under which graphs are traced: they have the nodes of torch's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

import refcompiler
from refcompiler.aot import functional, joint_trace, nodes, tracing
from tests.cpu.aot.test_backward import compiled


def _several(x: Any, w: Any) -> Any:
    first, second = x[:4], x[4:]
    first.mul_(w).add_(1)
    return torch.var_mean(torch.cat([second, first * 2]), 1), x.t()[1:].softmax(0) @ x


def _normed(x: Any, w: Any) -> Any:
    x[:, 1] = 3
    y = F.dropout(F.layer_norm(x, (4,), w), 0.5).sort(1).values
    return F.batch_norm(y, w.detach().clone(), w.detach().exp(), training=True), x + y.max()


def _constant(x: Any, w: Any) -> Any:
    y = torch.tensor([1.0, 2.0, 3.0, 4.0]) * w
    z = torch.view_as_complex(x.view(-1, 2)).conj() * 1j
    return torch._foreach_mul([x, y], 2.0), z.imag, y[y.argmax()]


def _by_make_fx(function: Any, args: Any, names: Any, decompositions: Any) -> Any:
    def program(primals: Any, tangents: Any) -> Any:
        return function(primals, tangents)

    graph = make_fx(program, decompositions)(*args)
    graph.graph.set_codegen(torch.fx.graph.CodeGen())
    return graph


@pytest.mark.parametrize("symbols", [False, True])
def test_graphs_have_the_nodes_of_torchs_modes(
    symbols: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The modes know that most operators need none of what they ask: the graphs are the same, and
    so they are where ``make_fx`` traces them."""
    direct: list[Any] = []
    real = nodes.functionally

    def counted(mode: Any, func: Any, *given: Any) -> Any:
        direct.append(func)
        return real(mode, func, *given)

    def graphs(program: Any) -> list[str]:
        refcompiler.reset()
        call, backend = compiled(program)
        if symbols:
            call = refcompiler.compile(program, backend=backend, dynamic=True)
        x, w = torch.randn(8, 4, requires_grad=True), torch.randn(4, requires_grad=True)
        found = pytree.tree_leaves(call(x * 1, w))
        sum(t.abs().sum() for t in found if t.requires_grad).backward()
        assert backend.reasons == [None]
        return [_with_values(each) for each in (*backend.forward, *backend.backward)]

    monkeypatch.setattr(functional, "functionally", counted)
    for program in (_several, _normed, _constant):
        found, count = graphs(program), len(direct)
        with monkeypatch.context() as patch:
            for module in (tracing, functional):
                patch.setattr(module, "kind_of", lambda func: (False, False))
            assert found == graphs(program) and len(found) == 2
            patch.setattr(joint_trace, "trace_graph", _by_make_fx)
            assert found == graphs(program)
        assert len(direct) == count > 15
        direct.clear()


def _with_values(graph: Any) -> str:
    """Nodes by number, as names count what is left out too."""
    rows, number = [], {node: f"node {n}" for n, node in enumerate(graph.graph.nodes)}
    for node in graph.graph.nodes:
        value = node.meta.get("val")
        known = getattr(value, "shape", None), getattr(value, "dtype", None), sorted(node.meta)
        at = value.stride() if isinstance(value, torch.Tensor) else type(value)
        given = torch.fx.node.map_arg((node.args, node.kwargs), number.__getitem__)
        of = node.target if node.op == "call_function" else node.op
        rows.append(f"{of} {given} {known} {at} {node.meta.get('tensor_meta')}")
    return "\n".join(rows)
