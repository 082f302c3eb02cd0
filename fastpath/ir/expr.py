"""Scalar expressions: what one element is. Nodes are shared, so a tree is really a DAG."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastpath.ir.index import Index
from specs.dtypes import int_range

if TYPE_CHECKING:
    from fastpath.ir.program import Node


class Expr:
    """One scalar value.

    ``op`` is ``read`` (``args = (node, index)``, or ``(node, index, guard)``: nothing is read, and
    the value is 0, where the guard is false), ``const`` (``(value,)``), ``index`` (``(Index,)``,
    int64), ``cast`` (``(expr,)``), or the name of a row of :data:`specs.scalars.SCALARS` over
    expressions. ``dtype`` is the value's, by torch's name.
    """

    __slots__ = ("op", "args", "dtype", "_hash", "__weakref__")

    def __init__(self, op: str, args: tuple[Any, ...], dtype: str):
        self.op, self.args, self.dtype = op, args, dtype
        # -0.0 and 0.0 are equal and hash alike, and so do 1, 1.0 and True: spell constants out.
        self._hash = hash((op, dtype, repr(args) if op == "const" else args))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Expr) or self._hash != other._hash:
            return False
        if self.op != other.op or self.dtype != other.dtype:
            return False
        if self.op == "const":
            return repr(self.args) == repr(other.args)
        return self.args == other.args

    def operands(self) -> tuple[Expr, ...]:
        if self.op == "read":
            return self.args[2:]
        return () if self.op in ("const", "index") else self.args

    def __repr__(self) -> str:
        if self.op == "read":
            node, index, *guard = self.args
            inside = f" if {guard[0]!r}" if guard else ""
            return f"{node.name}[{', '.join(map(repr, index))}{inside}]"
        return f"{self.op}({', '.join(map(repr, self.args))}):{self.dtype}"


def const(value: bool | int | float, dtype: str) -> Expr:
    """``value`` converted to ``dtype`` as a tensor's elements are: integers wrap around."""
    if dtype == "bool":
        value = bool(value)
    elif dtype.startswith(("float", "bfloat")):
        value = float(value)
    else:
        low, high = int_range(dtype)
        value = (int(value) - low) % (high - low + 1) + low
    return Expr("const", (value,), dtype)


def cast(value: Expr, dtype: str) -> Expr:
    if value.dtype == dtype:
        return value
    if value.op == "const" and dtype in ("float32", "float64", "int64"):
        number = value.args[0]
        if dtype != "int64" or isinstance(number, (bool, int)):
            return const(number, dtype)
    return Expr("cast", (value,), dtype)


def read(node: Node, index: tuple[Index, ...]) -> Expr:
    return Expr("read", (node, index), node.dtype)


def position(index: Index) -> Expr:
    return Expr("index", (index,), "int64")


def guarded(value: Expr, guard: Expr) -> Expr:
    """``value``, where it reads nothing unless ``guard`` (of positions alone) is true."""
    memo: dict[Expr, Expr] = {}

    def visit(e: Expr) -> Expr:
        known = memo.get(e)
        if known is None:
            if e.op == "read":
                node, index, *before = e.args
                both = Expr("logical_and", (before[0], guard), "bool") if before else guard
                known = Expr("read", (node, index, both), e.dtype)
            elif e.operands():
                known = Expr(e.op, tuple(visit(a) for a in e.args), e.dtype)
            else:
                known = e
            memo[e] = known
        return known

    return visit(value)
