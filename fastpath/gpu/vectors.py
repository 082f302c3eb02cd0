"""Rows that begin between vectors: where a thread's loads lie when a row's length is odd.

A thread loads 16 bytes at once, from a multiple of 16 bytes. Rows of an odd number of elements do
not begin at one, so a program whose points are a row's would load element by element. Here its
points begin at the last vector before the row and end with the first after it: whole vectors are
loaded, and what lies outside the row is not looked at. A store writes the vectors that lie in the
row whole; the elements before and behind them, fewer than a vector at each end, are computed again
by themselves.

That a load of a whole vector reads a few elements of the neighbouring rows, or behind the last one,
harms nothing: a vector with an element of the tensor in it is in the tensor's memory, which is
given out in blocks of hundreds of bytes.
"""

from __future__ import annotations

import dataclasses

from fastpath.gpu.oddrows import OddRowsPrinter
from fastpath.gpu.printer import Printed, Printer
from fastpath.gpu.products import ProductPrinter
from fastpath.gpu.rows import VECTOR, beginning, same_place
from fastpath.gpu.tiling import Tiling, tiling
from fastpath.ir.index import Index
from fastpath.schedule.kernel import Kernel, Stage, Store, itemsize


class VectorPrinter(Printer):
    """A printer of kernels whose programs take a row each, laid by ``plan.start``."""

    def __init__(self, kernel: Kernel, plan: Tiling):
        super().__init__(kernel, plan)
        assert plan.start is not None and plan.x_block == 1
        self.start, self.group = plan.start, plan.group
        self.beginnings: dict[Index, str] = {}
        self.edges: dict[tuple[str, int], str] = {}
        self.at_ends = False  # whether the elements beside the whole vectors are being printed

    # -- points ----------------------------------------------------------------------------------

    def _rows(self) -> None:
        group, start = self.group, self.index(self.start)
        self.line(f"shift = ({start}) % {group}")
        known = {plan_start: f"first{n}" for n, plan_start in enumerate(self._starts())}
        for beginning_, name in known.items():
            self.line(f"{name} = ({self.index(beginning_)}) // {group} * {group}")
        self.beginnings = known
        length = self.plan.r_points
        for size in sorted({self._vector(b.name) for b in self.kernel.buffers}):
            for name, text in (
                ("upper", f"(shift + {length + size - 1}) // {size} * {size}"),
                ("inner", f"(shift + {size - 1}) // {size} * {size}"),
                ("outer", f"(shift + {length}) // {size} * {size}"),
            ):
                self.edges[name, size] = f"{name}{size}"
                self.line(f"{name}{size} = {text}")

    def _starts(self) -> list[Index]:
        found: dict[Index, None] = {}
        for stage in self.kernel.stages:
            indices = [e.args[1] for e in stage.loads()]
            indices += [s.index for s in stage.statements if isinstance(s, Store)]
            for index in indices:
                start = self._laid(index)
                if start is not None:
                    found[start] = None
        return list(found)

    def _laid(self, index: Index) -> Index | None:
        """The beginning of what ``index`` steps through, if vectors lie there as the points do."""
        start = beginning(index, self.plan.r)
        if start is None or not same_place(start, self.start, self.group):
            return None
        return start

    def _vector(self, buffer: str) -> int:
        return max(1, VECTOR // itemsize(self.dtype[buffer]))

    def _span(self) -> int:
        return self.plan.r_points + self.group - 1

    def _points(self, first: str) -> None:
        block = f"{self.lanes(self.plan.r_block)}[None, :]"
        self.line(f"a = {first} + {block}" if first else f"a = {block}")
        self.line("r = a - shift")
        if self._some_outside():
            self.line(f"r_in = (r >= 0) & (r < {self.plan.r_points})")
        self._decode(self.plan.r, "r")

    def _inner_block(self) -> str:
        return str(self.plan.r_block)  # before the row's first point there may be others

    def _in_lanes(self) -> str:
        block = self.plan.r_block
        lanes = f"{self.lanes(block)}[None, :]"
        upto = f"(shift + {self.plan.r_points + block - 1} - {lanes}) // {block}"
        return f"({upto} - ({lanes} < shift).to(tl.int32))"

    def _some_outside(self) -> bool:
        return not (self.at_ends or self.whole)

    def _whole_blocks(self) -> tuple[int, int]:
        step = self.plan.r_block
        last = (self._span() - 1) // step * step
        return (step, last) if last <= self.plan.r_points else (0, 0)

    # -- memory ----------------------------------------------------------------------------------

    def _place(self, buffer: str, index: Index, store: bool) -> tuple[str, str]:
        start = self._laid(index)
        if start is None:
            return super()._place(buffer, index, store)
        size, base = self._vector(buffer), f"p{self.place[buffer]} + {self.beginnings[start]}"
        inner, outer = self.edges["inner", size], self.edges["outer", size]
        if self.at_ends:
            outside = f", (e + shift < {inner}) | (e + shift >= {outer})"
            return f"{base} + (e + shift)", outside if store else ""
        if self.whole:
            return f"{base} + a", ""
        if store:
            return f"{base} + a", f", (a >= {inner}) & (a < {outer})"
        return f"{base} + a", f", a < {self.edges['upper', size]}"

    # -- the ends --------------------------------------------------------------------------------

    def _stage(self, stage: Stage) -> None:
        super()._stage(stage)
        stores = [s for s in stage.statements if isinstance(s, Store)]
        stores = [s for s in stores if stage.axes and self._laid(s.index) is not None]
        if stores:
            self._ends(stage, stores)

    def _ends(self, stage: Stage, stores: list[Store]) -> None:
        """Store the elements beside the whole vectors: as many points as two vectors have."""
        if any(e.args[0] in self._written() for e in (*stage.loads(), *stage.guarded())):
            self.line("tl.debug_barrier()")  # other threads of the program stored it
        group, length = self.group, self.plan.r_points
        before = self.known, self.stored, self.axes
        self.known = {e: text for e, text in self.known.items() if "r" not in self.varying(e)}
        self.stored, self.axes, self.at_ends = {}, dict(self.axes), True
        self.line(f"e = {self.lanes(2 * group)}[None, :]")
        self.line(f"e = tl.where(e < {group}, e, e + {length - 2 * group})")
        self._decode(self.plan.r, "e")
        for each in stores:
            self._statement(each)
        self.known, self.stored, self.axes = before
        self.at_ends = False


def printer_of(kernel: Kernel, plan: Tiling) -> Printer:
    return (Printer if plan.start is None else VectorPrinter)(kernel, plan)


def print_kernel(kernel: Kernel, aligned: bool = True) -> Printed:
    """``kernel``, scheduled for :data:`fastpath.target.GPU`, as Triton's source.

    Unless it is ``aligned``, and each buffer begins at a multiple of a vector, vectors at the ends
    of rows might not lie in the buffers' memory: nothing outside the rows is read. The number of
    programs does not depend on it.
    """
    if kernel.product is not None:
        odd = OddRowsPrinter(kernel)
        return odd.print() if odd.worth() else ProductPrinter(kernel).print()
    plan = tiling(kernel)
    if not aligned:
        plan = dataclasses.replace(plan, start=None, group=1)
    printer = printer_of(kernel, plan)
    printer.aligned = aligned
    return printer.print()
