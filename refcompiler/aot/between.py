"""Backwards that make a graph (``create_graph``) where something is between results.

A hook on a result that others are computed from, or the wish for its gradient, is in the middle of
what the compiled function does in one step. So the graph runs again as it is, under autograd, with
what the caller has of those results in their places: what comes back to them, and to the inputs, is
autograd's own, and its derivatives lead past the caller's tensors and their hooks, as in eager.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from refcompiler.aot.inputs import Runner


class _Through(Runner):
    """Runs a graph with others' tensors in the places of some nodes' values, which it notes."""

    def __init__(self, gm: Any, replaced: dict[int, torch.Tensor], instead: Mapping[Node, Any]):
        super().__init__(gm, replaced)
        self.instead = instead
        self.computed: dict[Node, torch.Tensor] = {}

    def run_node(self, n: Node) -> Any:
        found = super().run_node(n)
        if n not in self.instead:
            return found
        self.computed[n] = found
        return self.instead[n]


class _Watching(Runner):
    """Runs a graph; of ``nodes``, it knows whether their values are theirs alone to the end."""

    def __init__(self, gm: Any, replaced: dict[int, torch.Tensor], nodes: Sequence[Node]):
        super().__init__(gm, replaced)
        self.made: list[torch.Tensor] = []  # by each node
        self.values: dict[Node, tuple[torch.Tensor, int] | None] = dict.fromkeys(nodes)

    def run_node(self, n: Node) -> Any:
        found = super().run_node(n)
        if isinstance(found, torch.Tensor):
            self.made.append(found)
            if n in self.values:
                self.values[n] = found, found._version
        return found

    def are_final(self) -> bool:
        times = collections.Counter(map(id, self.made))
        return all(
            found is not None and times[id(found[0])] == 1 and found[0]._version == found[1]
            for found in self.values.values()
        )


class Between:
    """A second run of a call's graph, as ``again`` has it, whose ways end at ``named`` results.

    ``tangents``: the numbers of the results with a tangent; ``named``: by place among the outputs;
    ``hooks``: by number, the caller's on results.
    """

    def __init__(
        self,
        again: Any,
        tangents: Sequence[int],
        inputs: Sequence[Any],
        state: torch.Tensor | None,
        named: Mapping[int, torch.Tensor],
        hooks: Mapping[int, Any],
    ):
        with torch.enable_grad():
            # Views, whose hooks are not run on the way.
            self.inputs = [t.view_as(t) if _tracked(t) else t for t in inputs]
            self.named = {place: t.view_as(t) for place, t in named.items()}
        (output,) = again.graph.graph.find_nodes(op="output")
        flat = pytree.tree_leaves(output.args[0])
        nodes = {flat[place]: place for place in named}
        watching = functools.partial(_Watching, nodes=[*nodes])
        through = functools.partial(
            _Through, instead={node: self.named[place] for node, place in nodes.items()}
        )
        with torch.enable_grad():
            watched, _ = again.run(self.inputs, state, watching)
            if len(nodes) < len(named) or not watched.are_final():
                raise Written
            run, results = again.run(self.inputs, state, through)
        ends = [run.computed.get(flat[place], results[place]) for place, _ in again.outputs]
        bases = [t._base if is_base else t for t, (_, is_base) in zip(ends, again.outputs)]
        self.ends = dict(zip(tangents, bases, strict=True))
        self.hooks = hooks
        self.keys: dict[Any, int] = {}  # for whoever names the places otherwise

    def part(self, result: int, tangent: torch.Tensor) -> dict[int, torch.Tensor | None]:
        """What comes back from a result to those that are named, by their places."""
        found = self._gradients({result: tangent}, [*self.named.values()])
        return dict(zip(self.named, found, strict=True))

    def rest(self, given: Sequence[Any]) -> list[Any]:
        """The gradients of the inputs, where what is named has its own among ``given``."""
        there = {n: given[n] for n in self.ends if given[n] is not None}
        wanted = [t for t in self.inputs if _tracked(t)]
        found = iter(self._gradients(there, wanted))
        hook(self.ends, self.hooks)
        return [next(found) if _tracked(t) else None for t in self.inputs]

    def _gradients(self, given: Mapping[int, Any], wanted: Sequence[Any]) -> Sequence[Any]:
        with torch._C._DisableAutocast():
            return torch.autograd.grad(
                [self.ends[n] for n in given],
                wanted,
                [*given.values()],
                create_graph=True,
                allow_unused=True,
            )


def hook(ends: Mapping[int, torch.Tensor], hooks: Mapping[int, Any]) -> None:
    """Have the caller's ``hooks`` on results, by number, run for what comes to ``ends`` after this.

    Derivatives of an operation that keeps its result (``exp``, ``tanh``) lead there once more, and
    in eager the result is the caller's.
    """
    for n, own in hooks.items():
        if own and n in ends and ends[n].requires_grad:
            ends[n].register_hook(functools.partial(_hooked, own))


def _hooked(own: Mapping[int, Any], gradient: Any) -> Any:
    for each in [*own.values()]:
        found = each(gradient)
        gradient = gradient if found is None else found
    return gradient


class Written(Exception):
    """The graph writes to a result that others are computed from."""


def _tracked(t: Any) -> bool:
    return isinstance(t, torch.Tensor) and t.requires_grad
