"""What is certain about an integer expression: interval arithmetic on its polynomial form.

A symbol with the lower bound ``l`` is written ``l + s``, so that a difference whose coefficients
have one sign is known to have it. The rules of the operations are those of interval arithmetic
(Moore, Interval Analysis, 1966).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import sympy
from torch.utils._sympy import functions as F

from refcompiler.shapes import floats, polynomials
from refcompiler.shapes.operations import Larger, Smaller

INF = math.inf


class Range(NamedTuple):
    """All numbers from ``low`` to ``high``, both included; without a bound it is infinite."""

    low: float
    high: float

    def __and__(self, other: Range) -> Range:
        return Range(max(self.low, other.low), min(self.high, other.high))

    # torch asks the ranges of its own environment by these names
    @property
    def lower(self) -> Any:
        return sympy.Integer(int(self.low)) if self.low > -INF else -F.int_oo

    @property
    def upper(self) -> Any:
        return sympy.Integer(int(self.high)) if self.high < INF else F.int_oo


ALL = Range(-INF, INF)
Ranges = Mapping[sympy.Symbol, Range]


def _product(a: float, b: float) -> float:
    return 0 if a == 0 or b == 0 else a * b  # 0 * inf is 0: the bound is never reached


def _times(a: Range, b: Range) -> Range:
    corners = [_product(x, y) for x in a for y in b]
    return Range(min(corners), max(corners))


def _plus(a: Range, b: Range) -> Range:
    return Range(a.low + b.low, a.high + b.high)


def _power(base: Range, exponent: int) -> Range:
    if base.low >= 0:
        return Range(base.low**exponent, base.high**exponent)
    made = Range(1, 1)
    for _ in range(exponent):
        made = _times(made, base)
    return made if exponent % 2 else Range(max(made.low, 0), made.high)


def _quotient(a: float, b: float) -> float:
    if a in (INF, -INF):
        return a if b > 0 else -a
    if b in (INF, -INF):
        return 0 if a == 0 or (a > 0) == (b > 0) else -1
    return a // b


def bounds(expression: Any, ranges: Ranges, memo: dict[Any, Range]) -> Range:
    """The range of ``expression``; ``memo`` holds those that are known already."""
    found = memo.get(expression)
    if found is None:
        found = memo[expression] = _bounds(expression, ranges, memo)
    return found


def _bounds(expression: Any, ranges: Ranges, memo: dict[Any, Range]) -> Range:
    kind = expression.func
    if expression.is_Integer:
        return Range(int(expression), int(expression))
    if expression.is_Rational:
        value: Any = Fraction(int(expression.p), int(expression.q))
        return Range(value, value)
    if expression.is_Float:
        return Range(float(expression), float(expression))
    if expression.is_Symbol:
        return ranges.get(expression, ALL)
    parts = [bounds(part, ranges, memo) for part in expression.args]
    if kind is sympy.Add:
        made = parts[0]
        for part in parts[1:]:
            made = _plus(made, part)
        return made
    if kind is sympy.Mul:
        made = parts[0]
        for part in parts[1:]:
            made = _times(made, part)
        return made
    if kind is sympy.Pow and expression.args[1].is_Integer and expression.args[1] > 0:
        return _power(parts[0], int(expression.args[1]))
    if kind is F.FloorDiv or kind is F.CleanDiv:
        if parts[1].low > 0:
            corners = [_quotient(a, b) for a in parts[0] for b in parts[1]]
            return Range(min(corners), max(corners))
        return ALL
    if kind is F.Mod or kind is F.PythonMod:
        if parts[1].low > 0:
            high = parts[1].high - 1
            return Range(0, min(high, parts[0].high) if parts[0].low >= 0 else high)
        return ALL
    if kind in (F.Max, sympy.Max, Larger):
        return Range(max(p.low for p in parts), max(p.high for p in parts))
    if kind in (F.Min, sympy.Min, Smaller):
        return Range(min(p.low for p in parts), min(p.high for p in parts))
    if kind is sympy.Abs:
        (part,) = parts
        low = 0 if part.low <= 0 <= part.high else min(abs(part.low), abs(part.high))
        return Range(low, max(abs(part.low), abs(part.high)))
    if expression.is_nonnegative:
        return Range(0, INF)
    return ALL


SIGNS: dict[Any, str] = {
    sympy.Eq: "eq",
    sympy.Ne: "ne",
    sympy.Lt: "lt",
    sympy.Le: "le",
    sympy.Gt: "gt",
    sympy.Ge: "ge",
}


class Knowledge:
    """Ranges of symbols, facts about other expressions, and what follows from both."""

    def __init__(self) -> None:
        self.ranges: dict[sympy.Symbol, Range] = {}
        self.facts: dict[frozenset, Range] = {}  # polynomial without constant -> its range
        self.divisible: set[tuple[Any, Any]] = set()
        self.told: dict[Any, bool] = {}  # comparisons of floats, of which nothing else follows
        self._lows: dict[sympy.Symbol, int] = {}
        self._memo: dict[Any, Range] = {}
        self._known: dict[Any, Range] = {}
        self._polynomials: dict[Any, polynomials.Polynomial] = {}
        self._plain: dict[Any, polynomials.Polynomial] = {}  # without what is known of quotients
        self._decided: dict[Any, bool | None] = {}

    def forget(self) -> None:
        """Something new is known: what was concluded before may be too weak."""
        self._memo.clear()
        self._known.clear()
        self._decided.clear()

    def drop(self, symbols: set[sympy.Symbol]) -> None:
        """Unlearn everything about ``symbols``."""
        for symbol in symbols:
            self.ranges.pop(symbol, None)
            self._lows.pop(symbol, None)
        self.facts = {
            key: known
            for key, known in self.facts.items()
            if not polynomials.symbols_of(key) & symbols
        }
        self.divisible = {
            (a, b) for a, b in self.divisible if not (a.free_symbols | b.free_symbols) & symbols
        }
        self.told = {c: known for c, known in self.told.items() if not c.free_symbols & symbols}
        self._polynomials.clear()
        self.forget()

    def bound(self, symbol: sympy.Symbol, range_: Range) -> None:
        known = self.ranges.get(symbol)
        new = range_ if known is None else known & range_
        if new == known:
            return
        self.ranges[symbol] = new
        if new.low > -INF:
            self._lows[symbol] = int(new.low)
        else:
            self._lows.pop(symbol, None)
        self.forget()

    def range_of(self, expression: Any) -> Range:
        """What is known of an integer expression."""
        found = self._known.get(expression)
        if found is None:
            found = bounds(expression, self.ranges, self._memo)
            if found.low != found.high and not expression.is_Symbol:
                terms = self._terms(expression)
                if terms is not None:
                    found &= self._range(terms)
            self._known[expression] = found
        return found

    def _terms(self, expression: Any) -> polynomials.Polynomial | None:
        """The polynomial, which knows that a symbol equals itself; None if it is too large."""
        try:
            return polynomials.polynomial(expression, self._polynomials, self._quotient)
        except polynomials.TooLarge:
            return None

    def _quotient(self, expression: Any) -> tuple[Any, Any] | None:
        """What is divided by what, if it is known to leave no remainder."""
        if expression.func is F.FloorDiv:
            a, b = expression.args
            if (a, b) in self.divisible or (b.is_Integer and self._residue(a, int(b)) == {}):
                return expression.args
        return None

    def atoms(self, condition: Any) -> set[Any]:
        """What is no symbol, sum or product in a comparison of integers: quotients and such."""
        if condition.func not in SIGNS or not all(part.is_integer for part in condition.args):
            return set()
        found = set()
        for part in condition.args:
            for monomial in self._terms(part) or ():
                found |= {a for a, _ in monomial if a.is_Function and a.free_symbols}
        return found

    def quotient(self, a: Any, b: Any) -> Any:
        """``a / b``, if that is certain to be an integer, and what it is is seen; else None."""
        for memo, parts in ((self._plain, _never), (self._polynomials, self._quotient)):
            try:
                first, second = [polynomials.polynomial(each, memo, parts) for each in (a, b)]
                found = polynomials.ratio(first, second)
            except polynomials.TooLarge:
                continue
            if found is not None:
                return polynomials.expression(found)
        return None

    def is_multiple(self, a: Any, b: Any) -> bool:
        """Whether ``a % b`` is certain to be 0, where ``b`` is positive."""
        if (a, b) in self.divisible or (b.is_Integer and self._residue(a, int(b)) == {}):
            return True
        return self.quotient(a, b) is not None

    def _residue(self, expression: Any, modulus: int, depth: int = 4) -> Any:
        """The terms of ``expression`` modulo a number; None where they are not seen.

        Source: congruences are kept by sums and products.
        """

        def inside(atom: Any) -> Any:
            if (atom, modulus) in self.divisible:
                return {}
            if depth and atom.func in (F.Mod, F.PythonMod):
                a, b = atom.args
                if b.is_Integer and b and not b % modulus:
                    return self._residue(a, modulus, depth - 1)
            return None

        if modulus <= 0:
            return None
        try:
            terms = polynomials.polynomial(expression, self._plain, _never)
            return polynomials.residue(terms, modulus, inside)
        except polynomials.TooLarge:
            return None

    def _learn_multiple(self, a: Any, modulus: Any) -> None:
        """``a % modulus`` is 0; so is that of an atom to a multiple of which ``a`` is congruent."""
        terms = self._residue(a, int(modulus)) if modulus.is_Integer else None
        self.divisible.add((a, modulus))
        if terms is not None and len(terms) == 1:
            ((monomial, coefficient),) = terms.items()
            if len(monomial) == 1 and math.gcd(coefficient, int(modulus)) == 1:
                ((atom, power),) = monomial
                if power == 1:
                    self.divisible.add((atom, modulus))
                    if self._quotient(atom) is not None:  # (b // c) % modulus is 0
                        self.divisible.add((atom.args[0], atom.args[1] * modulus))
        self._polynomials.clear()
        self.forget()

    def _range(self, terms: polynomials.Polynomial) -> Range:
        constant, rest = polynomials.split(terms)
        found = ALL
        if self.facts and rest:
            found = _plus(self._fact(rest), Range(constant, constant))
        try:
            offset = polynomials.shifted(terms, self._lows)
        except polynomials.TooLarge:
            offset = terms
            lows: dict[Any, int] = {}
        else:
            lows = self._lows
        made = Range(0, 0)
        for monomial, coefficient in offset.items():
            part = Range(coefficient, coefficient)
            for atom, power in monomial:
                part = _times(part, self._factor(atom, power, lows))
            made = _plus(made, part)
        found &= made  # of an integer, of which the coefficients may be fractions
        low = math.ceil(found.low) if type(found.low) is Fraction else found.low
        high = math.floor(found.high) if type(found.high) is Fraction else found.high
        return Range(low, high)

    def _factor(self, atom: Any, power: int, lows: dict[Any, int]) -> Range:
        if atom.is_Symbol:
            known = self.ranges.get(atom, ALL)
            low = lows.get(atom, 0)
            found = Range(known.low - low, known.high - low) if power > 0 else known
        else:
            found = self._atom(atom)
        if power > 0:
            return _power(found, power)
        if found.low > 0:
            known = _power(found, -power)
            return Range(0 if known.high == INF else _inverse(known.high), _inverse(known.low))
        return ALL

    def _atom(self, atom: Any) -> Range:
        """The range of what is no sum or product, by what is known of its operands."""
        if atom.is_number:
            return bounds(atom, self.ranges, self._memo)
        for part in atom.args:
            if part.is_integer:
                self._memo[part] = self.range_of(part)
        found = bounds(atom, self.ranges, self._memo)
        known = self.facts.get(frozenset({(frozenset({(atom, 1)}), 1)}))
        return found if known is None else found & known

    def _fact(self, rest: polynomials.Polynomial) -> Range:
        size, rest = polynomials.primitive(rest)
        found = self.facts.get(polynomials.key_of(rest), ALL)
        opposite = {monomial: -coefficient for monomial, coefficient in rest.items()}
        known = self.facts.get(polynomials.key_of(opposite))
        if known is not None:
            found &= Range(-known.high, -known.low)
        return _times(found, Range(size, size))

    def decide(self, condition: Any) -> bool | None:
        """Whether ``condition`` holds whatever the symbols are; None if that depends on them."""
        if condition is sympy.true or condition is sympy.false:
            return condition is sympy.true
        if condition in self._decided:
            return self._decided[condition]
        found = self._decided[condition] = self._decide(condition)
        return found

    def _difference(self, left: Any, right: Any) -> tuple[polynomials.Polynomial | None, Range]:
        """``left - right``: its terms, if they are few, and its range."""
        first, second = self._terms(left), self._terms(right)
        if first is None or second is None:
            low, high = self.range_of(right)
            return None, _plus(self.range_of(left), Range(-high, -low))
        terms = polynomials.minus(first, second)
        return terms, self._range(terms)

    def _decide(self, condition: Any) -> bool | None:
        kind = condition.func
        if kind is sympy.Not:
            inner = self.decide(condition.args[0])
            return None if inner is None else not inner
        if kind is sympy.And or kind is sympy.Or:
            absorbing = kind is sympy.Or
            parts = [self.decide(part) for part in condition.args]
            if absorbing in parts:
                return absorbing
            return None if None in parts else not absorbing
        sign = SIGNS.get(kind)
        if sign is None:
            return self.told.get(condition)
        left, right = condition.args
        if not (left.is_integer and right.is_integer):
            return None
        return self.compare(sign, left, right)

    def compare(self, sign: str, left: Any, right: Any) -> bool | None:
        """As :meth:`decide` for a relation (``eq`` to ``ge``) of integers, which sympy, asked for
        it, would try to decide itself: that takes longer than everything here.
        """
        key = (sign, left, right)
        if key not in self._decided:
            self._decided[key] = self._compare(sign, left, right)
        return self._decided[key]

    def is_plain(self, expression: Any) -> bool:
        """Whether an integer expression is a polynomial of symbols: sympy knows no more of it."""
        try:
            terms = polynomials.polynomial(expression, self._plain, _never)
        except polynomials.TooLarge:
            return False
        return all(atom.is_Symbol for monomial in terms for atom, _ in monomial)

    def _compare(self, sign: str, left: Any, right: Any) -> bool | None:
        terms, found = self._difference(left, right)
        if found.low > found.high:
            return None  # contradictory facts: this program cannot get here
        if sign in ("eq", "ne"):
            equal = None
            if found.low > 0 or found.high < 0 or not _has_integer_zero(terms):
                equal = False
            elif found.low == found.high == 0:
                equal = True
            return equal if equal is None or sign == "eq" else not equal
        if sign in ("gt", "ge"):
            found = Range(-found.high, -found.low)
        if sign in ("lt", "gt"):
            return True if found.high < 0 else False if found.low >= 0 else None
        return True if found.high <= 0 else False if found.low > 0 else None

    def learn(self, condition: Any) -> None:
        """``condition`` holds from here on."""
        kind = condition.func
        if kind is sympy.And:
            for part in condition.args:
                self.learn(part)
            return
        if kind is sympy.Not and condition.args[0].is_Relational:
            condition = condition.args[0].negated
            kind = condition.func
        sign = SIGNS.get(kind)
        if sign is None:
            told = condition.args[0] if kind is sympy.Not else condition
            if told.func in floats.COMPARISONS:
                self.told[told] = told is condition
                self.forget()
            return
        left, right = condition.args
        if not (left.is_integer and right.is_integer):
            return
        if sign == "eq" and right == 0 and left.func in (F.Mod, F.PythonMod):
            self._learn_multiple(*left.args)
        first, second = self._terms(left), self._terms(right)
        if first is None or second is None:
            return
        constant, rest = polynomials.split(polynomials.minus(first, second))
        if not rest or type(constant) is not int:
            return
        limit = -constant
        if sign == "ne":
            self._learn_unequal(rest, limit)
            return
        made = {
            "eq": Range(limit, limit),
            "lt": Range(-INF, limit - 1),
            "le": Range(-INF, limit),
            "gt": Range(limit + 1, INF),
            "ge": Range(limit, INF),
        }[sign]
        self._learn_range(rest, made)

    def _learn_range(self, rest: polynomials.Polynomial, made: Range) -> None:
        size, rest = polynomials.primitive(rest)
        low = made.low if made.low == -INF else math.ceil(int(made.low) / Fraction(size))
        high = made.high if made.high == INF else math.floor(int(made.high) / Fraction(size))
        known = polynomials.symbol_of(rest)
        if known is None:
            key = polynomials.key_of(rest)
            self.facts[key] = self.facts.get(key, ALL) & Range(low, high)
            self.forget()
        elif known[1] > 0:
            self.bound(known[0], Range(low, high))
        else:
            self.bound(known[0], Range(-high, -low))

    def _learn_unequal(self, rest: polynomials.Polynomial, value: int) -> None:
        """A bound that a symbol does not reach moves by one; no factor of a product is 0."""
        if value == 0 and len(rest) == 1:
            ((monomial, _),) = rest.items()
            for atom, power in monomial:
                known = self.range_of(atom) if power > 0 and atom.is_integer else ALL
                if known.low == 0:
                    self._learn_range({frozenset({(atom, 1)}): 1}, Range(1, INF))
            return
        found = polynomials.symbol_of(rest)
        if found is None or found[0] not in self.ranges:
            return
        symbol, sign = found
        known = self.ranges[symbol]
        if known.low == sign * value:
            self.bound(symbol, Range(known.low + 1, INF))
        elif known.high == sign * value:
            self.bound(symbol, Range(-INF, known.high - 1))


def _never(expression: Any) -> None:
    """Takes no quotient for exact."""


def _inverse(value: Any) -> Any:
    return 1 / value if type(value) is float else 1 / Fraction(value)


def _has_integer_zero(terms: polynomials.Polynomial | None) -> bool:
    """False if no integers make it 0: the coefficients' divisor does not divide the constant."""
    if terms is None:
        return True
    constant, rest = polynomials.split(terms)
    if type(constant) is not int:
        return True
    if any(power < 0 for monomial in rest for _, power in monomial):
        return True
    size = polynomials.divisor(rest.values())
    if any(type(c) is not int and c.denominator != 1 for c in rest.values()):
        return True
    return size == 0 or constant % size == 0
