"""Rules for images that are read where a tensor of coordinates says: grid_sample on CUDA.

The formulas are those of ``ATen/native/cuda/GridSampler.cuh``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fastpath.ir import expr as E
from fastpath.ir.elementwise import NotLowered, apply
from fastpath.ir.expr import Expr
from fastpath.ir.index import Index, Lookup
from fastpath.ir.pieces import both
from fastpath.ir.program import Position, Tensor
from fastpath.ir.size import known

Rule = Callable[[Any, Any, dict[str, Any]], Any]
_MODES = ("bilinear", "nearest", "bicubic")
_BORDERS = ("zeros", "border", "reflection")
# Up to which eager has cuDNN sample what it can (``ATen/native/GridSampler.h``).
CUDNN_CHANNELS = 1024


class _Side:
    """One dimension of the image, ``n`` elements: from coordinates of -1 to 1 to places in it."""

    def __init__(self, n: int, border: str, aligned: bool, dtype: str):
        self.n, self.border, self.aligned, self.dtype = n, border, aligned, dtype

    def number(self, value: float) -> Expr:
        return E.const(value, self.dtype)

    def place(self, coordinate: Expr) -> Expr:
        """Where a coordinate is in the image, moved into it if there are no zeros around it."""
        number, one, half = self.number, self.number(1), self.number(0.5)
        shifted = apply("add", coordinate, one)
        if self.aligned:
            found = apply("mul", apply("mul", shifted, half), number(self.n - 1))
        else:
            found = apply("mul", apply("sub", apply("mul", shifted, number(self.n)), one), half)
        if self.border == "zeros":
            return found
        if self.border == "reflection":
            found = self._reflected(found)
        # of nan the first, as in eager
        return apply("fmin", apply("fmax", found, number(0)), number(self.n - 1))

    def _reflected(self, place: Expr) -> Expr:
        """Mirrored in the middles of the outermost elements, or in their outer edges."""
        least = 0.0 if self.aligned else -0.5
        span = float(self.n - 1 if self.aligned else self.n)
        if span == 0:
            return self.number(0)
        away = apply("abs", apply("sub", place, self.number(least)))
        extra = apply("fmod", away, self.number(span))
        flips = apply("floor", apply("truediv", away, self.number(span)))
        odd = apply("ne", apply("fmod", flips, self.number(2)), self.number(0))
        back = apply("where", odd, apply("sub", self.number(span), extra), extra)
        return apply("add", back, self.number(least))

    def inside(self, whole: Expr) -> Expr:
        if self.border != "zeros":
            return E.TRUE
        above = apply("ge", whole, self.number(0))
        return apply("logical_and", above, apply("le", whole, self.number(self.n - 1)))

    def index(self, whole: Expr) -> Index:
        """A place without a fraction as a position; one outside is one inside, of nan the first."""
        low = apply("fmax", whole, self.number(0))
        place = apply("fmin", low, self.number(self.n - 1))
        return Index({Lookup(E.cast(place, "int64"), self.n): 1})


def _grid_sample(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    t, grid = bound["input"], bound["grid"]
    mode, border = _MODES[bound["interpolation_mode"]], _BORDERS[bound["padding_mode"]]
    if lowering.target.name == "cpu":
        raise NotLowered("samples: ATen finds their places and weights once for all channels")
    if mode == "bicubic":
        raise NotLowered("cubic samples")
    if t.dtype not in ("float32", "float64") or grid.dtype != t.dtype:
        raise NotLowered(f"samples of {t.dtype}")
    if not known(*t.shape[-2:]):
        raise NotLowered("an image of a size that each call chooses")
    dtype = t.dtype
    height, width = (_Side(n, border, bound["align_corners"], dtype) for n in t.shape[-2:])
    zero, one = E.const(0, dtype), E.const(1, dtype)
    # Those that cuDNN samples are multiplied by weights of nan also where they are zeros.
    aligned, few = bound["align_corners"], known(t.shape[1]) and t.shape[1] <= CUDNN_CHANNELS
    weighted = mode == "bilinear" and border == "zeros" and aligned and few

    def body(index: Position) -> Expr:
        batch, channel, *at = index
        x = width.place(grid.read((batch, *at, Index({}, 0))))
        y = height.place(grid.read((batch, *at, Index({}, 1))))

        def read(row: Expr, column: Expr, weight: Expr | None = None) -> Expr:
            value = t.read((batch, channel, height.index(row), width.index(column)))
            within = both(height.inside(row), width.inside(column))

            def or_nothing(value: Expr) -> Expr:
                return value if within is E.TRUE else apply("where", within, value, zero)

            if weight is None:
                return or_nothing(value)
            if weighted:
                return apply("mul", or_nothing(value), weight)
            return or_nothing(apply("mul", value, weight))  # left out, whatever its weight

        if mode == "nearest":
            return read(apply("round", y), apply("round", x))
        left, top = apply("floor", x), apply("floor", y)
        right, bottom = apply("add", left, one), apply("add", top, one)
        east, south = apply("sub", x, left), apply("sub", y, top)
        west, north = apply("sub", one, east), apply("sub", one, south)
        terms = [
            read(row, column, apply("mul", by_row, by_column))
            for row, by_row in ((top, north), (bottom, south))
            for column, by_column in ((left, west), (right, east))
        ]
        return functools.reduce(functools.partial(apply, "add"), terms)

    return lowering.output(val, body, "grid_sample")


RULES: dict[str, Rule] = {"sample:grid2d": _grid_sample}
