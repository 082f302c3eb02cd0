"""Operators without a derivative, in a graph with gradients: eager raises when it comes to one.

``x // 2`` of numbers with a gradient is such: the result asks for one, and autograd raises when a
backward comes to it, if that is on the way to what is asked for. Others (``torch.igamma``) have the
derivative by some operands alone.

A trace whose backward raises so learns which nodes of the graph these are, and runs once more:
there nothing comes back through such a node (:class:`Refused` is in its place), so the rest of the
backward is compiled. A call whose backward would come to one raises what eager raises.
"""

from __future__ import annotations

import bisect
import functools
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge
from torch.utils import _pytree as pytree

from refcompiler.aot.inputs import Unsupported
from refcompiler.aot.kept import FREED
from refcompiler.aot.missing import reached
from refcompiler.aot.reads import saves
from refcompiler.aot.wanted import goes_to
from refcompiler.histories import is_outdated, nodes_of

_TEXT = re.compile(r"(the )?derivative for .* is not implemented")
#: Autograd's functions of operators that have no formula at all. They are as old as can be.
_NONE = ("NotImplemented", "Error")
#: Whether the backward that runs now may run again.
keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph
_newest = torch.autograd._get_sequence_nr

#: The text, whether it is a ``NotImplementedError``, which tangents (bits) come to what raises it,
#: those on whose way autograd has freed something by then, and what that leads to: inputs, by
#: number. Rows of plain values, which a package keeps.
Refusal = tuple[str, bool, int, int, Sequence[int]]


class Learnt(Exception):
    """A trace has learnt of nodes without a derivative: it is to run again."""


def is_told(error: Exception) -> bool:
    """Whether autograd raises it for what has no derivative."""
    return isinstance(error, RuntimeError) and _TEXT.match(str(error)) is not None


