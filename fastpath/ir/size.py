"""Sizes that the caller chooses: integer polynomials over unknowns, in the place of ints.

A size, a stride or an offset is an ``int`` or a :class:`Size`. Arithmetic gives an ``int`` again
wherever the unknowns cancel. Two of them are equal if they are the same polynomial; unequal ones
may still have the same value, so ``a == b`` being false may only lead to what is right for any
values. An order is known or not: comparing raises :class:`Undecided` where the unknowns leave it
open, and :func:`surely` asks without. What is a matter of speed alone goes by :func:`hint`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_serial = itertools.count()


class Undecided(Exception):
    """What has to be known of a size depends on its value."""


class Unknown:
    """One integer that the caller chooses: at least ``low``, and ``hint`` this time.

    ``low`` is None where nothing is known. ``definition``: what it is computed from, where it is
    no size of an input; that may be floats.
    """

    __slots__ = ("name", "hint", "low", "definition", "serial")

    def __init__(self, name: str, hint: Any, low: int | None = 0, definition: Any = None):
        self.name, self.hint, self.low, self.definition = name, hint, low, definition
        self.serial = next(_serial)

    def __repr__(self) -> str:
        return self.name


Monomial = tuple[Unknown, ...]  # a product, by serial numbers


def _times(a: Monomial, b: Monomial) -> Monomial:
    return tuple(sorted((*a, *b), key=lambda u: u.serial))


def _made(terms: Mapping[Monomial, int]) -> int | Size:
    kept = {m: c for m, c in terms.items() if c}
    if not kept:
        return 0
    if len(kept) == 1 and () in kept:
        return kept[()]
    return Size(kept)


def _terms(value: Number) -> Mapping[Monomial, int]:
    return value.terms if isinstance(value, Size) else {(): value}


class Size:
    """A polynomial that is no constant."""

    __slots__ = ("terms", "_hash")

    def __init__(self, terms: Mapping[Monomial, int]):
        self.terms = dict(terms)
        self._hash = hash(frozenset(self.terms.items()))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.terms == other.terms

    def __bool__(self) -> bool:
        return True

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, (int, Size)):
            return NotImplemented
        terms = dict(self.terms)
        for m, c in _terms(other).items():
            terms[m] = terms.get(m, 0) + c
        return _made(terms)

    __radd__ = __add__

    def __neg__(self) -> Any:
        return _made({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, (int, Size)):
            return NotImplemented
        terms: dict[Monomial, int] = {}
        for a, c in self.terms.items():
            for b, d in _terms(other).items():
                m = _times(a, b)
                terms[m] = terms.get(m, 0) + c * d
        return _made(terms)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: Any) -> Any:
        whole, rest = parts(self, divisor)
        return whole + _small(rest, divisor)

    def __rfloordiv__(self, other: Any) -> Any:
        return _small(other, self)

    def __mod__(self, divisor: Any) -> Any:
        rest = parts(self, divisor)[1]
        _small(rest, divisor)
        return rest

    def __rmod__(self, other: Any) -> Any:
        _small(other, self)
        return other

    def __lt__(self, other: Any) -> bool:
        return _decide(self, other, f"{self} < {other}")

    def __gt__(self, other: Any) -> bool:
        return _decide(other, self, f"{self} > {other}")

    def __le__(self, other: Any) -> bool:
        return not _decide(other, self, f"{self} <= {other}")

    def __ge__(self, other: Any) -> bool:
        return not _decide(self, other, f"{self} >= {other}")

    def __repr__(self) -> str:
        return text_of(self, repr)


Number = int | Size


def _decide(a: Any, b: Any, question: str) -> bool:
    """Whether ``a < b``."""
    if surely(a, b):
        return True
    if surely(b, a + 1):
        return False
    raise Undecided(f"whether {question}")


def _small(rest: int | Size, divisor: int | Size) -> int:
    """0, the quotient of what is left of a division, if that is known."""
    if rest == 0 or surely(-1, rest) and surely(rest, divisor):
        return 0
    raise Undecided(f"what {rest} leaves when it is divided by {divisor}")


def _quotient(m: Monomial, by: Monomial) -> Monomial | None:
    rest = list(m)
    for u in by:
        if u not in rest:
            return None
        rest.remove(u)
    return tuple(rest)


def parts(value: Number, divisor: int | Size) -> tuple[Any, Any]:
    """``value == whole * divisor + rest``, with as much in ``whole`` as divides as polynomials."""
    if isinstance(value, int) and isinstance(divisor, int):
        return divmod(value, divisor)
    terms = _terms(divisor)
    if len(terms) > 1:
        return (1, 0) if value == divisor else (0, value)
    ((by, scale),) = terms.items()
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for m, c in _terms(value).items():
        quotient = _quotient(m, by)
        if quotient is None:
            rest[m] = c
        elif m == () == by:
            whole[m], rest[m] = divmod(c, scale)
        elif c % scale:
            rest[m] = c
        else:
            whole[quotient] = c // scale
    return _made(whole), _made(rest)


def divides(divisor: int | Size, value: Number) -> bool:
    """Whether it surely does."""
    return value == divisor or parts(value, divisor)[1] == 0


def least(value: Number) -> int | None:
    """A bound from below, or None; the least value where all coefficients are positive."""
    if isinstance(value, int):
        return value
    # Each unknown is its bound plus something that is not negative.
    moved: Any = 0
    for m, c in value.terms.items():
        product: Any = c
        for u in m:
            if u.low is None:
                return None
            product = product * Size({(u,): 1}) + product * u.low
        moved = moved + product
    terms = _terms(moved)
    if any(c < 0 for m, c in terms.items() if m):
        return None
    return terms.get((), 0)


def surely(a: Number, b: Number) -> bool:
    """Whether ``a < b`` is known to hold."""
    found = least(b - a)
    return found is not None and found > 0


def hint(value: Number) -> int:
    """The value in the call that is compiled for."""
    if isinstance(value, int):
        return value
    total = 0
    for m, c in value.terms.items():
        for u in m:
            c *= u.hint
        total += c
    return total


def known(*values: int | Size) -> bool:
    """Whether all of them are ints."""
    return all(isinstance(value, int) for value in values)


def unknowns(value: Number) -> Iterable[Unknown]:
    return {u: None for m in _terms(value) for u in m}


def text_of(value: Number, name: Callable[[Unknown], str]) -> str:
    """Python for it, in parentheses where that is needed."""
    if isinstance(value, int):
        return str(value)
    found = []
    for m, c in value.terms.items():
        factors = [name(u) for u in m]
        if c != 1 or not m:
            factors.append(str(c))
        found.append(" * ".join(factors))
    if len(found) == 1 and len(_terms(value)) == 1 and " " not in found[0]:
        return found[0]
    return f"({' + '.join(found)})"


@dataclass(frozen=True)
class Condition:
    """``value relation bound``: what a program relies on that some call may not meet."""

    value: Number
    relation: str
    bound: int

    def text(self, number: Callable[[Number], str]) -> str:
        return f"{number(self.value)} {self.relation} {self.bound}"


class Assumptions:
    """Where a call has each unknown (``sources``), and what a program assumes of them.

    ``again``: another program of the graph was made already, and was not for all calls.
    """

    def __init__(self, again: bool = False) -> None:
        self.again = again
        self.sources: dict[Unknown, str] = {}
        self.conditions: list[Condition] = []

    def give(self, size: Size, text: str) -> None:
        """``text`` is where a call has ``size``: of use if it is an unknown itself."""
        ((monomial, c), *more) = size.terms.items()
        if not more and c == 1 and len(monomial) == 1:
            self.sources.setdefault(monomial[0], text)

    def at_most(self, value: Number, bound: int) -> bool:
        """Whether ``value <= bound``: where that is open it is so now, and becomes a condition."""
        if surely(value, bound + 1) or surely(bound, value):
            return surely(value, bound + 1)
        holds = hint(value) <= bound
        self.conditions.append(Condition(value, "<=" if holds else ">", bound))
        return holds

    def multiple(self, value: Number, of: int) -> bool:
        """Whether ``of`` divides ``value``: the same, where it does so now."""
        if divides(of, value):
            return True
        if hint(value) % of:
            return False
        self.conditions.append(Condition(value, f"% {of} ==", 0))
        return True
