"""Greedy fusion: which roots share a kernel.

A cluster has a *space*: axes in the order of the largest tensor's dimensions, some of them
reduced. A member runs over the whole space or, after the reductions, over the kept axes only.
Roots join, in graph order, a cluster that makes what they read (vertical), or one that reads the
same data (sibling), when the spaces agree, when every value passed on is read at the very position
where it was made, and when no path leads from the cluster through something else to the root.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

from fastpath.ir.expr import Expr
from fastpath.ir.index import Axis, Index, variable
from fastpath.ir.program import (
    Call,
    Computed,
    Input,
    Node,
    Pointwise,
    Position,
    Product,
    Program,
    Reduction,
    Result,
    Scan,
    Scatter,
)
from fastpath.ir.size import Number, divides, hint
from fastpath.schedule.cost import CHEAP, MOST_DEPTH, own_cost
from fastpath.schedule.kernel import itemsize
from fastpath.schedule.roots import Roots

MOST_BUFFERS = 28  # arguments of a kernel


class Cluster:
    """Roots that share a kernel. ``place[node]`` is the node's own position in cluster axes."""

    def __init__(self, serial: int):
        self.serial = serial
        self.members: list[Computed] = []
        self.axes: list[Axis] = []
        self.reduced: set[Axis] = set()
        self.place: dict[Node, Position] = {}
        self.inner: set[Node] = set()  # members that run over the reduced axes too
        self.call: Call | None = None
        self.needs: set[Node] = set()
        self.alone = False  # nothing joins it: where it writes, data says, or it may not be needed

    @property
    def product(self) -> Product | None:
        """The first of its members, if it is one."""
        first = self.members[0] if self.members else None
        return first if isinstance(first, Product) else None

    def kept(self) -> list[Axis]:
        return [a for a in self.axes if a not in self.reduced]

    def split(self, axis: Axis, extents: Sequence[Number]) -> None:
        """Replace an axis by several whose extents multiply to its own."""
        parts = [Axis(n) for n in extents]
        value, step = Index({}), cast(Any, 1)
        for part in reversed(parts):
            value = value + variable(part) * step
            step *= part.extent
        at = self.axes.index(axis)
        self.axes[at : at + 1] = parts
        if axis in self.reduced:
            self.reduced.remove(axis)
            self.reduced |= set(parts)
        self.place = {
            node: tuple(i.substitute({axis: value}) for i in index)
            for node, index in self.place.items()
        }


def match(shape: Sequence[Number], axes: Sequence[Axis]) -> list[list[Any]] | None:
    """How both sides split so that they agree: per axis the extents it splits into, or None.

    ``shape`` is free of ones. The refined extents of both sides, in order, are equal, so that the
    caller can split its axes and then walk along both.
    """
    splits: list[list[Any]] = [[] for _ in axes]
    i, j = len(shape) - 1, len(axes) - 1
    left: Any = shape[i] if i >= 0 else 1
    right: Any = axes[j].extent if j >= 0 else 1
    while i >= 0 and j >= 0:
        if divides(right, left):
            step = right
        elif divides(left, right):
            step = left
        else:
            return None
        splits[j].insert(0, step)
        left //= step
        right //= step
        if left == 1:
            i -= 1
            left = shape[i] if i >= 0 else 1
        if right == 1:
            j -= 1
            right = axes[j].extent if j >= 0 else 1
    return splits if i < 0 and j < 0 else None


