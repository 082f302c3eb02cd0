"""Tiles through which a kernel reads what is contiguous along another axis than its lanes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fastpath.ir.expr import Expr
from fastpath.ir.index import Axis
from fastpath.ir.size import hint
from fastpath.schedule import streams
from fastpath.schedule.kernel import Kernel, Store, Transposed, itemsize

LEAST_TILES = 8  # one behind the other, where they are flat
FEWEST = 16  # rows of a tile
AHEAD = 16  # rows, of what is read as it lies


def transpose_tiles(kernel: Kernel, side: int, narrowest: int) -> Kernel:
    """Read what is contiguous along another axis than the lanes, of ``narrowest`` elements at
    least, through tiles of ``side``."""
    lane = kernel.lane
    if lane is None or len(kernel.stages) != 1 or kernel.stages[0].axes:
        return kernel
    if hint(lane.extent) < side:
        return kernel
    across: dict[Axis, list[Expr]] = {}
    for e in kernel.stages[0].loads():
        step = e.args[1].coefficient(lane)
        if step in (0, 1, None) or e.args[1].lookups():
            continue
        for axis in kernel.outer:
            if e.args[1].coefficient(axis) == 1 and hint(axis.extent) >= narrowest:
                across.setdefault(axis, []).append(e)
    if not across:
        return kernel
    tile = max(across, key=lambda axis: len(across[axis]))
    values: dict[Expr, Expr] = {}
    for e in across[tile]:
        buffer, index = e.args
        name = f"tile{len(kernel.transposed)}"
        step = index.coefficient(lane) or 0
        kernel.transposed.append(Transposed(name, buffer, e.dtype, index, step))
        values[e] = Expr("tile", (name,), e.dtype)
    kernel.tile, kernel.rows, kernel.block = tile, side, side
    kernel.outer = tuple(a for a in kernel.outer if a is not tile)
    stage = kernel.stages[0]
    stage.statements = [
        replace(s, value=_replace(s.value, values))
        for s in stage.statements
        if isinstance(s, Store)
    ]
    return kernel


def flatten_tiles(kernel: Kernel, rows: int, most: int, sizes: Mapping[str, int]) -> None:
    """Tiles that follow each other along what they turn, where memory is waited for.

    Then lines of what is turned are read in their order, and what tiles next to each other read is
    little enough to be asked for ahead, though rows may begin where they displace each other.
    Neighbours along the lanes are far apart then, so no line may belong to two.

    Tiles are of up to ``rows``, so that many lines are read of a page before the next page is, and
    take ``most`` bytes at most; of as few as make a line of memory, where there are no more.
    """
    tile, cache = kernel.tile, streams.last_level_cache()
    if tile is None or kernel.lane is None or not rows or not cache or sum(sizes.values()) <= cache:
        return
    line = streams.STREAM_ALIGNMENT
    widths = [itemsize(turned.dtype) for turned in kernel.transposed]
    least = max(FEWEST, line // min(widths))
    if not isinstance(tile.extent, int) or tile.extent < LEAST_TILES * least:
        return
    items = {b.name: itemsize(b.dtype) for b in kernel.buffers}
    (stage,) = kernel.stages
    for s in stage.statements:
        assert isinstance(s, Store)
        step = s.index.coefficient(tile)
        if not isinstance(step, int) or step * items[s.buffer] % line:
            return
    while rows > least and (
        rows * kernel.block * sum(widths) > most or tile.extent < LEAST_TILES * rows
    ):
        rows //= 2
    kernel.rows, kernel.downwards = max(rows, least), AHEAD


def _replace(e: Expr, values: dict[Expr, Expr]) -> Expr:
    """``e`` with expressions replaced; ``values`` doubles as the memo."""
    known = values.get(e)
    if known is None:
        known = e.mapped(lambda a: _replace(a, values)) if e.operands() else e
        values[e] = known
    return known
