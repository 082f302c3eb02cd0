"""A second run of a call's graph, and what comes back by gradients with a graph that are of it.

Gradients with a graph are functions of tensors between inputs and results, which only a second run
has. What one backward made of them is a :class:`Level`: it leads to the run, and to the levels that
it was made of (a second derivative to the first). In a backward of several of these, and of the
call itself, each brings what it has as far as the next one that this backward comes to, newest
first. That goes on from there with its own, so that each tensor between has all in eager's order.
"""

from __future__ import annotations

import functools
import itertools
import operator
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from refcompiler.aot.ports import Key
from refcompiler.aot.reads import Parts, saves
from refcompiler.aot.stages import Cut
from refcompiler.reentrant import as_around

_task = torch._C._current_graph_task_id
_goes_to = torch._C._will_engine_execute_node
_keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph
_FUNCTION = torch.autograd.function.BackwardCFunction
Edge = tuple[Any, int]


@dataclass(eq=False)
class Run:
    """A second run.

    All are edges of autograd's graph, since a write to a tensor would give it another one.
    ``call``: a reference to the call's function; ``results``: those with a tangent, in order;
    ``inputs``: by number, of ``count``; ``repeated``: as a program has it. ``inner``: the run's
    functions, and ``own`` what the caller may have of what they made, of which he has ``named``.
    """

    call: Callable[[], Any]
    results: list[Edge]
    count: int
    inputs: dict[int, Edge]
    repeated: Sequence[int]
    inner: Mapping[Any, Sequence[Edge]]
    own: Mapping[Edge, Key]
    named: Callable[[Sequence[Key]], Mapping[Key, torch.Tensor]]
    lead: Callable[[], list[Any]]  # has what comes to results go to the call's, by hooks
    reads: Mapping[int, int]  # by input, how often it is read
    levels: list[Callable[[], Level | None]] = field(default_factory=list)
    shown: bool = False  # whether there are gradients with a graph that no level has
    spent: bool = False  # whether a backward has freed anything of it
    leading: Sequence[Any] = ()  # the hooks

    @functools.cached_property
    def uses(self) -> Counter[Edge]:
        """How often the run's functions lead to what the caller may have."""
        edges = itertools.chain.from_iterable(self.inner.values())
        return Counter(edge for edge in edges if edge in self.own)

    @classmethod
    def of(
        cls,
        call: Any,
        inputs: Sequence[Any],
        results: Sequence[torch.Tensor],
        own: Mapping[Key, torch.Tensor],
        named: Callable[[Sequence[Key]], Mapping[Key, torch.Tensor]],
        repeated: Sequence[int],
        lead: Callable[[], list[Any]],
    ) -> Run | None:
        """None: its functions cannot run apart. ``inputs``: the run's, whose ways end there."""
        edges = {n: edge_of(t) for n, t in enumerate(inputs) if _tracked(t)}
        inner = functions([t.grad_fn for t in results], {node for node, _ in edges.values()})
        if any(map(_is_whole, inner)):
            return None
        keys = {(t.grad_fn, t.output_nr): key for key, t in own.items() if t.grad_fn is not None}
        ends = [edge_of(t) for t in results]
        reads = _reads(inner, edges)
        known = edges, repeated, inner, keys, named, lead, reads
        return cls(weakref.ref(call), ends, len(inputs), *known)

    def gradients(
        self, tangents: Sequence[Any], unwanted: Collection[int] = ()
    ) -> list[torch.Tensor | None]:
        """Those of the inputs but for the ``unwanted``, with a graph, then parts as a program's."""
        roots = [(e, g) for e, g in zip(self.results, tangents, strict=True) if g is not None]
        with torch.enable_grad():
            return self._whole(roots, [n for n in self.inputs if n not in unwanted], True)

    def rest(self, given: Sequence[Any], between: Mapping[Edge, Any]) -> list[Any]:
        """The gradients of the inputs, where results have the ``given``, and what is ``between``
        its own; then parts as a program has them."""
        roots = [(e, g) for e, g in zip(self.results, given, strict=True) if g is not None]
        return self._whole([*roots, *between.items()], [*self.reads], False)

    def _whole(
        self, roots: Sequence[tuple[Edge, Any]], numbers: Sequence[int], keeps: bool
    ) -> list[Any]:
        read = {n: self.inputs[n] for n in numbers}
        parts, _, found = self.back(roots, [], read, keeps)
        whole: list[Any] = [None] * self.count
        for n, g in zip(numbers, found, strict=True):
            whole[n] = g
        return parts.instead(whole, self.repeated)

    def back(
        self,
        roots: Sequence[tuple[Edge, Any]],
        ends: Sequence[Edge],
        read: Mapping[Any, Edge],
        keeps: bool,
    ) -> tuple[Parts, Sequence[Any], Sequence[Any]]:
        """What comes to those that are ``read`` part by part, to ``ends``, and to the first again.

        ``keeps``: whether what runs may run again, though the backward under way frees it.
        """
        for handle in self.leading:
            handle.remove()
        grows = torch.is_grad_enabled()
        keeps = keeps or bool(self.coming()) or self.shown or grows or _keeps_graph()
        self.spent = self.spent or not (grows or _keeps_graph())
        targets = {name: GradientEdge(*edge) for name, edge in read.items()}
        parts = Parts([_function(node) for (node, _), _ in roots], targets)
        wanted = [*[GradientEdge(*edge) for edge in ends], *targets.values()]
        with torch._C._DisableAutocast(), as_around():
            found = torch.autograd.grad(
                [GradientEdge(*edge) for edge, _ in roots],
                wanted,
                [g for _, g in roots],
                retain_graph=keeps,
                create_graph=grows,
                allow_unused=True,
            )
        for handle in parts.handles:
            handle.remove()
        self.leading = self.lead() if self.shown else ()
        return parts, found[: len(ends)], found[len(ends) :]

    def show(self) -> None:
        """There are gradients with a graph that no level has: they go through the run itself."""
        if not self.shown:
            self.shown, self.leading = True, self.lead()

    def coming(self) -> list[Level]:
        """The levels that the backward under way comes to yet, newest first."""
        found = []
        for reference in reversed(self.levels):
            other = reference()
            node = None if other is None else other.node()
            if other is None or node is None or other.ran == _task():
                continue  # on a device it may have come first
            if _goes_to(node):
                found.append(other)
        return found


