"""Prints a scheduled kernel as the source of a Triton kernel: its programs and their points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fastpath.gpu.moments import one_pass
from fastpath.gpu.online import online
from fastpath.gpu.reach import WIDE
from fastpath.gpu.stages import Stages
from fastpath.gpu.tiling import blocks_of, blocks_text
from fastpath.gpu.words import WORDS, either_way
from fastpath.ir.expr import Expr
from fastpath.ir.size import Size, divides, known
from fastpath.schedule.kernel import Stage

HEADER = """import triton
import triton.language as tl
from triton.language.extra import libdevice

from fastpath.gpu import maths as m

EARLY = tl.constexpr(False)
NARROW = tl.constexpr(False)


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
BEGIN = "    m.begin(EARLY)"  # the first statement of each kernel
ALIGNED = 16  # elements; a mask whose edge is a multiple of it does not break up vectors


@dataclass(frozen=True)
class Printed:
    """``source`` is a module's text (behind :data:`HEADER`) with the function ``name``, whose
    arguments are the kernel's buffers in order, the numbers called ``arguments`` and the ``sizes``,
    in 64 bits if it is ``wide``; it runs as ``programs`` programs of ``warps``. A loop over blocks
    has ``stages`` of them on their way from memory, or as many as Triton chooses; a thread has
    ``registers`` at most, or as many as the compiler chooses."""

    name: str
    source: str
    programs: int
    warps: int
    arguments: tuple[str, ...] = ()
    stages: int | None = None
    sizes: tuple[Size, ...] = ()
    wide: bool = False
    registers: int | None = None


