"""A scheduled kernel: explicit loops over scalar statements, for any printer.

Work is cut into *units*. A unit fixes the ``outer`` axes and, where there is a ``lane`` axis, a
block of it (and of the ``tile`` axis, where there is one). In a unit the ``stages`` run one after
the other; each is a nest of loops over its ``axes`` with, innermost, a loop over the lanes of the
block.

Scalar expressions use, besides the scalar rows, ``const``, ``index`` and ``cast``:

- ``argument``: ``(name,)``, an int64 that the kernel is given;
- ``load``: ``(buffer name, Index)``, an element of memory;
- ``guarded``: ``(buffer name, Index, condition)``, the same, or 0 where the condition is false, and
  then the memory is not touched;
- ``bounded``: ``(integer, Bounds)`` or ``(integer, Bounds, condition)``, a position that is data
  (see :class:`fastpath.ir.expr.Expr`);
- ``reduced``: ``(reduction name,)``, the finished value of an earlier stage's accumulator
  (one per lane where there is a lane axis);
- ``running``: ``(scan name,)``, the accumulator of this stage as it is at this point of its loop;
- ``scratch``: ``(scratch name, Index)``, an element of the unit's own scratch row;
- ``dot``: ``(element, element)``, the product of two elements of blocks that are multiplied;
- ``tile``: ``(name of a Transposed,)``, the element of a transposed tile at the lane and tile axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from fastpath.ir.expr import Bounds, Expr, inside
from fastpath.ir.index import Axis, Index
from fastpath.ir.program import Tile
from fastpath.ir.size import Number, Size
from specs.dtypes import BYTES, PART_OF

PARTS = 64  # of places that are data, among which threads choose
ITEMSIZE = {"bool": 1, "uint8": 1, "int8": 1, "int16": 2, "float16": 2, "bfloat16": 2}
ITEMSIZE |= {"complex128": 16} | dict.fromkeys(BYTES, 1)


def itemsize(dtype: str) -> int:
    return ITEMSIZE.get(dtype, 8 if dtype.endswith("64") else 4)


def in_memory(dtype: str) -> tuple[str, int]:
    """What a kernel sees of an element in memory: the dtype of its parts, and how many they are."""
    return (PART_OF[dtype], 2) if dtype in PART_OF else (dtype, 1)


@dataclass(frozen=True)
class Store:
    """``adds``: to what is there, among other units that do so."""

    buffer: str
    index: Index
    value: Expr
    adds: bool = False


@dataclass(frozen=True)
class Keep:
    """Write one element of a scratch row."""

    scratch: str
    index: Index
    value: Expr


@dataclass(frozen=True)
class Accumulate:
    """``accumulator = kind(accumulator, value)``; the dtype is the value's.

    ``running``: the statements behind it read the accumulator as it is then, so that the order of
    the loop's values counts.
    """

    reduction: str
    kind: str
    value: Expr
    running: bool = False


Statement = Store | Keep | Accumulate


@dataclass
class Stage:
    axes: tuple[Axis, ...]
    statements: list[Statement]

    def loads(self) -> list[Expr]:
        """The distinct elements of memory that it reads without a condition."""
        return self._reads("load")

    def guarded(self) -> list[Expr]:
        """Those that it reads on a condition."""
        return self._reads("guarded")

    def _reads(self, op: str) -> list[Expr]:
        return [e for e in inside(s.value for s in self.statements) if e.op == op]


@dataclass(frozen=True)
class Buffer:
    """A kernel argument: the address of the first element of a tensor of ``dtype``."""

    name: str
    dtype: str
    written: bool


@dataclass(frozen=True)
class Transposed:
    """A buffer that is contiguous along the tile axis: each unit first copies its tile, turned.

    ``index`` is the element's place in the buffer as usual; its coefficient along the tile axis is
    1, and along the lane ``step``.
    """

    name: str
    buffer: str
    dtype: str
    index: Index
    step: Number


@dataclass
class Kernel:
    name: str
    outer: tuple[Axis, ...]
    lane: Axis | None
    block: int  # lanes of a unit
    stages: list[Stage]
    buffers: list[Buffer]
    scratch: dict[str, tuple[str, int]] = field(default_factory=dict)  # name -> dtype, elements
    work: Number = 0  # element operations, about: what threads are worth
    tile: Axis | None = None  # runs in blocks of ``rows``; its loop is outside the lanes'
    rows: int = 1  # of a tile
    downwards: int = 0  # rows that are asked for ahead, where tiles follow each other along theirs
    transposed: list[Transposed] = field(default_factory=list)
    streamed: frozenset[str] = frozenset()  # buffers written past the caches: see streams.py
    in_place: frozenset[str] = frozenset()  # buffers whose old elements are read, then written
    pairs: bool = False  # the innermost loops may take two elements at a time: see pairs.py
    asked: frozenset[str] = frozenset()  # what loops read is asked for as they go: see ahead.py
    several: int = 1  # units side by side along the lanes that are gone through at once, at most
    ahead: tuple[Any, ...] = ()  # what is asked of memory before it is read: see ahead.py

    parted: Expr | None = None  # a unit makes the writes to a part of the places that it gives

    product: Tile | None = (
        None  # it begins with one: a ``dot`` is added up over all that is reduced
    )

    sizes: list[Size] = field(default_factory=list)  # that the printed kernel is given
    arguments: list[str] = field(default_factory=list)  # names of numbers, behind the buffers
    wide: bool | None = None  # whether places need 64 bits, where sizes leave it open

    @property
    def sized(self) -> bool:
        """Whether each call chooses the extents of its loops, or the places of elements."""
        return bool(self.sizes) or self.units is None or isinstance(self.work, Size)

    def running(self) -> bool:
        """Whether a stage reads an accumulator within its loop."""
        return any(
            isinstance(s, Accumulate) and s.running for g in self.stages for s in g.statements
        )

    def scattered(self) -> list[Store]:
        """The stores whose places are data."""
        statements = [s for stage in self.stages for s in stage.statements]
        return [s for s in statements if isinstance(s, Store) and s.index.lookups()]

    def bounds(self) -> list[Bounds]:
        """What its positions that are data are held against, each once."""
        values = [s.value for stage in self.stages for s in stage.statements]
        values += [e for s in self.scattered() for e in s.index.lookups()]
        return list(dict.fromkeys(e.args[1] for e in inside(values) if e.op == "bounded"))

    @property
    def blocks(self) -> int | None:
        """Of lanes; None where each call has another number."""
        return _blocks(self.lane, self.block)

    @property
    def tile_blocks(self) -> int | None:
        return _blocks(self.tile, self.rows)

    @property
    def units(self) -> int | None:
        """How many there are; None where each call has another number: see :meth:`units_text`."""
        if self.parted is not None:
            return PARTS
        parts = [*(a.extent for a in self.outer), self.tile_blocks, self.blocks]
        return math.prod(parts) if all(isinstance(n, int) for n in parts) else None

    def units_text(self, number: Callable[[Number], str]) -> str:
        """The number of units as Python; ``number`` prints sizes."""
        if self.parted is not None:
            return str(PARTS)
        factors = [number(a.extent) for a in self.outer]
        for axis, length in ((self.tile, self.rows), (self.lane, self.block)):
            count = _blocks(axis, length)
            if axis is not None and count != 1:
                blocks = f"(-(-{number(axis.extent)} // {length}))"
                factors.append(blocks if count is None else str(count))
        return " * ".join(factors) or "1"


def _blocks(axis: Axis | None, length: int) -> int | None:
    if axis is None:
        return 1
    return -(-axis.extent // length) if isinstance(axis.extent, int) else None


def _rewrite(e: Expr, values: dict[Axis, Index], memo: dict[Expr, Expr]) -> Expr:
    known = memo.get(e)
    if known is None:

        def change(a: Expr) -> Expr:
            return _rewrite(a, values, memo)

        known = memo[e] = e.mapped(change, lambda index: index.substitute(values))
    return known


def substitute(kernel: Kernel, values: dict[Axis, Index]) -> None:
    """Let axes have other values in all that ``kernel`` computes; its loops stay as they are."""
    memo: dict[Expr, Expr] = {}
    for stage in kernel.stages:
        changed: list[Statement] = []
        for s in stage.statements:
            value = _rewrite(s.value, values, memo)
            if isinstance(s, Store):
                changed.append(replace(s, index=s.index.substitute(values), value=value))
            elif isinstance(s, Keep):
                changed.append(Keep(s.scratch, s.index.substitute(values), value))
            else:
                changed.append(replace(s, value=value))
        stage.statements = changed
