"""Graphs taken apart: copies, graphs in another precision, the first nodes, some nodes alone."""

from __future__ import annotations

import contextlib
import operator
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, GraphModule, Interpreter, Node

from conformance.execute import Precision, Recaster

_TOGGLE = torch._C._set_grad_enabled
_EXITS = {
    torch.amp.autocast_mode._exit_autocast,
    torch.autograd.grad_mode._exit_inference_mode,
}


def copy_of(gm: GraphModule) -> GraphModule:
    """Another one: a backend may rewrite what it is given."""
    graph = Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    return GraphModule(gm, graph)


def moved(gm: GraphModule, precision: Precision) -> GraphModule:
    """``gm`` with its own tensors in ``precision``."""
    recast = Recaster(precision)
    root = torch.nn.Module()
    for node in gm.graph.find_nodes(op="get_attr"):
        value = attribute(gm, node.target)
        if isinstance(value, torch.Tensor):
            value = recast(value.detach())
        elif isinstance(value, GraphModule):
            value = moved(value, precision)
        holder, _, name = node.target.rpartition(".")
        setattr(_made(root, holder), name, value)
    graph = Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    return GraphModule(root, graph)


def _made(root: torch.nn.Module, path: str) -> torch.nn.Module:
    for name in filter(None, path.split(".")):
        if not hasattr(root, name):
            setattr(root, name, torch.nn.Module())
        root = getattr(root, name)
    return root


def attribute(gm: torch.nn.Module, path: str) -> Any:
    value: Any = gm
    for name in path.split("."):
        value = getattr(value, name)
    return value


def body(gm: GraphModule) -> list[Node]:
    """The nodes that compute, in order."""
    return [n for n in gm.graph.nodes if n.op not in ("placeholder", "output")]


class Values(Interpreter):
    """Runs a graph and keeps the value of each node, as it is when ``stop`` nodes have run."""

    def __init__(self, gm: GraphModule, stop: int | None = None):
        super().__init__(gm, garbage_collect_values=False)
        self.stop = set(body(gm)[stop:]) if stop is not None else set()

    def run_node(self, node: Node) -> Any:
        if node in self.stop or (self.stop and node.op == "output"):
            return None
        return super().run_node(node)


def values_of(gm: GraphModule, args: Sequence[Any], stop: int | None = None) -> dict[Node, Any]:
    """What the nodes are, eagerly; ``stop``: before that node of the body runs. Where one raises
    there is nothing of those behind it."""
    run = Values(gm, stop)
    with contextlib.suppress(Exception):
        run.run(*args)
    return {n: v for n, v in run.env.items() if n not in run.stop and n.op != "output"}


def symbolic_values(gm: GraphModule) -> dict[Node, Any]:
    """What the nodes are where sizes are symbols: fakes and ``SymInt``s. Empty if all are known,
    or if that cannot be told."""
    shown = [n.meta.get("example_value") for n in gm.graph.find_nodes(op="placeholder")]
    if not any(isinstance(value, torch.SymInt) for value in shown):
        return {}
    mode = next((t.fake_mode for t in shown if isinstance(t, FakeTensor)), None)
    if mode is None:
        return {}
    try:
        with mode, torch.no_grad():
            return values_of(gm, shown)
    except Exception:
        return {}


def results(value: Any) -> list[tuple[Any, ...]]:
    """Where the tensors in a node's value are: ``()``, or the keys of tuples on the way."""
    if isinstance(value, torch.Tensor):
        return [()]
    if type(value) in (tuple, list) or hasattr(value, "_fields"):
        return [(n, *rest) for n, item in enumerate(value) for rest in results(item)]
    return []


def prefix(gm: GraphModule, count: int, kinds: Mapping[Node, Any]) -> GraphModule:
    """The first ``count`` nodes of the body; what the others or the caller read of them is given
    back. ``kinds``: values of the nodes, which say what can be given back. All inputs stay."""
    return window(gm, 0, count, kinds)[0]


