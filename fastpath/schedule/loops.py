"""From a cluster to a kernel: stages, loop order, collapsed axes, lanes, what is kept where.

Stages: a reduction's value is known after its stage, so whatever reads it goes to a later one.
A value that was made in an earlier stage is taken from memory if it was stored there, from a
scratch row if it is costly, and computed again otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from fastpath.ir.expr import Expr, const, guarded, inside, pair
from fastpath.ir.index import Axis, Division, Index, contiguous_strides, linear, variable
from fastpath.ir.program import (
    Computed,
    Node,
    Pointwise,
    Position,
    Reduction,
    Result,
    Scan,
    Scatter,
)
from fastpath.ir.size import Assumptions, divides, hint, known
from fastpath.schedule import lines
from fastpath.schedule.ahead import asked_ahead, asked_within
from fastpath.schedule.cluster import Cluster
from fastpath.schedule.cost import CHEAP, across, own_cost
from fastpath.schedule.kernel import (
    PARTS,
    Accumulate,
    Buffer,
    Keep,
    Kernel,
    Stage,
    Statement,
    Store,
    in_memory,
    itemsize,
    substitute,
)
from fastpath.schedule.pairs import in_pairs
from fastpath.schedule.parts import axis_of_parts, of_both
from fastpath.schedule.rows import rows_together
from fastpath.schedule.slabs import in_slabs
from fastpath.schedule.streams import streamed
from fastpath.schedule.strips import strips_together
from fastpath.schedule.tiles import flatten_tiles, transpose_tiles
from fastpath.target import CPU, Target

MOST_SPLITS = 8  # of the axes of one kernel
SHORTEST = 16  # elements of an innermost loop that is worth its start
SYMBOLIC_ROWS = 3  # scratch rows whose length each call chooses, if a unit has that many


def _bytes(node: Node) -> int:
    """About: of its elements in memory, those of an expanded dimension once."""
    counts = (hint(n) for n, stride in zip(node.shape, node.strides) if stride)
    return math.prod(counts) * itemsize(node.dtype)


def _parts(value: Expr) -> tuple[Expr, ...]:
    """What memory holds of a value: itself, or the parts of a complex number."""
    return value.args if value.op == "pair" else (value,)


def _of_parts(parts: Sequence[Expr]) -> Expr:
    return parts[0] if len(parts) == 1 else pair(*parts)


def _unread(node: Node) -> Expr:
    """What stands for an element that is read at no position that there is.

    Behind a border a value is asked for at positions beyond it, and may name there what none of its
    elements is computed of, such as what was written over. Nothing depends on that.
    """
    dtype, count = in_memory(node.dtype)
    return _of_parts([const(0, dtype)] * count)


def _stores(node: Node, offset: Index, value: Expr) -> list[Store]:
    """The parts of a complex number lie one behind the other."""
    parts = _parts(value)
    if len(parts) == 1:
        return [Store(node.name, offset, value)]
    return [Store(node.name, offset * len(parts) + n, part) for n, part in enumerate(parts)]


def _rows(node: Node) -> list[str]:
    """The names of a node's scratch rows."""
    return [node.name, f"{node.name}_imag"][: in_memory(node.dtype)[1]]


