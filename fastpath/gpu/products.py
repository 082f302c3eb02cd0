"""Prints a kernel that multiplies matrices: blocks of results, each computed by one program.

A program goes along ``k`` in steps, loads a block of each operand and lets the tensor cores
multiply them; then it does the elementwise work on its results, and stores what is wanted. Programs
that run side by side take blocks that share operands, so that these are found in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from fastpath.gpu.printer import BEGIN, Printed
from fastpath.gpu.tiling import Tiling
from fastpath.gpu.values import Values
from fastpath.ir.expr import Expr
from fastpath.ir.index import Axis
from fastpath.ir.program import Tile
from fastpath.schedule.kernel import Accumulate, Kernel, Store, itemsize
from specs.dtypes import REDUCED
from specs.scalars import TRITON_TYPE

ROWS = 8  # of blocks, whose programs run side by side: at least, or as many as are ``PANEL`` bytes
PANEL = 8 << 20  # of an operand, that the cache holds beside what else goes through it


class ProductPrinter(Values):
    """``x`` is a block's column, ``y`` its row and ``r`` what goes along ``k``."""

    def __init__(self, kernel: Kernel):
        (self.sum,) = (s for s in kernel.stages[0].statements if isinstance(s, Accumulate))
        self.left, self.right = self.sum.value.args
        reduced = kernel.stages[0].axes
        left, right = (e.axes() for e in (self.left, self.right))
        self.rows = tuple(a for a in kernel.outer if a in left and a not in right)
        columns = tuple(a for a in kernel.outer if a in right and a not in left)
        batch = tuple(a for a in kernel.outer if a not in self.rows and a not in columns)
        tile = kernel.product
        assert tile is not None and all(a in left for a in batch)
        plan = Tiling(columns, None, reduced, tile.n, tile.m, tile.k, False, tile.warps, batch)
        super().__init__(kernel, plan)
        self.tile: Tile = tile
        self.kinds |= dict.fromkeys(self.rows, "y")
        if len(self.rows) > 1:
            self.flattened.append((self.rows, Axis(self.y_points)))
        self.masked = bool(plan.x_points % tile.n)

    @property
    def y_points(self) -> int:
        return math.prod(a.extent for a in self.rows)

    def print(self) -> Printed:
        kernel, plan, tile = self.kernel, self.plan, self.tile
        self._count_uses()
        blocks = self.blocks()
        self.line(f"program = {self.program()}")
        self._batch(math.prod(blocks))
        self._block(*blocks)
        self._points()
        self._multiply()
        self._finish()
        constants = [f"    {name} = {text}" for text, name in self.constants.items()]
        text = "\n".join([BEGIN, *constants, *self.lines])
        arguments = [*(f"p{n}" for n in range(len(kernel.buffers))), *self.arguments.values()]
        source = f"\n\n@triton.jit\ndef {kernel.name}({', '.join(arguments)}):\n{text}\n"
        count = math.prod(a.extent for a in plan.outer) * math.prod(blocks)
        return Printed(kernel.name, source, count, tile.warps, tuple(self.arguments), tile.stages)

    def _finish(self) -> None:
        """The elementwise work on what was multiplied, and the stores."""
        for stage in self.kernel.stages[1:]:
            for s in stage.statements:
                assert isinstance(s, Store) and not stage.axes
                pointer, mask = self._place(s.buffer, s.index, store=True)
                value = self.text(s.value)
                self.stored[(s.buffer, s.index)] = value
                self.line(f"tl.store({pointer}, {value}{mask})")

    # -- the program's place ---------------------------------------------------------------------

    def blocks(self) -> tuple[int, int]:
        """How many there are of rows, and of columns."""
        return -(-self.y_points // self.tile.m), -(-self.plan.x_points // self.tile.n)

    def _batch(self, each: int) -> None:
        """The values of the axes of which a program has one each."""
        if not self.plan.outer:
            return
        self.line(f"batch = program // {each}")
        self.line(f"program = program % {each}")
        rest = "batch"
        for place, axis in reversed(list(enumerate(self.plan.outer))):
            name = self.axes[axis] = f"a{place}"
            self.line(f"{name} = {rest}" if place == 0 else f"{name} = {rest} % {axis.extent}")
            rest = f"({rest} // {axis.extent})"

    def _block(self, high: int, across: int) -> None:
        tile, plan = self.tile, self.plan
        if high > 1 and across > 1:
            row = tile.m * plan.r_points * itemsize(self.left.dtype)
            rows = min(high, max(ROWS, PANEL // row))
            self.line(f"first = program // {rows * across} * {rows}")
            self.line(f"height = min({high} - first, {rows})")
            self.line(f"y_number = first + program % {rows * across} % height")
            self.line(f"x_number = program % {rows * across} // height")
        else:
            self.line(f"y_number = {'program' if high > 1 else 'program * 0'}")
            self.line(f"x_number = {'program' if across > 1 else 'program * 0'}")

    def _points(self) -> None:
        tile, plan = self.tile, self.plan
        self.line(f"y = (y_number * {tile.m} + {self.lanes(tile.m)})[:, None]")
        self.line(f"x = (x_number * {tile.n} + {self.lanes(tile.n)})[None, :]")
        self._decode(self.rows, "y")
        self._decode(plan.x, "x")
        if self._rows_outside():
            self.line(f"y_in = y < {self.y_points}")
        if self.masked:
            self.line(f"x_in = x < {plan.x_points}")

    def _rows_outside(self) -> bool:
        """Whether a block may have rows that are none of the product's."""
        return self.y_points % self.tile.m != 0

    # -- the product -----------------------------------------------------------------------------

    def _multiply(self) -> None:
        tile, plan = self.tile, self.plan
        total = self.fresh()
        self.line(f"{total} = tl.zeros([{tile.m}, {tile.n}], tl.float32)")
        outside = dict(self.known)
        self.line(f"for r_first in range(0, {plan.r_points}, {tile.k}):")
        self.depth += 1
        left = self._operand(self.left, "l", "[None, :]")
        right = self._operand(self.right, "r", "[:, None]")
        precision = ', input_precision="tf32"' if self.left.dtype == "float32" else ""
        self.line(f"{total} = tl.dot({left}, {right}, {total}{precision})")
        self.depth -= 1
        self.known = outside
        self.sums[self.sum.reduction] = total

    def _operand(self, e: Expr, side: str, shape: str) -> str:
        """A block of an operand: along ``r`` it lies as ``shape`` says."""
        plan, tile, name = self.plan, self.tile, f"r{side}"
        self.known = {}
        self.line(f"{name} = (r_first + {self.lanes(tile.k)}){shape}")
        self.inside = f"{name}_in"
        if self._some_outside():
            self.line(f"{self.inside} = {name} < {plan.r_points}")
        self._decode(plan.r, name)
        block = self.fresh()
        guard = _guard_of(e)
        if e.op == "load" or guard is not None:  # as it lies, so that it goes to the tensor cores
            buffer, index, *_ = e.args if guard is None else e.args[1].args
            pointer, mask = self._place(buffer, index, store=False)
            if guard is not None:
                mask = f", ({self.text(guard)}){mask.replace(',', ' &')}"
            self.line(f"{block} = tl.load({pointer}{mask}{', other=0' if mask else ''})")
            return block
        text = f"({self.text(e)}).to(tl.{TRITON_TYPE[e.dtype]})"
        if e.dtype in REDUCED:
            text = f"({self.text(e)}).to(tl.{e.dtype})"
        kinds = {"y", "r"} if side == "l" else {"x", "r"}
        if self.varying(e) != kinds:
            extents = (tile.m, tile.k) if side == "l" else (tile.k, tile.n)
            text = f"tl.broadcast_to({text}, [{extents[0]}, {extents[1]}])"
        if self._some_outside():  # a term that is none adds nothing
            text = f"tl.where({self.inside}, {text}, 0)"
        self.line(f"{block} = {text}")
        return block

    # -- what is known of values -----------------------------------------------------------------

    def varying(self, e: Expr) -> frozenset[str]:
        if e.op == "reduced":
            return frozenset("xy")
        return super().varying(e)

    def _mask(self, kinds: Iterable[str]) -> str:
        kinds = set(kinds)
        parts = ["x_in"] if self.masked and "x" in kinds else []
        if "y" in kinds and self._rows_outside():
            parts.append("y_in")
        if "r" in kinds and self._some_outside():
            parts.append(self.inside)
        return f", {' & '.join(parts)}" if parts else ""


def _guard_of(e: Expr) -> Expr | None:
    """On which condition ``e`` is an element, if it is one, and else 0."""
    if e.op != "where":
        return None
    condition, element, other = e.args
    if element.op != "guarded" or element.args[2] != condition:
        return None
    return condition if other.op == "const" and other.args[0] == 0 else None
