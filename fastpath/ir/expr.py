"""Scalar expressions: what one element is. Nodes are shared, so a tree is really a DAG."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from ctypes import c_float
from dataclasses import dataclass
from typing import Any, Protocol

from fastpath.ir.index import Axis, Index, Lookup, constant
from fastpath.ir.size import Number, Size
from specs.dtypes import BYTES, COMPLEX_OF, PART_OF, REDUCED, int_range
from specs.rounding import to_float


@dataclass(frozen=True)
class Bounds:
    """Which integers are positions of a dimension, and what is raised for others.

    With ``wraps`` negative ones count from the end. ``error`` names a builtin exception;
    ``{value}`` in ``message`` stands for the integer, and ``{extent}`` for the extent.
    """

    extent: Number
    wraps: bool
    error: str
    message: str


#: By thread, the pairs that the comparison under way has found equal: of DAGs whose nodes are
#: shared, each pair is compared once, not once for each way to it.
_compared = threading.local()


class Expr:
    """One scalar value.

    ``op`` is ``read`` (``args = (node, index)``, or ``(node, index, guard)``: nothing is read, and
    the value is 0, where the guard is false), ``const`` (``(value,)``), ``index`` (``(Index,)``,
    int64), ``given`` (``(Size,)``, float64: the number whose bits that is), ``cast``
    (``(expr,)``), ``bounded`` (``(expr, Bounds)`` or ``(expr, Bounds, guard)``, int64: the
    position that the integer means; where it means none, the kernel's caller raises, unless the
    guard is false, and the value is 0), or the name of a row of
    :data:`specs.scalars.SCALARS` over expressions. ``dtype`` is the value's, by torch's name.

    A complex number is a ``pair`` (``(real, imaginary)``) or is read; ``real`` and ``imag``
    (``(expr,)``) are the parts of one that is read.
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
        pairs = getattr(_compared, "pairs", None)
        if pairs is None:
            _compared.pairs = set()
            try:
                return self.args == other.args
            finally:
                _compared.pairs = None
        pair = id(self), id(other)
        if pair not in pairs:
            if self.args != other.args:
                return False
            pairs.add(pair)
        return True

    def operands(self) -> tuple[Expr, ...]:
        """The expressions that its value is made of, those in its positions included."""
        found: tuple[Expr, ...] = ()
        for a in self.args:
            if isinstance(a, Expr):
                found += (a,)
            elif isinstance(a, Index):
                found += a.lookups()
            elif isinstance(a, tuple):
                for index in a:
                    found += index.lookups()
        return found

    def mapped(
        self, change: Callable[[Expr], Expr], move: Callable[[Index], Index] | None = None
    ) -> Expr:
        """The same of changed operands; ``move`` changes positions, and what is data in them."""

        def changed(a: Any) -> Any:
            if isinstance(a, Expr):
                return change(a)
            if isinstance(a, Index):
                return a.mapped(change) if move is None else move(a)
            return tuple(map(changed, a)) if isinstance(a, tuple) else a

        args = tuple(map(changed, self.args))
        if self.op in PARTS and args[0].op == "pair":  # what was read is computed instead
            part: Expr = args[0].args[PARTS.index(self.op)]
            return part
        return Expr(self.op, args, self.dtype)

    def substitute(self, values: Mapping[Axis, Index]) -> Expr:
        """The value at other positions."""
        memo: dict[Expr, Expr] = {}

        def visit(e: Expr) -> Expr:
            known = memo.get(e)
            if known is None:
                known = memo[e] = e.mapped(visit, lambda index: index.substitute(values, visit))
            return known

        return visit(self)

    def axes(self) -> set[Axis]:
        """The axes of loops that the value may change with."""
        found: set[Axis] = set()
        seen: set[Expr] = set()
        stack = [self]
        while stack:
            e = stack.pop()
            if e in seen:
                continue
            seen.add(e)
            for a in e.args:
                if isinstance(a, Expr):
                    stack.append(a)
                for index in (a,) if isinstance(a, Index) else a if isinstance(a, tuple) else ():
                    found |= index.axes(data=False)
                    stack.extend(index.lookups())
        return found

    def __repr__(self) -> str:
        if self.op == "read":
            node, index, *guard = self.args
            inside = f" if {guard[0]!r}" if guard else ""
            return f"{node.name}[{', '.join(map(repr, index))}{inside}]"
        return f"{self.op}({', '.join(map(repr, self.args))}):{self.dtype}"


def inside(values: Iterable[Expr]) -> Iterator[Expr]:
    """All expressions that ``values`` are made of, these too, each once and before its operands."""
    seen: set[Expr] = set()
    stack = list(values)
    while stack:
        e = stack.pop()
        if e not in seen:
            seen.add(e)
            yield e
            stack.extend(e.operands())