@dataclass
class Refusals:
    """What traces of one graph have learnt: by number of a node of the graph, the error."""

    known: dict[int, RuntimeError] = field(default_factory=dict)
    watches: bool = False  # whether the next trace is to find what raises
    ends: list[int] = field(default_factory=list)  # of this trace: autograd's newest by then
    before: int = 0  # how many were known
    made: set[Node] = field(default_factory=set)  # of this trace: those without a formula

    def begin(self) -> None:
        """To be called before each trace."""
        self.ends, self.before, self.made = [], len(self.known), set()

    def ran(self, found: Any) -> None:
        """To be called behind each node of the graph, which gave ``found``."""
        if self.watches and len(self.ends) not in self.known:
            first = self.ends[-1] if self.ends else 0
            for node in _made(found, first):
                if node in self.made:
                    continue
                self.made.add(node)
                self._note(len(self.ends), _raised(node))
        self.ends.append(_newest())

    def learn(self, error: RuntimeError, failed: Any) -> None:
        """Raise :class:`Learnt` if a backward's ``error`` is of this kind.

        ``failed``: autograd's function that raised it, if that is known.
        """
        if not is_told(error):
            return
        if failed is not None and type(failed).__name__ not in _NONE:
            self._note(bisect.bisect_right(self.ends, failed._sequence_nr()), error)
        if self.watches and len(self.known) == self.before:
            return
        self.watches = True
        raise Learnt

    def _note(self, number: int, error: RuntimeError | None) -> None:
        if error is not None and is_told(error):
            self.known.setdefault(number, error)

    def watched(self, outputs: Sequence[torch.Tensor]) -> Watched | None:
        return Watched(outputs) if self.watches else None

    def instead(self, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """The results of the next node, through which nothing comes back that would raise."""
        error = self.known[len(self.ends)]
        flat, spec = pytree.tree_flatten((args, kwargs))
        tracked = {id(t): t for t in flat if _is_tracked(t)}

        def found(others: Mapping[int, torch.Tensor]) -> Any:
            args, kwargs = pytree.tree_unflatten([others.get(id(t), t) for t in flat], spec)
            return call(args, kwargs)

        without = {key: t.detach() for key, t in tracked.items()}
        versions = {key: t._version for key, t in without.items()}
        results = found(without)
        owners = {id(t): key for key, t in without.items()}
        written = [key for key, t in without.items() if t._version != versions[key]]
        given = [owners[id(t)] for t in pytree.tree_leaves(results) if id(t) in owners]
        if not {*written} <= {*given}:
            raise Unsupported(str(error))
        refusing = [*tracked]
        if not written and len(tracked) > 1:
            apart = {key: t.detach().requires_grad_() for key, t in tracked.items()}
            refusing = [*_refusing(found(apart), apart)]
            results = found({key: without[key] for key in refusing})
        ends = [tracked[key] for key in refusing]
        leaves, shape = pytree.tree_flatten(results)
        own = {key for key in owners.values() if key not in written}
        leaves = [tracked[owners[id(t)]] if owners.get(id(t)) in own else t for t in leaves]
        places = [n for n, t in enumerate(leaves) if _has_gradients(t) and id(t) not in tracked]
        made = _refused(error, len(places), *[leaves[n] for n in places], *ends)
        for n, t in zip(places, made if isinstance(made, tuple) else (made,), strict=True):
            key = owners.get(id(leaves[n]))
            leaves[n] = t if key is None else tracked[key].copy_(t)
        return pytree.tree_unflatten(leaves, shape)


class Watched:
    """Which of autograd's functions that ``outputs`` lead to ran last."""

    def __init__(self, outputs: Sequence[torch.Tensor]):
        self.last: Node | None = None
        self.handles = [node.register_prehook(self._noted(node)) for node in nodes_of(outputs)]

    def _noted(self, node: Node) -> Callable[..., None]:
        def noted(_: Any) -> None:
            self.last = node

        return noted


def refusals(
    outputs: Sequence[torch.Tensor], inputs: Mapping[int, torch.Tensor]
) -> tuple[list[Refusal], set[tuple[int, ...]]]:
    """Of a trace where nothing comes back through what raises: what a call raises, in the order in
    which eager comes to it, and what :func:`refcompiler.aot.missing.uneven` says of it.

    ``inputs``: by number.
    """
    nodes = nodes_of(outputs)
    found: list[Any] = [node for node in nodes if isinstance(node, Refused._backward_cls)]
    if not found:
        return [], set()
    edges = {(edge.node, edge.output_nr): n for n, edge in _edges(inputs).items()}
    ways, every = reached(outputs), (1 << len(outputs)) - 1
    rows: list[Refusal] = []
    kinds: set[tuple[int, ...]] = set()
    turns = _turns(nodes)
    keeping = [node for node in nodes if saves([node])]
    for node in sorted(found, key=turns.__getitem__, reverse=True):
        asked = functools.reduce(operator.or_, ways[node].values(), 0)
        first = [ways[other].values() for other in keeping if turns[other] > turns[node]]
        frees = functools.reduce(operator.or_, [mask for masks in first for mask in masks], 0)
        if asked != every:
            kinds.add((asked, every))
        ends = [edges[edge] for edge in _behind(node) if edge in edges]
        rows.append((str(node.error), _has_formula(node.error), asked, frees, tuple(sorted(ends))))
    return rows, kinds


def check(
    node: Any, refused: Sequence[Refusal], asked: int, edges: Sequence[Any], places: Sequence[int]
) -> None:
    """Raise what eager raises for a backward of the tangents ``asked`` (bits), the second time what
    it has freed before it came to that.

    ``node``: of the call. ``edges``: autograd's functions of the inputs ``places``. To be called in
    that backward.
    """
    nodes = {n: function for n, (function, _) in zip(places, edges, strict=False)}
    for text, kind, tangents, frees, inputs in refused:
        if tangents & asked and any((end := nodes.get(n)) and goes_to(end) for n in inputs):
            if node.spent & frees & asked:
                raise RuntimeError(FREED)
            if not keeps_graph():
                node.spent |= frees & asked
            raise NotImplementedError(text) if kind else RuntimeError(text)


class Refused(torch.autograd.Function):
    """``apply(error, count, *results, *operands)``: the results; nothing comes back to operands."""

    @staticmethod
    def forward(ctx: Any, error: RuntimeError, count: int, *tensors: torch.Tensor) -> Any:
        ctx.error, ctx.count = error, count
        ctx.set_materialize_grads(False)
        results = tuple([t.detach() for t in tensors[:count]])
        return results[0] if count == 1 else results

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        others = len(ctx.needs_input_grad) - 2 - ctx.count
        return (None, None, *gradients, *[None] * others)


_refused: Callable[..., Any] = Refused.apply


def _turns(nodes: Sequence[Any]) -> dict[Any, float]:
    """When eager comes to each: the engine takes what was made last first, but what has no formula
    as soon as all that leads to it has run."""
    turns: dict[Any, float] = {node: node._sequence_nr() for node in nodes}
    turns |= dict.fromkeys([node for node in nodes if _at_once(node)], math.inf)
    for node in nodes:
        for following, _ in node.next_functions:
            if _at_once(following):
                turns[following] = min(turns[following], node._sequence_nr() - 0.5)
    return turns


def _at_once(node: Any) -> bool:
    return isinstance(node, Refused._backward_cls) and not _has_formula(node.error)


def _has_formula(error: RuntimeError) -> bool:
    return isinstance(error, NotImplementedError)


def _behind(refused: Any) -> set[Any]:
    """The edges of autograd that its operands lead to."""
    left = [*refused.next_functions[refused.count :]]
    found = set(left)
    while left:
        node, _ = left.pop()
        more = [] if node is None else [edge for edge in node.next_functions if edge not in found]
        found.update(more)
        left += more
    return found


def _edges(inputs: Mapping[int, torch.Tensor]) -> dict[int, GradientEdge]:
    return {n: get_gradient_edge(t) for n, t in inputs.items()}


def _made(found: Any, first: int) -> dict[Node, None]:
    """What autograd has made without a formula for ``found``, since its function ``first``."""
    left = [t.grad_fn for t in pytree.tree_leaves(found) if _is_tracked(t) and not is_outdated(t)]
    seen: set[Any] = {None}
    made: dict[Node, None] = {}
    while left:
        node = left.pop(0)
        if node in seen:
            continue
        seen.add(node)
        if type(node).__name__ in _NONE:
            made[node] = None
        elif node._sequence_nr() >= first:
            left += [following for following, _ in node.next_functions]
    return made


def _raised(node: Any) -> RuntimeError | None:
    try:
        node(*[torch.zeros(())] * len(node._input_metadata))
    except RuntimeError as error:
        return error
    return None


def _refusing(results: Any, operands: Mapping[int, torch.Tensor]) -> Iterable[int]:
    """The operands by which ``results`` have no derivative."""
    ends = [t for t in pytree.tree_leaves(results) if _is_tracked(t)]
    for key, t in operands.items():
        given = [torch.zeros_like(end) for end in ends]
        try:
            torch.autograd.grad(ends, [t], given, retain_graph=True, allow_unused=True)
        except RuntimeError as error:
            if not is_told(error):
                raise
            yield key


def _is_tracked(t: Any) -> bool:
    return isinstance(t, torch.Tensor) and t.requires_grad


def _has_gradients(t: Any) -> bool:
    return isinstance(t, torch.Tensor) and (t.is_floating_point() or t.is_complex())
