"""Which nodes are computed for themselves, and which are inlined into their consumers.

A *root* is a reduction, or a pointwise node that has to exist in memory or is too costly to be
computed once per consumer. Whether a root really is stored is decided later: consumers in the
same kernel take the value from a register.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from fastpath.ir.program import (
    Call,
    Computed,
    Node,
    Pointwise,
    Product,
    Program,
    Reduction,
    Scan,
    Scatter,
    tensors_in,
)
from fastpath.ir.size import hint
from fastpath.schedule.cost import CHEAP, FEW, MOST_DEPTH, MOST_READS, depth, own_cost
from fastpath.schedule.cost import across as reads_across
from fastpath.schedule.kernel import itemsize

MANY = 16  # points that read a number, of which each might make it anew
ROW = 64  # elements, below which what is read on conditions is no vector


class Roots:
    """``order``: the roots and calls that are needed, in graph order. ``stored``: nodes that
    calls or the caller need as real tensors. ``needs``: per root or call, the roots, calls and
    inputs whose values it takes."""

    def __init__(self, program: Program, across: bool = False, again: int = CHEAP):
        """``across``: whether reading from line to line of memory is dear; ``again``: what it may
        cost at most that two compute what they read of a tensor or two, each for itself."""
        self.again, self.across = again, across
        self.stored: set[Node] = set()
        self.order: list[Computed | Call] = []
        self._live = self._liveness(program)
        self._users: dict[Node, set[object]] = defaultdict(set)
        self._widest: dict[Node, int] = defaultdict(int)
        self._pieces: set[Node] = set()  # of rows too short for loops of their own
        self._reads = {}
        self._cost = {}
        self.needs: dict[object, set[Node]] = {}
        self.depth: dict[Node, int] = {}  # with what is inlined
        steps = [s for s in program.steps if s in self._live]
        # What rounds a product is its kernel's work, whether others' is too or not.
        self.own = {s.own for s in steps if isinstance(s, Product) and not program.epilogues}
        for step in steps:
            if isinstance(step, Computed):
                self._cost[step], self._reads[step] = own_cost(step.value)
                if across and isinstance(step, Pointwise):
                    self._cost[step] += reads_across(step)
                    if step.axes and hint(step.axes[-1].extent) < ROW:
                        self._pieces |= {e.args[0] for e in self._reads[step] if len(e.args) > 2}
                points = 1
                for n in step.space:
                    points *= hint(n)
                times = Counter(e.args[0] for e in self._reads[step])
                for node, count in times.items():
                    self._users[node].add(step)
                    self._widest[node] = max(self._widest[node], points * count)
        self.roots: set[Node] = set()
        total: dict[Node, int] = {}
        leaves: dict[Node, frozenset[Node]] = {}
        for step in steps:
            if isinstance(step, Call):
                self.order.append(step)
                self.needs[step] = {
                    n for t in tensors_in((step.arguments, step.keywords)) for n in (t.node,)
                }
                continue
            cost = self._cost[step]
            found: set[Node] = set()
            deep = 0
            for e in self._reads[step]:
                node = e.args[0]
                if isinstance(node, Pointwise) and node not in self.roots:
                    cost += total[node]
                    deep = max(deep, self.depth[node])
                    found |= leaves[node]
                else:
                    found.add(node)
            if isinstance(step, Scatter):
                found.add(step.base)
            total[step], leaves[step] = cost, frozenset(found)
            self.depth[step] = deep + depth(step.value)
            deepest = 2 * self.depth[step] > MOST_DEPTH
            kept = self._is_root(step, cost, len(found)) or self._spread(step, cost, found)
            if deepest or kept or self._heavy(step, found):
                self.roots.add(step)
                self.order.append(step)
                self.needs[step] = found

    def _is_root(self, node: Computed, cost: int, leaves: int) -> bool:
        if isinstance(node, (Reduction, Scan, Scatter)) or node in self.stored or node in self.own:
            return True
        users = self._users[node]
        if not users:
            return True
        if cost > CHEAP and node in self._pieces:
            return True
        several = len(users) > 2 or leaves > 2
        if cost > (CHEAP if several else self.again) and len(users) > 1:
            return True
        if cost > CHEAP and self._widest[node] > 2 * hint(node.numel):
            return True
        return leaves > MOST_READS

    def _spread(self, node: Computed, cost: int, leaves: set[Node]) -> bool:
        """Whether far more points than ``node`` has would each make a root or a quotient of what
        was reduced: whoever reduces it does so once."""
        if self.across or cost < FEW or self._widest[node] < MANY * hint(node.numel):
            return False
        return any(isinstance(n, Reduction) for n in leaves)

    def _heavy(self, node: Computed, leaves: set[Node]) -> bool:
        """Whether two consumers of ``node`` would move more memory by reading all that it is made
        of, each for itself, than by one that stores it and another that reads it, as where every
        layer of a network adds to what those before it have added up."""
        if len(self._users[node]) < 2:
            return False
        count = hint(node.numel)
        large = [n for n in leaves if 2 * hint(n.numel) > count]
        return sum(itemsize(n.dtype) for n in large) > 2 * itemsize(node.dtype)

    def _liveness(self, program: Program) -> set[object]:
        self.stored |= program.kept
        for t in tensors_in(program.outputs):
            self.stored.add(t.node)
        live: set[object] = set()
        wanted: set[Node] = set(self.stored)
        for step in reversed(program.steps):
            if isinstance(step, Call):
                if step.impure or any(r in wanted for r in step.outputs):
                    live.add(step)
                    for t in tensors_in((step.arguments, step.keywords)):
                        wanted.add(t.node)
                        self.stored.add(t.node)
            elif step in wanted:
                live.add(step)
                for e in own_cost(step.value)[1]:
                    wanted.add(e.args[0])
                if isinstance(step, Scatter):
                    wanted.add(step.base)
                    self.stored.add(step.base)
        return live
