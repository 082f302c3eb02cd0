"""Between which numbers a value lies, where its expression tells: of integers whose parts all have
31 bits and a sign the places that they mean are computed in 32 bits, which is what a GPU has."""

from __future__ import annotations

import math
from collections.abc import Callable

from fastpath.gpu.reach import WIDE
from fastpath.ir.expr import Expr
from fastpath.ir.size import Undecided, known
from specs.dtypes import int_range, is_float

Range = tuple[float, float]
COMPARISONS = {"lt", "le", "gt", "ge", "eq", "ne"}
ROUNDING = 1e-6  # of each result in float32: more than an operation can be wrong by
MOST = float(1 << 50)  # whole numbers up to here are exact in the arithmetic of ranges


class Ranges:
    """Ranges of the expressions of one kernel."""

    def __init__(self) -> None:
        self._found: dict[Expr, Range | None] = {}
        self._small: dict[Expr, bool] = {}

    def of(self, e: Expr) -> Range | None:
        """The least and the greatest value, or more; None where that is not known, or nan may be
        among them."""
        if e not in self._found:
            self._found[e] = _rounded(e, self._of(e))
        return self._found[e]

    def small(self, e: Expr) -> bool:
        """Whether an integer of 64 bits is computed the same in 32, from the start."""
        if e not in self._small:
            self._small[e] = e.dtype == "int64" and self._fits(e)
        return self._small[e]

    def _fits(self, e: Expr) -> bool:
        found = self.of(e)
        if found is None or found[0] < -WIDE or found[1] > WIDE:
            return False
        if e.op in ("const", "index", "cast", "bounded"):
            return True
        if e.op == "where":
            return all(self.small(a) for a in e.args[1:])
        return e.op in ARITHMETIC and all(self.small(a) for a in e.args)

    def _of(self, e: Expr) -> Range | None:
        if not (e.dtype == "int64" or e.dtype == "int32" or e.dtype == "float32"):
            return None
        if e.op == "const":
            return (e.args[0], e.args[0]) if math.isfinite(e.args[0]) else None
        if e.op == "index":
            return _of_index(e)
        if e.op == "bounded":
            extent = e.args[1].extent
            return (0, max(extent - 1, 0)) if known(extent) else None
        if e.op == "cast":
            return self._cast(e)
        if e.op == "load" and e.dtype == "int32":
            return int_range("int32")
        if e.op == "where":
            return _joined(self.of(e.args[1]), self.of(e.args[2]))
        rule = ARITHMETIC.get(e.op)
        given = [self.of(a) for a in e.args] if rule is not None else [None]
        return rule(*given) if rule is not None and None not in given else None

    def _cast(self, e: Expr) -> Range | None:
        (given,) = e.args
        found = self.of(given)
        if found is None and given.dtype in NARROW:
            return int_range(given.dtype)
        if found is not None and is_float(given.dtype) and not is_float(e.dtype):
            return float(math.trunc(found[0])), float(math.trunc(found[1]))
        return found


def _of_index(e: Expr) -> Range | None:
    try:
        low, high = e.args[0].bounds()
    except Undecided:
        return None
    return (low, high) if known(low, high) else None


def _rounded(e: Expr, found: Range | None) -> Range | None:
    """What an operation of ``e``'s type may make of that range."""
    if found is None or not -MOST < found[0] <= found[1] < MOST:
        return None
    if not is_float(e.dtype):
        first, last = int_range(e.dtype)
        return found if first <= found[0] and found[1] <= last else None
    low, high = found
    return low - abs(low) * ROUNDING, high + abs(high) * ROUNDING


def _joined(a: Range | None, b: Range | None) -> Range | None:
    return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))


def _product(a: Range, b: Range) -> Range:
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)


def _sum(a: Range, b: Range) -> Range:
    return a[0] + b[0], a[1] + b[1]


def _size(a: Range) -> Range:
    return max(a[0], -a[1], 0), max(-a[0], a[1])


ARITHMETIC: dict[str, Callable[..., Range]] = {
    "add": _sum,
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _product,
    "fma": lambda a, b, c: _sum(_product(a, b), c),
    "neg": lambda a: (-a[1], -a[0]),
    "abs": _size,
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "floor": lambda a: (float(math.floor(a[0])), float(math.floor(a[1]))),
    "ceil": lambda a: (float(math.ceil(a[0])), float(math.ceil(a[1]))),
}
NARROW = ("bool", "uint8", "int8", "int16", "int32")
