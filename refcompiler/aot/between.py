"""Backwards that make a graph (``create_graph``) where something is between results.

A hook on a result that others are computed from, or the wish for its gradient, is in the middle of
what the compiled function does in one step. So the graph runs again as it is, under autograd, with
what the caller has of those results in their places: what comes back to them, and to the inputs, is
autograd's own, and its derivatives lead past the caller's tensors and their hooks, as in eager.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from refcompiler.aot import ports
from refcompiler.aot.inputs import Runner
from refcompiler.aot.joined import Joined
from refcompiler.aot.ports import RESULT, VIEW
from refcompiler.aot.reads import Parts
from refcompiler.reentrant import as_around


class _Through(Runner):
    """Runs a graph with others' tensors in the places of some results, which it notes.

    ``instead``: by the node behind which nothing writes to a result any more, the nodes that have
    it by then, by place, and what takes its place from then on. ``bases``: by node, which of its
    results is or has the base of the result at a place, which is noted too.
    """

    def __init__(
        self,
        gm: Any,
        replaced: dict[int, torch.Tensor],
        instead: Mapping[Node, Mapping[int, tuple[Node, torch.Tensor]]],
        bases: Mapping[Node, Mapping[int, int]],
    ):
        super().__init__(gm, replaced)
        self.instead, self.bases = instead, bases
        self.computed: dict[int, torch.Tensor] = {}
        self.based: dict[int, torch.Tensor] = {}

    def run_node(self, n: Node) -> Any:
        found = super().run_node(n)
        for place, at in self.bases.get(n, {}).items():
            self.based[place] = _root(pytree.tree_leaves(found)[at])
        for place, (holder, other) in self.instead.get(n, {}).items():
            own = found if holder is n else self.env[holder]
            self.computed[place] = own
            for node, value in self.env.items():
                if value is own:
                    self.env[node] = other
            found = other if found is own else found
        return found


class _Watching(Runner):
    """Runs a graph; it knows where each tensor was made, written to and read."""

    def __init__(self, gm: Any, replaced: dict[int, torch.Tensor]):
        super().__init__(gm, replaced)
        self.nodes: list[Node] = []
        self.made: dict[int, tuple[torch.Tensor, list[int]]] = {}  # and by which nodes, by identity
        self.reads: dict[int, list[tuple[int, int]]] = {}  # by memory: when, and of what
        self.versions: dict[int, int] = {}  # by memory
        self.writes: dict[int, int] = {}  # by memory, when the last was
        #: Which node's result, by number, is the first that is a base, or a view of it.
        self.bases: dict[int, tuple[torch.Tensor, Node, int]] = {}

    def run_node(self, n: Node) -> Any:
        now = len(self.nodes)
        self.nodes.append(n)
        given = [self.env[node] for node in n.all_input_nodes]
        for t in filter(_is_tensor, pytree.tree_leaves(given)):
            self.reads.setdefault(_memory(t), []).append((now, id(t)))
        found = super().run_node(n)
        for t in filter(_is_tensor, pytree.tree_leaves([given, found])):
            memory = _memory(t)
            if t._version > self.versions.get(memory, 0):
                self.versions[memory], self.writes[memory] = t._version, now
        if _is_tensor(found):
            self.made.setdefault(id(found), (found, []))[1].append(now)
        for at, t in enumerate(pytree.tree_leaves(found)):
            if _is_tensor(t):
                self.bases.setdefault(id(_root(t)), (_root(t), n, at))
        return found

    def begins(self, base: torch.Tensor) -> tuple[Node, int]:
        """The first node to give ``base`` or a view of it, and which of its results that is."""
        _, node, at = self.bases[id(base)]
        return node, at

    def final(self, node: Node) -> tuple[Node, Node]:
        """The node behind which nothing writes to what ``node`` gives, and one that gives it there.

        Raises :class:`Written` where a view of it that was made before is read behind that.
        """
        t, times = next((v for v in self.made.values() if self._gives(v[1], node)), (None, []))
        if t is None:
            raise Written
        memory = _memory(t)
        last = max(times[0], self.writes.get(memory, 0))
        known = {key for key, (_, when) in self.made.items() if times[0] < when[0] <= last}
        for now, key in self.reads.get(memory, ()):
            if now > last and key != id(t) and key in known:
                raise Written
        return self.nodes[last], self.nodes[[n for n in times if n <= last][-1]]

    def _gives(self, times: Sequence[int], node: Node) -> bool:
        return any(self.nodes[n] is node for n in times)


class Between:
    """A second run of a call's graph, as ``again`` has it, whose ways end at ``named`` results.

    ``tangents``: the numbers of the results with a tangent; ``named``: by place among the outputs;
    ``joined``: of the call.
    """

    def __init__(
        self,
        again: Any,
        tangents: Sequence[int],
        inputs: Sequence[Any],
        state: torch.Tensor | None,
        named: Mapping[int, torch.Tensor],
        joined: Joined,
    ):
        with torch.enable_grad():
            # Hooks on what the caller has are not run on the way.
            results = [(RESULT, n) for n in tangents]
            self.led = joined.named([*results, *joined.views()], inputs)
            # From these there is a way to the results that gradients are made of, too, but not from
            # views, whose hooks would be told where nothing comes.
            call, count = joined.node(), len(inputs)
            own = {n: t for n, t in named.items() if ports.call_of(t.grad_fn) is call}
            given, self.port = ports.through(joined.node, [*inputs, *own.values()], self.led)
            self.inputs, own = given[:count], dict(zip(own, given[count:], strict=True))
            self.named = {n: own[n] if n in own else t.view_as(t) for n, t in named.items()}
        (output,) = again.graph.graph.find_nodes(op="output")
        flat = pytree.tree_leaves(output.args[0])
        if len({flat[place] for place in named}) < len(named):
            raise Written
        instead: dict[Node, dict[int, tuple[Node, torch.Tensor]]] = {}
        bases: dict[Node, dict[int, int]] = {}
        with torch.enable_grad():
            watched, results = again.run(self.inputs, state, _Watching)
            for place, t in self.named.items():
                last, holder = watched.final(flat[place])
                instead.setdefault(last, {})[place] = holder, t
            for place in [place for place, is_base in again.outputs if is_base]:
                node, at = watched.begins(results[place]._base)
                bases.setdefault(node, {})[place] = at
            through = functools.partial(_Through, instead=instead, bases=bases)
            run, results = again.run(self.inputs, state, through)
        own = dict(enumerate(results)) | run.computed | run.based
        ends = [own[place] for place, _ in again.outputs]
        self.ends = dict(zip(tangents, ends, strict=False))  # behind them are views
        self.joined, self.repeated = joined, again.repeated
        self.own = run.computed  # what the caller's tensors are in the place of
        self.keys: dict[Any, int] = {}  # for whoever names the places otherwise
        self.leading: list[Any] = []  # handles of the hooks that do

    def part(self, result: int, tangent: torch.Tensor) -> dict[int, torch.Tensor | None]:
        """What comes back from a result to those that are named, by their places."""
        if not self.named:
            return {}
        found = self._gradients({result: tangent}, [*self.named.values()])
        return dict(zip(self.named, found, strict=True))

    def rest(self, given: Sequence[Any]) -> list[Any]:
        """The gradients of the inputs, where what is named has its own among ``given``, then parts
        as :meth:`Derivable.gradients` has them."""
        there = {n: given[n] for n in self.ends if given[n] is not None}
        wanted = [t for t in self.inputs if _tracked(t)]
        read = {n: t for n, t in enumerate(self.inputs) if n in self.repeated and _tracked(t)}
        parts = Parts([self.ends[n] for n in there], read)
        found = iter(self._gradients(there, wanted))
        own = self._computed()
        self.joined.lead({key: t for key, t in own.items() if key not in self.led})
        whole = [next(found) if _tracked(t) else None for t in self.inputs]
        return parts.instead(whole, self.repeated)

    def _gradients(self, given: Mapping[int, Any], wanted: Sequence[Any]) -> Sequence[Any]:
        for handle in self.leading:
            handle.remove()
        with torch._C._DisableAutocast(), as_around():
            found = torch.autograd.grad(
                [self.ends[n] for n in given],
                wanted,
                [*given.values()],
                create_graph=True,
                allow_unused=True,
            )
        own = self._computed()
        self.leading = ports.lead(self.port, {key: own[key] for key in self.led})
        return found

    def _computed(self) -> dict[Any, torch.Tensor]:
        """What the run has in the place of the call's results."""
        results = {(RESULT, n): t for n, t in self.ends.items()}
        return results | {(VIEW, place): t for place, t in self.own.items()}


class Written(Exception):
    """The graph reads a result, behind the last write to it, by a view that was made before."""


def _memory(t: torch.Tensor) -> int:
    return t.untyped_storage()._cdata


def _root(t: torch.Tensor) -> Any:
    return t._base if t._is_view() else t


def _is_tensor(t: Any) -> bool:
    return isinstance(t, torch.Tensor)


def _tracked(t: Any) -> bool:
    return isinstance(t, torch.Tensor) and t.requires_grad
