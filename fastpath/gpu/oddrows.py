"""Products whose results' rows begin between vectors, printed so that vectors are stored.

Of rows of 50257 elements of 16 bits each begins two bytes further behind a multiple of a vector's
16 than the one before it, and every eighth begins alike. A program takes a block of rows that begin
alike, and its columns from the first vector on: so all of its stores are whole vectors, but in the
blocks at both ends of the rows. Which columns these are changes with the rows, which is nothing to
an operand whose columns lie apart from each other, as the weights of a linear layer do.
"""

from __future__ import annotations

import math

from fastpath.gpu.products import ProductPrinter
from fastpath.gpu.rows import VECTOR, flatten
from fastpath.ir.index import Axis, Index
from fastpath.schedule.kernel import Kernel, Store, itemsize

LEAST = 3  # blocks of columns: two of them are at the ends


class OddRowsPrinter(ProductPrinter):
    """``every``: so many rows apart, two begin alike; ``step``: the elements of a vector."""

    def __init__(self, kernel: Kernel):
        super().__init__(kernel)
        self.row = self._flat(self.rows)
        self.column = self._flat(self.plan.x)
        stores = [s for stage in kernel.stages[1:] for s in stage.statements]
        self.stores = [s for s in stores if isinstance(s, Store)]
        sizes = {itemsize(self.dtype[s.buffer]) for s in self.stores}
        self.step = VECTOR // max(sizes, default=VECTOR)
        lengths = {self._length(s.index) for s in self.stores}
        self.length = lengths.pop() if len(lengths) == len(sizes) == 1 else None
        self.every = self.step // math.gcd(self.length, self.step) if self.length else 1

    def worth(self) -> bool:
        """Whether the rows do begin so, and blocks of those that begin alike are full."""
        if self.plan.outer or self.length is None or self.every == 1:
            return False
        if self.right.op != "load" or self._flattened(self.right.args[1]).coefficient(
            self.column
        ) in (0, 1):
            return False
        high, across = self.every * self.tile.m, LEAST * self.tile.n
        return self.y_points >= high and self.plan.x_points >= across

    # -- where elements lie ----------------------------------------------------------------------

    def _flat(self, axes: tuple[Axis, ...]) -> Axis:
        if len(axes) == 1:
            return axes[0]
        return next((flat for run, flat in self.flattened if run is axes), Axis(1))

    def _flattened(self, index: Index) -> Index:
        for axes, flat in self.flattened:
            index = flatten(index, axes, flat)
        return index

    def _length(self, index: Index) -> int | None:
        """How far apart rows begin, where ``index`` steps through rows and columns."""
        index = self._flattened(index)
        length, rest = index.coefficient(self.row), index.const
        if index.axes() != {self.row, self.column} or index.coefficient(self.column) != 1:
            return None
        if not isinstance(length, int) or not isinstance(rest, int) or rest % self.step:
            return None
        return length

    def _place(self, buffer: str, index: Index, store: bool) -> tuple[str, str]:
        length = self._length(index)
        if length is None or length % self.step != (self.length or 0) % self.step:
            return super()._place(buffer, index, store)
        constant = f" + {index.const}" if index.const else ""
        start = f"(y * {length}) // {self.step} * {self.step}{constant}"
        return f"p{self.place[buffer]} + ({start} + a)", self._mask(self._kinds(index))

    # -- blocks ----------------------------------------------------------------------------------

    def blocks(self) -> tuple[int, int]:
        tile, plan = self.tile, self.plan
        alike = -(-self.y_points // self.every)
        return self.every * -(-alike // tile.m), -(-(plan.x_points + self.step - 1) // tile.n)

    def _points(self) -> None:
        tile, plan, every, step = self.tile, self.plan, self.every, self.step
        self.line(f"kind = y_number % {every}")
        self.line(f"y = (y_number // {every} * {tile.m} + {self.lanes(tile.m)})[:, None]")
        self.line(f"y = y * {every} + kind")
        self.line(f"a = (x_number * {tile.n} + {self.lanes(tile.n)})[None, :]")
        self.line(f"x = a - kind * {(self.length or 0) % step} % {step}")
        self._decode(self.rows, "y")
        self._decode(plan.x, "x")
        if self._rows_outside():
            self.line(f"y_in = y < {self.y_points}")
        self.masked = True
        self.line(f"x_in = (x >= 0) & (x < {plan.x_points})")

    def _rows_outside(self) -> bool:
        return self.y_points % (self.every * self.tile.m) != 0

    def _finish(self) -> None:
        known, stored = dict(self.known), dict(self.stored)
        inside = self.plan.x_points // self.tile.n  # wherever its rows begin
        for whole in (True, False):
            self.line(f"if (x_number > 0) & (x_number < {inside}):" if whole else "else:")
            self.depth += 1
            self.masked, self.known, self.stored = not whole, dict(known), dict(stored)
            super()._finish()
            self.depth -= 1