@dataclass
class Left:
    """What a backward leaves to the next level, or to the call: ``values`` by edges.

    With a graph, the ``levels`` that it is of, and what it is computed from besides, ``tangents``.
    """

    values: Mapping[Edge, Any]
    levels: Sequence[Level] = ()
    tangents: Mapping[Edge, torch.Tensor] = field(default_factory=dict)

    def with_(self, other: Left) -> Left:
        """Both, first what is left here."""
        values = {**self.values}
        for edge, g in other.values.items():
            values[edge] = values[edge] + g if edge in values else g
        levels = tuple(dict.fromkeys((*self.levels, *other.levels)))
        return Left(values, levels, {**self.tangents, **other.tangents})


class Level:
    """What a backward with a graph made, by functions of its own: ``gradients``, as edges.

    ``above``: the levels of whose functions they are computed, newest first. ``between``: where
    these functions lead to others', and the level that has those (None: the run). ``named``: which
    of them, and of those above, the caller has tensors of. ``tangents``: of what was made, what has
    a gradient. ``reads``: by input, how often it is read at most.
    """

    def __init__(self, run: Run, above: Sequence[Level], gradients: Sequence[torch.Tensor]):
        self.run, self.above = run, above
        self.gradients = [edge_of(t) for t in gradients]
        self.number = len(run.levels)
        self.node: Callable[[], Any] = _nothing  # of autograd, to a backward of which this is
        self.made: Sequence[Callable[[], Any]] = ()  # what the caller has of the gradients
        self.functions: Mapping[Any, Sequence[Edge]] = {}
        self.between: dict[Edge, Level | None] = {}
        self.tangents: Mapping[Edge, torch.Tensor] = {}
        self.named: list[Edge] = []
        self.slots: dict[Edge, int] = {}  # of tangents and what is named: how many parts
        self.reads: Counter[int] = Counter()
        self.own_reads: Counter[int] = Counter()  # by its own functions alone
        self.came: tuple[int, Left] | None = None  # in the backward with this number
        self.ran = -1  # the number of the last one that came to it

    @classmethod
    def of(
        cls,
        run: Run,
        above: Sequence[Level],
        gradients: Sequence[torch.Tensor],
        tangents: Mapping[Edge, torch.Tensor],
        left: Sequence[torch.Tensor],
    ) -> tuple[Level, list[torch.Tensor]] | None:
        """A level, and what its ``slots`` are of; None where there cannot be one.

        ``tangents``: the caller's, by the edges where ways end; ``left``: what was made besides,
        for others.
        """
        made = cls(run, above, gradients)
        owners = {each: level for level in above for each in level.functions}
        stops = {node for node, _ in run.inputs.values()} | {node for node, _ in tangents}
        known = stops.union(run.inner, owners)
        if not set(run.inputs.values()).isdisjoint(made.gradients):
            return None
        made.functions = functions([t.grad_fn for t in (*gradients, *left)], known)
        if any(map(_is_whole, made.functions)):
            return None
        made.tangents = tangents
        own = _reads(made.functions, run.inputs)
        made.reads = own + Counter(run.reads)
        for level in above:
            made.reads += level.own_reads
        made.own_reads = own
        for edge in itertools.chain(made.gradients, *made.functions.values()):
            if edge[0] in owners:
                made.between[edge] = owners[edge[0]]
            elif edge[0] in run.inner:
                made.between[edge] = None
        named = made._named()
        if named is None:
            return None
        made.named = [*named]
        slots = {**tangents, **named}
        uses = Counter(run.uses)
        for each in (made.functions, *[level.functions for level in above]):
            uses.update(edge for edges in each.values() for edge in edges if edge in slots)
        made.slots = {edge: uses[edge] + 1 for edge in slots}  # what is left for it comes first
        return made, [t for edge, t in slots.items() for _ in range(made.slots[edge])]

    def _named(self) -> dict[Edge, torch.Tensor] | None:
        """What the caller has of what is between; None where he has hooks on what he has not."""
        run, found = self.run, {}
        edges = [*dict.fromkeys(e for level in (self, *self.above) for e in level.between)]
        keys = [run.own[edge] for edge in edges if edge in run.own]
        known, call = run.named(keys), run.call()
        if call is not None and any(key not in known and call.hooks.get(key[1]) for key in keys):
            return None  # they are told all the same
        for edge in edges:
            key = run.own.get(edge)
            if key is not None and key in known:
                found[edge] = known[key]
        for level in self.above:
            for edge, reference in zip(level.gradients, level.made, strict=True):
                t = reference()
                if t is not None and edge in self.between and _leads(t, level.node()):
                    found[edge] = t
        return found

    def back(
        self, cotangents: Sequence[Any], came: Left, later: Sequence[Level], leaves: bool
    ) -> tuple[list[Any], Mapping[Edge, Any]]:
        """What comes back to the inputs, part by part, to the tangents and to what is named; and,
        if it ``leaves`` any, what others go on from: the ``later`` levels and the call.

        ``came``: what was left to it.
        """
        run = self.run
        there = [(e, g) for e, g in zip(self.gradients, cotangents, strict=True) if g is not None]
        there += came.values.items()
        between = self._ends(later, came.values) if leaves else []
        handles = Cut._ending(dict.fromkeys([*self.named, *between]))
        read: dict[Any, Edge] = {n: run.inputs[n] for n in self.reads}
        read |= {edge: edge for edge in self.slots}
        try:
            parts, found, _ = run.back(there, between, read, leaves)
        finally:
            for handle in handles:
                handle.remove()
        left = {edge: g for edge, g in zip(between, found, strict=True) if g is not None}
        split = []
        for name, count in itertools.chain(self.reads.items(), self.slots.items()):
            own = [g for edge, g in there if edge == name] if name in self.slots else []
            split += _split([*own, *parts.found[name]], count)
        return split, left

    @functools.cached_property
    def saves(self) -> bool:
        """Whether any of its functions has saved anything."""
        return saves([*self.functions])

    def leave(self, left: Left, later: Sequence[Level]) -> None:
        """Give what is ``left`` to those that go on: to the next one all that it can."""
        there = {each: level for level in self.above for each in level.functions}
        first = later[0]
        own = {first, *first.above, None}
        shares: dict[Level, dict[Edge, Any]] = {}
        for edge, g in left.values.items():
            owner = there.get(edge[0])
            shares.setdefault(first if owner is None or owner in own else owner, {})[edge] = g
        for level, values in shares.items():
            level.add(Left(values, left.levels, left.tangents))

    def add(self, left: Left) -> None:
        """Something is left to it in the backward under way."""
        self.came = _task(), self.left().with_(left)

    def left(self) -> Left:
        """What was left to it in the backward under way."""
        came, self.came = self.came, None
        return came[1] if came is not None and came[0] == _task() else Left({})

    def _ends(self, later: Sequence[Level], came: Mapping[Edge, Any]) -> list[Edge]:
        """Where it ends, as ``later`` levels, or the call, go on; what ``came`` there before, too.

        Through the functions of a level that is not to come it goes itself, if the next one has not
        the same above it.
        """
        others = {*later[:1], *[each for level in later[:1] for each in level.above], *later}
        passed = [self, *[level for level in self.above if level not in others]]
        ends = {
            edge: None
            for level in passed
            for edge, owner in level.between.items()
            if owner is None or owner in others
        }
        own = {node for level in passed for node in level.functions}
        ends |= dict.fromkeys(edge for edge in came if edge[0] not in own)
        return [edge for edge in ends if edge not in self.named]


