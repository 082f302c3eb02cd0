"""Graphs and callers in inference mode, whose tensors skip keys of dispatch that a trace needs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode
from torch.fx import GraphModule

from refcompiler.aot.inputs import Unsupported


@contextlib.contextmanager
def plainly() -> Iterator[None]:
    with _without_inference_mode(), _without_saving_hooks():
        yield


@contextlib.contextmanager
def _without_inference_mode() -> Iterator[None]:
    """Inference mode off (its tensors skip dispatch keys that tracing needs), gradients as are."""
    if not torch.is_inference_mode_enabled():
        yield
        return
    with torch.inference_mode(False), torch.no_grad():
        yield


@contextlib.contextmanager
def _without_saving_hooks() -> Iterator[None]:
    """The caller's hooks are for what the compiled graph saves, not for fakes."""
    hooks = []
    while (top := torch._C._autograd._top_saved_tensors_default_hooks(True)) is not None:
        hooks.append(top)
        torch._C._autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pack, unpack in reversed(hooks):
            torch._C._autograd._push_saved_tensors_default_hooks(pack, unpack)


def without_switches(gm: GraphModule) -> GraphModule:
    """``gm`` in inference mode, where gradients stay off whatever they are switched to."""
    entered = gm.graph.find_nodes(op="call_function", target=_enter_inference_mode)
    if not all(node.args[0] for node in entered):
        raise Unsupported("the graph leaves inference mode in the middle")
    graph = torch.fx.Graph()
    known: dict[Any, Any] = {}
    output = graph.graph_copy(gm.graph, known)
    for switch in (_exit_inference_mode, _enter_inference_mode, torch._C._set_grad_enabled):
        for node in graph.find_nodes(op="call_function", target=switch):
            graph.erase_node(node)
    graph.output(output)
    return GraphModule(gm, graph)


def without_inference(gm: GraphModule) -> GraphModule:
    """``gm`` with gradients switched off and on again in the place of inference mode."""
    if not gm.graph.find_nodes(op="call_function", target=_enter_inference_mode):
        return gm
    graph = torch.fx.Graph()
    output = graph.graph_copy(gm.graph, {})
    mode = torch.is_grad_enabled()
    before: dict[Any, bool] = {}
    for node in list(graph.nodes):
        if node.target is torch._C._set_grad_enabled:
            mode = node.args[0]
        elif node.target in (_enter_inference_mode, _exit_inference_mode):
            if node.target is _enter_inference_mode:
                before[node], mode = mode, not node.args[0]
            else:
                mode = before[node.args[0]]
                node.args = ()
            with graph.inserting_before(node):
                graph.call_function(torch._C._set_grad_enabled, (mode,))
    for switch in (_exit_inference_mode, _enter_inference_mode):
        for node in graph.find_nodes(op="call_function", target=switch):
            graph.erase_node(node)
    graph.output(output)
    return GraphModule(gm, graph)


def is_inference(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_inference()
