"""Integer index arithmetic over loop axes: sums of ``coefficient * atom`` plus a constant.

An atom is an :class:`Axis`, a :class:`Lookup` (a position that is data), or an opaque floor
division or remainder. All axes run from 0 to ``extent - 1``, which is what lets
``(a * 8 + b) // 8`` become ``a`` when ``b`` runs below 8.

Extents, coefficients and constants are ints or sizes that the caller chooses (``Number``).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from fastpath.ir.size import Number, Size, Undecided, hint, parts, surely

_serial = itertools.count()


class Axis:
    """One loop: the integers ``0 .. extent - 1``. Compared by identity."""

    __slots__ = ("extent", "serial")
    extent: Any

    def __init__(self, extent: Number):
        self.extent = extent
        self.serial = next(_serial)

    def __repr__(self) -> str:
        return f"a{self.serial}"


class Division:
    """``dividend // divisor`` or, when ``remainder``, ``dividend % divisor``; never negative."""

    __slots__ = ("dividend", "divisor", "remainder", "_key")

    divisor: Any

    def __init__(self, dividend: Index, divisor: Number, remainder: bool):
        self.dividend, self.divisor, self.remainder = dividend, divisor, remainder
        self._key = (dividend, divisor, remainder)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Division) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"(({self.dividend}) {'%' if self.remainder else '//'} {self.divisor})"


class Value(Protocol):
    """What a position that is data is made of."""

    def axes(self) -> set[Axis]: ...

    def substitute(self, values: Mapping[Axis, Index]) -> Any: ...


class Lookup:
    """The number that ``value``, an expression of int64, gives: one of ``0 .. extent - 1``.

    Whoever makes one sees to it that it is; :func:`fastpath.ir.expr.bounded` is for that.
    """

    __slots__ = ("value", "extent")
    value: Any
    extent: Any

    def __init__(self, value: Value, extent: Number):
        self.value, self.extent = value, extent

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Lookup) and self.extent == other.extent and self.value == other.value
        )

    def __hash__(self) -> int:
        return hash((self.value, self.extent))

    def __repr__(self) -> str:
        return f"<{self.value!r}>"


Atom = Axis | Division | Lookup