def _split(parts: Sequence[Any], count: int) -> list[Any]:
    """As many as ``count``, the last of which are None or, of more, their sum."""
    if len(parts) <= count:
        return [*parts, *[None] * (count - len(parts))]
    return [*parts[: count - 1], functools.reduce(operator.add, parts[count - 1 :])]


def _nothing() -> None:
    return None


def edge_of(t: torch.Tensor) -> Edge:
    if t.grad_fn is not None:
        return t.grad_fn, t.output_nr
    if not t.requires_grad or (t._is_view() and t._base is not None and t._base.requires_grad):
        return None, 0  # one made without gradients requires one, and leads nowhere
    edge = get_gradient_edge(t)
    return edge.node, edge.output_nr


def functions(roots: Sequence[Any], stops: Collection[Any]) -> dict[Any, Sequence[Edge]]:
    """Those that autograd comes to from ``roots``, themselves functions, before ``stops``, and
    where they lead."""
    found: dict[Any, Sequence[Edge]] = {}
    left = [*roots]
    while left:
        node = left.pop()
        if node is None or node in found or node in stops:
            continue
        found[node] = edges = node.next_functions
        left += [following for following, _ in edges]
    return found


def _reads(nodes: Mapping[Any, Sequence[Edge]], inputs: Mapping[int, Edge]) -> Counter[int]:
    """How often functions lead to each of the inputs."""
    numbers = {edge: n for n, edge in inputs.items()}
    return Counter(numbers[e] for edges in nodes.values() for e in edges if e in numbers)


def _is_whole(node: Any) -> bool:
    """Whether a function may tell zeros from nothing, or is a leaf that is no input."""
    return isinstance(node, _FUNCTION) or hasattr(node, "variable")


def _function(node: Any) -> Any:
    """What has the function, as a tensor has it."""
    return SimpleNamespace(grad_fn=node)


def _leads(t: torch.Tensor, node: Any) -> bool:
    return node is not None and t.grad_fn is node


def _tracked(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad
