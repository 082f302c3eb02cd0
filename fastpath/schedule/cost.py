"""What evaluating an expression costs, in units of an addition: a coarse rule for recomputing."""

from __future__ import annotations

from fastpath.ir.expr import Expr
from fastpath.ir.index import linear
from fastpath.ir.program import Computed, Pointwise
from fastpath.ir.size import hint

ACROSS = 12  # what it costs to read an element from another line of memory than the one before
SHORTEST = 16  # elements of a row along which that is so
CHEAP = 8  # at most this is recomputed by each consumer rather than kept
FEW = 4  # of a quotient or a square root
MOST_DEPTH = 100  # of operations that one waits for: expressions are gone through by recursion
MOST_READS = 16  # distinct elements that one inlined expression may read

_FREE = {
    "const",
    "given",
    "index",
    "read",
    "pair",
    "real",
    "imag",
    "load",
    "guarded",
    "scratch",
    "reduced",
    "running",
    "tile",
    "put",
}
_ONE = {
    *("add", "sub", "mul", "neg", "abs", "minimum", "maximum", "fmin", "fmax", "sign", "where"),
    *("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor"),
    *("logical_not", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "lshift"),
    *("rshift", "isnan", "isinf", "isfinite", "signbit", "copysign", "floor", "ceil", "trunc"),
    *("round", "frac", "square", "cast", "bounded"),
}
_FEW = {"truediv", "sqrt", "rsqrt", "reciprocal", "fma"}


def own_cost(expr: Expr) -> tuple[int, list[Expr]]:
    """The cost of the expression without what it reads, and its distinct reads."""
    seen: set[Expr] = set()
    reads: list[Expr] = []
    total = 0
    stack = [expr]
    while stack:
        e = stack.pop()
        if e in seen:
            continue
        seen.add(e)
        if e.op == "read":
            reads.append(e)
        elif e.op not in _FREE:
            total += 1 if e.op in _ONE else FEW if e.op in _FEW else 12
        stack.extend(e.operands())
    return total, reads


def depth(expr: Expr) -> int:
    """How many operations follow each other in the expression, without what it reads, but with
    what of the places that it reads is data."""
    found: dict[Expr, int] = {}
    stack = [expr]
    while stack:
        e = stack[-1]
        below = list(e.operands())
        rest = [a for a in below if a not in found]
        if rest:
            stack += rest
            continue
        stack.pop()
        found[e] = max((found[a] for a in below), default=0) + (e.op != "read")
    return found[expr]


def is_pointwise(expr: Expr) -> bool:
    return expr.op == "read" and isinstance(expr.args[0], Pointwise)


def across(node: Computed) -> int:
    """What reading memory adds to the cost of ``node``, where it goes from line to line as the node
    goes along its own rows."""
    if not node.axes or hint(node.axes[-1].extent) < SHORTEST:
        return 0
    row, count = node.axes[-1], 0
    for e in own_cost(node.value)[1]:
        source, position = e.args[:2]
        if isinstance(source, Pointwise) and not source.shape:
            continue
        step = linear(position, source.strides).coefficient(row)
        count += isinstance(step, int) and abs(step) > 1
    return ACROSS * count