class Printer(Stages):
    # -- the function ----------------------------------------------------------------------------

    def print(self) -> Printed:
        kernel, plan = self.kernel, self.plan
        name = kernel.name
        self._count_uses()
        self.line(f"program = {self.program()}")
        self._tell()
        self._outer()
        decided = either_way(kernel)
        if decided is None:
            self._all_programs()
        else:
            for taken in (True, False):
                self.line(f"if {self.text(decided)}:" if taken else "else:")
                self.assumed = {decided: taken}
                self._branch(self._all_programs)
        constants = [f"    {name} = {text}" for text, name in self.constants.items()]
        text = "\n".join([BEGIN, *constants, *self.lines])
        arguments = [*(f"p{n}" for n in range(len(kernel.buffers))), *self.arguments.values()]
        arguments += [self.number(size) for size in self.sizes]
        source = f"\n\n@triton.jit\ndef {name}({', '.join(arguments)}):\n{text}\n"
        names, sizes = tuple(self.arguments), tuple(self.sizes)
        return Printed(
            name, source, plan.programs, plan.warps, names, None, sizes, self.wide, plan.registers
        )

    def _tell(self) -> None:
        """Let the compiler know the programs' numbers: of none below zero quotients and remainders,
        which places consist of, take half of the instructions. The text is the same for any number
        of programs, as what is equal is compiled once."""
        plan, told = self.plan, "program >= 0"
        flat = not plan.outer and plan.y is None and plan.x_block > 1
        if flat and not self.wide:  # so many blocks have all places that 32 bits hold
            told = f"({told}) & (program < {(WIDE + 1) // plan.x_block})"
        self.line(f"tl.assume({told})")

    def _all_programs(self) -> None:
        """What the programs do, those with points outside apart where that is worth while."""
        plan, whole = self.plan, self._whole()
        if whole is not None:
            # Only the last program has points outside: the others load and store whole vectors.
            for masked in (False, True):
                self.line("else:" if masked else f"if program < {whole}:")
                self.masked = masked
                self._branch(self._body)
        else:
            block = WORDS * plan.stripe if plan.stripe else plan.x_block
            self.masked = not divides(block, plan.x_points)
            self._body()

    def _whole(self) -> str | None:
        """How many of the first programs have all their points, as text, where it is worth while
        to tell them from the others."""
        plan = self.plan
        if plan.r or plan.y is not None or plan.outer:
            return None
        if not known(plan.x_points):
            return f"{self.number(plan.x_points)} // {plan.x_block}"
        rest = plan.x_points % plan.x_block
        if plan.stripe:  # all of a stripe's blocks have points outside, or none
            rest = plan.x_points % (WORDS * plan.stripe)
        apart = (rest % ALIGNED or plan.stripe and rest) and plan.whole_blocks
        return str(plan.whole_blocks) if apart else None

    def _branch(self, body: Callable[[], None]) -> None:
        """Print ``body`` where nothing is known of what other branches computed."""
        self.depth += 1
        self.known, self.stored, self.sums, self.axes = {}, {}, {}, dict(self._scalars)
        self.words, self.apart = {}, {}
        body()
        self.depth -= 1

    def _outer(self) -> None:
        """The values of the program's own axes, and the numbers of its blocks."""
        plan = self.plan
        rest = "program"
        if plan.outer or plan.y is not None:
            high = plan.y.extent if plan.y is not None else 1
            for kind, points, block in (
                ("x", plan.x_points, plan.x_block),
                ("y", high, plan.y_block),
            ):
                if known(points) and blocks_of(points, block) == 1:
                    self.line(f"{kind}_number = 0")
                else:
                    blocks = blocks_text(points, block, self.number)
                    self.line(f"{kind}_number = {rest} % {blocks}")
                    rest = f"({rest} // {blocks})"
        for place, axis in reversed(list(enumerate(plan.outer))):
            name = self.axes[axis] = f"a{len(self.axes)}"
            extent = self.number(axis.extent)
            self.line(f"{name} = {rest}" if place == 0 else f"{name} = {rest} % {extent}")
            rest = f"({rest} // {extent})"
        self._scalars = dict(self.axes)

    def _body(self) -> None:
        plan = self.plan
        if plan.stripe:
            self._striped()
            return
        number = "x_number" if plan.outer or plan.y is not None else "program"
        shape = "[:, None]" if plan.r else "[None, :]" if plan.y is not None else ""
        self.first["x"] = f"{number} * {plan.x_block}"
        self.line(f"x = ({self.first['x']} + {self.lanes(plan.x_block)}){shape}")
        self._work()

    def _work(self) -> None:
        """All that is done with the points ``x``."""
        plan = self.plan
        self._points_of_x()
        if plan.y is not None:
            block = plan.y_block
            self.line(f"y = (y_number * {block} + {self.lanes(block)})[:, None]")
            self.axes[plan.y] = "y"
            if not divides(block, plan.y.extent):
                self.line(f"y_in = y < {self.number(plan.y.extent)}")
        if plan.r and plan.persistent:
            self._points("")
        stages = list(self.kernel.stages)
        while stages:
            found = online(stages) if self._one_row() else None
            if found is not None:
                # What was made of the maximum alone can wait for the sum.
                del stages[found.second]
            self._look_ahead(stages)
            if found is not None:
                self._online(found)
                del stages[0]
                continue
            along = self._down_columns() or self._one_row()
            moments = one_pass(stages) if along else None
            if moments is not None:
                self._moments(moments, stages)
                del stages[: moments.second + 1]
                continue
            self._stage(stages.pop(0))

    def _points_of_x(self) -> None:
        if self.masked:
            self.line(f"x_in = x < {self.number(self.plan.x_points)}")
        self._decode(self.plan.x, "x")
        self._rows()

    def _look_ahead(self, stages: Sequence[Stage]) -> None:
        """Which elements of a row the first of ``stages`` is not the only one to read."""
        if self._one_row():
            first: set[Any]
            first, *others = ({e.args for e in s.loads()} if s.axes else set() for s in stages)
            self.later = set().union(*others) & first
            self.again = self.earlier & first
            self.earlier |= first

    def _striped(self) -> None:
        """A block of points in four pieces, a stripe apart: one piece after the other."""
        plan = self.plan
        blocks = plan.stripe // plan.piece
        self.line(f"stripe = program // {blocks}")
        self.line(f"first = program % {blocks} * {plan.piece}")
        read = [self._read_of_piece(part) for part in range(WORDS)]
        for part in range(WORDS):
            self._begin_piece(part)
            self.known.update(read[part])
            self._work()

    def _begin_piece(self, part: int) -> None:
        plan = self.plan
        self.part, self.known, self.stored, self.words = part, {}, {}, {}
        start = f"stripe * {WORDS * plan.stripe} + {part * plan.stripe} + first"
        self.line(f"x = {start} + {self.lanes(plan.piece)}")

    def _read_of_piece(self, part: int) -> dict[Expr, str]:
        """What is read at the points of a piece. All of a block is on its way from memory before
        words are computed and anything is stored: behind that the compiler moves no load."""
        loads = dict.fromkeys(e for stage in self.kernel.stages for e in stage.loads())
        found = [e for e in loads if not e.args[1].lookups() and e.args[0] not in self.written]
        if not found:
            return {}
        self._begin_piece(part)
        self._points_of_x()
        names = {e: self.fresh() for e in found}
        for e, name in names.items():
            self.line(f"{name} = {self.text(e)}")
        return names
