"""Taking a joint graph apart, once it is decided what is saved."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from torch.fx import Graph, GraphModule, Node

from refcompiler.aot.draws import TURN
from refcompiler.aot.effects import looks_up, stays
from refcompiler.aot.joint import FORWARD, PHASE
from refcompiler.aot.numbers import ARITHMETIC, symbols_of
from refcompiler.aot.numbers import is_number as number
from refcompiler.aot.partition.packing import hold, is_packed, pack, product, unpack
from refcompiler.aot.private import private_last


class Parts:
    """A joint graph's nodes: inputs, tangents, the forward's, the backward's, outputs of both.

    ``wanted``: which of the backward's.
    """

    def __init__(self, joint: GraphModule, num_fwd_outputs: int, wanted: slice = slice(None)):
        self.joint = joint
        self.nodes = list(joint.graph.nodes)
        holders = [n for n in self.nodes if n.op == "placeholder"]
        self.tangents = [n for n in holders if str(n.target).startswith("tangents")]
        self.inputs = [n for n in holders if n not in set(self.tangents)]
        (output,) = joint.graph.find_nodes(op="output")
        flat = list(output.args[0])
        self.outputs, self.gradients = flat[:num_fwd_outputs], flat[num_fwd_outputs:][wanted]
        self.order = {n: i for i, n in enumerate(self.nodes)}
        self.late = self._late()
        done = ancestors(nodes_in(self.gradients)) & self.late
        effects = [n for n in self.late if stays(n)]
        if wanted != slice(None):  # a region that is not computed again neither draws nor checks
            runs = {n.meta.get(TURN) for n in done} | {None}
            effects = [n for n in effects if n.meta.get(TURN) in runs]
        self.needed = done | ancestors(effects) & self.late  # what the backward does

    def _late(self) -> set[Node]:
        """The backward's nodes: traced there or, in a graph without phases, after a tangent."""
        phased = any(PHASE in n.meta for n in self.nodes)
        late = set(self.tangents)
        for n in self.nodes:
            if n.op in ("placeholder", "output"):
                continue
            if is_number(n) and not any(given in late for given in n.all_input_nodes):
                continue  # a size of the forward's, which the backward was the first to ask for
            if phased:
                if n.meta.get(PHASE) != FORWARD and n.op != "get_attr":
                    late.add(n)
            elif any(given in late for given in n.all_input_nodes):
                late.add(n)
        return late

    def wanted(self) -> list[Node]:
        """The forward's nodes that the backward reads, in order. Constants are not among them."""
        found: dict[Node, None] = {}
        for n in self.nodes:
            if n in self.needed:
                for given in n.all_input_nodes:
                    if given not in self.late and given.op != "get_attr":
                        found[given] = None
        for n in nodes_in(self.gradients):
            if n not in self.late and n.op != "get_attr":
                found[n] = None
        return self._of_symbols(found)

    def _of_symbols(self, wanted: Iterable[Node]) -> list[Node]:
        """``wanted`` with symbols for the arithmetic on them, and all symbols of needed sizes."""
        found: dict[Node, None] = {}
        for n in wanted:
            stack = [n]
            while stack:
                top = stack.pop()
                if is_number(top) and top.target in ARITHMETIC:
                    stack += top.all_input_nodes
                else:
                    found[top] = None
        symbols: set[Any] = set()
        for n in self.needed:
            symbols |= symbols_of(n.meta.get("val"))
        for n in self.nodes:
            if is_number(n) and n not in self.late and n.op != "output":
                expr = getattr(getattr(n.meta["val"], "node", None), "expr", None)
                if expr in symbols:
                    symbols.discard(expr)
                    found[n] = None
        return sorted(found, key=self.order.__getitem__)


def nodes_in(values: Iterable[Any]) -> list[Node]:
    return [value for value in values if isinstance(value, Node)]