class Builder:
    """Builds one kernel. ``stored`` are the nodes that live in memory, and ``soon`` names those
    that another kernel or a call of the graph reads."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        roots: set[Node],
        stored: set[Node],
        soon: Collection[str] = (),
        target: Target = CPU,
        sizes: Assumptions | None = None,
    ):
        self.sizes = sizes or Assumptions()
        self.cluster, self.name, self.target = cluster, name, target
        self.roots, self.stored, self.soon = roots, stored, soon
        self.stage_of: dict[Node, int] = {}
        self.scratch: dict[str, tuple[str, int]] = {}
        self._scratched: set[Node] = set()
        self._scratched_at: Index | None = None
        self._memo: dict[tuple[int, Expr], Expr] = {}
        self._both: Axis | None = None  # along which each turn of a loop goes all the way
        self._costs: dict[Node, int] = {}
        self._reads: dict[str, str] = {}
        self._written: dict[str, str] = {}
        self._bytes: dict[str, int] = {}

    def build(self) -> Kernel:
        cluster = self.cluster
        members = cluster.members
        if self.target.unit:
            self._split_divided()
            self._both = axis_of_parts(cluster, self.roots)
        for node in members:
            self.stage_of[node] = self._stage(node)
        count = 1 + max(self.stage_of.values())
        # Slot 2n: members of the kept axes that stage n waits for; slot 2n + 1: its loops.
        pending: list[list[tuple[Node, Statement]]] = [[] for _ in range(2 * count + 1)]
        lane = self._lane_candidate()
        self._row_mode = bool(cluster.reduced) and (
            lane is None or lane in cluster.reduced or cluster.product is not None
        )
        self._find_scratch()
        for node in members:
            stage = self.stage_of[node]
            index = cluster.place[node]
            at = 2 * stage + (1 if node in cluster.inner else 0)
            value = self._value(node, index, stage)
            if isinstance(node, Reduction):
                pending[at].append((node, Accumulate(node.name, node.kind, value)))
                if node in self.stored:
                    offset = linear(self._kept_position(node), node.strides)
                    done = Expr("reduced", (node.name,), node.dtype)
                    self._write(node)
                    pending[at + 1].append((node, Store(node.name, offset, done)))
                continue
            if isinstance(node, Scatter):
                self._write(node)
                written, place = value.args
                offset = linear(place, node.strides)
                adds = node.kind == "sum"
                pending[at].append((node, Store(node.name, offset, written, adds)))
                continue
            if isinstance(node, Scan):
                pending[at].append((node, Accumulate(node.name, node.kind, value, running=True)))
                value = Expr("running", (node.name,), node.dtype)
            if node in self.stored:
                self._write(node)
                offset = linear(index, node.strides)
                for store in _stores(node, offset, value):
                    both = [store] if self._both is None else of_both(store, self._both)
                    pending[at] += [(node, each) for each in both]
            if node in self._scratched:
                kept = zip(_rows(node), _parts(value), strict=True)
                at_row = self._scratch_index()
                pending[at] += [(node, Keep(row, at_row, part)) for row, part in kept]
        return self._assemble(pending)

    # -- stages ----------------------------------------------------------------------------------

    def _stage(self, node: Computed) -> int:
        """The stage a member runs in; row-level members run just before stage ``n``."""
        latest = 0
        for source in self._members_read(node):
            made = self.stage_of[source]
            latest = max(latest, made + 1 if isinstance(source, Reduction) else made)
        return latest

    def _members_read(self, node: Computed) -> set[Node]:
        return {n for n in self._read_by(node) if n in self.cluster.place}

    def _read_by(self, node: Computed) -> set[Node]:
        """What its elements are computed of: members, what they inline, and what they are given."""
        seen: set[Node] = set()
        stack: list[Computed] = [node]
        while stack:
            for e in own_cost(stack.pop().value)[1]:
                source = e.args[0]
                if source in seen or source is node:
                    continue
                seen.add(source)
                inlined = isinstance(source, Pointwise) and source not in self.roots
                if inlined and source not in self.cluster.place:
                    stack.append(source)
        return seen

    # -- values ----------------------------------------------------------------------------------

    def _value(self, node: Computed, index: Position, stage: int) -> Expr:
        return self._resolve(node.at(index), stage)

    def _resolve(self, e: Expr, stage: int) -> Expr:
        """``e`` with every read replaced by a load, an accumulator, scratch, or the body."""
        key = (stage, e)
        known = self._memo.get(key)
        if known is None:
            known = self._memo[key] = self._resolve_new(e, stage)
        return known

    def _resolve_new(self, e: Expr, stage: int) -> Expr:
        if e.op != "read":
            return e.mapped(lambda a: self._resolve(a, stage))
        node, index, *guard = e.args
        if node in self.cluster.place:
            if isinstance(node, Reduction):
                if self.stage_of[node] >= stage:
                    return _unread(node)
                return Expr("reduced", (node.name,), node.dtype)
            if isinstance(node, Scan):
                return Expr("running", (node.name,), node.dtype)
            if self.stage_of[node] < stage and node in self.cluster.inner:
                if node in self._scratched:
                    dtype, row = in_memory(node.dtype)[0], self._scratch_index()
                    return _of_parts([Expr("scratch", (name, row), dtype) for name in _rows(node)])
                if node in self.stored and self._cost(node) > CHEAP:
                    return self._load(node, index, stage)
            return self._resolve(node.at(index), stage)
        if isinstance(node, Pointwise) and node not in self.roots:
            value = node.at(index)
            return self._resolve(guarded(value, guard[0]) if guard else value, stage)
        if node not in self.cluster.needs:
            if any(node in self._read_by(member) for member in self.cluster.members):
                raise LookupError(f"{node.name} is read by a kernel that is not given it")
            return _unread(node)
        load = self._load(node, index, stage)
        if not guard:
            return load
        condition = self._resolve(guard[0], stage)
        parts = [Expr("guarded", (*e.args, condition), e.dtype) for e in _parts(load)]
        return _of_parts(parts)

    def _load(self, node: Node, index: Position, stage: int) -> Expr:
        if isinstance(node, Result) and node.number:
            return Expr("argument", (node.name,), node.dtype)
        dtype, count = in_memory(node.dtype)
        self._reads[node.name] = dtype
        self._bytes[node.name] = _bytes(node)
        place = linear(index, node.strides).mapped(lambda e: self._resolve(e, stage))
        places = [place * count + n if count > 1 else place for n in range(count)]
        return _of_parts([Expr("load", (node.name, at), dtype) for at in places])

    def _write(self, node: Node) -> None:
        self._written[node.name] = in_memory(node.dtype)[0]
        self._bytes[node.name] = _bytes(node)

    def _cost(self, node: Computed) -> int:
        if node not in self._costs:
            cost, reads = own_cost(node.value)
            if self.target.across and isinstance(node, Pointwise):
                cost += across(node)
            for e in reads:
                source = e.args[0]
                if isinstance(source, Pointwise) and (
                    source in self.cluster.place or source not in self.roots
                ):
                    cost += self._cost(source)
            self._costs[node] = cost
        return self._costs[node]

    def _kept_position(self, node: Reduction) -> Position:
        place = self.cluster.place[node]
        return tuple(Index({}) if d in node.reduced else i for d, i in enumerate(place))

    # -- scratch rows ----------------------------------------------------------------------------

    def _inner_axes(self) -> list[Axis]:
        """Outermost first. Scans go in the order of what is added up, and writes in their own."""
        if any(isinstance(node, (Scan, Scatter)) for node in self.cluster.members):
            return [a for a in self.cluster.axes if a in self.cluster.reduced]
        usual = self._ordered(self.cluster.reduced)
        if self.target.unit or len(usual) < 2:
            return usual
        orders = [[*(a for a in usual if a is not axis), axis] for axis in usual]
        best = min(orders, key=lambda order: lines.pieces(order, self._accesses))
        fewer = lines.LESS * lines.pieces(usual, self._accesses)
        return best if lines.pieces(best, self._accesses) < fewer else usual

    def _scratch_index(self) -> Index:
        """In the order of the loops, which go through it, too."""
        if self._scratched_at is None:
            inner = self._inner_axes()
            strides = contiguous_strides([a.extent for a in inner])
            self._scratched_at = linear([variable(a) for a in inner], strides)
        return self._scratched_at

    def _find_scratch(self) -> None:
        if not self._row_mode:
            return
        width = math.prod(a.extent for a in self._inner_axes())
        budget = self.target.scratch_bytes
        for node in self.cluster.members:
            for source in self._members_read(node):
                if (
                    isinstance(source, Pointwise)
                    and source in self.cluster.inner
                    and self.stage_of[source] < self.stage_of[node]
                    and self._cost(source) > CHEAP
                    and source not in self._scratched
                    and source not in self.stored  # then it is read back from there
                    and hint(width) * 4 <= budget
                ):
                    kept = "float32" if source.dtype in ("bfloat16", "float16") else source.dtype
                    room = budget if known(width) else self.target.scratch_bytes // SYMBOLIC_ROWS
                    if room > budget or not self.sizes.at_most(width, room // itemsize(kept)):
                        continue
                    length = width if isinstance(width, int) else room // itemsize(kept)
                    budget -= itemsize(kept) * length
                    self._scratched.add(source)
                    for row in _rows(source):
                        self.scratch[row] = (in_memory(source.dtype)[0], length)

    # -- loops -----------------------------------------------------------------------------------

    def _weights(self, asked: list[Expr] | None = None) -> list[tuple[Index, int]]:
        """The memory positions that matter for the loop order; stores count double.

        Members of the kept axes alone touch memory once per reduction: they do not matter. What
        reading depends on is added to ``asked``.
        """
        found: list[tuple[Index, int]] = []
        for node in self.cluster.members:
            if node not in self.cluster.inner:
                continue
            index = self.cluster.place[node]
            value = node.at(index)
            if node in self.stored and not isinstance(node, Reduction):
                at = value.args[1] if isinstance(node, Scatter) else index
                found.append((linear(at, node.strides), 2))
            stack = [value]
            seen: set[Expr] = set()
            while stack:
                for e in own_cost(stack.pop())[1]:
                    source, position, *guard = e.args
                    if e in seen or source in self.cluster.place:
                        continue
                    seen.add(e)
                    if asked is not None:
                        asked += guard
                    if isinstance(source, Pointwise) and source not in self.roots:
                        stack.append(source.at(position))
                    else:
                        found.append((linear(position, source.strides), 1))
        return found

    def _split_divided(self) -> None:
        """Two loops for an axis that positions divide, as a view of merged dimensions does.

        A division in the innermost loop keeps it from reading vectors, and so does one that only a
        condition of reading asks for.
        """
        for _ in range(MOST_SPLITS):
            asked: list[Expr] = []
            places = [index for index, _ in self._weights(asked)]
            places += [e.args[0] for e in inside(asked) if e.op == "index"]
            found = next(filter(None, map(_divided, places)), None)
            if found is None:
                return
            axis, part = found
            self.cluster.split(axis, (axis.extent // part, part))

    def _lane_candidate(self) -> Axis | None:
        """The axis along which most accesses step by one element."""
        self._accesses = self._weights()
        best, best_score = None, 0
        for axis in self.cluster.axes:
            score = sum(w for i, w in self._accesses if i.coefficient(axis) == 1)
            # Ties go to the later axis, and short axes make poor lanes.
            score = score * min(hint(axis.extent), 16)
            if score >= best_score and score > 0:
                best, best_score = axis, score
        if best is None:
            return self.cluster.axes[-1] if self.cluster.axes else None
        at_once = not self.target.unit and not self.cluster.reduced
        return self._of_fewer_pieces(best) if at_once else best

    def _of_fewer_pieces(self, usual: Axis) -> Axis:
        """The axis by which neighbours touch the fewest pieces of memory, if clearly fewer."""

        def touched(fastest: Axis) -> int:
            others = self._ordered(a for a in self.cluster.axes if a is not fastest)
            return lines.pieces([*others, fastest], self._accesses)

        moving = [
            axis
            for axis in self.cluster.axes
            if axis is not usual and any(i.coefficient(axis) == 1 for i, _ in self._accesses)
        ]
        best = min(moving, key=touched, default=usual)
        return best if touched(best) < lines.LESS * touched(usual) else usual

    def _ordered(self, axes: Iterable[Axis]) -> list[Axis]:
        """Outermost first: by the stride of the heaviest access that moves along both."""
        axes = list(axes)
        place = {a: n for n, a in enumerate(self.cluster.axes)}

        def stride(axis: Axis) -> tuple[int, int]:
            for index, _ in sorted(self._accesses, key=lambda pair: -pair[1]):
                c = index.coefficient(axis)
                if c:
                    return (-abs(hint(c)), place[axis])
            return (0, place[axis])

        return sorted(axes, key=stride)

    def _assemble(self, pending: list[list[tuple[Node, Statement]]]) -> Kernel:
        cluster = self.cluster
        points = math.prod(a.extent for a in cluster.axes)
        cluster.axes = [a for a in cluster.axes if a is not self._both]
        lane = self._lane_candidate()
        if self._row_mode:
            lane = None
        if cluster.reduced:
            inner = self._inner_axes()
            outer = self._ordered(a for a in cluster.kept() if a is not lane)
        else:
            inner = []
            outer = self._ordered(a for a in cluster.axes if a is not lane)
        stages: list[Stage] = []
        for place, statements in enumerate(pending):
            if statements:
                axes = tuple(inner) if place % 2 else ()
                stages.append(Stage(axes, [s for _, s in statements]))
        block = 1
        if lane is not None:
            block = self.target.strip if cluster.reduced else self.target.block
        buffers = [Buffer(n, d, False) for n, d in self._reads.items() if n not in self._written]
        buffers += [Buffer(n, d, True) for n, d in self._written.items()]
        work = points * (2 + sum(self._cost(n) for n in cluster.members))
        kernel = Kernel(
            self.name, tuple(outer), lane, block, stages, buffers, dict(self.scratch), work
        )
        if cluster.product is not None:
            kernel.product = cluster.product.tile
        if kernel.scattered():
            return part_places(collapse(kernel)) if self.target.unit else collapse(kernel)
        kernel = collapse(kernel)
        if not any(
            isinstance(node, Scatter) for node in cluster.members
        ):  # where it reads it writes
            kernel = transpose_tiles(kernel, self.target.tile, self.target.narrowest)
        if self.target.streams:
            flatten_tiles(kernel, self.target.flat, self.target.scratch_bytes, self._bytes)
        kernel = rows_together(kernel, self.target.rows)
        kernel.several = strips_together(kernel, self.target)
        kernel.pairs = self.target.pairs and in_pairs(kernel)
        if not kernel.pairs:
            lengthen_units(kernel, self.target.unit)
        kernel = in_slabs(kernel, self.target.slab)
        if self.target.streams:
            inside = {n.name for n in cluster.members if n.begin}  # and so may not be aligned
            kernel.streamed = streamed(kernel, self._bytes, self.soon) - inside
            items = {b.name: itemsize(b.dtype) for b in kernel.buffers}
            kernel.ahead = asked_ahead(kernel, self._bytes, items)
            kernel.asked = asked_within(kernel, self._bytes)
        return kernel


def _divided(index: Index) -> tuple[Axis, Any] | None:
    """An axis that is divided into whole parts, and the length of a part, if it makes vectors."""
    for atom in index.terms:
        if isinstance(atom, Division) and len(atom.dividend.terms) == 1:
            ((axis, c),) = atom.dividend.terms.items()
            if not isinstance(axis, Axis) or c != 1 or atom.dividend.const != 0:
                continue
            if hint(atom.divisor) >= SHORTEST and divides(atom.divisor, axis.extent):
                return axis, atom.divisor
    return None


def lengthen_units(kernel: Kernel, least: int) -> None:
    """Units of short lanes take loops over the next axes too, up to about ``least`` elements.

    Where a unit is comes from divisions of its number, which few elements are not worth.
    """
    if kernel.lane is None or kernel.tile is not None or any(s.axes for s in kernel.stages):
        return
    elements = hint(kernel.lane.extent)
    outer: list[Axis] = list(kernel.outer)
    inner: list[Axis] = []
    while outer and elements < least:
        axis, most = outer[-1], 4 * least // elements
        if hint(axis.extent) <= most:
            inner.insert(0, outer.pop())
            elements *= hint(axis.extent)
            continue
        # So long an axis becomes two, the second of which is a part of a unit.
        whole = axis.extent if isinstance(axis.extent, int) else 0
        part = max((d for d in range(2, most + 1) if whole and whole % d == 0), default=1)
        if part > 1:
            slow, fast = Axis(whole // part), Axis(part)
            substitute(kernel, {axis: Index({slow: part, fast: 1})})
            outer[-1] = slow
            inner.insert(0, fast)
        break
    kernel.outer = tuple(outer)
    for stage in kernel.stages:
        stage.axes = tuple(inner)


def part_places(kernel: Kernel) -> Kernel:
    """Writes that are in order, for threads: where other axes are too few, each makes those to its
    part of the places, and passes over the others."""
    (stage,) = kernel.stages
    few = math.prod(hint(a.extent) for a in kernel.outer) < PARTS
    if stage.axes and few:
        (store,) = kernel.scattered()
        kernel.parted = store.index.lookups()[0]
        stage.axes = (*kernel.outer, *stage.axes)
        kernel.outer = ()
        if kernel.lane is not None and isinstance(kernel.lane.extent, int):
            kernel.block = kernel.lane.extent
    return kernel


def _indices(kernel: Kernel) -> Iterable[Index]:
    seen: set[Expr] = set()
    for stage in kernel.stages:
        for s in stage.statements:
            stack = [s.value]
            if not isinstance(s, Accumulate):
                yield s.index.steady()  # what is data has indices of its own
                stack += s.index.lookups()
            while stack:
                e = stack.pop()
                if e in seen:
                    continue
                seen.add(e)
                if e.op in ("load", "guarded", "scratch"):
                    yield e.args[1].steady()
                elif e.op == "index":
                    yield e.args[0].steady()
                stack.extend(e.operands())


def collapse(kernel: Kernel) -> Kernel:
    """Merge neighbouring loops wherever every access steps through both as through one."""
    changed = True
    while changed:
        changed = False
        runs = [list(kernel.outer) + ([kernel.lane] if kernel.lane is not None else [])]
        nests = {stage.axes for stage in kernel.stages if stage.axes}
        runs += [list(n) for n in nests]
        indices = list(_indices(kernel))
        for run in runs:
            for slow, fast in zip(run, run[1:]):
                steps = [(i.coefficient(slow), i.coefficient(fast)) for i in indices]
                if any(s is None or f is None or s != f * fast.extent for s, f in steps):
                    continue
                merged = Axis(slow.extent * fast.extent)
                # Every index is affine in both with these strides, so the slow axis takes all.
                _merge(kernel, slow, fast, merged)
                changed = True
                break
            if changed:
                break
    return kernel


def _merge(kernel: Kernel, slow: Axis, fast: Axis, merged: Axis) -> None:
    # slow * (s * extent) + fast * s == merged * s
    values = {slow: Index({}), fast: Index({merged: 1})}
    substitute(kernel, values)

    def replaced(axes: Iterable[Axis]) -> tuple[Axis, ...]:
        return tuple(merged if a is fast else a for a in axes if a is not slow)

    if kernel.lane is fast:
        kernel.lane = merged
        kernel.outer = tuple(a for a in kernel.outer if a is not slow)
    else:
        kernel.outer = replaced(kernel.outer)
    for stage in kernel.stages:
        stage.axes = replaced(stage.axes)
