"""How a scheduled kernel is laid over programs of the GPU: which axes, in which blocks.

A program takes a block of the *kept* points (all outer axes and the lanes, flattened, the fastest
last) and, where the kernel reduces, blocks of the *reduced* points one after the other, or all of
them at once if they fit into its registers (``persistent``). A kernel with transposed tiles takes
squares of its lane and its tile axis instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fastpath.gpu.online import online
from fastpath.gpu.rows import common_beginning
from fastpath.gpu.words import WORDS, piece_of, stripe_of
from fastpath.ir.index import Axis, Index
from fastpath.schedule.kernel import Kernel, Store
from fastpath.schedule.loops import itemsize

# Measured on an H200, as are the shapes below: what is nearest to the speed of a copy.
LANES = 32  # threads of a warp
PERSISTENT = 16_384  # reduced points that one program may hold in its registers
VECTORS = 32  # bytes that a thread of a kernel without reductions loads from each buffer
LINE = 128  # bytes of a row that a program of column sums takes
ROWS = 16  # that it adds up at a time, half as many if there are few
SHORT = 512  # rows that are few
FEW = 264  # programs that are too few: two for each multiprocessor
A_THREAD = 32  # points of a thread that reduces rows
MOST_WARPS = 16
LONG = 4096  # points of a row from which on it is laid by vectors
LOOPED = 2048  # points of a row that a program which loops takes at a time
A_LOOP = 16  # points of its threads
AGAIN_WARPS = 16  # of a program that goes through its row more than once
AGAIN_LOOP = 16  # points of its threads
SQUARE = 256  # bytes of a row of a tile that is transposed
MOST_SIDE = 128  # elements of it


@dataclass(frozen=True)
class Tiling:
    """``x``: the kept axes, slowest first; ``y``: the tile axis; ``r``: the reduced axes;
    ``outer``: axes of which a program has one value each.

    ``x_block``, ``y_block`` and ``r_block`` are powers of two; 1 where there is nothing to block.
    ``start`` and ``group``: where a row begins by which its vectors are laid, and the elements of
    the largest one, where rows do not begin or end with vectors (:mod:`fastpath.gpu.vectors`).
    ``stripe``: how far apart the four pieces lie that a block is made of, where random words are
    shared by points that lie so far apart (:mod:`fastpath.gpu.words`).
    """

    x: tuple[Axis, ...]
    y: Axis | None
    r: tuple[Axis, ...]
    x_block: int
    y_block: int
    r_block: int
    persistent: bool
    warps: int
    outer: tuple[Axis, ...] = ()
    start: Index | None = None
    group: int = 1
    stripe: int = 0

    @property
    def x_points(self) -> int:
        return math.prod(a.extent for a in self.x)

    @property
    def r_points(self) -> int:
        return math.prod(a.extent for a in self.r)

    @property
    def piece(self) -> int:
        """Points of each of the four pieces of a block, where it is made of these."""
        return self.x_block // WORDS

    @property
    def programs(self) -> int:
        return math.prod(a.extent for a in self.outer) * self.y_blocks * self.x_blocks

    @property
    def x_blocks(self) -> int:
        if self.stripe:
            return -(-self.x_points // (WORDS * self.stripe)) * (self.stripe // self.piece)
        return -(-self.x_points // self.x_block)

    @property
    def whole_blocks(self) -> int:
        """How many of the first ones have no point outside."""
        if self.stripe:
            return self.x_points // (WORDS * self.stripe) * (self.stripe // self.piece)
        return self.x_points // self.x_block

    @property
    def y_blocks(self) -> int:
        return -(-self.y.extent // self.y_block) if self.y is not None else 1


def power_above(n: int) -> int:
    """The least power of two that is not below ``n``."""
    return 1 << max(n - 1, 0).bit_length()


def tiling(kernel: Kernel) -> Tiling:
    if kernel.tile is not None:
        return _square(kernel)
    x = (*kernel.outer, *((kernel.lane,) if kernel.lane is not None else ()))
    nests = {stage.axes for stage in kernel.stages if stage.axes}
    assert len(nests) <= 1, "a kernel reduces over one set of axes"
    if not nests:
        return _pointwise(kernel, x)
    (r,) = nests
    return _columns(kernel, x, r) if _keeps_lanes(kernel) else _rows(kernel, x, r)


def _keeps_lanes(kernel: Kernel) -> bool:
    """Whether neighbours in memory belong to different results."""
    return kernel.lane is not None and kernel.lane.extent > 1


def _least(kernel: Kernel) -> int:
    """Bytes of an element, where it has the fewest."""
    return min(itemsize(b.dtype) for b in kernel.buffers)


def _pointwise(kernel: Kernel, x: tuple[Axis, ...]) -> Tiling:
    points = math.prod(a.extent for a in x)
    stripe = stripe_of(kernel, x)
    if stripe:
        return Tiling(x, None, (), WORDS * piece_of(stripe), 1, 1, True, 4, stripe=stripe)
    a_thread = min(16, VECTORS // _least(kernel))
    block = min(4 * LANES * a_thread, max(LANES, power_above(points)))
    return Tiling(x, None, (), block, 1, 1, True, max(1, block // (a_thread * LANES)))


def _square(kernel: Kernel) -> Tiling:
    lane, tile = kernel.lane, kernel.tile
    assert lane is not None and tile is not None
    side = min(MOST_SIDE, SQUARE // _least(kernel))
    x_block, y_block = (min(side, power_above(a.extent)) for a in (lane, tile))
    warps = max(1, min(8, x_block * y_block // (16 * LANES)))
    return Tiling((lane,), tile, (), x_block, y_block, 1, True, warps, kernel.outer)


def _rows(kernel: Kernel, x: tuple[Axis, ...], r: tuple[Axis, ...]) -> Tiling:
    """Neighbours in memory are reduced together: a program takes whole rows, short ones several."""
    width, rows = math.prod(a.extent for a in r), math.prod(a.extent for a in x)
    common = common_beginning(kernel, r) if width >= LONG and rows > 1 else None
    start, group = common or (None, 1)
    if width > PERSISTENT:
        warps, points = (LOOPED // (A_LOOP * LANES) if rows > FEW else MOST_WARPS), A_LOOP
        if _passes(kernel) > 1:  # so few rows at a time that the cache still holds them
            warps, points = AGAIN_WARPS, AGAIN_LOOP
        block = warps * points * LANES
        return Tiling(x, None, r, 1, 1, block, False, warps, (), start, group)
    r_block = power_above(width + group - 1)
    x_block = min(max(1, A_THREAD * LANES // r_block), power_above(rows)) if start is None else 1
    # Threads for the points that are there, which may be little more than half of the block.
    points = r_block if width > r_block * 3 // 4 else r_block // 2
    # A few programs only wait for memory: more threads do so at a time.
    a_thread = A_THREAD if rows > FEW else A_THREAD // 4
    warps = max(1, min(MOST_WARPS, x_block * points // (a_thread * LANES)))
    return Tiling(x, None, r, x_block, 1, r_block, True, max(1, warps), (), start, group)


def _passes(kernel: Kernel) -> int:
    """How often a program that takes one row in blocks reads it."""
    passes = sum(bool(stage.axes and stage.loads()) for stage in kernel.stages)
    return passes - (online(kernel.stages) is not None)


def _accesses(kernel: Kernel) -> int:
    """Of each element that a program goes through for the first time, what is read and written."""
    (stage, *_) = (g for g in kernel.stages if g.axes)
    return len(stage.loads()) + sum(isinstance(s, Store) for s in stage.statements)


def _columns(kernel: Kernel, x: tuple[Axis, ...], r: tuple[Axis, ...]) -> Tiling:
    """Neighbours in memory are different results: rows of blocks are added up one on another."""
    width, results = math.prod(a.extent for a in r), math.prod(a.extent for a in x)
    x_block = min(power_above(results), LINE // min(4, _least(kernel)))
    if results <= FEW * x_block and x_block > LANES:
        x_block = LANES
    # What is added up in a few programs only waits for memory: more of it at a time.
    rows, a_thread = ROWS if results > FEW * x_block else 4 * ROWS, 8
    if results > FEW * x_block and _accesses(kernel) > 1:  # more is waited for by each thread
        rows, a_thread = 2 * ROWS, 16
    elif results > FEW * x_block and width <= SHORT:
        rows = ROWS // 2
    r_block = min(power_above(width), rows)
    warps = max(1, min(8, x_block * r_block // (a_thread * LANES)))
    return Tiling(x, None, r, x_block, 1, r_block, width <= r_block, warps)
