"""Products of matrices whose rows do not begin at whole vectors, by classes of their rows.

The vendor's fast kernels read and write vectors. Where a row has ``n`` elements, and ``n`` is no
multiple of a vector's, rows begin at any element; but every ``count``-th begins alike, and that
many rows, one behind the other, are one row of a matrix whose rows begin at vectors. So the rows
are taken in ``count`` classes, each from the column on that lies at a vector. From one class to
the next these columns are ``shift`` apart, as the rows' beginnings are, so that all classes are one
batch of equal matrices with equal distances: one product of the vendor's. What lies beside them is
less than two vectors for each class, and left to a kernel of ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

VECTOR = 16  # bytes
LARGE = 1 << 31  # multiplications; below, one more kernel costs more than it saves
_HALVES = (torch.float16, torch.bfloat16)
_aten = torch.ops.aten


@dataclass(frozen=True)
class Classes:
    """Of a matrix of rows of ``length``: rows ``j, j + count, ...`` are class ``j``, which the
    product takes from column ``j * shift`` on, ``width`` columns of them."""

    length: int
    count: int
    shift: int
    width: int

    @property
    def first(self) -> int:
        """Columns at the beginnings of rows that some class leaves out."""
        return self.shift * (self.count - 1)

    @property
    def beside(self) -> int:
        """Columns that each class leaves out."""
        return self.length - self.width


def classes_of(rows: int, length: int, step: int) -> Classes | None:
    """The classes of ``rows`` rows of ``length`` elements, for vectors of ``step``; None where all
    rows begin at vectors, where a class would have more rows than another, and where a row has
    less than is left out."""
    count, shift = step // math.gcd(length, step), -length % step
    width = (length - shift * (count - 1)) // step * step
    if count == 1 or rows % count or 2 * width <= length:
        return None
    return Classes(length, count, shift, width)


def by_columns(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """``left @ right``, by classes of the rows of the result; as a graph runs it uncompiled."""
    return torch.mm(left, right)


def by_terms(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """``left @ right``, by classes of the rows of ``left``; as a graph runs it uncompiled."""
    return torch.mm(left, right)


def by_rows(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """``left @ right``: as many of its rows as whole vectors have, and the others by themselves.

    The vendor's fast kernels want a number of rows like that, where ``left`` lies by columns.
    """
    rows = left.shape[0]
    whole = rows - rows % (VECTOR // left.itemsize)
    out = left.new_empty((rows, right.shape[1]))
    torch.mm(left[:whole], right, out=out[:whole])
    torch.mm(left[whole:], right, out=out[whole:])
    return out


BY_CLASSES = (by_columns, by_terms)
by_rows.reason = "the vendor's library, the last rows by themselves"  # type: ignore[attr-defined]
for _way in BY_CLASSES:
    _way.reason = "the vendor's library, by classes of rows that begin alike"  # type: ignore[attr-defined]


def way_of(node: torch.fx.Node) -> object | None:
    """Which of :data:`BY_CLASSES` is the faster way to compute a node's product, if one is."""
    if node.target is not _aten.mm.default:
        return None
    left, right = (a.meta["val"] for a in node.args if isinstance(a, torch.fx.Node))
    out = node.meta["val"]
    if out.dtype not in _HALVES or left.dtype is not out.dtype or not out.is_contiguous():
        return None
    numbers = (*left.shape, *right.shape, *left.stride(), *right.stride())
    if any(type(n) is not int for n in numbers):
        return None
    step = VECTOR // out.itemsize
    (m, k), n = left.shape, right.shape[1]
    if m * n * k < LARGE:
        return None
    if n % step:
        fits = _rows(left, step) and _rows(right.t(), step) and classes_of(m, n, step)
        return by_columns if fits else None
    fits = left.is_contiguous() and _rows(right, step) and classes_of(m, k, step)
    return by_terms if fits else None


def _rows(t: torch.Tensor, step: int) -> bool:
    """Whether each row of the matrix lies together and begins at a whole vector."""
    return t.stride(1) == 1 and t.stride(0) % step == 0 and t.stride(0) >= t.shape[1]
