"""How a scheduled kernel is laid over programs of the GPU: which axes, in which blocks.

A program takes a block of the *kept* points (all outer axes and the lanes, flattened, the fastest
last) and, where the kernel reduces, blocks of the *reduced* points one after the other, or all of
them at once if they fit into its registers (``persistent``). A kernel with transposed tiles takes
squares of its lane and its tile axis instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fastpath.ir.index import Axis
from fastpath.schedule.kernel import Kernel
from fastpath.schedule.loops import itemsize

LANES = 32  # threads of a warp
VECTOR = 16  # bytes that a thread loads at once
PERSISTENT = 16_384  # reduced points that one program may hold in its registers
POINTS = 1024  # of a program without reductions
MOST_WARPS = 16
SQUARE = 64  # side of a tile that is transposed


@dataclass(frozen=True)
class Tiling:
    """``x``: the kept axes, slowest first; ``y``: the tile axis; ``r``: the reduced axes;
    ``outer``: axes of which a program has one value each.

    ``x_block``, ``y_block`` and ``r_block`` are powers of two; 1 where there is nothing to block.
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

    @property
    def x_points(self) -> int:
        return math.prod(a.extent for a in self.x)

    @property
    def r_points(self) -> int:
        return math.prod(a.extent for a in self.r)

    @property
    def programs(self) -> int:
        return math.prod(a.extent for a in self.outer) * self.y_blocks * self.x_blocks

    @property
    def x_blocks(self) -> int:
        return -(-self.x_points // self.x_block)

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
        return _pointwise(x)
    (r,) = nests
    return _columns(kernel, x, r) if _keeps_lanes(kernel) else _rows(x, r)


def _keeps_lanes(kernel: Kernel) -> bool:
    """Whether neighbours in memory belong to different results."""
    return kernel.lane is not None and kernel.lane.extent > 1


def _pointwise(x: tuple[Axis, ...]) -> Tiling:
    points = math.prod(a.extent for a in x)
    block = min(POINTS, max(LANES, power_above(points)))
    return Tiling(x, None, (), block, 1, 1, True, max(1, min(4, block // (8 * LANES))))


def _square(kernel: Kernel) -> Tiling:
    lane, tile = kernel.lane, kernel.tile
    assert lane is not None and tile is not None
    x_block = min(SQUARE, power_above(lane.extent))
    y_block = min(SQUARE, power_above(tile.extent))
    warps = max(1, min(8, x_block * y_block // (16 * LANES)))
    return Tiling((lane,), tile, (), x_block, y_block, 1, True, warps, kernel.outer)


def _rows(x: tuple[Axis, ...], r: tuple[Axis, ...]) -> Tiling:
    """Neighbours in memory are reduced together: a program takes whole rows, short ones several."""
    width, rows = math.prod(a.extent for a in r), math.prod(a.extent for a in x)
    if width > PERSISTENT:
        return Tiling(x, None, r, 1, 1, 4096, False, 8)
    r_block = power_above(width)
    x_block = min(max(1, 1024 // r_block), power_above(rows))
    warps = max(1, min(MOST_WARPS, x_block * r_block // (16 * LANES)))
    return Tiling(x, None, r, x_block, 1, r_block, True, warps)


def _columns(kernel: Kernel, x: tuple[Axis, ...], r: tuple[Axis, ...]) -> Tiling:
    """Neighbours in memory are different results: rows of blocks are added up one on another."""
    width, results = math.prod(a.extent for a in r), math.prod(a.extent for a in x)
    # A warp should take whole lines of memory; few results share their rows among more programs.
    line = LANES * VECTOR // min(itemsize(b.dtype) for b in kernel.buffers)
    x_block = min(power_above(results), line)
    while x_block > LANES and -(-results // x_block) < 128:
        x_block //= 2
    r_block = min(power_above(width), max(1, 4096 // x_block), 64)
    warps = max(1, min(8, x_block * r_block // (16 * LANES)))
    return Tiling(x, None, r, x_block, 1, r_block, width <= r_block, warps)
