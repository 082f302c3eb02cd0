"""Shapes and memory layouts of tensors, as hypothesis strategies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from conformance.case import Literal, Storage, Tensor
from conformance.strategies.contents import PALETTES, contents

Shape = tuple[int, ...]

# Either side of the vector widths of the common instruction sets, and the sizes that specialise.
LENGTHS = (2, 3, 1, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 65)
MAX_ELEMENTS = 600
LAYOUTS = ("contiguous", "offset", "permuted", "sliced", "expanded")


@st.composite
def shapes(
    draw: st.DrawFn, min_rank: int = 0, max_rank: int = 4, empty: bool = True, min_length: int = 1
) -> Shape:
    """A shape of about :data:`MAX_ELEMENTS` elements at most; now and then 0-dim, or with a 0."""
    ranks = [r for r in (1, 2, 3, 0, 4, 5) if min_rank <= r <= max_rank]
    rank = draw(st.sampled_from(ranks))
    shape: list[int] = []
    for _ in range(rank):
        room = MAX_ELEMENTS // max(1, math.prod(shape))
        shape.append(draw(st.sampled_from(_fitting(min_length, room))))
    if empty and rank and draw(st.integers(0, 15)) == 15:
        shape[draw(st.integers(0, rank - 1))] = 0
    return tuple(shape)


@st.composite
def broadcastable(draw: st.DrawFn, common: Shape) -> Shape:
    """A shape that broadcasts to ``common``: often itself, else with 1s or fewer dimensions."""
    how = draw(st.integers(0, 3))
    if how <= 1:
        return common
    if how == 2:
        return common[draw(st.integers(0, len(common))) :]
    return tuple(1 if draw(st.booleans()) else n for n in common)


def _fitting(low: int, high: int) -> list[int]:
    return [n for n in LENGTHS if low <= n <= max(high, low)] or [low]


@dataclass(frozen=True)
class Layout:
    """Where the elements of a tensor lie in its storage, in elements."""

    size: int
    strides: tuple[int, ...] | None
    offset: int


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    strides: list[int] = []
    step = 1
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))


@st.composite
def layouts(draw: st.DrawFn, shape: Shape, kinds: Sequence[str] = LAYOUTS) -> Layout:
    """A layout of ``shape``: contiguous mostly, else one of ``kinds``."""
    kind = draw(st.sampled_from(("contiguous", *kinds)))
    count = math.prod(shape)
    match kind:
        case "offset" if shape:
            return Layout(count + 3, dense(shape), 3)  # not aligned to any vector
        case "permuted" if len(shape) > 1:
            order = draw(st.permutations(range(len(shape))))
            inner = dense([shape[i] for i in order])
            strides = [0] * len(shape)
            for place, axis in enumerate(order):
                strides[axis] = inner[place]
            return Layout(count, tuple(strides), 0)
        case "sliced" if shape:
            return Layout(2 * count + 1, tuple(2 * step for step in dense(shape)), 1)
        case "expanded" if shape:
            flat = [draw(st.booleans()) for _ in shape]
            inner = dense([1 if f else n for f, n in zip(flat, shape, strict=True)])
            size = math.prod(1 if f else n for f, n in zip(flat, shape, strict=True))
            return Layout(size, tuple(0 if f else s for f, s in zip(flat, inner, strict=True)), 0)
    return Layout(count, None, 0)


@dataclass(frozen=True)
class Drawing:
    """How one tensor is made: its layout is fixed, its contents differ from call to call."""

    name: str
    dtype: str
    shape: Shape
    layout: Layout
    palette: str
    seed: int
    bounds: tuple[float, ...] = ()
    nonzero: bool = False
    summed: bool = False
    least: float = 0.0
    nan: bool = True

    def make(self, call: int) -> tuple[Storage, Tensor]:
        """The storage and the tensor of call number ``call``; later calls get nastier values."""
        suffix = "" if call == 0 else str(call + 1)
        palette = self.palette if call == 0 else PALETTES[-1]
        values = contents(
            self.seed + call,
            palette,
            self.dtype,
            self.layout.size,
            self.bounds,
            self.nonzero,
            self.summed,
            self.least,
            self.nan,
        )
        # What lies around a view is observed too: nothing may be written there.
        base = f"_{self.name}" if self.layout.strides is None else f"{self.name}_storage"
        storage = Storage(f"{base}{suffix}", self.dtype, self.layout.size, Literal(values))
        return storage, Tensor(
            f"{self.name}{suffix}",
            storage.name,
            self.shape,
            self.layout.strides,
            self.layout.offset,
        )


@st.composite
def drawings(
    draw: st.DrawFn,
    name: str,
    dtype: str,
    shape: Shape,
    bounds: tuple[float, ...] = (),
    nonzero: bool = False,
    kinds: Sequence[str] = LAYOUTS,
    summed: bool = False,
    least: float = 0.0,
    nan: bool = True,
) -> Drawing:
    """A tensor of that dtype and shape: its layout and the palette of its values are drawn."""
    layout = draw(layouts(shape, kinds))
    palette = draw(st.sampled_from(PALETTES))
    seed = draw(st.integers(0, 999))
    return Drawing(name, dtype, shape, layout, palette, seed, bounds, nonzero, summed, least, nan)
