"""Views as index arithmetic: each rule maps a position of the view to one of its base."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastpath.ir import expr as E
from fastpath.ir.expr import Expr
from fastpath.ir.index import ZERO, Index, constant, regroup
from fastpath.ir.program import Position, Tensor
from specs.dtypes import COMPLEX_OF, PART_OF

Seen = tuple[str, Callable[[Position], Expr]]
Map = Callable[[Position], Position]
Shape = Sequence[int]


def _axis(dim: int, rank: int) -> int:
    return dim + rank if dim < 0 else dim


def permute(base: Shape, shape: Shape, dims: Sequence[int]) -> Map:
    rank = len(base)
    order = [_axis(d, rank) for d in dims]
    inverse = [order.index(d) for d in range(rank)]
    return lambda index: tuple(index[d] for d in inverse)


def transpose(base: Shape, shape: Shape, dim0: int, dim1: int) -> Map:
    order = list(range(len(base)))
    if order:
        a, b = _axis(dim0, len(base)), _axis(dim1, len(base))
        order[a], order[b] = order[b], order[a]
    return permute(base, shape, order)


def t(base: Shape, shape: Shape) -> Map:
    return transpose(base, shape, 0, 1) if len(base) == 2 else alias(base, shape)


def alias(base: Shape, shape: Shape, *_: Any) -> Map:
    return lambda index: index


def view(base: Shape, shape: Shape, *_: Any) -> Map:
    source, target = tuple(base), tuple(shape)
    return lambda index: regroup(index, target, source)


def expand(base: Shape, shape: Shape, *_: Any) -> Map:
    skip = len(shape) - len(base)
    return lambda index: tuple(ZERO if n == 1 else i for n, i in zip(base, index[skip:]))


def select(base: Shape, shape: Shape, dim: int, position: int) -> Map:
    axis = _axis(dim, len(base))
    at = constant(position + base[axis] if position < 0 else position)
    return lambda index: (*index[:axis], at, *index[axis:])


def slice_(
    base: Shape,
    shape: Shape,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Map:
    axis = _axis(dim, len(base))
    first = first_of(start, base[axis])
    return lambda index: (*index[:axis], index[axis] * step + first, *index[axis + 1 :])


def first_of(start: Any, extent: Any) -> Any:
    """Where a slice that starts at ``start`` begins, if it has any elements."""
    if start is None:
        return 0
    if start < 0:
        start = start + extent
        return 0 if start < 0 else start
    return start


def unsqueeze(base: Shape, shape: Shape, dim: int) -> Map:
    axis = _axis(dim, len(shape))
    return lambda index: (*index[:axis], *index[axis + 1 :])


def squeeze(base: Shape, shape: Shape, *_: Any) -> Map:
    return view(base, shape)


def diagonal(base: Shape, shape: Shape, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Map:
    rank = len(base)
    a, b = _axis(dim1, rank), _axis(dim2, rank)

    def index_map(index: Position) -> Position:
        rest = iter(index[:-1])
        step = index[-1]
        return tuple(
            step + max(-offset, 0) if d == a else step + max(offset, 0) if d == b else next(rest)
            for d in range(rank)
        )

    return index_map


def unfold(base: Shape, shape: Shape, dim: int, size: int, step: int) -> Map:
    axis = _axis(dim, len(base))
    if not base:
        return lambda index: ()
    return lambda index: (
        *index[:axis],
        index[axis] * step + index[-1],
        *index[axis + 1 : -1],
    )


RULES: dict[str, Callable[..., Map]] = {
    "unfold": unfold,
    "permute": permute,
    "transpose": transpose,
    "t": t,
    "alias": alias,
    "detach": alias,
    "view": view,
    "reshape": view,
    "expand": expand,
    "select": select,
    "slice": slice_,
    "unsqueeze": unsqueeze,
    "squeeze": squeeze,
    "diagonal": diagonal,
}


def piece(base: Shape, dim: int, start: int, drop: bool) -> Map:
    """One of the outputs of ``split`` (``drop`` false) or ``unbind`` (true)."""
    axis = _axis(dim, len(base))
    if drop:
        return lambda index: (*index[:axis], constant(start), *index[axis:])
    return lambda index: (*index[:axis], index[axis] + start, *index[axis + 1 :])


def _part(value: Expr, place: Index) -> Expr:
    """One of the parts of a complex number, by its place."""
    if place == ZERO:
        return E.real(value)
    if place == constant(1):
        return E.imag(value)
    first = Expr("eq", (E.position(place), E.const(0, "int64")), "bool")
    real = E.real(value)
    return Expr("where", (first, real, E.imag(value)), real.dtype)


def _as_real(base: Tensor) -> Seen:
    return PART_OF[base.dtype], lambda index: _part(base.read(index[:-1]), index[-1])


def _as_complex(base: Tensor) -> Seen:
    def element(index: Position) -> Expr:
        return E.pair(base.read((*index, ZERO)), base.read((*index, constant(1))))

    return COMPLEX_OF[base.dtype], element


def _conj(base: Tensor) -> Seen:
    return base.dtype, lambda index: E.conj(base.read(index))


def _negative(base: Tensor) -> Seen:
    return base.dtype, lambda index: Expr("neg", (base.read(index),), base.dtype)


#: Views whose elements are other numbers than those in memory.
SEEN: dict[str, Callable[[Tensor], Seen]] = {
    "as_real": _as_real,
    "as_complex": _as_complex,
    "conj": _conj,
    "negative": _negative,
}
