"""Prints a scheduled kernel as the source of a Triton kernel.

Every value is a block: of the points ``x`` that the program keeps, ``[XB]`` or, beside reduced
points ``r`` or a transposed tile's rows ``y``, ``[XB, RB]`` or ``[YB, XB]``; what depends on one of
them only has size 1 along the other. Where blocks do not divide the axes, loads and stores are
masked, and reductions take their neutral element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fastpath.gpu.online import Online, online
from fastpath.gpu.rows import VECTOR, flatten
from fastpath.gpu.tiling import Tiling
from fastpath.gpu.words import PIECE, WORDS, shared
from fastpath.ir.expr import Expr
from fastpath.ir.index import Axis, Index
from fastpath.schedule.kernel import (
    Accumulate,
    Kernel,
    Stage,
    Statement,
    Store,
    Transposed,
)
from fastpath.schedule.loops import itemsize
from fastpath.schedule.text import Lines, index_text
from specs.dtypes import REDUCED, int_range, is_float
from specs.scalars import SCALARS, TRITON_TYPE, cast_text

HEADER = """import triton
import triton.language as tl
from triton.language.extra import libdevice

from fastpath.gpu import maths as m


@triton.jit
def largest(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def smallest(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def total(a, b):
    return a + b


@triton.jit
def product(a, b):
    return a * b
"""
_COMBINE = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}
_COMBINE |= {"any": "logical_or", "all": "logical_and"}
_REDUCE = {"sum": "total", "prod": "product", "max": "largest", "min": "smallest"}
_REDUCE |= {"any": "largest", "all": "smallest"}
_WIDE = 2**31 - 1
_NOTHING: frozenset[str] = frozenset()
ALIGNED = 16  # elements; a mask whose edge is a multiple of it does not break up vectors


@dataclass(frozen=True)
class Printed:
    """``source`` is a module's text (behind :data:`HEADER`) with the function ``name``, whose
    arguments are the kernel's buffers in order and the numbers called ``arguments``; it runs as
    ``programs`` programs of ``warps``."""

    name: str
    source: str
    programs: int
    warps: int
    arguments: tuple[str, ...] = ()


class Printer(Lines):
    def __init__(self, kernel: Kernel, plan: Tiling):
        super().__init__()
        self.kernel, self.plan = kernel, plan
        self.place = {b.name: n for n, b in enumerate(kernel.buffers)}
        self.dtype = {b.name: b.dtype for b in kernel.buffers}
        self.masked = True  # whether the points of x may be outside
        self.whole = False  # whether all of a block of r is known to be inside
        self.axes: dict[Axis, str] = {}
        # Several axes in a row are one number already: what steps through all of them uses it.
        self.flattened = [
            (axes, Axis(math.prod(a.extent for a in axes)))
            for axes in (plan.x, plan.r)
            if len(axes) > 1
        ]
        self.kinds: dict[Axis, str] = dict.fromkeys(plan.x, "x")
        self.kinds |= dict.fromkeys(plan.r, "r")
        if plan.y is not None:
            self.kinds[plan.y] = "y"
        self.known: dict[Expr, str] = {}
        self.words: dict[Expr, str] = {}  # random ones, of 32 bits
        self.stored: dict[tuple[str, Index], str] = {}
        self.sums: dict[str, str] = {}  # a finished reduction's name
        self._varying: dict[Expr, frozenset[str]] = {}
        self._uses: dict[Expr, int] = {}
        self.constants: dict[str, str] = {}  # text -> name
        self.arguments: dict[str, str] = {}  # a number's name in the program -> in the kernel

    # -- text ------------------------------------------------------------------------------------

    def index(self, index: Index) -> str:
        for axes, flat in self.flattened:
            index = flatten(index, axes, flat)
        return index_text(index, self.axes.__getitem__, self.index, self.text)

    def constant(self, value: bool | int | float, dtype: str) -> str:
        text = f"tl.full([], {_literal(value)}, tl.{TRITON_TYPE[dtype]})"
        return self.constants.setdefault(text, f"c{len(self.constants)}")

    def _argument(self, name: str) -> str:
        return self.arguments.setdefault(name, f"s{len(self.arguments)}")

    # -- the function ----------------------------------------------------------------------------

    def print(self) -> Printed:
        kernel, plan = self.kernel, self.plan
        name = kernel.name
        self._count_uses()
        wide = any(index.bounds()[1] > _WIDE for index in self._indices())
        kind = ".to(tl.int64)" if wide else ""
        self.line(f"program = tl.program_id(0){kind}")
        self._outer()
        whole, rest = plan.whole_blocks, plan.x_points % plan.x_block
        if plan.stripe:  # all of a stripe's blocks have points outside, or none
            rest = plan.x_points % (WORDS * plan.stripe)
        if (rest % ALIGNED or plan.stripe and rest) and whole and not plan.r and plan.y is None:
            # Only the last program has points outside: the others load and store whole vectors.
            self.line(f"if program < {whole}:")
            self._branch(masked=False)
            self.line("else:")
            self._branch(masked=True)
        else:
            self.masked = bool(rest)
            self._body()
        constants = [f"    {name} = {text}" for text, name in self.constants.items()]
        text = "\n".join([*constants, *self.lines])
        arguments = [*(f"p{n}" for n in range(len(kernel.buffers))), *self.arguments.values()]
        source = f"\n\n@triton.jit\ndef {name}({', '.join(arguments)}):\n{text}\n"
        return Printed(name, source, plan.programs, plan.warps, tuple(self.arguments))

    def _branch(self, masked: bool) -> None:
        self.depth += 1
        self.masked = masked
        self.known, self.stored, self.sums, self.axes = {}, {}, {}, dict(self._scalars)
        self.words = {}
        self._body()
        self.depth -= 1

    def _outer(self) -> None:
        """The values of the program's own axes, and the numbers of its blocks."""
        plan = self.plan
        rest = "program"
        if plan.outer or plan.y is not None:
            if plan.x_blocks > 1:
                self.line(f"x_number = program % {plan.x_blocks}")
                rest = f"(program // {plan.x_blocks})"
            else:
                self.line("x_number = 0")
            if plan.y_blocks > 1:
                self.line(f"y_number = {rest} % {plan.y_blocks}")
                rest = f"({rest} // {plan.y_blocks})"
            else:
                self.line("y_number = 0")
        for place, axis in reversed(list(enumerate(plan.outer))):
            name = self.axes[axis] = f"a{len(self.axes)}"
            self.line(f"{name} = {rest}" if place == 0 else f"{name} = {rest} % {axis.extent}")
            rest = f"({rest} // {axis.extent})"
        self._scalars = dict(self.axes)

    def _body(self) -> None:
        plan = self.plan
        number = "x_number" if plan.outer or plan.y is not None else "program"
        shape = "[:, None]" if plan.r else "[None, :]" if plan.y is not None else ""
        if plan.stripe:
            self._striped()
        else:
            self.line(f"x = ({number} * {plan.x_block} + tl.arange(0, {plan.x_block})){shape}")
        if self.masked:
            self.line(f"x_in = x < {plan.x_points}")
        self._decode(plan.x, "x")
        self._rows()
        if plan.y is not None:
            block = plan.y_block
            self.line(f"y = (y_number * {block} + tl.arange(0, {block}))[:, None]")
            self.axes[plan.y] = "y"
            if plan.y.extent % block:
                self.line(f"y_in = y < {plan.y.extent}")
        if plan.r and plan.persistent:
            self._points("")
        stages = list(self.kernel.stages)
        while stages:
            found = online(*stages[:2]) if len(stages) > 1 and self._one_row() else None
            if found is not None:
                self._online(found)
                del stages[:2]
            else:
                self._stage(stages.pop(0))

    def _striped(self) -> None:
        """A block of points in four pieces, a stripe apart."""
        plan = self.plan
        blocks = plan.stripe // PIECE
        self.line(f"stripe = program // {blocks}")
        self.line(f"first = program % {blocks} * {PIECE}")
        self.line(f"n = tl.arange(0, {plan.x_block})")
        start = f"stripe * {WORDS * plan.stripe} + first"
        self.line(f"x = {start} + (n // {PIECE}) * {plan.stripe} + n % {PIECE}")

    def _words(self, e: Expr) -> str | None:
        """The words of a draw, of 32 bits, computed four at a time where that can be done."""
        plan = self.plan
        if plan.r or plan.y is not None or plan.x_block < WORDS:
            return None
        draw = shared(e, plan.x, plan.stripe)
        if draw is None:
            return None
        names: tuple[str, ...]
        if plan.stripe:
            names = "stripe", f"(first + tl.arange(0, {PIECE}))"
        else:
            block = plan.x_block // WORDS
            names = (f"(program * {block} + tl.arange(0, {block}))",)
        self.axes |= dict(zip(draw.axes, names))
        self.kinds |= dict.fromkeys(draw.axes, "x")
        given = self.text(draw.seed), self.text(draw.counter), self.index(draw.index)
        function = "philox_apart" if plan.stripe else "philox_side_by_side"
        name = self.fresh()
        self.line(f"{name} = m.{function}({', '.join(given)})")
        return name

    def _one_row(self) -> bool:
        """Whether a program goes through a single row, in blocks."""
        return not self.plan.persistent and self.plan.x_block == 1

    def _rows(self) -> None:
        """What a program has to know of its rows before their points."""

    def _points(self, first: str) -> None:
        """The block of reduced points that begins at ``first``, or at the first of all."""
        plan = self.plan
        block = f"tl.arange(0, {plan.r_block})[None, :]"
        self.line(f"r = {first} + {block}" if first else f"r = {block}")
        if self._some_outside():
            self.line(f"r_in = r < {plan.r_points}")
        self._decode(plan.r, "r")

    def _span(self) -> int:
        """How many points the blocks of a loop over the reduced points cover, at least."""
        return self.plan.r_points

    def _some_outside(self) -> bool:
        """Whether reduced points of a block may lie outside."""
        return not self.whole and bool(self.plan.r_points % self.plan.r_block)

    def _decode(self, axes: tuple[Axis, ...], flat: str) -> None:
        """The values of several axes that were flattened into ``flat``."""
        if len(axes) == 1:
            self.axes[axes[0]] = flat
            return
        for run, whole in self.flattened:
            if run is axes:
                self.axes[whole] = flat
        rest = flat
        for place, axis in reversed(list(enumerate(axes))):
            name = self.axes[axis] = f"{flat}{place}"
            self.line(f"{name} = {rest}" if place == 0 else f"{name} = {rest} % {axis.extent}")
            if place:
                rest = f"({rest} // {axis.extent})"

    # -- stages ----------------------------------------------------------------------------------

    def _stage(self, stage: Stage) -> None:
        if not stage.axes:
            for s in stage.statements:
                self._statement(s)
        elif any(isinstance(s, Accumulate) and s.running for s in stage.statements):
            self._scan(stage)
        elif self.plan.persistent:
            for s in stage.statements:
                if isinstance(s, Accumulate):
                    self._reduce(s, self._inside(s.kind, s.value))
                else:
                    self._statement(s)
        else:
            self._loop(stage)

    def _scan(self, stage: Stage) -> None:
        """Blocks one after the other in the order of their points; a carry goes from each on."""
        plan, whole = self.plan, self.plan.persistent
        adding = [s for s in stage.statements if isinstance(s, Accumulate)]
        carries = {s.reduction: self.fresh() for s in adding}
        if not whole:
            self._hoist(s.value for s in stage.statements)
            for s in adding:
                start, dtype = _literal(neutral(s.kind, s.value.dtype)), TRITON_TYPE[s.value.dtype]
                shape = f"[{plan.x_block}, 1]"
                self.line(f"{carries[s.reduction]} = tl.full({shape}, {start}, tl.{dtype})")
            outside = dict(self.known)
            self.line(f"for r_first in range(0, {plan.r_points}, {plan.r_block}):")
            self.depth += 1
            self._points("r_first")
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

    def _loop(self, stage: Stage) -> None:
        plan = self.plan
        self._hoist(s.value for s in stage.statements)
        adding = [s for s in stage.statements if isinstance(s, Accumulate)]
        running = {s.reduction: self.fresh() for s in adding}
        for s in adding:
            start = _literal(neutral(s.kind, s.value.dtype))
            shape = f"[{plan.x_block}, {plan.r_block}]"
            dtype = TRITON_TYPE[s.value.dtype]
            self.line(f"{running[s.reduction]} = tl.full({shape}, {start}, tl.{dtype})")
        if any(e.args[0] in self._written() for e in (*stage.loads(), *stage.guarded())):
            self.line("tl.debug_barrier()")  # other threads of the program stored it

        def body() -> None:
            for each in stage.statements:
                if isinstance(each, Accumulate):
                    name, value = running[each.reduction], self._inside(each.kind, each.value)
                    row = SCALARS[_COMBINE[each.kind]]
                    self.line(f"{name} = {row.text('triton', each.value.dtype, name, value)}")
                else:
                    self._statement(each)

        self._blocks(body)
        for s in adding:
            self._reduce(s, running[s.reduction])

    def _blocks(self, body: Callable[[], None]) -> None:
        """``body`` in a loop over the blocks of reduced points, and what it computes forgotten.

        A long row is two loops: the blocks in which some points lie outside, and the others, which
        then need not ask each point.
        """
        step, outside = self.plan.r_block, dict(self.known)
        first, last = self._whole_blocks()
        loops = [(f"0, {self._span()}, {step}", False)]
        if self._one_row() and self._some_outside() and last - first >= 3 * step:
            ends = f"0, {last + 1}, {last}" if first else f"{last}, {last + 1}, {step}"
            loops = [(ends, False), (f"{first}, {last}, {step}", True)]
        for span, whole in loops:
            self.line(f"for r_first in range({span}):")
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
        return 0, (self.plan.r_points - 1) // step * step

    def _online(self, found: Online) -> None:
        """Both reductions in one loop: see :mod:`fastpath.gpu.online`."""
        self._hoist([found.value])
        vector = max(1, VECTOR // min(itemsize(d) for d in self.dtype.values()))
        groups = self.plan.r_block // vector
        top, total, new, base, points = (self.fresh() for _ in range(5))

        def exp(text: str) -> str:
            # Its error grows with how far the number is below 0, and what it adds to a sum shrinks.
            return f"tl.exp({text})"

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
        self.line(f"{whole} = tl.reduce({top}[None, :], 1, largest)[:, None]")
        self.line(f"{base} = {finite(whole)}")
        scale = exp(f"({top}[None, :] - {base})")
        self.line(f"{sums} = tl.sum({total}[None, :] * {scale}, 1)[:, None]")
        if not found.finite:
            infinite = f'tl.abs({whole}) == float("inf")'
            self.line(f'{sums} = tl.where({infinite}, float("nan"), {sums})')
        self.sums |= {found.maximum: whole, found.total: sums}

    def _written(self) -> set[str]:
        return {b.name for b in self.kernel.buffers if b.written}

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
        value = self.text(s.value)
        self.stored[(s.buffer, s.index)] = value
        pointer, mask = self._place(s.buffer, s.index, store=True)
        if not self._kinds(s.index) and self.varying(s.value):
            pointer += " + x"  # of a single result: a block of one address for a block of one value
        self.line(f"tl.store({pointer}, {value}{mask})")

    # -- values ----------------------------------------------------------------------------------

    def _pointer(self, buffer: str, index: Index) -> str:
        return f"p{self.place[buffer]} + {self.index(index)}"

    def _place(self, buffer: str, index: Index, store: bool) -> tuple[str, str]:
        """The addresses of the points and, behind a comma, which of them are there, if not all."""
        return self._pointer(buffer, index), self._mask(self._kinds(index))

    def _kinds(self, index: Index) -> frozenset[str]:
        found = frozenset(self.kinds[a] for a in index.steady().axes() if a in self.kinds)
        return found.union(*(self.varying(value) for value in index.lookups()))

    def _mask(self, kinds: Iterable[str]) -> str:
        plan, parts = self.plan, []
        if self.masked and "x" in kinds:
            parts.append("x_in")
        if "y" in kinds and plan.y is not None and plan.y.extent % plan.y_block:
            parts.append("y_in")
        if "r" in kinds and self._some_outside():
            parts.append("r_in")
        return f", {' & '.join(parts)}" if parts else ""

    def varying(self, e: Expr) -> frozenset[str]:
        """Of ``x``, ``y`` and ``r``, what the value changes with."""
        found = self._varying.get(e)
        if found is None:
            if e.op == "load":
                found = self._kinds(e.args[1])
            elif e.op == "guarded":
                found = self._kinds(e.args[1]) | self.varying(e.args[2])
            elif e.op == "index":
                found = self._kinds(e.args[0])
            elif e.op == "reduced":
                found = frozenset("x")
            elif e.op == "running":
                found = frozenset("xr")
            elif e.op == "tile":
                found = self._kinds(self._turned(e).index)
            else:
                found = _NOTHING.union(*(self.varying(a) for a in e.operands()))
            self._varying[e] = found
        return found

    def _turned(self, e: Expr) -> Transposed:
        return next(t for t in self.kernel.transposed if t.name == e.args[0])

    def text(self, e: Expr) -> str:
        known = self.known.get(e)
        if known is not None:
            return known
        if e.op == "const":
            return self.constant(e.args[0], e.dtype)
        if e.op == "argument":
            return f"{self._argument(e.args[0])}.to(tl.int64)"
        if e.op in ("reduced", "running"):
            return self.sums[e.args[0]]
        text = self._new(e)
        if not text.isidentifier() and (self._uses.get(e, 0) > 1 or len(text) > 80):
            name = self.fresh()
            self.line(f"{name} = {text}")
            text = name
        self.known[e] = text
        return text

    def _new(self, e: Expr) -> str:
        if e.op == "load":
            return self._load(e.args[0], e.args[1])
        if e.op == "guarded":
            return self._load_guarded(e)
        if e.op == "bounded":
            return self._bounded(e)
        if e.op == "tile":
            turned = self._turned(e)
            return self._load(turned.buffer, turned.index)
        if e.op == "index":
            text = self.index(e.args[0])
            if not self._kinds(e.args[0]) and not e.args[0].terms:
                return self.constant(e.args[0].const, "int64")
            return f"({text}).to(tl.int64)"
        if e.op == "philox":
            words = self._words(e)
            if words is not None:
                self.words[e] = words
                return f"{words}.to(tl.int64)"
        texts = [self.text(a) for a in e.args]
        if e.op == "cast":
            if e.args[0].dtype in REDUCED and e.dtype == "float32":
                return texts[0]  # it is one already
            if e.args[0] in self.words and e.dtype == "float32":
                return f"{self.words[e.args[0]]}.to(tl.float32)"  # from the 32 bits that it has
            return cast_text("triton", e.args[0].dtype, e.dtype, texts[0])
        # A selection's first operand is a bool; the computing dtype is that of the last.
        return SCALARS[e.op].text("triton", e.args[-1].dtype, *texts)

    def _load(self, buffer: str, index: Index) -> str:
        held = self.stored.get((buffer, index))
        if held is not None:
            return held
        pointer, mask = self._place(buffer, index, store=False)
        text = f"tl.load({pointer}{mask})"
        dtype = self.dtype[buffer]
        return f"{text}.to(tl.float32)" if dtype in REDUCED else text

    def _load_guarded(self, e: Expr) -> str:
        buffer, index, guard = e.args
        condition, pointer = self.text(guard), self._pointer(buffer, index)
        if not self.varying(guard) <= self._kinds(index):  # an address for each condition
            pointer += f" + ({condition}).to(tl.int32) * 0"
        mask = self._mask(self.varying(e)).removeprefix(", ")
        both = f"{condition} & {mask}" if mask else condition
        dtype = self.dtype[buffer]
        text = f"tl.load({pointer}, {both}, other=0)"
        return f"{text}.to(tl.float32)" if dtype in REDUCED else text

    def _bounded(self, e: Expr) -> str:
        """A position that is data, and an assertion about the points that exist."""
        value, bounds, *guard = e.args
        name, inside = self.fresh(), self.fresh()
        text = self.text(value)
        if bounds.wraps:
            text = f"tl.where({text} < 0, {text} + {bounds.extent}, {text})"
        self.line(f"{name} = {text}")
        self.line(f"{inside} = ({name} >= 0) & ({name} < {bounds.extent})")
        asked = [self.text(g) for g in guard]
        asked += [part for part in (self._mask(self.varying(e)).removeprefix(", "),) if part]
        unasked = "".join(f" | (({part}) == 0)" for part in asked)
        message = bounds.message.replace("{value}", "(a value)")
        self.line(f"tl.device_assert({inside}{unasked}, {message!r})")
        return f"tl.where({inside}, {name}, 0)"

    def _hoist(self, values: Iterable[Expr]) -> None:
        """Compute before a loop what does not change in it."""
        seen: set[Expr] = set()
        stack = list(values)
        while stack:
            e = stack.pop()
            if e in seen or e.op == "const":
                continue
            seen.add(e)
            if "r" in self.varying(e):
                stack.extend(e.operands())
            elif not self.text(e).isidentifier():
                name = self.fresh()
                self.line(f"{name} = {self.known[e]}")
                self.known[e] = name

    def _count_uses(self) -> None:
        seen: set[Expr] = set()
        stack = [s.value for stage in self.kernel.stages for s in stage.statements]
        for e in stack:
            self._uses[e] = self._uses.get(e, 0) + 1
        while stack:
            e = stack.pop()
            if e not in seen:
                seen.add(e)
                for a in e.operands():
                    self._uses[a] = self._uses.get(a, 0) + 1
                    stack.append(a)

    def _indices(self) -> Iterable[Index]:
        for stage in self.kernel.stages:
            yield from (s.index for s in stage.statements if isinstance(s, Store))
            yield from (e.args[1] for e in (*stage.loads(), *stage.guarded()))
        yield from (t.index for t in self.kernel.transposed)


def _literal(value: bool | int | float) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def neutral(kind: str, dtype: str) -> bool | int | float:
    """The element that changes nothing in a reduction of ``kind`` over values of ``dtype``."""
    if kind in ("sum", "prod", "any", "all"):
        value = kind in ("prod", "all")
        return float(value) if is_float(dtype) else value if dtype == "bool" else int(value)
    if is_float(dtype):
        return float("-inf" if kind == "max" else "inf")
    return kind == "min" if dtype == "bool" else int_range(dtype)[0 if kind == "max" else 1]
