"""A graph in parts: autograd then knows what goes from part to part, and when gradients are there.

DistributedDataParallel sends gradients in buckets while the backward goes on. One graph gives all
of them at its end. So under it a graph is compiled as a row of graphs, each with the parameters of
one bucket: a part's backward is a node of autograd of its own. And a program may ask autograd for
the gradient of what a graph computes, or hook it: then a part ends there. What a backend cannot
compile, though all around it, is a part of its own too.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from refcompiler.shapes.node import SYMBOLS

_NUMBERS = (int, float, bool)
_IN_PLACE = frozenset(
    f"i{name}"
    for name in "add sub mul truediv floordiv mod pow and or xor lshift rshift matmul".split()
) | {"setitem", "__setitem__"}
_SWITCH = torch._C._set_grad_enabled

Backend = Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]


def compile_parts(
    backend: Backend,
    graph: GraphModule,
    inputs: Sequence[Any],
    limits: Sequence[int],
    asked: Collection[str] = (),
    alone: Collection[Node] = (),
) -> Callable[..., Any]:
    """``backend(graph, inputs)``, or a compiled part for each bucket, one after another.

    ``limits``: bytes at which each bucket is full, in the order of sending; the last repeats (none:
    there are no buckets). ``asked``: names of nodes, each of which ends a part where that can be;
    ``alone``: nodes that are parts of their own where that can be.
    ``call.parts``: what the backend made. ``call.fallback``: why some of them run uncompiled.
    """
    cuts = cuts_of(graph, inputs, limits) if limits and torch.is_grad_enabled() else []
    cuts = sorted({*cuts, *cuts_behind(graph, asked), *cuts_around(graph, alone)})
    if not cuts:
        return backend(graph, inputs)
    return _Writer(graph, inputs, cuts).compiled(backend)


# ---- where to cut -----------------------------------------------------------------------------


def cuts_of(graph: GraphModule, inputs: Sequence[Any], limits: Sequence[int]) -> list[int]:
    """Places among the operations at which a part begins, in order.

    A parameter's gradient is whole when the backward has come to the first operation that has it.
    """
    found: list[int] = []
    nodes = operations(graph)
    weights = _weights(graph, nodes, inputs)
    places = _Places(graph, nodes)
    size, bucket = 0, 0
    for place in range(len(nodes) - 1, 0, -1):
        size += weights[place]
        end = found[-1] if found else len(nodes)
        if size >= limits[min(bucket, len(limits) - 1)] and places.may_begin(place, end):
            found.append(place)
            size, bucket = 0, bucket + 1
    if found and size + weights[0] == 0:  # nothing before it has a gradient to send
        found.pop()
    return found[::-1]


def cuts_behind(graph: GraphModule, asked: Collection[str]) -> list[int]:
    """Places of operations that come next when what the nodes ``asked`` make is as it will be."""
    nodes = operations(graph)
    places = _Places(graph, nodes)
    found: list[int] = []
    for node in sorted([n for n in nodes if n.name in asked], key=places.made.__getitem__):
        place = places.ready(node)
        if place < len(nodes) and places.may_begin(place, len(nodes)):
            found.append(place)
    return found


def cuts_around(graph: GraphModule, alone: Collection[Node]) -> list[int]:
    """Places of ``alone`` and of the operations behind what takes their results apart."""
    if not alone:
        return []
    nodes = operations(graph)
    places = _Places(graph, nodes)
    found: list[int] = []
    for node in alone:
        begin = places.made[node]
        end = begin + 1
        while end < len(nodes) and _takes_from(nodes[end], node):
            end += 1
        ends = [(begin, end), (end, len(nodes))]
        found += [a for a, b in ends if 0 < a < len(nodes) and places.may_begin(a, b)]
    return found


def _takes_from(node: Node, other: Node) -> bool:
    return node.target is operator.getitem and node.args[0] is other


def operations(graph: GraphModule) -> list[Node]:
    return [n for n in graph.graph.nodes if n.op not in ("placeholder", "get_attr", "output")]


def _weights(graph: GraphModule, nodes: Sequence[Node], inputs: Sequence[Any]) -> list[int]:
    """Bytes of the parameters that each operation is the first to have."""
    order = {n: i for i, n in enumerate(nodes)}
    found = [0] * len(nodes)
    for node, value in zip(graph.graph.find_nodes(op="placeholder"), inputs, strict=True):
        if isinstance(value, torch.nn.Parameter) and value.requires_grad:
            users = [order[user] for user in node.users if user in order]
            if users and not getattr(value, "_ddp_ignored", False):
                found[min(users)] += value.numel() * value.element_size()
    return found


class _Places:
    """Where a part of a graph may begin: what goes from part to part are tensors and numbers.

    Those have to be at that place what they are at the end of the capture, which is when a part is
    compiled for them; and no part begins where gradients are switched off.
    """

    def __init__(self, graph: GraphModule, nodes: Sequence[Node]):
        order = {n: i for i, n in enumerate(nodes)}
        end = len(nodes)
        self.nodes = nodes
        self.made = {n: order.get(n, -1) for n in graph.graph.nodes if n.op != "get_attr"}
        self.last = {
            n: max([order.get(user, end) for user in n.users], default=-1) for n in self.made
        }
        self.writes: dict[int, list[int]] = {}  # memory -> places of operations that write to it
        self.off: list[bool] = []  # whether gradients are switched off before an operation
        off = False
        for place, node in enumerate(nodes):
            self.off.append(off)
            if node.target is _SWITCH:
                off = not node.args[0]
            for t in _written(node):
                self.writes.setdefault(_memory(t), []).append(place)

    def ready(self, node: Node) -> int:
        """The place behind ``node`` and all writes to what it makes."""
        value = node.meta.get("example_value")
        writes = self.writes.get(_memory(value), ()) if isinstance(value, torch.Tensor) else ()
        return 1 + max([self.made[node], *writes])

    def may_begin(self, place: int, end: int) -> bool:
        """Whether a part may be the operations from ``place`` up to ``end``."""
        if self.off[place]:
            return False
        if not any(self.last[n] >= end for n in self.nodes[place:end]):
            return False  # nothing of it would be needed
        for node, made in self.made.items():
            if made >= place or self.last[node] < place:
                continue
            value = node.meta.get("example_value")
            if isinstance(value, torch.Tensor):
                writes = self.writes.get(_memory(value), ())
                if any(w < place if made < 0 else w >= place for w in writes):
                    return False
            elif made >= 0 and type(value) not in (*SYMBOLS, *_NUMBERS):
                return False
        return True


def _memory(t: torch.Tensor) -> int:
    return t.untyped_storage()._cdata


def _written(node: Node) -> list[torch.Tensor]:
    """The tensors that an operation may have written to."""
    given = [n.meta.get("example_value") for n in node.all_input_nodes]
    tensors = [t for t in given if isinstance(t, torch.Tensor) and t.layout is torch.strided]
    target = node.target
    schema = getattr(target, "_schema", None)
    name = getattr(target, "__name__", str(target))
    if schema is not None and schema.is_mutable or name.startswith("_foreach_"):
        return tensors
    if "out" in node.kwargs:
        return tensors
    made = node.meta.get("example_value")
    by_name = (name.endswith("_") and not name.endswith("__")) or name in _IN_PLACE
    if by_name or name.startswith("__i") or made is not None and any(made is t for t in tensors):
        return tensors[:1]
    return []


# ---- the parts --------------------------------------------------------------------------------


class _Writer:
    """Writes ``call(*inputs)``, which runs the parts; its text is ``call.source``."""

    def __init__(self, graph: GraphModule, inputs: Sequence[Any], cuts: Sequence[int]):
        self.graph, self.cuts = graph, cuts
        self.holders = graph.graph.find_nodes(op="placeholder")
        self.values = dict(zip(self.holders, inputs, strict=True))
        # Every part is given the symbols that sizes of its tensors are made of.
        self.numbers = [n for n in self.holders if type(self.values[n]) in SYMBOLS]
        (self.output,) = graph.graph.find_nodes(op="output")

    def compiled(self, backend: Backend) -> Callable[..., Any]:
        nodes = operations(self.graph)
        ends = [*self.cuts, len(nodes)]
        parts = [nodes[a:b] for a, b in zip([0, *self.cuts], ends, strict=True)]
        last: dict[Node, int] = {}  # the part that reads a value last
        for number, part in enumerate(parts):
            for node in part:
                last.update(dict.fromkeys(node.all_input_nodes, number))
        last.update(dict.fromkeys((*self.numbers, *self.output.all_input_nodes), len(parts)))
        names: dict[str, Any] = {}
        lines = []
        made = []
        for number, part in enumerate(parts):
            given = [n for n in part if last.get(n, -1) > number]
            module, taken = self._part(part, given)
            values = [self.values.get(n, n.meta.get("example_value")) for n in taken]
            names[f"part{number}"] = backend(module, values)
            made.append(names[f"part{number}"])
            targets = "".join(f"{n.name}, " for n in given)
            run = f"part{number}({', '.join(n.name for n in taken)})"
            lines.append(f"{targets}= {run}" if targets else run)
            gone = [n.name for n in taken if last[n] == number]
            if gone:
                lines.append(f"{' = '.join(gone)} = None")
        results = [self._result(names, value) for value in self.output.args[0]]
        lines.append(f"return ({''.join(f'{name}, ' for name in results)})")
        body = "\n".join(f"    {line}" for line in lines)
        source = f"def call({', '.join(n.name for n in self.holders)}):\n{body}\n"
        exec(compile(source, "<refcompiler parts>", "exec"), names)
        call = names["call"]
        call.source, call.parts = source, tuple(made)
        known = [getattr(getattr(part, "report", part), "fallback", None) for part in made]
        reasons = [reason for reason in known if reason is not None]
        call.fallback = None
        if reasons:
            call.fallback = f"{len(reasons)} of its {len(made)} parts: {reasons[0]}"
        return call

    def _result(self, names: dict[str, Any], value: Any) -> str:
        if isinstance(value, Node) and value.op != "get_attr":
            return value.name
        name = f"constant{len(names)}"
        names[name] = value
        if isinstance(value, Node):
            names[name] = operator.attrgetter(value.target)(self.graph)
        return name

    def _part(self, part: Sequence[Node], given: Sequence[Node]) -> tuple[GraphModule, list[Node]]:
        """The graph of a part, which gives the values ``given``, and what it takes."""
        inside = set(part)
        sources = dict.fromkeys(self.numbers)
        for node in part:
            sources.update(dict.fromkeys(n for n in node.all_input_nodes if n not in inside))
        attributes = [n for n in sources if n.op == "get_attr"]
        taken = [n for n in sources if n.op != "get_attr"]
        graph = Graph()
        copies: dict[Node, Node] = {}
        for node in taken:
            copies[node] = graph.placeholder(node.name)
            copies[node].meta = dict(node.meta)
        for node in (*attributes, *part):
            copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(tuple([copies[node] for node in given]))
        module = GraphModule(self.graph, graph)
        module.meta.update(self.graph.meta)
        return module, taken
