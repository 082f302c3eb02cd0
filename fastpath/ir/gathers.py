"""Rules for operators that read where an integer tensor says: embedding, gather, index, nll_loss.

A position that is data is an atom of index arithmetic (:class:`fastpath.ir.index.Lookup`), so what
is read there may be computed there, and what reads it may be part of the same kernel. Every such
position is held against its bounds where it is read; one that is known while lowering is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastpath.ir import expr as E
from fastpath.ir.elementwise import NotLowered, apply
from fastpath.ir.expr import Bounds, Expr
from fastpath.ir.index import ZERO, Index, Lookup, axes_for, delinearize, variable
from fastpath.ir.program import Pointwise, Position, Tensor, positions
from specs.dtypes import compute_dtype

Rule = Callable[[Any, Any, dict[str, Any]], Any]

IN_SELF = "IndexError", "index out of range in self"


def out_of_bounds(error: str, dim: int) -> tuple[str, str]:
    return error, f"index {{value}} is out of bounds for dimension {dim} with size {{extent}}"


def integers(t: Tensor) -> None:
    if t.dtype not in ("int32", "int64"):
        raise NotLowered(f"positions of {t.dtype}")


def integer(t: Tensor, index: Position) -> Expr:
    """The element of an integer tensor as int64; a position, where the tensor counts positions."""
    value = t.read(index)
    while value.op == "read" and isinstance(value.args[0], Pointwise):
        value = value.args[0].at(value.args[1])
        if value.op not in ("read", "index"):
            return E.cast(t.read(index), "int64")
    return E.cast(value, "int64")


def seen(t: Tensor, dims: Sequence[int]) -> None:
    """Refuse what is not read where it is asked along ``dims``, as views that are expanded, and
    values that a kernel computes without their place: nothing would be held against the bounds."""
    index = [variable(a) for a in axes_for(t.shape)]
    marks = {d: E.const(d, "int64") for d in dims}
    for d, mark in marks.items():
        if t.shape[d] == 1:
            raise NotLowered("positions in a dimension of a single one")
        index[d] = Index({Lookup(mark, t.shape[d]): 1})
    value = t.read(tuple(index))
    if not set(marks.values()) <= {mark for place in positions(value) for mark in place.lookups()}:
        raise NotLowered("positions in a dimension that is expanded")


def _placed(
    source: Tensor, dim: int, wraps: bool, error: tuple[str, str]
) -> Callable[[Expr], Index]:
    bounds = Bounds(source.shape[dim], wraps, *error)
    return lambda value: E.bounded(value, bounds)


def _embedding(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    weight, indices = bound["weight"], bound["indices"]
    integers(indices)
    seen(weight, [0])
    place = _placed(weight, 0, False, IN_SELF)

    def body(index: Position) -> Expr:
        return weight.read((place(integer(indices, index[:-1])), index[-1]))

    return lowering.output(val, body, "embedding")


def _index_select(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    t, indices = bound["self"], bound["index"]
    integers(indices)
    if not t.shape:
        raise NotLowered("a selection of a single number")
    dim = bound["dim"] % len(t.shape)
    seen(t, [dim])
    error = IN_SELF
    if dim or len(t.shape) == 1:
        message = "INDICES element is out of DATA bounds, id={value} axis_dim={extent}"
        error = ("RuntimeError", message) if len(t.shape) > 1 else IN_SELF
    place = _placed(t, dim, False, error)

    def body(index: Position) -> Expr:
        at = index[dim : dim + 1] if indices.shape else ()
        return t.read((*index[:dim], place(integer(indices, at)), *index[dim + 1 :]))

    return lowering.output(val, body, "index_select")


def _gather(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    t, indices = bound["self"], bound["index"]
    integers(indices)
    if not t.shape or not indices.shape:
        raise NotLowered("a gather of a single number")
    dim = bound["dim"] % len(t.shape)
    seen(t, [dim])
    place = _placed(t, dim, False, out_of_bounds("RuntimeError", dim))

    def body(index: Position) -> Expr:
        return t.read((*index[:dim], place(integer(indices, index)), *index[dim + 1 :]))

    return lowering.output(val, body, "gather")


def broadcast_shape(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    rank = max(len(t.shape) for t in tensors)
    padded = [(1,) * (rank - len(t.shape)) + t.shape for t in tensors]
    return tuple(next((n for n in sizes if n != 1), 1) for sizes in zip(*padded))


def placed_by(
    t: Tensor, indices: Sequence[Tensor | None]
) -> tuple[tuple[int, ...], Callable[[Position], Position]]:
    """The shape of ``t[indices]``, and from its positions to those of ``t``."""
    given = {d: i for d, i in enumerate(indices) if i is not None}
    for i in given.values():
        integers(i)
    seen(t, list(given))
    shape = broadcast_shape(list(given.values()))
    dims = sorted(given)
    apart = dims[-1] - dims[0] >= len(dims)
    first = 0 if apart else dims[0]
    rest = [d for d in range(len(t.shape)) if d not in given]
    whole = [t.shape[d] for d in rest]
    places = {d: _placed(t, d, True, out_of_bounds("IndexError", d)) for d in dims}

    def moved(index: Position) -> Position:
        at = index[first : first + len(shape)]
        others = iter((*index[:first], *index[first + len(shape) :]))

        def one(d: int) -> Index:
            if d not in given:
                return next(others)
            skip = len(shape) - len(given[d].shape)
            inner = tuple(ZERO if n == 1 else i for n, i in zip(given[d].shape, at[skip:]))
            return places[d](integer(given[d], inner))

        return tuple(one(d) for d in range(len(t.shape)))

    return (*whole[:first], *shape, *whole[first:]), moved


def _index(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    t: Tensor = bound["self"]
    shape, moved = placed_by(t, bound["indices"])
    if shape != tuple(val.shape):
        raise NotLowered("an index whose result has another shape")
    return lowering.output(val, lambda index: t.read(moved(index)), "index")


def _take(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    t, indices = bound["self"], bound["index"]
    integers(indices)
    count = 1
    for n in t.shape:
        count *= n
    if count == 1 or 1 in t.shape:
        raise NotLowered("positions in a dimension of a single one")
    seen(t, range(len(t.shape)))
    message = "out of range: tried to access index {value} on a tensor of {extent} elements."
    bounds = Bounds(count, True, "IndexError", message)

    def body(index: Position) -> Expr:
        flat = E.bounded(integer(indices, index), bounds)
        return t.read(delinearize(flat, t.shape))

    return lowering.output(val, body, "take")


# -- losses of classes -----------------------------------------------------------------------------


class _Classes:
    """What the losses of classes share: targets, their weights, and which of them count."""

    def __init__(self, bound: dict[str, Any]):
        self.scores, self.target, self.weight = bound["self"], bound["target"], bound.get("weight")
        self.ignored = bound["ignore_index"]
        self.dtype = compute_dtype(self.scores.dtype)
        if self.target.dtype not in ("int64", "uint8"):
            raise NotLowered(f"classes of {self.target.dtype}")
        self.dim = 0 if len(self.scores.shape) == 1 else 1
        seen(self.scores, [self.dim])
        self.bounds = Bounds(
            self.scores.shape[self.dim], False, "IndexError", "Target {value} is out of bounds."
        )
        self.shape = tuple(n for d, n in enumerate(self.scores.shape) if d != self.dim)
        self.reduction = ("none", "mean", "sum")[bound["reduction"]]

    def given(self, at: Position) -> Expr:
        """The class of a place; ``at`` has no dimension of classes."""
        place = at[len(at) - len(self.target.shape) :] if self.target.shape else ()
        return E.cast(self.target.read(place), "int64")

    def counts(self, at: Position) -> Expr:
        return apply("ne", self.given(at), E.const(self.ignored, "int64"))

    def position(self, at: Position) -> Index:
        value = Expr("bounded", (self.given(at), self.bounds, self.counts(at)), "int64")
        return Index({Lookup(value, self.bounds.extent): 1})

    def only(self, at: Position, value: Expr) -> Expr:
        """``value`` where the class counts, else 0."""
        counts = self.counts(at)
        return apply("where", counts, E.guarded(value, counts), E.const(0, value.dtype))

    def weighted(self, at: Position) -> Expr:
        if self.weight is None:
            return E.const(1, self.dtype)
        return E.cast(self.weight.read((self.position(at),)), self.dtype)


def _class_loss(lowering: Any, vals: Any, bound: dict[str, Any]) -> tuple[Tensor, Tensor]:
    c = _Classes(bound)
    if c.weight is not None:
        seen(c.weight, [0])

    def negative(at: Position) -> Expr:
        place = (*at[: c.dim], c.position(at), *at[c.dim :])
        value = apply("neg", E.cast(c.scores.read(place), c.dtype))
        if c.weight is not None:
            value = apply("mul", value, c.weighted(at))
        return c.only(at, value)

    loss, total = vals
    if c.reduction == "none":
        zero = lowering.output(total, lambda index: E.const(0, c.dtype), "total_weight")
        return lowering.output(loss, negative, "nll_loss"), zero
    dims = tuple(range(len(c.shape)))
    terms = lowering.reduce("sum", c.shape, dims, c.dtype, negative)
    weights = lowering.reduce("sum", c.shape, dims, c.dtype, lambda at: c.only(at, c.weighted(at)))
    first = tuple(ZERO for _ in dims)

    def finish(index: Position) -> Expr:
        value = terms.read(first)
        return apply("truediv", value, weights.read(first)) if c.reduction == "mean" else value

    return (
        lowering.output(loss, finish, "nll_loss"),
        lowering.output(total, lambda index: weights.read(first), "total_weight"),
    )


def _class_loss_backward(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    c = _Classes(bound)
    if c.weight is not None:
        seen(c.weight, [0])
    grad, total = bound["grad_output"], bound["total_weight"]

    def body(index: Position) -> Expr:
        at = (*index[: c.dim], *index[c.dim + 1 :])
        above = E.cast(grad.read(at if c.reduction == "none" else ()), c.dtype)
        value = apply("neg", above)
        if c.reduction == "mean":
            value = apply("truediv", value, E.cast(total.read(()), c.dtype))
        if c.weight is not None:
            value = apply("mul", value, c.weighted(at))
        on = apply("eq", E.position(index[c.dim]), c.given(at))
        hit = apply("logical_and", on, c.counts(at))
        return apply("where", hit, E.guarded(value, hit), E.const(0, c.dtype))

    return lowering.output(val, body, "nll_loss_backward")


RULES: dict[str, Rule] = {
    "gather:embedding": _embedding,
    "gather:index_select": _index_select,
    "gather:gather": _gather,
    "gather:index": _index,
    "gather:take": _take,
    "compose:nll_loss": _class_loss,
    "compose:nll_loss_backward": _class_loss_backward,
}
