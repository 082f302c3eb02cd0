"""Rules for operators that look values up in others: bucketize, searchsorted, isin."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fastpath.ir import expr as E
from fastpath.ir.elementwise import NotLowered, apply
from fastpath.ir.expr import Expr
from fastpath.ir.index import Index, Lookup, delinearize
from fastpath.ir.program import Position, Tensor
from fastpath.ir.size import known
from specs.dtypes import compute_dtype, promote_types

Rule = Callable[[Any, Any, dict[str, Any]], Any]

MOST_COMPARED = 16  # elements that each of the others is held against; more are sorted by ATen


def _count(count: int, goes_on: Callable[[Expr], Expr]) -> Expr:
    """How many of ``count`` positions, all before the others, ``goes_on`` is true of.

    It halves what is left as eager does, so that what is not in order, as nan, leads to the same
    place; without branches, and by as many steps for each element.
    """
    start, end = E.const(0, "int64"), E.const(count, "int64")
    one, last = E.const(1, "int64"), E.const(count - 1, "int64")
    for _ in range(count.bit_length()):
        middle = apply("add", start, apply("rshift", apply("sub", end, start), one))
        left = apply("lt", start, end)
        on = goes_on(apply("minimum", middle, last))
        further = apply("logical_and", left, on)
        nearer = apply("logical_and", left, apply("logical_not", on))
        start = apply("where", further, apply("add", middle, one), start)
        end = apply("where", nearer, middle, end)
    return start


def _search(
    lowering: Any, val: Any, ordered: Tensor, values: Tensor, right: bool, stem: str
) -> Tensor:
    """The number of elements of each row of ``ordered`` before a value; with ``right`` also of
    those that equal it. After nan there is nothing."""
    if not values.shape and len(ordered.shape) > 1:
        raise NotLowered("a number sought in several rows")
    count = ordered.shape[-1]
    if not known(count):
        raise NotLowered("a search in as many as each call chooses")
    dtype = compute_dtype(promote_types(ordered.dtype, values.dtype))
    beyond = "gt" if right else "ge"

    def body(index: Position) -> Expr:
        value = E.cast(values.read(index), dtype)
        before = index[:-1] if len(ordered.shape) > 1 else ()

        def goes_on(place: Expr) -> Expr:
            element = ordered.read((*before, Index({Lookup(place, count): 1})))
            return apply("logical_not", apply(beyond, E.cast(element, dtype), value))

        return _count(count, goes_on)

    return lowering.output(val, body, stem)


def _bucketize(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    return _search(lowering, val, bound["boundaries"], bound["self"], bound["right"], "bucketize")


def _searchsorted(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    if bound.get("sorter") is not None:
        raise NotLowered("a search by a permutation")
    right = bound["right"] or bound.get("side") == "right"
    return _search(lowering, val, bound["sorted_sequence"], bound["self"], right, "searchsorted")


def _isin(lowering: Any, val: Any, bound: dict[str, Any]) -> Tensor:
    elements, others = bound["elements"], bound["test_elements"]
    if not known(*others.shape) or math.prod(others.shape) > MOST_COMPARED:
        raise NotLowered(f"more than {MOST_COMPARED} elements to compare with")
    common = promote_types(elements.dtype, others.dtype)
    dtype = compute_dtype(common)

    def body(index: Position) -> Expr:
        value = E.cast(E.cast(elements.read(index), common), dtype)
        found = E.FALSE
        for n in range(math.prod(others.shape)):
            other = others.read(delinearize(Index({}, n), others.shape))
            equal = apply("eq", value, E.cast(E.cast(other, common), dtype))
            found = apply("logical_or", found, equal)
        return apply("logical_not", found) if bound["invert"] else found

    return lowering.output(val, body, "isin")


RULES: dict[str, Rule] = {
    "search:bucketize": _bucketize,
    "search:searchsorted": _searchsorted,
    "search:isin": _isin,
}