class Fusion:
    """Clusters of a program, in an order that respects every dependency (``result``).

    ``ends``: up to how many points clusters are joined that nothing waits for, where their loops
    are alike, whatever they read: what they cost is their launch. ``across``: whether reading from
    line to line of memory is dear. ``again``: what it may cost at most that two readers compute
    what they read. ``run``, and ``whole``: whoever reads again what more than ``whole`` points were
    reduced of, has a kernel of its own where not so many bytes of these lie side by side.
    """

    def __init__(
        self,
        program: Program,
        ends: int = 0,
        across: bool = False,
        again: int = CHEAP,
        run: int = 0,
        whole: int = 0,
    ):
        self.program = program
        self.run, self.whole = run, whole
        self.roots = Roots(program, across, again)
        self.clusters: list[Cluster] = []
        self.home: dict[Node, Cluster] = {}
        self._readers: dict[Node, list[Cluster]] = {}
        last_impure: Cluster | None = None
        written = {program.inputs[number] for number in program.written.values()}
        scatters = [step for step in program.steps if isinstance(step, Scatter)]
        copies = {s.base for s in scatters if s.of in written}  # which may not have to be made
        self._after: dict[Cluster, set[Cluster]] = {}
        self._depths: dict[Node, int] = {}
        for step in self.roots.order:
            if isinstance(step, Call):
                cluster = self._new()
                cluster.call = step
                cluster.needs = set(self.roots.needs[step])
                for result in step.outputs:
                    self.home[result] = cluster
                if step.impure:
                    if last_impure is not None:
                        self._after[cluster] = {last_impure}
                    last_impure = cluster
                continue
            alone = isinstance(step, (Product, Scatter)) or step in copies
            if alone or not any(map(self._joins(step), self._candidates(step))):
                cluster = self._new()
                joined = self._join(cluster, step)
                assert joined
                cluster.alone = alone and not isinstance(step, Product)
        if ends:
            self._join_rereading()
            self._join_ends(ends)
        self.result = self.sorted()

    def _new(self) -> Cluster:
        cluster = Cluster(len(self.clusters))
        self.clusters.append(cluster)
        return cluster

    # -- dependencies ----------------------------------------------------------------------------

    def sources(self, cluster: Cluster) -> set[Cluster]:
        """What it has to come behind."""
        found = {self.home[n] for n in cluster.needs if n in self.home}
        found |= self._after.get(cluster, set())
        found.discard(cluster)
        return found

    def drop(self, node: Node, reader: Cluster) -> None:
        """Leave out what makes ``node`` alone, which only ``reader`` needed."""
        cluster = self.home.pop(node)
        reader.needs.discard(node)
        self.clusters.remove(cluster)
        self.result.remove(cluster)

    def follow(self, cluster: Cluster, others: Collection[Cluster]) -> bool:
        """Let ``cluster`` come behind ``others`` too, if none of them needs it."""
        if any(self._depends(other, cluster) for other in others):
            return False
        if others:
            self._after.setdefault(cluster, set()).update(others)
        return True

    def stay(self, cluster: Cluster, others: Collection[Cluster]) -> None:
        """Let ``cluster`` come behind ``others``, as it does in ``result``."""
        if others:
            self._after.setdefault(cluster, set()).update(others)

    def _depends(self, cluster: Cluster, on: Cluster) -> bool:
        seen: set[Cluster] = set()
        stack = [cluster]
        while stack:
            c = stack.pop()
            if c is on:
                return True
            if c not in seen:
                seen.add(c)
                stack.extend(self.sources(c))
        return False

    def _candidates(self, step: Computed) -> list[Cluster]:
        needs = self.roots.needs[step]
        makers = {self.home[n] for n in needs if n in self.home}
        if (
            not self.program.epilogues
            and isinstance(step, Pointwise)
            and step not in self.roots.own
        ):
            makers -= {
                self.home[n] for n in needs if isinstance(n, Reduction) or n in self.roots.own
            }
        found = sorted((c for c in makers if c.call is None), key=lambda c: -c.serial)
        siblings = {c for n in needs for c in self._readers.get(n, ()) if c not in makers}
        return found + sorted(siblings, key=lambda c: -c.serial)[:8]

    def sorted(self) -> list[Cluster]:
        """All of them, each behind its sources."""
        order: list[Cluster] = []
        done: set[Cluster] = set()

        def visit(cluster: Cluster) -> None:
            stack = [(cluster, iter(sorted(self.sources(cluster), key=lambda c: c.serial)))]
            done.add(cluster)
            while stack:
                top, sources = stack[-1]
                for source in sources:
                    if source not in done:
                        done.add(source)
                        ordered = sorted(self.sources(source), key=lambda c: c.serial)
                        stack.append((source, iter(ordered)))
                        break
                else:
                    order.append(top)
                    stack.pop()

        for cluster in self.clusters:
            if cluster not in done:
                visit(cluster)
        return order

    # -- joining ---------------------------------------------------------------------------------

    def _joins(self, step: Computed) -> Callable[[Cluster], bool]:
        return lambda cluster: self._join(cluster, step)

    def _join(self, cluster: Cluster, step: Computed) -> bool:
        needs = self.roots.needs[step]
        if cluster.alone:
            return False
        if cluster.product is not None:  # only elementwise work on what it makes
            if not isinstance(step, Pointwise) or needs.isdisjoint(cluster.members):
                return False
        if cluster.members:
            buffers = len(cluster.needs | needs) + len(cluster.members)
            if buffers > MOST_BUFFERS:
                return False
            if self._depth(cluster, step) > MOST_DEPTH:
                return False
            outside = {self.home[n] for n in needs if n in self.home} - {cluster}
            if any(self._depends(c, cluster) for c in outside):
                return False
        trial = Cluster(cluster.serial)
        trial.axes, trial.reduced = list(cluster.axes), set(cluster.reduced)
        trial.place, trial.inner = dict(cluster.place), set(cluster.inner)
        trial.members = cluster.members
        if not self._place(trial, step) or not self._passes(trial, step):
            return False
        if not self._in_one_pass(trial, step) or self._in_scraps(trial, step):
            return False
        cluster.axes, cluster.reduced = trial.axes, trial.reduced
        cluster.place, cluster.inner = trial.place, trial.inner
        cluster.members.append(step)
        cluster.needs |= needs
        self.home[step] = cluster
        self._depths[step] = self._depth(cluster, step)
        for n in needs:
            if isinstance(n, (Input, Result)) or n not in cluster.place:
                self._readers.setdefault(n, []).append(cluster)
        return True

    def _depth(self, cluster: Cluster, step: Computed) -> int:
        """How many operations follow each other up to ``step`` in a kernel of the cluster's."""
        inside = (n for n in self.roots.needs[step] if n in cluster.place)
        before = (self._depths[n] for n in inside if not isinstance(n, Reduction))
        return self.roots.depth[step] + max(before, default=0)

    def _join_rereading(self) -> None:
        """What reads again what a kernel has read that it waits for, and goes through it alike.

        Clusters grow step by step, so that the norm of one tensor and the norm of another are two,
        and what divides both by them belongs to the second.
        """
        for cluster in self.sorted():
            for maker in sorted(self.sources(cluster), key=lambda c: -c.serial):
                shape = _extents(maker)
                if shape is not None and shape == _extents(cluster):
                    if maker.needs & cluster.needs:
                        self._merge(maker, cluster)

    def _merge(self, first: Cluster, later: Cluster) -> None:
        """Let ``later`` be done with ``first``, which it waits for, where that gives the same."""
        others = self.sources(later) - {first}
        if any(self._depends(other, first) for other in others):
            return
        both = [*first.members, *later.members]
        if len(first.needs.union(later.needs, both)) > MOST_BUFFERS:
            return
        axes = {b: variable(a) for a, b in zip(first.axes, later.axes, strict=True)}
        trial = Cluster(later.serial)
        trial.axes, trial.reduced, trial.members = first.axes, first.reduced, both
        trial.place, trial.inner = dict(first.place), first.inner | later.inner
        for node in later.members:
            trial.place[node] = tuple(i.substitute(axes) for i in later.place[node])
        if not all(self._passes(trial, step) for step in later.members):
            return
        later.axes, later.reduced, later.members = trial.axes, trial.reduced, both
        later.place, later.inner = trial.place, trial.inner
        later.needs |= first.needs
        self._after.setdefault(later, set()).update(self._after.pop(first, set()) - {later})
        for after in self._after.values():
            if first in after:
                after.discard(first)
                after.add(later)
        for node in first.members:
            self.home[node] = later
        self.clusters.remove(first)

    def _join_ends(self, most: int) -> None:
        """What ends a gradient, for example: the sums of its pieces, one small kernel a weight."""
        awaited = {source for cluster in self.clusters for source in self.sources(cluster)}
        alike: dict[Any, Cluster] = {}
        for cluster in list(self.clusters):
            shape = _loops(cluster, most)
            if shape is None or cluster in awaited:
                continue
            first = alike.setdefault(shape, cluster)
            if first is cluster:
                continue
            both = [*first.members, *cluster.members]
            if len(first.needs.union(cluster.needs, both)) > MOST_BUFFERS:
                alike[shape] = cluster
                continue
            axes = {b: variable(a) for a, b in zip(first.axes, cluster.axes, strict=True)}
            for node in cluster.members:
                place = cluster.place[node]
                first.place[node] = tuple(i.substitute(axes) for i in place)
                self.home[node] = first
            first.members = both
            first.inner |= cluster.inner
            first.needs |= cluster.needs
            self.clusters.remove(cluster)

    def _place(self, cluster: Cluster, step: Computed) -> bool:
        """Give ``step`` a position in the cluster's axes, splitting axes where that helps."""
        dims = [n for n in step.space if n != 1]
        if not cluster.members:
            cluster.axes = [a for a in step.axes if a.extent != 1]
            cluster.place[step] = tuple(variable(a) for a in step.axes)
            cluster.reduced = {step.axes[d] for d in _walked(step) if step.space[d] != 1}
            cluster.inner.add(step)
            return True
        if isinstance(step, (Reduction, Scan)):
            if not self._lay(cluster, step, dims, list(cluster.axes)):
                return False
            reduced = set()
            for d in _walked(step):
                reduced |= cluster.place[step][d].axes()
            if cluster.reduced and reduced != cluster.reduced:
                return False
            if not cluster.reduced:
                cluster.reduced = reduced
            cluster.inner.add(step)
            return True
        if cluster.product is None and self._lay(cluster, step, dims, list(cluster.axes)):
            cluster.inner.add(step)
            return True
        return bool(cluster.reduced) and self._lay(cluster, step, dims, cluster.kept())

    def _lay(
        self, cluster: Cluster, step: Computed, dims: Sequence[int], axes: Sequence[Axis]
    ) -> bool:
        if math.prod(dims) != math.prod(a.extent for a in axes) or 0 in dims:
            return False
        splits = match(dims, axes)
        if splits is None:
            return False
        for axis, extents in zip(axes, splits):
            if len(extents) > 1:
                cluster.split(axis, extents)
        kept = axes is not cluster.axes and len(axes) != 0
        walk: list[Axis] = []
        skip = cluster.reduced if kept and not self._covers(cluster, dims) else set()
        walk = [a for a in cluster.axes if a not in skip]
        place: list[Index] = []
        at = len(walk) - 1
        for n in reversed(step.space):
            value, step_size = Index({}), cast(Any, 1)
            while step_size != n:
                value = value + variable(walk[at]) * step_size
                step_size *= walk[at].extent
                at -= 1
            place.insert(0, value)
        cluster.place[step] = tuple(place)
        return True

    @staticmethod
    def _covers(cluster: Cluster, dims: Sequence[int]) -> bool:
        return math.prod(dims) == math.prod(a.extent for a in cluster.axes)

    def _passes(self, cluster: Cluster, step: Computed) -> bool:
        """Whether every value that ``step`` takes from the cluster is there when it is read."""
        own = dict(zip(step.axes, cluster.place[step]))
        ok = True
        seen: set[tuple[Node, Position]] = set()  # places that are data are read by many

        def check(value: Expr, index: dict[Axis, Index]) -> None:
            nonlocal ok
            for e in own_cost(value)[1]:
                node, position = e.args[:2]
                there = tuple(i.substitute(index) for i in position)
                if (node, there) in seen:
                    continue
                seen.add((node, there))
                if node in cluster.place and node is not step:
                    if not _same(node, there, cluster.place[node]):
                        ok = False
                elif isinstance(node, Pointwise) and node not in self.roots.roots:
                    check(node.at(there), {})

        check(step.value, own)
        return ok

    def _in_one_pass(self, cluster: Cluster, step: Computed) -> bool:
        """Whether what a scan gives is read in the very loop that makes it, the only one there is.

        So in the loops of a cluster with a scan nobody waits for a reduction.
        """
        members = [*cluster.members, step]
        if not any(isinstance(m, Scan) for m in members):
            return True
        later = {m for m in members if isinstance(m, Reduction) or m not in cluster.inner}
        return not any(self.roots.needs[m] & later for m in members if m in cluster.inner)

    def _in_scraps(self, cluster: Cluster, step: Computed) -> bool:
        """Whether ``step`` goes again through what was reduced, and is better by itself, which goes
        through memory as that lies: little lies side by side of what is more than a unit holds, or
        what it reads and what it writes lie in other orders."""
        if not self.run or not isinstance(step, Pointwise) or step not in cluster.inner:
            return False
        made = [n for n in self.roots.needs[step] if n in cluster.place and n in self.home]
        if not any(isinstance(n, Reduction) or n not in cluster.inner for n in made):
            return False
        held = math.prod(hint(a.extent) for a in cluster.reduced) <= self.whole
        firsts = set()
        for node, position in [(step, cluster.place[step]), *self._whole_reads(cluster, step)]:
            first, side = _side(cluster, node, position)
            if first is None or first not in cluster.reduced:
                return False
            firsts.add(first)
            if not held and side * itemsize(node.dtype) < self.run:
                return True
        return len(firsts) > 1

    def _whole_reads(self, cluster: Cluster, step: Pointwise) -> list[tuple[Node, Position]]:
        """What ``step`` reads at every point of the cluster, and where."""
        found: list[tuple[Node, Position]] = []
        stack = [(step.value, dict(zip(step.axes, cluster.place[step])))]
        while stack:
            value, index = stack.pop()
            for e in own_cost(value)[1]:
                node, position = e.args[:2]
                there = tuple(i.substitute(index) for i in position)
                if isinstance(node, Pointwise) and node not in self.roots.roots:
                    stack.append((node.at(there), {}))
                elif hint(node.numel) == hint(step.numel):
                    found.append((node, there))
        return found