def ancestors(nodes: Iterable[Node]) -> set[Node]:
    """``nodes`` and everything that they are computed from."""
    found: set[Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += node.all_input_nodes
    return found


def is_number(node: Node) -> bool:
    return number(node.meta.get("val"))


def split(
    parts: Parts,
    saved: Collection[Node],
    packed: Collection[Node] = (),
    twice: Collection[Node] = (),
) -> tuple[GraphModule, GraphModule]:
    """The two graphs. What the backward reads and is not among ``saved`` it computes again.

    ``packed``: masks among ``saved`` that are kept as one byte an element. ``twice``: what costs
    little, and so is not kept from where a dear operator is computed again of it until the
    gradients need it, but computed once more.
    """
    shown = [*parts.inputs, *parts.outputs]
    tensors = private_last([n for n in saved if not is_number(n)], shown)
    numbers = [n for n in saved if is_number(n)]
    forward = _forward(parts, [*tensors, *numbers], packed)
    return forward, _backward(parts, [*numbers, *tensors], packed, twice)


def _forward(parts: Parts, saved: Sequence[Node], packed: Collection[Node]) -> GraphModule:
    results = [*parts.outputs, *saved]
    kept = ancestors(nodes_in(results))
    kept |= ancestors(n for n in parts.nodes if n not in parts.late and stays(n))
    graph = Graph()
    made: dict[Node, Node] = {}
    small: dict[Node, Node] = {}  # right behind what is packed, which then is needed no longer
    inputs = set(parts.inputs)
    for n in parts.nodes:
        if n in inputs or (n in kept and n.op != "placeholder"):
            made[n] = graph.node_copy(n, made.__getitem__)
            if n in packed:
                small[n] = pack(graph, made[n])
    made.update(small)
    graph.output(tuple([made[v] if isinstance(v, Node) else v for v in results]))
    return _module(parts, graph, "forward")


def _backward(
    parts: Parts, saved: Sequence[Node], packed: Collection[Node], twice: Collection[Node]
) -> GraphModule:
    graph = Graph()
    made: dict[Node, Node] = {}
    for n in (*saved, *parts.tangents):
        made[n] = graph.placeholder(n.name)
        made[n].meta = dict(n.meta)
        if n in packed:
            hold(made[n])
    return finished(parts, graph, made, twice)


class Unsaved(Exception):
    """The backward needs what it is not given and cannot compute."""


def finished(
    parts: Parts, graph: Graph, given: dict[Node, Node], twice: Collection[Node] = ()
) -> GraphModule:
    """The backward graph whose placeholders are there: ``given`` says for which nodes.

    Raises :class:`Unsaved` where they are too few. ``twice``: as :func:`split` says.
    """
    held = {n: holder for n, holder in given.items() if is_packed(holder)}
    #: Of those made twice, there is one for what is computed again (True) and one for gradients.
    made = {(n, False): holder for n, holder in given.items() if n not in held}

    def key(n: Node, reader: tuple[Node, bool]) -> tuple[Node, bool]:
        node, again = reader
        return n, n in twice and (again if node in twice else node not in parts.late)

    def make(n: Node) -> None:
        """What is computed again comes just before its first use."""
        stack = [(n, False)]
        while stack:
            top = stack[-1]
            node = top[0]
            masked = product(node, held, given) if held and node not in held else None
            read = node.all_input_nodes if masked is None else [masked.other]
            keys = {each: key(each, top) for each in read}
            missing = [each for each in keys.values() if each not in made]
            if top in made:
                stack.pop()
            elif node in held:
                made[top] = unpack(graph, held[node], node)
                stack.pop()
            elif missing:
                stack += reversed(missing)
            elif node not in parts.late and _is_once(node):
                raise Unsaved(node.name)
            elif masked is not None:
                other = made[keys[masked.other]]
                made[top] = masked.made(graph, node, other, held[masked.mask])
                stack.pop()
            else:
                made[top] = graph.node_copy(node, lambda n, keys=keys: made[keys[n]])
                stack.pop()

    for n in parts.nodes:
        if n in parts.needed:
            make(n)
    for n in nodes_in(parts.gradients):
        make(n)
    graph.output(tuple([made[v, False] if isinstance(v, Node) else v for v in parts.gradients]))
    return _module(parts, graph, "backward")


def _is_once(node: Node) -> bool:
    """Whether a node of the forward cannot be computed again. What raises for some values can: it
    has not raised for these."""
    return node.op == "placeholder" or stays(node) and not looks_up(node)


def _module(parts: Parts, graph: Graph, name: str) -> GraphModule:
    graph.lint()
    return GraphModule(parts.joint, graph, name)
