"""Integer index arithmetic over loop axes: sums of ``coefficient * atom`` plus a constant.

An atom is an :class:`Axis`, a :class:`Lookup` (a position that is data), or an opaque floor
division or remainder. All axes run from 0 to ``extent - 1``, which is what lets ``(a * 8 + b) // 8``
become ``a`` when ``b`` runs below 8.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastpath.ir.expr import Expr

_serial = itertools.count()


class Axis:
    """One loop: the integers ``0 .. extent - 1``. Compared by identity."""

    __slots__ = ("extent", "serial")

    def __init__(self, extent: int):
        self.extent = extent
        self.serial = next(_serial)

    def __repr__(self) -> str:
        return f"a{self.serial}"


class Division:
    """``dividend // divisor`` or, when ``remainder``, ``dividend % divisor``; never negative."""

    __slots__ = ("dividend", "divisor", "remainder", "_key")

    def __init__(self, dividend: Index, divisor: int, remainder: bool):
        self.dividend, self.divisor, self.remainder = dividend, divisor, remainder
        self._key = (dividend, divisor, remainder)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Division) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"(({self.dividend}) {'%' if self.remainder else '//'} {self.divisor})"


class Lookup:
    """The number that ``value``, an expression of int64, gives: one of ``0 .. extent - 1``.

    Whoever makes one sees to it that it is; :func:`fastpath.ir.expr.bounded` is for that.
    """

    __slots__ = ("value", "extent")

    def __init__(self, value: Expr, extent: int):
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

    def __init__(self, terms: Mapping[Atom, int], const: int = 0):
        self.terms: dict[Atom, int] = {atom: c for atom, c in terms.items() if c}
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

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.terms, self.const + other) if other else self
        terms = dict(self.terms)
        for atom, c in other.terms.items():
            terms[atom] = terms.get(atom, 0) + c
        return Index(terms, self.const + other.const)

    def __mul__(self, factor: int) -> Index:
        if factor == 1:
            return self
        return Index({a: c * factor for a, c in self.terms.items()}, self.const * factor)

    def bounds(self) -> tuple[int, int]:
        """The least and the greatest value, both included (bounds, not always attained)."""
        low = high = self.const
        for atom, c in self.terms.items():
            if isinstance(atom, (Axis, Lookup)):
                first, last = 0, max(atom.extent - 1, 0)
            elif atom.remainder:
                first, last = 0, min(atom.divisor - 1, atom.dividend.bounds()[1])
            else:
                first, last = (bound // atom.divisor for bound in atom.dividend.bounds())
            low += min(c * first, c * last)
            high += max(c * first, c * last)
        return low, high

    def _split(self, divisor: int) -> tuple[Index, Index]:
        """``self == divisor * first + second``; ``second`` is as small as can be told."""
        whole = {a: c // divisor for a, c in self.terms.items() if c % divisor == 0}
        rest = {a: c for a, c in self.terms.items() if c % divisor}
        return Index(whole, self.const // divisor), Index(rest, self.const % divisor)

    def floordiv(self, divisor: int) -> Index:
        if divisor == 1:
            return self
        whole, rest = self._split(divisor)
        low, high = rest.bounds()
        if low >= 0 and high < divisor:
            return whole
        inner = rest._only_quotient()
        if inner is not None:  # (x // a) // b is x // (a * b)
            return whole + inner.dividend.floordiv(inner.divisor * divisor)
        return whole + Index({Division(rest, divisor, False): 1})

    def mod(self, divisor: int) -> Index:
        if divisor == 1:
            return ZERO
        rest = self._split(divisor)[1]
        low, high = rest.bounds()
        if low >= 0 and high < divisor:
            return rest
        return Index({Division(rest, divisor, True): 1})

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
            quotient = atom.dividend.floordiv(atom.divisor)
            step = c * atom.divisor
            if all(self.terms.get(a) == q * step for a, q in quotient.terms.items()):
                rest = Index(
                    {a: k for a, k in self.terms.items() if a != atom and a not in quotient.terms},
                    self.const - quotient.const * step,
                )
                return (rest + atom.dividend * c).simplified()
        return self

    def substitute(self, values: Mapping[Axis, Index]) -> Index:
        result = Index({}, self.const)
        for atom, c in self.terms.items():
            if isinstance(atom, Axis):
                value = values.get(atom)
                result = result + (Index({atom: 1}) if value is None else value) * c
            elif isinstance(atom, Lookup):
                moved = Lookup(atom.value.substitute(values), atom.extent)
                result = result + Index({moved: c})
            else:
                inner = atom.dividend.substitute(values)
                part = inner.mod(atom.divisor) if atom.remainder else inner.floordiv(atom.divisor)
                result = result + part * c
        return result

    def axes(self) -> set[Axis]:
        found: set[Axis] = set()
        for atom in self.terms:
            if isinstance(atom, Axis):
                found.add(atom)
            else:
                found |= (atom.value if isinstance(atom, Lookup) else atom.dividend).axes()
        return found

    def lookups(self) -> tuple[Expr, ...]:
        """The values of the positions in it that are data."""
        found: tuple[Expr, ...] = ()
        for atom in self.terms:
            if isinstance(atom, Lookup):
                found += (atom.value,)
            elif isinstance(atom, Division):
                found += atom.dividend.lookups()
        return found

    def mapped(self, change: Callable[[Expr], Expr]) -> Index:
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

    def coefficient(self, axis: Axis) -> int | None:
        """The stride along ``axis``; None where a division makes it no constant."""
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


def constant(value: int) -> Index:
    return Index({}, value)


def variable(axis: Axis) -> Index:
    """The axis as an index; an axis with a single value is that value."""
    return Index({axis: 1}) if axis.extent > 1 else ZERO


def axes_for(shape: Sequence[int]) -> tuple[Axis, ...]:
    return tuple(Axis(n) for n in shape)


def linear(index: Sequence[Index], strides: Sequence[int], offset: int = 0) -> Index:
    result = Index({}, offset)
    for i, stride in zip(index, strides):
        if stride:
            result = result + i * stride
    return result.simplified()


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def delinearize(flat: Index, shape: Sequence[int]) -> tuple[Index, ...]:
    """The position in ``shape`` (row-major) of the flat position."""
    result = []
    strides = contiguous_strides(shape)
    for place, (n, stride) in enumerate(zip(shape, strides)):
        quotient = flat.floordiv(stride)
        result.append(ZERO if n == 1 else quotient if place == 0 else quotient.mod(n))
    # A leading axis of size 1 leaves the next one without an upper neighbour: same rule holds.
    return tuple(result)


def regroup(
    index: Sequence[Index], source: Sequence[int], target: Sequence[int]
) -> tuple[Index, ...]:
    """The position in ``target`` of the element at ``index`` of ``source`` (equal numel).

    Dimensions are matched in groups of equal product, so that a reshape that only splits or
    merges neighbours stays free of divisions.
    """
    result: list[Index] = []
    i = j = 0
    while i < len(source) or j < len(target):
        first_i, first_j = i, j
        product_i = product_j = 1
        if i < len(source):
            product_i, i = source[i], i + 1
        if j < len(target):
            product_j, j = target[j], j + 1
        while product_i != product_j:
            if product_i < product_j and i < len(source):
                product_i, i = product_i * source[i], i + 1
            elif j < len(target):
                product_j, j = product_j * target[j], j + 1
            else:
                product_i, i = product_i * source[i], i + 1
        part = source[first_i:i]
        if tuple(part) == tuple(target[first_j:j]):
            result += index[first_i:i]
            continue
        flat = linear(index[first_i:i], contiguous_strides(part))
        result += delinearize(flat, target[first_j:j])
    return tuple(result)
