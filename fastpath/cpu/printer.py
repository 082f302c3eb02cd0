"""Prints a scheduled kernel as the source of a numba function.

The function is ``kernel(addresses, begin, end)`` over units of work. Its text only names: the
memory intrinsics of :mod:`fastpath.cpu.access` (``load_f32_0``: dtype and buffer), the scalar
functions of :mod:`fastpath.cpu.maths` (``m``), and typed constants.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from fastpath.cpu import blocks, short
from fastpath.cpu.blocks import Blocks, InBlocks, Span, in_blocks
from fastpath.cpu.payloads import Payloads
from fastpath.cpu.scattered import Scattered
from fastpath.cpu.scopes import HalfScope, Scope, combine, renamed, row_of
from fastpath.cpu.segments import Case, Facts, cases, folded, segments
from fastpath.cpu.sidebyside import SideBySide, total
from fastpath.ir.expr import Bounds, Expr
from fastpath.ir.index import Axis, Index
from fastpath.ir.size import Size, divides
from fastpath.schedule.cost import CHEAP, own_cost
from fastpath.schedule.kernel import (
    Accumulate,
    Keep,
    Kernel,
    Stage,
    Statement,
    Store,
    Transposed,
    itemsize,
)
from fastpath.schedule.text import Lines
from specs.dtypes import compute_dtype, int_range, is_float
from specs.scalars import NUMBA_SUFFIX

SQUARE = 16  # side of what is transposed in registers
UNROLL = 4  # rows that a column reduction takes at once, and twice that of what costs little

WHOLE, PART = 256, 64  # lanes of a row for which memory is asked at once, and of a longer one
LINE = 64  # bytes that memory delivers together
WIDE = 2048  # lanes of a piece of a row behind which it is worth asking for more of it

_LIMITS = {"sum": "0", "prod": "1", "any": "False", "all": "True"}


@dataclass
class Printed:
    """``source`` of the function ``kernel``, and what its free names stand for: ``names`` maps
    a name to ``(kind, ...)``: load, store, scratch, square, const. ``sizes`` are given to it behind
    the addresses."""

    source: str
    names: dict[str, tuple[object, ...]] = field(default_factory=dict)
    sizes: list[Size] = field(default_factory=list)


class Printer(Lines):
    def __init__(self, kernel: Kernel, finding: bool = False):
        """``finding``: it leaves word which position is none; else only whether there is one."""
        super().__init__()
        self.finding = finding
        self.kernel = kernel
        self.names: dict[str, tuple[object, ...]] = {}
        self.scope = {b.name: n for n, b in enumerate(kernel.buffers)}
        self.dtype = {b.name: b.dtype for b in kernel.buffers}
        self.unit_values: dict[Expr, str] = {}  # what the unit has computed outside its loops
        self.accumulators: dict[str, str] = {}  # reduction -> dtype
        self.axes: dict[Axis, int] = {}
        self.range: dict[str, tuple[str, str]] = {}  # of the lane and the tile axis in a unit
        self.payloads = Payloads(kernel)
        self._pairwise = kernel.pairs and sys.byteorder == "little"
        self.bounds = kernel.bounds()
        self.asking: frozenset[str] = frozenset()
        self.hidden: set[str] = set()  # constants that are known at run time only
        self.spans: dict[Axis, Span] = {}  # of loops that do not go through all of their axis

    # -- text ------------------------------------------------------------------------------------

    def axis(self, axis: Axis) -> str:
        """Axes are numbered by first use, so that equal kernels have equal texts."""
        return f"a{self.axes.setdefault(axis, len(self.axes))}"

    def name_of(self, name: str, *what: object) -> str:
        self.names[name] = what
        return name

    def constant(self, value: bool | int | float, dtype: str) -> str:
        if dtype == "bool":
            return repr(value)
        suffix = NUMBA_SUFFIX[dtype]
        for name, what in self.names.items():
            if what[0] == "const" and what[1] == suffix and repr(what[2]) == repr(value):
                return name
        count = sum(what[0] == "const" for what in self.names.values())
        return self.name_of(f"c{count}_{suffix}", "const", suffix, value)

    def operand(self, value: bool | int | float, dtype: str) -> str:
        """A constant among operands. What an infinity is, LLVM is not told: it would make a maximum
        with a masked element a branch, for which no loop becomes one of vectors."""
        name = self.constant(value, dtype)
        if isinstance(value, float) and math.isinf(value):
            self.hidden.add(name)
            return f"hidden_{name}"
        return name

    def index(self, index: Index) -> str:
        return Scope(self, ()).index(index)

    # -- the function ----------------------------------------------------------------------------

    def print(self) -> Printed:
        kernel = self.kernel
        for n in range(len(kernel.buffers)):
            get = "aligned_address" if kernel.buffers[n].name in kernel.streamed else "address"
            self.line(f"p{n} = {get}(addresses, {n})")
        if self.bounds:
            self.line(f"outside = address(addresses, {len(kernel.buffers)})")
            self.line("missed = 0")
        for name, (dtype, count) in kernel.scratch.items():
            self._scratch(name, dtype, count)
        for turned in kernel.transposed:
            self._scratch(turned.name, turned.dtype, kernel.rows * kernel.block, raw=True)
        for stage in kernel.stages:
            for s in stage.statements:
                if isinstance(s, Accumulate):
                    self.accumulators[s.reduction] = s.value.dtype
                    lanes = self._lanes_of(stage)
                    if lanes:
                        self._scratch(row_of(s.reduction), s.value.dtype, lanes)
            if kernel.lane is not None and self._in_blocks(stage) is not None:
                for s in in_blocks(stage):
                    self._scratch(
                        blocks.whole_of(s.reduction), blocks.SUMMED, self._lanes_of(stage)
                    )
        apart = kernel.several > 1 and kernel.blocks != 1
        if apart:
            self.line("unit = begin")
        if kernel.parted is not None:  # all of the units at once
            self.line("if begin < end:")
        else:
            self.line("while unit < end:" if apart else "for unit in range(begin, end):")
        self.depth += 1
        self._unit()
        for stage in kernel.stages:
            self._stage(stage)
        if apart:
            self.line("unit += several")
        self.depth = 1
        if self.bounds and not self.finding:
            self.line("if missed:")
            self.line("    report(outside, missed, 0)")
        if kernel.streamed:
            self.line("drain()")
        first = len(kernel.buffers) + bool(self.bounds)
        given = [f"    n{n} = address(addresses, {first + n})" for n in range(len(self.sizes))]
        given += [f"    hidden_{name} = hidden({name})" for name in sorted(self.hidden)]
        body = "\n".join([*given, *self.lines])
        text = f"def kernel(addresses, begin, end):\n{body}\n"
        return Printed(text, self.names, self.sizes)

    def _lanes_of(self, stage: Stage) -> int:
        """Elements of a row of accumulators, where there is one."""
        if self.kernel.lane is not None:
            return self._most_lanes(self.kernel.lane)
        return short.strip_width(self.kernel, stage) if len(stage.axes) > 1 else 0

    def _most_lanes(self, lane: Axis) -> int:
        most, extent = self.kernel.block * self.kernel.several, lane.extent
        return min(most, extent) if isinstance(extent, int) else most

    def _scratch(self, name: str, dtype: str, count: int, raw: bool = False) -> None:
        """A row on the stack; ``raw`` holds memory's format, else reduced floats are widened."""
        kept = dtype if raw else compute_dtype(dtype)
        self.dtype[name] = kept
        self.scope[name] = len(self.scope)
        maker = self.name_of(f"scratch_{kept}_{count}", "scratch", count, kept)
        self.line(f"p{self.scope[name]} = {maker}()")

    def _unit(self) -> None:
        """The outer axes and the block of lanes from the unit's number."""
        kernel = self.kernel
        rest = "unit"
        blocked = [
            ("lane", kernel.lane, kernel.block, kernel.blocks),
            ("tile", kernel.tile, kernel.rows, kernel.tile_blocks),
        ]
        blocked = [each for each in blocked if each[1] is not None]
        for n, (what, axis, length, count) in enumerate(blocked[:: -1 if kernel.downwards else 1]):
            assert axis is not None
            outside = bool(kernel.outer) or n + 1 < len(blocked)
            rest = self._block(what, axis, length, count, rest, outside)
        for place, axis in reversed(list(enumerate(kernel.outer))):
            extent = self.number(axis.extent)
            if axis.extent == 1:
                self.line(f"{self.axis(axis)} = 0")
            elif place == 0:
                self.line(f"{self.axis(axis)} = {rest}")
            else:
                self.line(f"{self.axis(axis)} = {rest} % {extent}")
                self.line(f"rest_{self.axis(axis)} = {rest} // {extent}")
                rest = f"rest_{self.axis(axis)}"
        for turned in kernel.transposed:
            self._turn(turned)

    def _block(
        self, what: str, axis: Axis, block: int, count: int | None, rest: str, outside: bool
    ) -> str:
        """The range of an axis in this unit, which runs in blocks; returns the name of the unit's
        other part. ``outside``: whether it has one."""
        extent, several = self.number(axis.extent), self.kernel.several > 1
        if count == 1:
            self.range[what] = ("0", extent)
            return rest
        blocks = str(count)
        if count is None and (outside or several):
            blocks = f"{what}_blocks"
            self.line(f"{blocks} = ({extent} + {block - 1}) // {block}")
        start = f"{rest} % {blocks}" if outside else rest
        self.line(f"{what}_first = {start} * {block}")
        end = f"{what}_first + {block}"
        if several:
            left = f"{blocks} - {start}" if outside else "end - unit"
            if outside:
                left = f"min({left}, end - unit)"
            self.line(f"several = min({left}, {self.kernel.several})")
            end = f"{what}_first + several * {block}"
        if count is None or axis.extent % block:
            end = f"min({end}, {extent})"
        self.line(f"{what}_last = {end}")
        if outside:
            self.line(f"{what}_rest = {rest} // {blocks}")
            rest = f"{what}_rest"
        self.range[what] = (f"{what}_first", f"{what}_last")
        return rest

    def _turn(self, turned: Transposed) -> None:
        """Copy a tile with its two axes exchanged: squares in registers, the edges one by one."""
        kernel = self.kernel
        assert kernel.lane is not None and kernel.tile is not None
        lane, tile, side = self.axis(kernel.lane), self.axis(kernel.tile), SQUARE
        (lane_first, lane_last), (tile_first, tile_last) = self.range["lane"], self.range["tile"]
        source, target = f"p{self.scope[turned.buffer]}", f"p{self.scope[turned.name]}"
        scopes = self.scope[turned.buffer], self.scope[turned.name]
        name = f"square_{turned.dtype}_{scopes[0]}_{scopes[1]}"
        square = self.name_of(name, "square", turned.dtype, side, *scopes)
        place = f"({tile} - {tile_first}) * {kernel.block} + {lane} - {lane_first}"
        load, store = self.memory("load", turned.buffer), self.memory("store", turned.name)
        index = self.index(turned.index)
        step, block = self.number(turned.step), kernel.block
        further = self._further(turned)
        self.line(f"lane_squares = {lane_first} + ({lane_last} - {lane_first}) // {side} * {side}")
        self.line(f"tile_squares = {tile_first} + ({tile_last} - {tile_first}) // {side} * {side}")
        self.line(f"for {lane} in range({lane_first}, lane_squares, {side}):")
        self.line(f"    for {tile} in range({tile_first}, tile_squares, {side}):")
        given = f"{source}, {index}, {step}, {target}, {place}, {block}, {further}"
        self.line(f"        {square}({given})")
        edges = [(f"lane_squares, {lane_last}", f"{tile_first}, {tile_last}")]
        extent = kernel.tile.extent
        if not isinstance(extent, int):
            edges.append((f"{lane_first}, lane_squares", f"tile_squares, {tile_last}"))
        elif extent % side:  # the last tile's are the last of the axis
            rest = extent % side
            part = self.name_of(f"{name}_{rest}", "square", turned.dtype, side, *scopes, rest)
            self.line(f"    for {tile} in range(tile_squares, {tile_last}, {side}):")
            self.line(f"        {part}({given})")
        for lanes, tiles in edges:
            self.line(f"for {lane} in range({lanes}):")
            self.line(f"    for {tile} in range({tiles}):")
            self.line(f"        {store}({target}, {place}, {load}({source}, {index}))")

    def _further(self, turned: Transposed) -> str:
        """How many elements further on lies what a tile that follows turns."""
        kernel = self.kernel
        if kernel.downwards:
            return str(2 * SQUARE)  # more would be displaced before it is read
        return f"{self.number(turned.step)} * {kernel.block}"

    def _range(self, what: str) -> str:
        return ", ".join(self.range[what])

    # -- stages ----------------------------------------------------------------------------------

    def _stage(self, stage: Stage) -> None:
        lane = self.kernel.lane
        inside = {a for a in (*stage.axes, lane, self.kernel.tile) if a is not None}
        for s in stage.statements:
            if isinstance(s, Accumulate):
                self._start(s)
        self._hoist([s.value for s in stage.statements], inside)
        if self.kernel.scattered():
            Scattered(self, stage).print()
            return
        parts = self._in_blocks(stage)
        if parts is None:
            self._loops(stage)
        else:
            InBlocks(self, stage, parts).print(self._loops)

    def _in_blocks(self, stage: Stage) -> Blocks | None:
        """How a stage goes in blocks, if it adds up more than what one of them has."""
        if not in_blocks(stage):
            return None
        most = blocks.terms()
        if self.kernel.lane is not None:
            most = blocks.steps(stage.axes) * (
                self._unroll(stage) if self._adds_lanes(stage) else 1
            )
        return blocks.blocks_of(stage.axes, most)

    def _adds_lanes(self, stage: Stage) -> bool:
        """Whether all it does is to accumulate lane by lane."""
        added = all(isinstance(s, Accumulate) and not s.running for s in stage.statements)
        return self.kernel.lane is not None and bool(stage.axes) and added

    def _loops(self, stage: Stage) -> None:
        lane, values = self.kernel.lane, [s.value for s in stage.statements]
        if self._adds_lanes(stage):
            self._columns(stage)
            return
        depth = self.depth
        if lane is None and not self.finding:
            self.asking = self.kernel.asked
        if self._pairwise and (stage.axes or lane is not None):
            self._pairs(stage, values)
        else:
            self._elements(stage, values)
        self.depth, self.asking = depth, frozenset()

    def _elements(self, stage: Stage, values: list[Expr]) -> None:
        innermost = self.kernel.lane or (stage.axes[-1] if stage.axes else None)
        if innermost is not None and self.kernel.tile is None:
            told = cases(values, innermost, self.kernel.work)
            if told:
                return self._told(stage, innermost, told)
        work = self.kernel.work
        parts = [] if innermost is None else segments(values, innermost, work)
        width = 0 if parts or self.finding else short.strip_width(self.kernel, stage)
        if width:
            return SideBySide(self, stage, width).print()
        if not parts and innermost is not None and not self.kernel.ahead:
            parts = self._spans(stage, innermost)
        for axis in stage.axes:
            if axis is not innermost or not parts:
                self.loop(axis)
        if self.kernel.tile is not None:
            self.line(f"for {self.axis(self.kernel.tile)} in range({self._range('tile')}):")
            self.depth += 1
        if parts:
            assert innermost is not None
            self._segments(stage, innermost, parts)
            return
        if self.kernel.lane is not None:
            first, last = self.range["lane"]
            if self.kernel.ahead and not self.finding:
                first, last = self._ask(self.kernel.lane, first, last)
            self.line(f"for {self.axis(self.kernel.lane)} in range({first}, {last}):")
            self.depth += 1
        scope = Scope(self, values)
        self._read_first(stage, scope)
        for s in stage.statements:
            self._statement(s, scope)

    def _spans(self, stage: Stage, innermost: Axis) -> list[tuple[int, int, Facts]]:
        """The parts of a short loop of which nothing is known, but that each is whole vectors."""
        extent = innermost.extent
        if not isinstance(extent, int) or innermost is self.kernel.lane and self.kernel.blocks != 1:
            return []
        found = short.spans(self.kernel, stage, 0, extent)
        return [(first, last, {}) for first, last in found] if len(found) > 1 else []

    def _told(self, stage: Stage, innermost: Axis, told: list[Case]) -> None:
        """The innermost loop once for each case of what is known around it."""
        for axis in stage.axes:
            if axis is not innermost:
                self.loop(axis)
        scope = Scope(self, ())
        asked = [" and ".join(map(scope.text, case.tests)) for case in told]
        inner = (innermost,) if innermost is not self.kernel.lane else ()
        depth = self.depth
        for n, case in enumerate(told):
            self.line(f"{'elif' if n else 'if'} {asked[n]}:" if case.tests else "else:")
            self.depth += 1
            memo: dict[Expr, Expr] = {}
            known = [replace(s, value=folded(s.value, case.facts, memo)) for s in stage.statements]
            parts: list[tuple[int, int, Facts]] = []
            if case.often:
                parts = segments([s.value for s in known], innermost, self.kernel.work)
            whole = [(0, innermost.extent, Facts())]
            self._segments(Stage(inner, known), innermost, parts or whole, case.often)
            self.depth = depth

    def _ask(self, lane: Axis, first: str, last: str) -> tuple[str, str]:
        """The loop over parts of the lanes, in which what is read later is asked for; returns the
        range of a part."""
        asked = []
        known, self.unit_values = self.unit_values, {}
        for ahead in self.kernel.ahead:
            name, index = ahead.load.args
            scope = Scope(self, ())
            if ahead.axis is not None:
                axis = self.axis(ahead.axis)
                scope.rename = axis, f"{axis}_later"
                far = f"min({axis} + {ahead.rows}, {self.number(ahead.axis.extent)} - 1)"
                if self.lines[-1].strip() != f"{axis}_later = {far}":
                    self.line(f"{axis}_later = {far}")
            place = scope.index(index)
            if scope.rename:
                place = renamed(place, *scope.rename)
            else:
                place = f"{place} + {ahead.rows * self.kernel.block}"
            ask = self.name_of(f"ask_{self.dtype[name]}", "ask", self.dtype[name])
            asked.append((f"{ask}(p{self.scope[name]}, {place})", ahead.load.dtype))
        self.unit_values = known
        if lane.extent > WHOLE and self.kernel.tile is None:
            self.line(f"for part in range({first}, {last}, {PART}):")
            self.depth += 1
            end = f"part + {PART}" if lane.extent % PART == 0 else f"min(part + {PART}, {last})"
            first, last = "part", end
        for text, dtype in asked:
            self.line(
                f"for {self.axis(lane)} in range({first}, {last}, {LINE // itemsize(dtype)}):"
            )
            self.line(f"    {text}")
        return first, last

    def _read_first(self, stage: Stage, *scopes: Scope) -> None:
        """Name what a statement may write over before another one reads it."""
        if self.kernel.in_place:
            for e in stage.loads():
                if e.args[0] in self.kernel.in_place:
                    for scope in scopes:
                        scope.named(e)

    def _segments(
        self, stage: Stage, axis: Axis, parts: list[tuple[int, int, Facts]], often: bool = True
    ) -> None:
        """The loop over ``axis`` in parts, of which more is known; what is not for much of the work
        is not worth more text."""
        whole = ("0", self.number(axis.extent))
        first, last = whole if axis is not self.kernel.lane else self.range["lane"]
        if axis in self.spans:
            first, last, _ = self.spans[axis]
        for low, high, facts in parts:
            memo: dict[Expr, Expr] = {}
            known = [replace(s, value=folded(s.value, facts, memo)) for s in stage.statements]
            part = Stage(stage.axes, known)
            spans = [(low, high)]
            if often and self.kernel.tile is None:
                spans = short.spans(self.kernel, part, low, high)
            for begin, end in spans:
                start = str(begin) if first == "0" else f"max({first}, {begin})" if begin else first
                stop = str(end) if last == whole[1] else f"min({last}, {end})"
                self.line(f"for {self.axis(axis)} in range({start}, {stop}):")
                self.depth += 1
                scope = Scope(self, [s.value for s in known])
                self._read_first(part, scope)
                for s in known:
                    self._statement(s, scope)
                self.depth -= 1

    def loop(self, axis: Axis) -> None:
        self.line(f"for {self.axis(axis)} in range({self._places(axis)}):")
        self.depth += 1

    def _places(self, axis: Axis) -> str:
        span = self.spans.get(axis)
        return self.number(axis.extent) if span is None else f"{span.first}, {span.last}"

    def _pairs(self, stage: Stage, values: list[Expr]) -> None:
        """The innermost loop takes the two halves of a word of memory at a time."""
        if self.kernel.lane is not None:
            axis = self.kernel.lane
            first, last = self.range["lane"]
            self.line(f"for pair in range({first} // 2, {last} // 2):")
        else:
            for slow in stage.axes[:-1]:
                self.loop(slow)
            axis = stage.axes[-1]
            pairs = self.number(axis.extent // 2)
            if axis in self.spans:
                pairs = f"({self.spans[axis].first}) // 2, ({self.spans[axis].last}) // 2"
            self.line(f"for pair in range({pairs}):")
        self.depth += 1
        self.line(f"{self.axis(axis)} = pair * 2")
        halves = [HalfScope(self, values, axis, odd) for odd in (False, True)]
        self._read_first(stage, *halves)
        for s in stage.statements:
            texts = [half.text(s.value) for half in halves]
            if isinstance(s, Store):
                store = self._store(s.buffer, "_pair")
                place = f"p{self.scope[s.buffer]}, {self.index(s.index)}"
                self.line(f"{store}({place}, {', '.join(texts)})")
                continue
            for half, value in zip(halves, texts):
                if isinstance(s, Keep):
                    store = self.memory("store", s.scratch)
                    self.line(f"{store}(p{self.scope[s.scratch]}, {half.place()}, {value})")
                else:
                    self.add(s, value)

    def _start(self, s: Accumulate) -> None:
        dtype = s.value.dtype
        initial = self.identity(s.kind, dtype)
        if self.kernel.lane is None:
            self.line(f"acc_{self.scope_name(s.reduction)} = {initial}")
            return
        store = self.memory("store", row_of(s.reduction))
        place = self.scope[row_of(s.reduction)]
        first, last = self.range["lane"]
        lanes = last if first == "0" else f"{last} - {first}"
        self.line(f"for lane in range({lanes}):")
        self.line(f"    {store}(p{place}, lane, {initial})")

    def scope_name(self, reduction: str) -> str:
        return str(list(self.accumulators).index(reduction))

    def identity(self, kind: str, dtype: str) -> str:
        if kind in ("any", "all"):
            return _LIMITS[kind]
        if kind in ("max", "min"):
            if is_float(dtype):
                value: bool | int | float = float("-inf" if kind == "max" else "inf")
            else:
                value = int_range(dtype)[0 if kind == "max" else 1]
        else:
            value = float(_LIMITS[kind]) if is_float(dtype) else int(_LIMITS[kind])
        return self.constant(bool(value) if dtype == "bool" else value, dtype)

    def _statement(self, s: Statement, scope: Scope) -> None:
        running = isinstance(s, Accumulate) and s.running
        value = scope.named(s.value) if running else scope.text(s.value)
        if not isinstance(s, Accumulate):
            self.put(s, value, scope)
        elif self.kernel.lane is None:
            self.add(s, value)
        else:
            self._add_lane(s, value)

    def put(self, s: Store | Keep, value: str, scope: Scope) -> None:
        name = s.buffer if isinstance(s, Store) else s.scratch
        store = self._store(name) if isinstance(s, Store) else self.memory("store", name)
        place = self.index(s.index)
        if scope.rename:
            place = renamed(place, *scope.rename)
        self.line(f"{store}(p{self.scope[name]}, {place}, {value})")

    def add(self, s: Accumulate, value: str) -> None:
        name = f"acc_{self.scope_name(s.reduction)}"
        self.line(f"{name} = {combine(s.kind, s.value.dtype, name, value, s.running)}")

    def _add_lane(self, s: Accumulate, value: str) -> None:
        row = row_of(s.reduction)
        p = f"p{self.scope[row]}"
        lane = self.lane_place()
        old = f"{self.memory('load', row)}({p}, {lane})"
        new = combine(s.kind, s.value.dtype, old, value, s.running)
        self.line(f"{self.memory('store', row)}({p}, {lane}, {new})")

    def lane_place(self) -> str:
        assert self.kernel.lane is not None
        lane = self.axis(self.kernel.lane)
        first = self.range["lane"][0]
        return lane if first == "0" else f"({lane} - {first})"

    def _unroll(self, stage: Stage) -> int:
        """Rows of columns that are added up before their sum meets the accumulators."""
        cheap = sum(own_cost(s.value)[0] for s in stage.statements) <= CHEAP
        return 2 * UNROLL if cheap else UNROLL

    def _columns(self, stage: Stage) -> None:
        """Accumulate lane by lane, several rows at a time to save accumulator traffic."""
        lane = self.kernel.lane
        assert lane is not None
        depth = self.depth
        *slow, row = stage.axes
        unroll = self._unroll(stage)
        for axis in slow:
            self.loop(axis)
        extent, begin, length = self.number(row.extent), "", row.extent
        fixed = isinstance(row.extent, int)
        whole = str(row.extent // unroll) if fixed else f"({extent} // {unroll})"
        done = str(row.extent // unroll * unroll) if fixed else f"{whole} * {unroll}"
        if row in self.spans:
            first, extent, length = self.spans[row]
            whole, begin = f"({extent} - {first}) // {unroll}", f"{first} + "
            done = f"{begin}{whole} * {unroll}"
        if whole != "0":
            self.line(f"for quad in range({whole}):")
            self.depth += 1
            for k in range(unroll):
                self.line(f"{self.axis(row)}_{k} = {begin}quad * {unroll} + {k}")
            self._ways(lane, lambda: self._rows_at_once(stage, row, lane, unroll))
            self.depth -= 1
        if not divides(unroll, length) or not divides(unroll, row.extent):
            self.line(f"for {self.axis(row)} in range({done}, {extent}):")
            self.depth += 1
            self.line(f"for {self.axis(lane)} in range({self._range('lane')}):")
            self.depth += 1
            scope = Scope(self, [s.value for s in stage.statements])
            for s in stage.statements:
                self._statement(s, scope)
        self.depth = depth

    def _rows_at_once(self, stage: Stage, row: Axis, lane: Axis, count: int) -> None:
        self.line(f"for {self.axis(lane)} in range({self._range('lane')}):")
        self.depth += 1
        scopes = [Scope(self, [s.value for s in stage.statements]) for _ in range(count)]
        for s in stage.statements:
            assert isinstance(s, Accumulate)
            values = []
            for k, scope in enumerate(scopes):
                scope.rename = (f"{self.axis(row)}", f"{self.axis(row)}_{k}")
                values.append(scope.text(s.value))
            self._add_lane(s, total(s, values))
        self.depth -= 1

    def _ways(self, lane: Axis, body: Callable[[], None]) -> None:
        """What goes down the lanes: asking for what lies behind, where that is read next."""
        if not self.kernel.asked or self.finding:
            return body()
        first, last = self.range["lane"]
        narrow = first != "0"
        if narrow:
            self.line(f"if {last} - {first} >= min({WIDE}, {self.number(lane.extent)}):")
            self.depth += 1
        self.asking = self.kernel.asked
        body()
        self.asking = frozenset()
        if narrow:
            self.depth -= 1
            self.line("else:")
            self.depth += 1
            body()
            self.depth -= 1

    # -- values ----------------------------------------------------------------------------------

    def watch(self, bounds: Bounds, missed: str, value: str) -> None:
        """Remember that a position is none: by no branch, so that loops become vectors."""
        if self.finding:
            self.line(f"if {missed}:")
            self.line(f"    report(outside, {1 + self.bounds.index(bounds)}, {value})")
        else:
            self.line(f"missed |= {missed}")

    def _store(self, buffer: str, kind: str = "") -> str:
        streamed = "_streamed" if buffer in self.kernel.streamed else ""
        return self.memory(f"store{kind}{streamed}", buffer)

    def memory(self, what: str, name: str) -> str:
        dtype, place = self.dtype[name], self.scope[name]
        return self.name_of(f"{what}_{dtype}_{place}", what, dtype, place)

    def _varies(self, e: Expr, inside: set[Axis], memo: dict[Expr, bool]) -> bool:
        known = memo.get(e)
        if known is None:
            if e.op == "reduced":
                known = self.kernel.lane is not None
            elif e.op in ("tile", "running"):
                known = True
            else:
                places = [a for a in e.args if isinstance(a, Index)]
                known = any(i.axes() & inside for i in places) or any(
                    self._varies(a, inside, memo) for a in e.operands()
                )
            memo[e] = known
        return known

    def _hoist(self, values: Iterable[Expr], inside: set[Axis]) -> None:
        """Compute before the loops whatever does not change in them."""
        memo: dict[Expr, bool] = {}
        found: list[Expr] = []
        seen: set[Expr] = set()

        def visit(e: Expr) -> None:
            if e in seen:
                return
            seen.add(e)
            if not self._varies(e, inside, memo):
                if e.op != "const" and e not in self.unit_values:
                    found.append(e)
                return
            for a in e.operands():
                visit(a)

        for value in values:
            visit(value)
        if found:
            scope = Scope(self, found, name_all=True)
            for e in found:
                scope.text(e)
            self.unit_values.update(scope.known)


def print_kernel(kernel: Kernel, finding: bool = False) -> Printed:
    return Printer(kernel, finding).print()