def window(
    gm: GraphModule,
    start: int,
    stop: int,
    values: Mapping[Node, Any],
    symbolic: Mapping[Node, Any] | None = None,
) -> tuple[GraphModule, list[Node]]:
    """Nodes ``start`` to ``stop`` of the body as a graph of their own, and the nodes whose values
    it takes: all inputs where it begins with the first node, or else what is read.

    ``symbolic``: :func:`symbolic_values`; what is a symbol there stays one.
    """
    symbolic = symbolic or {}
    nodes = body(gm)
    inside = nodes[start:stop]
    graph = Graph()
    known: dict[Node, Node] = {}
    inputs = (
        gm.graph.find_nodes(op="placeholder") if start == 0 else _read(inside, values, symbolic)
    )
    for node in inputs:
        made = graph.placeholder(re.sub(r"\W", "_", node.name))
        made.meta = dict(node.meta)
        if node in symbolic:
            made.meta["example_value"] = symbolic[node]
        known[node] = made
    for node in inside:
        for other in node.all_input_nodes:
            if other not in known and other.op == "get_attr":
                known[other] = graph.node_copy(other)
        known[node] = graph.node_copy(node, lambda n: _inside(n, known, values))
    _close(graph, nodes[stop:], known)
    outputs = []
    for node in inside:
        if node.op != "get_attr" and _leaves(node, known, node is inside[-1]):
            # One that raises in eager gives what compiled code makes of it.
            for keys in results(values[node]) if node in values else [()]:
                made = known[node]
                for key in keys:
                    made = graph.call_function(operator.getitem, (made, key))
                outputs.append(made)
    output = gm.graph.output_node()
    for node in output.all_input_nodes:  # inputs that are given back
        if node.op == "placeholder" and node in known and start == 0:
            outputs.append(known[node])
    graph.output(tuple(outputs))
    return GraphModule(gm, graph), list(inputs)


def _inside(node: Node, known: Mapping[Node, Node], values: Mapping[Node, Any]) -> Any:
    if node in known:
        return known[node]
    return values[node]  # a number, which is one more constant


def _read(
    inside: Sequence[Node], values: Mapping[Node, Any], symbolic: Mapping[Node, Any]
) -> list[Node]:
    """What these nodes read of others, tensors and symbols; and the symbols of the graph."""
    own = set(inside)
    read: dict[Node, None] = {}
    for node, value in symbolic.items():
        if isinstance(value, torch.SymInt) and node.op == "placeholder":
            read[node] = None
    for node in inside:
        for other in node.all_input_nodes:
            if other not in own and other.op != "get_attr":
                symbol = isinstance(symbolic.get(other), torch.SymInt)
                if symbol or isinstance(values[other], torch.Tensor):
                    read[other] = None
                elif results(values[other]) or not isinstance(values[other], (int, float, bool)):
                    raise Uncut(other.name)
    return list(read)


class Uncut(Exception):
    """Nodes cannot stand alone: what they read is no tensor and no number."""


def _leaves(node: Node, known: Mapping[Node, Node], last: bool) -> bool:
    return last or any(user not in known for user in node.users)


def _close(graph: Graph, rest: Sequence[Node], known: dict[Node, Node]) -> None:
    """Ends the contexts that are open where the graph was cut."""
    for node in rest:
        if node.target in _EXITS and all(n in known for n in node.all_input_nodes):
            known[node] = graph.node_copy(node, known.__getitem__)
    toggles = [n for n in rest if n.target is _TOGGLE]
    if toggles and any(n.target is _TOGGLE for n in known):
        graph.node_copy(toggles[-1])


def place_of(node: Node) -> str:
    """The user's line that a node comes from: ``train.py:14: y = f(x)``; empty if unknown."""
    trace = node.meta.get("stack_trace") or ""
    frames = re.findall(r'File "([^"]+)", line (\d+), in [^\n]*(?:\n[ ]{4}([^\n]*))?', trace)
    torch_home = str(Path(torch.__file__).parent)
    own = [f for f in frames if not f[0].startswith(torch_home) and "site-packages" not in f[0]]
    for name, line, text in reversed(own or frames):
        return f"{Path(name).name}:{line}" + (f": {text.strip()}" if text.strip() else "")
    return ""


def first_place(gm: GraphModule) -> str:
    return next(filter(None, map(place_of, body(gm))), "")


def name_of(node: Node) -> str:
    """An operator's name as a user knows it."""
    target = node.target
    if isinstance(target, str):
        return f"Tensor.{target}" if node.op == "call_method" else target
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    module = getattr(target, "__module__", None) or ""
    name = getattr(target, "__name__", repr(target))
    short = {"torch._C._nn": "torch.nn.functional", "_operator": "operator", "": "torch"}
    return f"{short.get(module, module)}.{name}"