def _side(cluster: Cluster, node: Node, position: Position) -> tuple[Axis | None, int]:
    """Along which axis neighbours of ``node`` lie side by side in memory, and how many do so before
    the next are another result's, where the axis is reduced."""
    place = sum((i * n for i, n in zip(position, node.strides)), Index({}))
    steps = {a: hint(place.coefficient(a) or 0) for a in cluster.axes}
    first, side = None, 1
    for axis in sorted(cluster.axes, key=steps.__getitem__):
        if steps[axis] == side and axis.extent != 1:
            first = first or axis
            if axis not in cluster.reduced:
                break
            side *= hint(axis.extent)
    return first, side


def _extents(cluster: Cluster) -> tuple[tuple[Number, bool], ...] | None:
    """What tells loops apart, of a cluster of reductions alone, else None."""
    if cluster.call is not None or not cluster.reduced:
        return None
    if any(isinstance(m, (Product, Scan)) for m in cluster.members):
        return None
    return tuple((a.extent, a in cluster.reduced) for a in cluster.axes)


def _loops(cluster: Cluster, most: int) -> Any:
    """The same of a cluster of at most so many points, else None."""
    found = _extents(cluster)
    extents = [a.extent for a in cluster.axes]
    if not all(isinstance(n, int) for n in extents) or not 0 < math.prod(extents) <= most:
        return None
    return found


def _walked(step: Computed) -> frozenset[int]:
    """The dimensions along which an accumulator is carried."""
    if isinstance(step, Scan):
        return frozenset({step.dim})
    if isinstance(step, Scatter):
        return step.in_order
    return step.reduced if isinstance(step, Reduction) else frozenset()


def _same(node: Node, there: Position, made: Position) -> bool:
    reduced = node.reduced if isinstance(node, Reduction) else ()
    return all(d in reduced or a == b for d, (a, b) in enumerate(zip(there, made)))