class Index:
    """An immutable sum of ``coefficient * atom`` and a constant; equal sums are equal."""

    __slots__ = ("terms", "const", "_hash")

    const: Any

    def __init__(self, terms: Mapping[Atom, Any], const: Number = 0):
        self.terms: dict[Atom, Any] = {atom: c for atom, c in terms.items() if c}
        self.const = const
        self._hash = hash((frozenset(self.terms.items()), const))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Index)
            and self._hash == other._hash
            and self.const == other.const
            and self.terms == other.terms
        )

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: Index | Number) -> Index:
        if not isinstance(other, Index):
            return Index(self.terms, self.const + other) if other else self
        terms = dict(self.terms)
        for atom, c in other.terms.items():
            terms[atom] = terms.get(atom, 0) + c
        return Index(terms, self.const + other.const)

    def __mul__(self, factor: Number) -> Index:
        if factor == 1:
            return self
        return Index({a: c * factor for a, c in self.terms.items()}, self.const * factor)

    def bounds(self) -> tuple[Any, Any]:
        """The least and the greatest value, both included (bounds, not always attained).

        Raises :class:`fastpath.ir.size.Undecided` where a size may be positive or negative.
        """
        low = high = self.const
        for atom, c in self.terms.items():
            if isinstance(atom, (Axis, Lookup)):
                extent = atom.extent
                first, last = 0, extent - 1 if isinstance(extent, Size) else max(extent - 1, 0)
            elif atom.remainder:
                first, last = 0, atom.divisor - 1
                least, most = atom.dividend.bounds()
                if surely(-1, least) and surely(most, last):
                    last = most
            else:
                first, last = _divided(*atom.dividend.bounds(), atom.divisor)
            ends = (c * first, c * last)
            if c < 0:
                ends = ends[::-1]
            low += ends[0]
            high += ends[1]
        return low, high

    def within(self, low: Number, high: Number) -> bool:
        """Whether it is surely at least ``low`` and below ``high``."""
        try:
            least, most = self.bounds()
        except Undecided:
            return False
        return surely(low - 1, least) and surely(most, high)

    def _split(self, divisor: Number) -> tuple[Index, Index]:
        """``self == divisor * first + second``; ``second`` is as small as can be told, and not
        negative where that can be told: what prints it may round to zero."""
        whole: dict[Atom, Any] = {}
        rest: dict[Atom, Any] = {}
        for atom, c in self.terms.items():
            if isinstance(c, int) and isinstance(divisor, int):
                if c % divisor:
                    rest[atom] = c
                else:
                    whole[atom] = c // divisor
            else:
                whole[atom], rest[atom] = parts(c, divisor)
        first, second = parts(self.const, divisor)
        low = _least(rest)
        if low < 0 and all(isinstance(n, int) for n in (low, second, divisor)):
            less = min((low + second) // divisor, 0)
            first, second = first + less, second - less * divisor
        return Index(whole, first), Index(rest, second)

    def floordiv(self, divisor: Number) -> Index:
        if divisor == 0:  # an extent of what has no elements: no place is asked for
            return ZERO
        if divisor == 1:
            return self
        whole, rest = self._split(divisor)
        if rest.within(0, divisor):
            return whole
        inner = rest._only_quotient()
        if inner is not None:  # (x // a) // b is x // (a * b)
            return whole + inner.dividend.floordiv(inner.divisor * divisor)
        step = rest._step(divisor)
        if step > 1:  # (a * x + b) // (a * c), where b is below a, is x // c
            return whole + rest._split(step)[0].floordiv(divisor // step)
        return whole + Index({Division(rest, divisor, False): 1})

    def mod(self, divisor: Number) -> Index:
        if divisor == 0 or divisor == 1:
            return ZERO
        rest = self._split(divisor)[1]
        if rest.within(0, divisor):
            return rest
        step = rest._step(divisor)
        if step > 1:
            coarse, fine = rest._split(step)
            return coarse.mod(divisor // step) * step + fine
        return Index({Division(rest, divisor, True): 1})

    def _step(self, divisor: Number) -> int:
        """The greatest number that divides ``divisor``, and all of this but what is below it; 1 if
        there is none."""
        if not isinstance(divisor, int) or any(not isinstance(c, int) for c in self.terms.values()):
            return 1
        if not isinstance(self.const, int):
            return 1
        steps = {math.gcd(c, divisor) for c in self.terms.values()}
        for step in sorted(steps, reverse=True):
            if step > 1 and self._split(step)[1].within(0, step):
                return step
        return 1

    def _only_quotient(self) -> Division | None:
        if len(self.terms) == 1 and not self.const:
            ((atom, c),) = self.terms.items()
            if c == 1 and isinstance(atom, Division) and not atom.remainder:
                return atom
        return None

    def simplified(self) -> Index:
        """``(x // n) * n + x % n`` put together again, until nothing changes."""
        for atom, c in self.terms.items():
            if not (isinstance(atom, Division) and atom.remainder):
                continue
            try:
                quotient = atom.dividend.floordiv(atom.divisor)
            except Undecided:
                continue
            step = c * atom.divisor
            if all(self.terms.get(a) == q * step for a, q in quotient.terms.items()):
                rest = Index(
                    {a: k for a, k in self.terms.items() if a != atom and a not in quotient.terms},
                    self.const - quotient.const * step,
                )
                return (rest + atom.dividend * c).simplified()
        return self

    def substitute(
        self, values: Mapping[Axis, Index], change: Callable[[Any], Any] | None = None
    ) -> Index:
        """At other positions. ``change`` does it to what is data: whoever does it to several
        positions that share data remembers what that is there."""
        result = Index({}, self.const)
        for atom, c in self.terms.items():
            if isinstance(atom, Axis):
                value = values.get(atom)
                result = result + (Index({atom: 1}) if value is None else value) * c
            elif isinstance(atom, Lookup):
                data = atom.value.substitute(values) if change is None else change(atom.value)
                result = result + Index({Lookup(data, atom.extent): c})
            else:
                inner = atom.dividend.substitute(values, change).simplified()
                part = inner.mod(atom.divisor) if atom.remainder else inner.floordiv(atom.divisor)
                result = result + part * c
        return result

    def axes(self, data: bool = True) -> set[Axis]:
        """Those that it may change with, or only those beside what of it is data."""
        found: set[Axis] = set()
        for atom in self.terms:
            if isinstance(atom, Axis):
                found.add(atom)
            elif not isinstance(atom, Lookup):
                found |= atom.dividend.axes(data)
            elif data:
                found |= atom.value.axes()
        return found

    def lookups(self) -> tuple[Any, ...]:
        """The values of the positions in it that are data: expressions."""
        found: tuple[Any, ...] = ()
        for atom in self.terms:
            if isinstance(atom, Lookup):
                found += (atom.value,)
            elif isinstance(atom, Division):
                found += atom.dividend.lookups()
        return found

    def mapped(self, change: Callable[[Any], Any]) -> Index:
        """The same, with ``change`` made to the values of positions that are data."""
        if not self.lookups():
            return self
        result = Index({}, self.const)
        for atom, c in self.terms.items():
            if isinstance(atom, Lookup):
                atom = Lookup(change(atom.value), atom.extent)
            elif isinstance(atom, Division):
                atom = Division(atom.dividend.mapped(change), atom.divisor, atom.remainder)
            result = result + Index({atom: c})
        return result

    def steady(self) -> Index:
        """What of it does not depend on data."""
        return Index({a: c for a, c in self.terms.items() if not isinstance(a, Lookup)}, self.const)

    def coefficient(self, axis: Axis) -> Any:
        """The stride along ``axis``, a number; None where a division makes it no constant."""
        for atom in self.terms:
            if not isinstance(atom, Axis) and axis in Index({atom: 1}).axes():
                return None
        return self.terms.get(axis, 0)

    def __repr__(self) -> str:
        parts = [repr(a) if c == 1 else f"{c}*{a!r}" for a, c in self.terms.items()]
        if self.const or not parts:
            parts.append(str(self.const))
        return " + ".join(parts)


ZERO = Index({})


def constant(value: Number) -> Index:
    return Index({}, value)


def variable(axis: Axis) -> Index:
    """The axis as an index; an axis with a single value is that value."""
    extent = axis.extent
    return Index({axis: 1}) if isinstance(extent, Size) or extent > 1 else ZERO


def axes_for(shape: Sequence[Number]) -> tuple[Axis, ...]:
    return tuple(Axis(n) for n in shape)


def _least(terms: Mapping[Atom, Any]) -> Any:
    """The least value of a sum, 0 where none of it can be negative or that cannot be told."""
    if all(isinstance(c, int) and c > 0 for c in terms.values()):
        return 0
    try:
        return Index(terms).bounds()[0]
    except Undecided:
        return 0


def _divided(low: Number, high: Number, divisor: Number) -> tuple[Any, Any]:
    """Bounds of the quotients of numbers with those bounds."""
    if isinstance(low, int) and isinstance(high, int) and isinstance(divisor, int):
        return low // divisor, high // divisor
    if surely(-1, low):
        return 0, high
    raise Undecided(f"the quotients of {low} .. {high} and {divisor}")


def linear(index: Sequence[Index], strides: Sequence[Number], offset: Number = 0) -> Index:
    result = Index({}, offset)
    for i, stride in zip(index, strides):
        if stride:
            result = result + i * stride
    return result.simplified()


def contiguous_strides(shape: Sequence[Number]) -> tuple[Any, ...]:
    strides: list[Number] = []
    step: Number = 1
    for n in reversed(shape):
        strides.append(step)
        step *= n if isinstance(n, Size) else max(n, 1)  # of no elements, any strides are right
    return tuple(reversed(strides))


def delinearize(flat: Index, shape: Sequence[Number]) -> tuple[Index, ...]:
    """The position in ``shape`` (row-major) of the flat position."""
    result = []
    strides = contiguous_strides(shape)
    for place, (n, stride) in enumerate(zip(shape, strides)):
        quotient = flat.floordiv(stride)
        result.append(ZERO if n == 1 else quotient if place == 0 else quotient.mod(n))
    # A leading axis of size 1 leaves the next one without an upper neighbour: same rule holds.
    return tuple(result)


def regroup(
    index: Sequence[Index], source: Sequence[Number], target: Sequence[Number]
) -> tuple[Index, ...]:
    """The position in ``target`` of the element at ``index`` of ``source`` (equal numel).

    Dimensions are matched in groups of equal product, so that a reshape that only splits or
    merges neighbours stays free of divisions.
    """
    result: list[Index] = []
    i = j = 0
    while i < len(source) or j < len(target):
        first_i, first_j = i, j
        product_i: Number = 1
        product_j: Number = 1
        if i < len(source):
            product_i, i = source[i], i + 1
        if j < len(target):
            product_j, j = target[j], j + 1
        while product_i != product_j:
            # Which side goes on is a matter of taste: it ends where the products are the same.
            if i < len(source) and (hint(product_i) < hint(product_j) or j == len(target)):
                product_i, i = product_i * source[i], i + 1
            elif j < len(target):
                product_j, j = product_j * target[j], j + 1
            else:
                break
        part = source[first_i:i]
        if tuple(part) == tuple(target[first_j:j]):
            result += index[first_i:i]
            continue
        flat = linear(index[first_i:i], contiguous_strides(part))
        result += delinearize(flat, target[first_j:j])
    return tuple(result)
