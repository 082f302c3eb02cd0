"""Which of a program's results lie in memory of their own, from when on and until when."""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterable, Sequence
from typing import Any

from fastpath.handles import only_seen_as
from fastpath.held import Held
from fastpath.ir.program import (
    Call,
    Computed,
    Input,
    Node,
    Program,
    Result,
    Scatter,
    Tensor,
    named,
    tensors_in,
)
from fastpath.lives import LITTLE, SHARE, SOON, TOLERATED, Lives, heirs, planned, size_of
from fastpath.schedule.cluster import Fusion
from fastpath.workspace import FRESH, INTO, MOST, Plan, keepable

Births = dict[int, Sequence[Node]]
UNSEEN = 1 << 20  # bytes of a result that may lie in one piece of memory with others, at most
_SUMS = ("aten.addmm.default", "aten.baddbmm.default")


def alike(node: Node, other: Node) -> bool:
    """Whether elements of the one can lie where those of the other are, each in its place."""
    if node.dtype != other.dtype or isinstance(other, Result) and other.bits:
        return False
    numbers = (*node.shape, *node.strides, *other.shape, *other.strides)
    return all(type(n) is int and n >= 0 for n in numbers) and size_of(node) == size_of(other)


def _lie_alike(given: Tensor, node: Node, result: Result) -> bool:
    """Whether ``given``, all of ``node``, has its elements where ``result`` has them."""
    if (
        given.offset != 0
        or given.seen is not None
        or result.bits
        or isinstance(node, Result)
        and node.bits
    ):
        return False
    return all((t.shape, t.strides) == (result.shape, result.strides) for t in (given, node))


def stored_of(fusion: Fusion) -> set[Node]:
    """What kernels write to memory: others read it, or calls, or the caller."""
    stored: set[Node] = {n for n in fusion.roots.stored if isinstance(n, Computed)}
    for cluster in fusion.clusters:
        for node in cluster.needs:
            if isinstance(node, Computed) and fusion.home.get(node) is not cluster:
                stored.add(node)
    return stored