def const(value: bool | int | float | complex, dtype: str) -> Expr:
    """``value`` converted to ``dtype`` as a tensor's elements are: integers wrap around."""
    if dtype in PART_OF:
        part, number = PART_OF[dtype], complex(value)
        return pair(const(number.real, part), const(number.imag, part))
    if isinstance(value, complex):
        raise TypeError(f"a complex number as {dtype}")
    if dtype == "bool":
        value = bool(value)
    elif dtype == "float32":  # equal ones are written alike, however many digits they came with
        value = c_float(value).value
    elif dtype in REDUCED:  # a kernel stores it as it is, and would cut off what is too long
        value = to_float(c_float(value).value, dtype)  # by way of float32, as ATen converts
    elif dtype == "float64":
        value = float(value)
    else:
        low, high = int_range(dtype)
        value = (int(value) - low) % (high - low + 1) + low
    return Expr("const", (value,), dtype)


TRUE, FALSE = const(True, "bool"), const(False, "bool")


PARTS = ("real", "imag")


def pair(real: Expr, imaginary: Expr) -> Expr:
    """The complex number of two parts, which are of one dtype."""
    return Expr("pair", (real, imaginary), COMPLEX_OF[real.dtype])


def real(value: Expr) -> Expr:
    """The real part; of what is real, itself."""
    return _part(value, 0) if value.dtype in PART_OF else value


def imag(value: Expr) -> Expr:
    """The imaginary part; of what is real, zero."""
    return _part(value, 1) if value.dtype in PART_OF else const(0, value.dtype)


def _part(value: Expr, place: int) -> Expr:
    if value.op == "pair":
        part: Expr = value.args[place]
        return part
    return Expr(PARTS[place], (value,), PART_OF[value.dtype])


def conj(value: Expr) -> Expr:
    return pair(real(value), Expr("neg", (imag(value),), PART_OF[value.dtype]))


def cast(value: Expr, dtype: str) -> Expr:
    if value.dtype == dtype:
        return value
    if dtype in PART_OF:
        part = PART_OF[dtype]
        other = cast(imag(value), part) if value.dtype in PART_OF else const(0, part)
        return pair(cast(real(value), part), other)
    if dtype == "bool" and value.dtype in PART_OF:
        zero = const(0, PART_OF[value.dtype])
        parts = [Expr("ne", (part, zero), "bool") for part in (real(value), imag(value))]
        return Expr("logical_or", tuple(parts), "bool")
    if value.dtype in PART_OF:
        return cast(real(value), dtype)
    if value.op == "const" and dtype in ("float32", "float64", "int64"):
        number = value.args[0]
        if dtype != "int64" or isinstance(number, (bool, int)):
            return const(number, dtype)
    if value.dtype in BYTES and dtype != "float32":
        return cast(Expr("cast", (value,), "float32"), dtype)
    if dtype in BYTES:
        value = cast(value, "float32")  # as eager's conversions from all others do
    return Expr("cast", (value,), dtype)


class Readable(Protocol):
    """A node of a program, to what reads its elements."""

    dtype: str


def read(node: Readable, index: tuple[Index, ...]) -> Expr:
    return Expr("read", (node, index), node.dtype)


def given(bits: Size) -> Expr:
    return Expr("given", (bits,), "float64")


def position(index: Index) -> Expr:
    return Expr("index", (index,), "int64")


def number(value: bool | int | float | Size, dtype: str) -> Expr:
    """The same as :func:`const` of a number that may be a size."""
    if isinstance(value, Size):
        return cast(position(constant(value)), dtype)
    return const(value, dtype)


def bounded(value: Expr, bounds: Bounds) -> Index:
    """The position that the integer ``value`` means, to read at."""
    if value.op == "const":
        return bounded(position(constant(value.args[0])), bounds)
    if value.op == "index":  # a position already: perhaps one that needs no look
        (place,) = value.args
        if bounds.wraps and place.within(-bounds.extent, 0):
            place = place + bounds.extent
        if place.within(0, bounds.extent):
            return place
    return Index({Lookup(Expr("bounded", (value, bounds), "int64"), bounds.extent): 1})


def guarded(value: Expr, guard: Expr) -> Expr:
    """``value``, where it reads and rejects nothing unless ``guard`` is true, but for what that is
    computed of, which is read in any case: places that are data come to be asked about themselves.
    """
    memo = {e: e for e in inside([guard])}

    def visit(e: Expr) -> Expr:
        known = memo.get(e)
        if known is None:
            known = e.mapped(visit) if e.operands() else e
            if e.op in ("read", "bounded"):
                what, how, *before = known.args
                both = Expr("logical_and", (before[0], guard), "bool") if before else guard
                known = Expr(e.op, (what, how, both), e.dtype)
            memo[e] = known
        return known

    return visit(value)
