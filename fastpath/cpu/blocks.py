"""Sums of many terms, a block of them at a time.

What float32 loses by an addition is a part of what the accumulator holds, so that a sum of a
million terms, one after the other, is wrong in its fifth digit. Here an accumulator has the terms
of a block, of which it takes few each after the other: in a row there is one for each lane of some
vectors, and rows go several at once. What it has then is added up in float64, which costs little,
as it is seldom. Where blocks begin depends on sizes alone, and not on threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from fastpath.cpu.gemm import vector_bytes
from fastpath.cpu.scopes import Printing, row_of
from fastpath.ir.index import Axis
from fastpath.schedule.kernel import Accumulate, Stage
from specs.dtypes import is_float
from specs.scalars import cast_text

# Additions to a lane of float32 in a block of a row, of which four vectors are accumulators. These
# lose no more than eager's do, and what is between blocks takes two hundredths of the time.
ADDED, VECTORS = 16, 4
FEWEST, MOST = 6, 64  # additions to the accumulator of a lane in a block
EVEN = 64  # what the length of blocks is a multiple of, where they are of an innermost loop
EVEN_OUTSIDE = 8  # and where they are of a loop around others, which may be unrolled
SUMMED = "float64"


class Span(NamedTuple):
    """Where a loop goes, if not through all of its axis: texts, and how far at most."""

    first: str
    last: str
    length: int


@dataclass(frozen=True)
class Blocks:
    """How a nest of loops goes in blocks: around one are ``outer`` loops, inside are ``inner``. The
    first of these goes through ``length`` at a time, if that is not 0."""

    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    length: int


def blocks_of(axes: Sequence[Axis], most: int) -> Blocks | None:
    """Blocks of about ``most`` terms; None where there are not more."""
    count = 1
    for place in range(len(axes) - 1, -1, -1):
        extent = axes[place].extent
        if isinstance(extent, int) and count * extent <= most:
            count *= extent
            continue
        length = most // count
        if length < 2:
            return Blocks(tuple(axes[: place + 1]), tuple(axes[place + 1 :]), 0)
        if isinstance(extent, int):  # blocks of the same length, about
            length = -(-extent // -(-extent // length))
        even = EVEN if place == len(axes) - 1 else EVEN_OUTSIDE
        if length >= even:
            length = -(-length // even) * even
        return Blocks(tuple(axes[:place]), tuple(axes[place:]), length)
    return None


def terms() -> int:
    """Of a block of a row."""
    return ADDED * VECTORS * (vector_bytes() or 16) // 4


def steps(axes: Sequence[Axis]) -> int:
    """Additions to the accumulator of a lane in a block.

    What they lose grows with their number; of the blocks of a long sum, the losses cancel.
    """
    extents = [axis.extent for axis in axes]
    if not all(isinstance(n, int) for n in extents):
        return 2 * FEWEST
    return min(max(FEWEST, math.isqrt(math.prod(extents)) // 4), MOST)


def in_blocks(stage: Stage) -> list[Accumulate]:
    """The sums of a stage whose accuracy it is a matter of."""
    added = [s for s in stage.statements if isinstance(s, Accumulate)]
    return [s for s in added if s.kind == "sum" and not s.running and is_float(s.value.dtype)]


def whole_of(reduction: str) -> str:
    """The scratch row of the sums of whole blocks, one per lane."""
    return f"blocks of {reduction}"


class Adding(Printing, Protocol):
    """What is needed of the printer."""

    depth: int
    spans: dict[Axis, Span]

    def loop(self, axis: Axis) -> None: ...

    def identity(self, kind: str, dtype: str) -> str: ...


class InBlocks:
    """Prints a stage that goes in blocks; ``body`` prints one."""

    def __init__(self, printer: Adding, stage: Stage, blocks: Blocks):
        self.printer, self.stage, self.blocks = printer, stage, blocks
        self.sums = in_blocks(stage)

    def print(self, body: Callable[[Stage], None]) -> None:
        printer, depth = self.printer, self.printer.depth
        nothing = printer.identity("sum", SUMMED)
        self._set(whole_of, lambda s, part, whole: nothing)
        for axis in self.blocks.outer:
            printer.loop(axis)
        axis, length = self.blocks.inner[0], self.blocks.length
        if length:
            extent, first = printer.number(axis.extent), f"block_{printer.axis(axis)}"
            printer.line(f"for {first} in range(0, {extent}, {length}):")
            printer.depth += 1
            last = f"{first} + {length}"
            if not isinstance(axis.extent, int) or axis.extent % length:
                printer.line(f"end_{printer.axis(axis)} = min({last}, {extent})")
                last = f"end_{printer.axis(axis)}"
            printer.spans[axis] = Span(first, last, length)
        self._set(row_of, lambda s, part, whole: printer.identity("sum", s.value.dtype))
        body(Stage(self.blocks.inner, self.stage.statements))
        self._set(
            whole_of, lambda s, part, whole: f"{whole} + {_cast(s.value.dtype, SUMMED, part)}"
        )
        printer.spans.pop(axis, None)
        printer.depth = depth
        self._set(row_of, lambda s, part, whole: _cast(SUMMED, s.value.dtype, whole))

    def _set(
        self, target: Callable[[str], str], value: Callable[[Accumulate, str, str], str]
    ) -> None:
        """Write the accumulators of a block, or those of all blocks, by what both are."""
        printer = self.printer
        if printer.kernel.lane is None:
            for s in self.sums:
                number = printer.scope_name(s.reduction)
                part, whole = f"acc_{number}", f"whole_{number}"
                name = part if target is row_of else whole
                printer.line(f"{name} = {value(s, part, whole)}")
            return
        first, last = printer.range["lane"]
        printer.line(f"for lane in range({last if first == '0' else f'{last} - {first}'}):")
        for s in self.sums:
            part, whole = (self._at(row(s.reduction)) for row in (row_of, whole_of))
            row = target(s.reduction)
            store, place = printer.memory("store", row), printer.scope[row]
            printer.line(f"    {store}(p{place}, lane, {value(s, part, whole)})")

    def _at(self, row: str) -> str:
        return f"{self.printer.memory('load', row)}(p{self.printer.scope[row]}, lane)"


def _cast(dtype: str, to: str, text: str) -> str:
    return text if dtype == to else cast_text("numba", dtype, to, text)