class Memory:
    """Of the steps of ``fusion``, in their order.

    ``stored``: the members that other kernels, calls or the caller read from memory. ``last``: by
    steps, what is not needed behind them and is the program's to free. ``plan``: where what is kept
    between calls lies. ``laid``: of nodes that kernels write, what their memory is made as, if not
    as they are. ``heirs``: of nodes that get a dead one's memory, which that is; ``sums``: the same
    of products that are added to what was there, and of what else is; ``inherited``: all of these.
    """

    def __init__(
        self,
        program: Program,
        fusion: Fusion,
        products: Container[Call],
        constants: int,
        cpu: bool,
        boxed: bool,
        held: Held,
        together: Iterable[range] = (),
    ):
        """``constants``: how many inputs, at the end, no call gives; ``boxed``: the list in which
        a call gives the others is emptied; ``together``: places of kernels that run at once."""
        self.program, self.order, self.products = program, fusion.result, products
        self.cpu, self.held = cpu, held
        given = len(program.inputs) - constants
        self.owned = {n for n in program.inputs if boxed and n.place < given}
        self.returned = {t.node for t in tensors_in(program.outputs)}
        self.stored = stored_of(fusion)
        self._begin = {place: run[0] for run in together for place in run}
        self._end = {place: run[-1] for run in together for place in run}
        self.last = self._last_uses()
        births: dict[int, list[Node]] = {}
        for place, cluster in enumerate(self.order):
            made = births.setdefault(self._begin.get(place, place), [])
            made += [n for n in cluster.members if n in self.stored]
        self.births: Births = dict(births)
        self.plan = self._plan()
        self.laid = self._laid()
        self._seen = self._seen_by_others()
        self.sums = self._sums() | self._bases()
        self.heirs = self._heirs()
        self.inherited = {*self.heirs.values(), *self.sums.values()}
        self.unseen = set[Node]() if cpu else self._unseen()

    def _seen_by_others(self) -> set[Node]:
        """What something else than a kernel may have views of."""
        calls = (c.call for c in self.order if c.call is not None and c.call not in self.products)
        others = (call for call in calls if named(call.target) not in FRESH)
        taken = (tensors_in((call.arguments, call.keywords)) for call in others)
        return {*self.returned, *(t.node for t in itertools.chain.from_iterable(taken))}

    def _unseen(self) -> set[Node]:
        """Small results of which nothing but kernels knows, by their addresses: they need be no
        tensors, of which an allocation costs half of what a launch does."""
        calls = [c for c in self.order if c.call is not None]
        given = tensors_in([(c.call.arguments, c.call.keywords) for c in calls if c.call])
        others = {*self.returned, *(t.node for t in given), *self.laid, *self.inherited}
        others |= {*self.heirs, *self.sums}.union(*(c.needs for c in calls))
        return {
            n
            for c in self.order
            if c.call is None
            for n in c.members
            if n in self.stored and n not in others and n.begin is None
            if not isinstance(n, Scatter) and all(type(i) is int for i in (*n.shape, *n.strides))
            if 0 < size_of(n) <= UNSEEN and min(n.strides, default=0) >= 0
        }

    def _last_uses(self) -> dict[int, list[Node]]:
        last: dict[Node, int] = {}
        for place, cluster in enumerate(self.order):
            place = self._end.get(place, place)
            for node in cluster.needs:
                last[node] = place
            for node in cluster.members:
                last.setdefault(node, place)
            if cluster.call is not None:
                for node in cluster.call.outputs:
                    last.setdefault(node, place)
        found: dict[int, list[Node]] = {}
        for node, place in last.items():
            if node in self.returned or (isinstance(node, Input) and node not in self.owned):
                continue
            if isinstance(node, Computed) and node not in self.stored:
                continue
            found.setdefault(place, []).append(node)
        return found

    def _laid(self) -> dict[Node, Tensor]:
        seen: dict[Node, list[Tensor]] = {}
        for call in (c.call for c in self.order if c.call is not None):
            for t in tensors_in((call.arguments, call.keywords)):
                if call not in self.products:
                    seen.setdefault(t.node, []).append(t)
        kept = self.plan.offsets
        fit = (n for n in seen if n in self.stored and n not in self.returned and n not in kept)
        alone = (n for n in fit if not isinstance(n, Scatter))
        found = {node: only_seen_as(node, seen[node]) for node in alone}
        return {node: t for node, t in found.items() if t is not None}

    def _plan(self) -> Plan:
        made: Births = {**self.births}
        shared = {*self._bases(), *self._bases().values()}
        births: Births = {p: [n for n in some if n not in shared] for p, some in made.items()}
        calls = [(place, c.call) for place, c in enumerate(self.order) if c.call is not None]
        for place, call in calls:
            made[place] = [n for n in call.outputs if not n.number]
            own = call.name in INTO or call in self.products
            births[place] = [n for n in call.outputs if own and not n.bits]
        nodes = itertools.chain(*births.values()) if self.cpu else ()
        kept = keepable(nodes, [call for _, call in calls], self.program.outputs)
        births = {place: [n for n in some if n in kept] for place, some in births.items()}
        if not self.held.part:
            return planned(births, self.last, MOST)
        given = [n for n in self.owned if n.place not in self.held.inputs]
        lives = Lives.of(len(self.order), made, self.last, given, self.returned)
        if self.held.part == "forward":  # what it keeps is there while the backward runs
            return planned(births, self.last, 0)
        most = lives.most()
        allowed = most + most // TOLERATED
        return planned(births, self.last, most // SHARE, allowed, lives.most)

    def _ours(self) -> Births:
        """What kernels make, by steps."""
        births: Births = {**self.births}
        for place, cluster in enumerate(self.order):
            if cluster.call is not None and cluster.call in self.products:
                births[place] = [*cluster.call.outputs]
        return births

    def _sums(self) -> dict[Node, Node]:
        """Results of products that may lie where what they are added to did, and which that is: it
        is read there for the last time, each element where the sum is stored."""
        made = {n for nodes in self._ours().values() for n in nodes}
        found: dict[Node, Node] = {}
        for place, cluster in enumerate(self.order):
            call = cluster.call
            if not self.cpu or call is None or call.name not in _SUMS or call.keywords:
                continue
            given, *factors = call.arguments
            node, (result,) = given.node, call.outputs
            is_ours = node in made or isinstance(node, Result) and node.call.name in INTO
            if not is_ours or node not in self.last.get(place, ()) or node in self._seen:
                continue
            if any(t.node is node for t in factors) or not _lie_alike(given, node, result):
                continue
            if self.laid.keys().isdisjoint((node, result)):
                found[result] = node
        kept = self.plan.offsets
        return {n: dead for n, dead in found.items() if n not in kept and dead not in kept}

    def _bases(self) -> dict[Node, Node]:
        """What is written to at places that are data, and lies where it was before."""
        members = itertools.chain.from_iterable(cluster.members for cluster in self.order)
        return {n: n.base for n in members if isinstance(n, Scatter)}

    def settled(self, node: Node) -> bool:
        """Whether it is known where a node lies, or the caller gets it."""
        known = self.plan.offsets, self.heirs, self.sums, self.returned
        return any(node in nodes for nodes in known)

    def leaving(self, place: int) -> list[Node]:
        """Large results of kernels that nobody needs behind a step, and whose memory is free."""
        return [
            node
            for node in self.last.get(place, ())
            if node in self._made
            and not self.settled(node)
            and node not in self.inherited
            and node not in self._seen
            and node not in self.laid
            and size_of(node) > LITTLE
        ]

    def _heirs(self) -> dict[Node, Node]:
        births, seen = self._ours(), self._seen.union(self.sums.values())
        ours = {n for made in births.values() for n in made if n not in self.plan.offsets}
        self._made = frozenset(ours)
        births = {
            place: [n for n in made if n in ours and n not in self.sums and not n.begin]
            for place, made in births.items()
        }
        deaths = {
            place: [n for n in dead if n in ours and n not in seen]
            for place, dead in self.last.items()
        }

        def geometry(node: Node) -> Any:
            own: Node | Tensor = self.laid.get(node, node)
            return own.shape, own.strides, own.dtype

        return heirs(births, deaths, geometry, SOON if self.cpu else math.inf)
