"""Stages of a kernel in Triton: loops over reduced points, reductions, scans and stores.

Reductions take their neutral element where a block has points outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastpath.gpu.moments import OnePass
from fastpath.gpu.online import Online
from fastpath.gpu.rows import VECTOR
from fastpath.gpu.turns import Turns
from fastpath.gpu.values import literal
from fastpath.ir.expr import Expr
from fastpath.ir.size import Number, known
from fastpath.schedule.kernel import Accumulate, Stage, Statement, Store, itemsize
from specs.dtypes import int_range, is_float
from specs.scalars import SCALARS, TRITON_TYPE

AHEAD = 3  # blocks that a loop has on their way which does more than add up: measured on an H200
AHEAD_OF_MOMENTS = 4  # of one that adds up a sum and deviations: these wait for nothing but memory
THREE = 3  # blocks of a row at once, of which moments are added up
_COMBINE = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}
_COMBINE |= {"any": "logical_or", "all": "logical_and"}
_REDUCE = {"sum": "total", "prod": "product", "max": "largest", "min": "smallest"}
_REDUCE |= {"any": "largest", "all": "smallest"}


class Stages(Turns):
    def _one_row(self) -> bool:
        """Whether a program goes through a single row, in blocks."""
        return not self.plan.persistent and self.plan.x_block == 1

    def _down_columns(self) -> bool:
        """Whether a program goes down several columns, in blocks."""
        return not self.plan.persistent and self.plan.x_block > 1 and self.plan.start is None

    def _rows(self) -> None:
        """What a program has to know of its rows before their points."""

    def _points(self, first: str) -> None:
        """The block of reduced points that begins at ``first``, or at the first of all."""
        plan = self.plan
        self.first["r"] = first or "0"
        block = f"{self.lanes(plan.r_block)}[None, :]"
        self.line(f"r = {first} + {block}" if first else f"r = {block}")
        if self._some_outside():
            self.line(f"r_in = r < {self.number(plan.r_points)}")
        self._decode(plan.r, "r")

    def _span(self) -> Number:
        """How many points the blocks of a loop over the reduced points cover, at least."""
        points: Number = self.plan.r_points
        return points

    # -- stages ----------------------------------------------------------------------------------

    def _stage(self, stage: Stage) -> None:
        if not stage.axes:
            self._read_first(stage)
            for s in stage.statements:
                self._statement(s)
        elif any(isinstance(s, Accumulate) and s.running for s in stage.statements):
            self._scan(stage)
        elif self.plan.persistent:
            self._read_first(stage)
            for s in stage.statements:
                if isinstance(s, Accumulate):
                    self._reduce(s, self._inside(s.kind, s.value))
                else:
                    self._statement(s)
        else:
            self._loop(stage)

    def _read_first(self, stage: Stage) -> None:
        """Name what a statement may write over before another one reads it."""
        for e in stage.loads() if self.kernel.in_place else ():
            if e.args[0] in self.kernel.in_place and not self.text(e).isidentifier():
                name = self.fresh()
                self.line(f"{name} = {self.known[e]}")
                self.known[e] = name

    def _scan(self, stage: Stage) -> None:
        """Blocks one after the other in the order of their points; a carry goes from each on."""
        plan, whole = self.plan, self.plan.persistent
        adding = [s for s in stage.statements if isinstance(s, Accumulate)]
        carries = {s.reduction: self.fresh() for s in adding}
        if not whole:
            self._hoist(s.value for s in stage.statements)
            for s in adding:
                start, dtype = literal(neutral(s.kind, s.value.dtype)), TRITON_TYPE[s.value.dtype]
                shape = f"[{plan.x_block}, 1]"
                self.line(f"{carries[s.reduction]} = tl.full({shape}, {start}, tl.{dtype})")
            outside = dict(self.known)
            self.line(f"for r_first in range(0, {self.number(plan.r_points)}, {plan.r_block}):")
            self.depth += 1
            self._points("r_first")
        self._read_first(stage)
        for each in stage.statements:
            if isinstance(each, Accumulate):
                self._carry(each, carries[each.reduction])
            else:
                self._statement(each)
        if not whole:
            self.depth -= 1
            self.known, self.stored = outside, {}
        for s in adding:
            if not s.running and not whole:
                self.sums[s.reduction] = carries[s.reduction]

    def _carry(self, s: Accumulate, carry: str) -> None:
        """The block's part of a scan, or of a reduction beside it."""
        dtype, values = s.value.dtype, self.fresh()
        narrow = "" if dtype != "bool" else " != 0"
        wide = "" if dtype != "bool" else ".to(tl.int32)"
        function, row = _REDUCE[s.kind], SCALARS[_COMBINE[s.kind]]
        self.line(f"{values} = ({self._inside(s.kind, s.value)}){wide}")
        name = self.fresh()
        if s.running:
            self.line(f"{name} = tl.associative_scan({values}, 1, {function}){narrow}")
            if not self.plan.persistent:
                self.line(f"{name} = {row.text('triton', dtype, carry, name)}")
        if not s.running or not self.plan.persistent:
            block = self.fresh()
            self.line(f"{block} = (tl.reduce({values}, 1, {function}){narrow})[:, None]")
            joined = row.text("triton", dtype, carry, block)
            self.line(f"{carry} = {block if self.plan.persistent else joined}")
        self.sums[s.reduction] = name if s.running else carry

    def _loop(self, stage: Stage, beside: Callable[[], None] | None = None) -> None:
        """``beside`` prints what else is done with the points of each block."""
        plan = self.plan
        self._hoist(s.value for s in stage.statements)
        adding = [s for s in stage.statements if isinstance(s, Accumulate)]
        running = {s.reduction: self.fresh() for s in adding}
        for s in adding:
            start = literal(neutral(s.kind, s.value.dtype))
            shape = f"[{plan.x_block}, {plan.r_block}]"
            dtype = TRITON_TYPE[s.value.dtype]
            self.line(f"{running[s.reduction]} = tl.full({shape}, {start}, tl.{dtype})")
        if any(e.args[0] in self._written() for e in (*stage.loads(), *stage.guarded())):
            self.line("tl.debug_barrier()")  # other threads of the program stored it

        def body() -> None:
            self._read_first(stage)
            for each in stage.statements:
                if isinstance(each, Accumulate):
                    name, value = running[each.reduction], self._inside(each.kind, each.value)
                    row = SCALARS[_COMBINE[each.kind]]
                    self.line(f"{name} = {row.text('triton', each.value.dtype, name, value)}")
                else:
                    self._statement(each)
            if beside is not None:
                beside()

        stores = any(isinstance(s, Store) for s in stage.statements)
        several = len(stage.loads()) + len(stage.guarded()) > 1
        ahead = AHEAD_OF_MOMENTS if beside is not None else AHEAD if stores and several else 0
        self._blocks(body, ahead if self._down_columns() else 0, THREE if beside is not None else 1)
        for s in adding:
            self._reduce(s, running[s.reduction])

    def _moments(self, found: OnePass, stages: Sequence[Stage]) -> None:
        """All ``stages`` up to the second of both: see :mod:`fastpath.gpu.moments`."""
        kind = f"tl.{TRITON_TYPE[found.value.dtype]}"
        base, sums, squares, away, mean = (self.fresh() for _ in range(5))
        self._hoist([found.value])
        before = dict(self.known)
        self._points(self._inner_block())
        self.line(f"{base} = {self._inside('sum', found.value)}")
        self.known, self.stored = before, {}
        for name in (sums, squares):
            self.line(f"{name} = tl.zeros([{self.plan.x_block}, {self.plan.r_block}], {kind})")

        def beside() -> None:
            term = f"{self._inside('sum', found.value)} - {base}"
            self.line(
                f"{away} = {f'tl.where(r_in, {term}, 0.0)' if self._some_outside() else term}"
            )
            self.line(f"{sums} = {sums} + {away}")
            self.line(f"{squares} = tl.fma({away}, {away}, {squares})")

        self._loop(stages[0], beside)
        for stage in stages[1 : found.second]:
            self._stage(stage)
        count = self.fresh()
        self.line(f"{count} = tl.maximum({self._in_lanes()}, 1).to({kind})")
        self.line(f"{mean} = {sums} / {count}")
        self.line(f"{squares} = {squares} - {sums} * {mean}")
        # What is rounded may be below 0; a nan stays.
        self.line(f"{squares} = tl.where({squares} < 0.0, 0.0, {squares})")
        self.line(f"{away} = ({base} - {self.text(found.near)}) + {mean}")
        self.line(f"{mean} = {away} * {count}")
        for name, text in ((found.total, mean), (found.squares, f"{squares} + {mean} * {away}")):
            self.sums[name] = total = self.fresh()
            self.line(f"{total} = tl.sum({text}, 1).to({kind})[:, None]")

    def _inner_block(self) -> str:
        """Where a block begins that has a point in each lane that any block has one in."""
        return "0"

    def _in_lanes(self) -> str:
        """How many points each lane of the blocks has."""
        block = self.plan.r_block
        lanes = f"{self.lanes(block)}[None, :]"
        return f"(({self.number(self.plan.r_points)} + {block - 1} - {lanes}) // {block})"

    def _blocks(self, body: Callable[[], None], ahead: int = 0, at_once: int = 1) -> None:
        """``body`` in a loop over the blocks of reduced points, and what it computes forgotten.

        A long row is two loops: the blocks in which some points lie outside, and the others, which
        then need not ask each point. ``ahead``: how many blocks are on their way from memory;
        ``at_once``: how many are read before any is computed with, if none is left over alone then,
        which would be waited for by itself.
        """
        step, outside = self.plan.r_block, dict(self.known)
        loops = [(f"0, {self.number(self._span())}, {step}", False)]
        if self._one_row() and self._some_outside() and known(self.plan.r_points):
            first, last = self._whole_blocks()
            if last - first >= 3 * step:
                ends = f"0, {last + 1}, {last}" if first else f"{last}, {last + 1}, {step}"
                loops = [(ends, False), (f"{first}, {last}, {step}", True)]
        for span, whole in loops:
            loop = f"tl.range({span}, num_stages={ahead})" if ahead else f"range({span})"
            if whole and at_once > 1 and _are_shared_out((last - first) // step, at_once):
                loop = f"tl.range({span}, loop_unroll_factor={at_once})"
            self.line(f"for r_first in {loop}:")
            self.depth += 1
            self.whole = whole
            self._points("r_first")
            body()
            self.whole = False
            self.depth -= 1
            self.known = dict(outside)
            self.stored = {}

    def _whole_blocks(self) -> tuple[int, int]:
        """From which point to which all blocks are of points inside; one block lies behind."""
        step = self.plan.r_block
        return 0, int((self.plan.r_points - 1) // step * step)

    def _online(self, found: Online) -> None:
        """Both reductions in one loop: see :mod:`fastpath.gpu.online`."""
        self._hoist([found.value])
        vector = max(1, VECTOR // min(itemsize(d) for d in self.dtype.values()))
        groups = self.plan.r_block // vector
        top, total, new, base, points = (self.fresh() for _ in range(5))

        def exp(text: str) -> str:
            # Its error grows with how far the number is below 0, and what it adds to a sum shrinks.
            return f"m.exp_near({text})"

        def finite(text: str) -> str:
            return f'tl.where(tl.abs({text}) == float("inf"), 0.0, {text})'

        self.line(f'{top} = tl.full([{groups}], float("-inf"), tl.float32)')
        self.line(f"{total} = tl.zeros([{groups}], tl.float32)")

        def body() -> None:
            value = self._inside("max", found.value)
            self.line(f"{points} = tl.reshape({value}, [{groups}, {vector}])")
            self.line(f"{new} = largest({top}, tl.reduce({points}, 1, largest))")
            self.line(f"{base} = {finite(new)}")
            added = f"tl.sum({exp(f'({points} - {base}[:, None])')}, 1)"
            self.line(f"{total} = {total} * {exp(f'({top} - {base})')} + {added}")
            self.line(f"{top} = {new}")

        self._blocks(body)
        whole, sums = self.fresh(), self.fresh()
        self.line(f"{whole} = tl.reduce({top}, 0, largest)")  # a number: it spreads over any block
        self.line(f"{base} = {finite(whole)}")
        self.line(f"{sums} = tl.sum({total} * {exp(f'({top} - {base})')}, 0)")
        if not found.finite:
            infinite = f'tl.abs({whole}) == float("inf")'
            self.line(f'{sums} = tl.where({infinite}, float("nan"), {sums})')
        self.sums |= {found.maximum: whole, found.total: sums}

    def _written(self) -> set[str]:
        return {b.name for b in self.kernel.buffers if b.written} - self.kernel.in_place

    def _inside(self, kind: str, value: Expr) -> str:
        """The value, of the whole block, and the neutral element outside."""
        plan, text = self.plan, self.text(value)
        if self.varying(value) != {"x", "r"}:
            text = f"tl.broadcast_to({text}, [{plan.x_block}, {plan.r_block}])"
        if not self._some_outside():
            return text
        return f"tl.where(r_in, {text}, {self.constant(neutral(kind, value.dtype), value.dtype)})"

    def _reduce(self, s: Accumulate, text: str) -> None:
        name, dtype = self.fresh(), s.value.dtype
        if s.kind == "sum":
            self.line(f"{name} = tl.sum({text}, 1).to(tl.{TRITON_TYPE[dtype]})[:, None]")
        elif s.kind in ("any", "all") or dtype == "bool":
            function = {"any": "max", "all": "min", "prod": "min"}.get(s.kind, s.kind)
            self.line(f"{name} = (tl.{function}(({text}).to(tl.int32), 1) != 0)[:, None]")
        else:
            self.line(f"{name} = tl.reduce({text}, 1, {_REDUCE[s.kind]})[:, None]")
        self.sums[s.reduction] = name

    def _statement(self, s: Statement) -> None:
        assert isinstance(s, Store), "a unit of the GPU has no scratch rows"
        value = self._stored_value(s.value)
        if s.index.lookups():
            self._scatter(s, value)
            return
        self.stored[(s.buffer, s.index)] = value
        pointer, mask = self._place(s.buffer, s.index, store=True)
        if not self._kinds(s.index) and self.varying(s.value):
            pointer += " + x"  # of a single result: a block of one address for a block of one value
        self.line(f"tl.store({pointer}, {value}{mask}{self._kept(s.buffer, None)})")

    def _scatter(self, s: Store, value: str) -> None:
        """At each point, where data says: also what is alike for several points, for each."""
        plan = self.plan
        kinds = [kind for kind, axes in (("x", plan.x), ("r", plan.r)) if axes]
        shape = [plan.x_block, plan.r_block][: len(kinds)]
        pointer, mask = self._pointer(s.buffer, s.index), self._mask(kinds)
        block = self.fresh()
        self.line(f"{block} = tl.zeros({shape}, tl.int32)")
        place = f"{pointer} + {block}"
        dtype = TRITON_TYPE[self.dtype[s.buffer]]
        given = f"tl.broadcast_to(({value}).to(tl.{dtype}), {shape})"
        if s.adds:
            self.line(f'tl.atomic_add({place}, {given}{mask}, sem="relaxed")')
        else:
            self.line(f"tl.store({place}, {given}{mask})")


def neutral(kind: str, dtype: str) -> bool | int | float:
    """The element that changes nothing in a reduction of ``kind`` over values of ``dtype``."""
    if kind in ("sum", "prod", "any", "all"):
        value = kind in ("prod", "all")
        return float(value) if is_float(dtype) else value if dtype == "bool" else int(value)
    if is_float(dtype):
        return float("-inf" if kind == "max" else "inf")
    return kind == "min" if dtype == "bool" else int_range(dtype)[0 if kind == "max" else 1]


def _are_shared_out(blocks: int, at_once: int) -> bool:
    return blocks >= 2 * at_once and blocks % at_once != 1
