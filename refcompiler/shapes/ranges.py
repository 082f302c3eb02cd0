"""What is certain about an integer expression: interval arithmetic on its polynomial form.

A symbol with the lower bound ``l`` is written ``l + s``, so that a difference whose coefficients
have one sign is known to have it. The rules of the operations are those of interval arithmetic
(Moore, Interval Analysis, 1966).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import sympy
from torch.utils._sympy import functions as F

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
    if expression.is_Rational or expression.is_Float:
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


_SIGNS: dict[Any, str] = {
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
        self.facts: dict[Any, Range] = {}  # polynomial without constant -> its range
        self.divisible: set[tuple[Any, Any]] = set()
        self._shifted: dict[sympy.Symbol, Any] = {}
        self._offsets: dict[sympy.Symbol, Range] = {}
        self._memo: dict[Any, Range] = {}
        self._decided: dict[Any, bool | None] = {}

    def forget(self) -> None:
        """Something new is known: what was concluded before may be too weak."""
        self._memo.clear()
        self._decided.clear()

    def drop(self, symbols: set[sympy.Symbol]) -> None:
        """Unlearn everything about ``symbols``."""
        for symbol in symbols:
            self.ranges.pop(symbol, None)
            self._shifted.pop(symbol, None)
        self.facts = {e: r for e, r in self.facts.items() if not e.free_symbols & symbols}
        self.divisible = {
            (a, b) for a, b in self.divisible if not (a.free_symbols | b.free_symbols) & symbols
        }
        self.forget()

    def bound(self, symbol: sympy.Symbol, range_: Range) -> None:
        known = self.ranges.get(symbol)
        new = range_ if known is None else known & range_
        if new == known:
            return
        self.ranges[symbol] = new
        if new.low > -INF:
            offset = sympy.Dummy(f"{symbol}_", integer=True, nonnegative=True)
            self._shifted[symbol] = offset + int(new.low)
            self._offsets[offset] = Range(0, new.high - new.low)
        else:
            self._shifted.pop(symbol, None)
        self.forget()

    def range_of(self, expression: Any) -> Range:
        """What is known of an integer expression."""
        plain = bounds(expression, self.ranges, self._memo)
        if plain.low == plain.high or expression.is_Symbol:
            return plain
        return plain & self._difference(expression)

    def _difference(self, expression: Any) -> Range:
        """The range of the polynomial form, which knows that a symbol equals itself."""
        expanded = sympy.expand(self._divided(expression))
        constant, rest = expanded.as_coeff_Add()
        known = ALL
        if self.facts:
            known = self._fact(rest)
        shifted = sympy.expand(expanded.xreplace(self._shifted))
        found = bounds(shifted, {**self.ranges, **self._offsets}, {})
        if known != ALL and constant.is_Rational:
            found &= _plus(known, Range(float(constant), float(constant)))
        return found

    def _divided(self, expression: Any) -> Any:
        """Quotients that are known to leave no remainder as fractions."""
        if not self.divisible:
            return expression
        return expression.replace(
            lambda e: e.func is F.FloorDiv and (e.args[0], e.args[1]) in self.divisible,
            lambda e: e.args[0] / e.args[1],
        )

    def _fact(self, rest: Any) -> Range:
        size, rest = _primitive(rest)
        found = self.facts.get(rest, ALL)
        opposite = self.facts.get(sympy.expand(-rest))
        if opposite is not None:
            found &= Range(-opposite.high, -opposite.low)
        return _times(found, Range(size, size))

    def decide(self, condition: Any) -> bool | None:
        """Whether ``condition`` holds whatever the symbols are; None if that depends on them."""
        if condition is sympy.true or condition is sympy.false:
            return condition is sympy.true
        if condition in self._decided:
            return self._decided[condition]
        found = self._decided[condition] = self._decide(condition)
        return found

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
        sign = _SIGNS.get(kind)
        if sign is None:
            return None
        left, right = condition.args
        if not (left.is_integer and right.is_integer):
            return None
        difference = left - right
        found = self._difference(difference)
        if found.low > found.high:
            return None  # contradictory facts: this program cannot get here
        if sign in ("eq", "ne"):
            equal = None
            if found.low > 0 or found.high < 0 or not _has_integer_zero(difference):
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
        sign = _SIGNS.get(kind)
        if sign is None:
            return
        left, right = condition.args
        if not (left.is_integer and right.is_integer):
            return
        if sign == "eq" and right == 0 and left.func in (F.Mod, F.PythonMod):
            self.divisible.add((left.args[0], left.args[1]))
            self.forget()
        constant, rest = sympy.expand(left - right).as_coeff_Add()
        if sign == "ne" or not constant.is_Integer or rest == 0:
            self._learn_unequal(rest, -constant)
            return
        limit = -int(constant)
        made = {
            "eq": Range(limit, limit),
            "lt": Range(-INF, limit - 1),
            "le": Range(-INF, limit),
            "gt": Range(limit + 1, INF),
            "ge": Range(limit, INF),
        }[sign]
        self._learn_range(rest, made)

    def _learn_range(self, rest: Any, made: Range) -> None:
        size, rest = _primitive(rest)
        low = made.low if made.low == -INF else -(-int(made.low) // size)
        high = made.high if made.high == INF else int(made.high) // size
        if rest.is_Symbol:
            self.bound(rest, Range(low, high))
        elif (-rest).is_Symbol:
            self.bound(-rest, Range(-high, -low))
        else:
            self.facts[rest] = self.facts.get(rest, ALL) & Range(low, high)
            self.forget()

    def _learn_unequal(self, rest: Any, value: Any) -> None:
        """A bound that a symbol does not reach moves by one."""
        if rest.is_Symbol and value.is_Integer and rest in self.ranges:
            known = self.ranges[rest]
            if known.low == value:
                self.bound(rest, Range(known.low + 1, INF))
            elif known.high == value:
                self.bound(rest, Range(-INF, known.high - 1))


def _primitive(polynomial: Any) -> tuple[int, Any]:
    """The common divisor of the coefficients, and the polynomial divided by it."""
    divisor = 0
    for term in sympy.Add.make_args(polynomial):
        factor, _ = term.as_coeff_Mul()
        if not factor.is_Integer:
            return 1, polynomial
        divisor = math.gcd(divisor, int(factor))
    if divisor < 2:
        return 1, polynomial
    return divisor, sympy.expand(polynomial / divisor)


def _has_integer_zero(difference: Any) -> bool:
    """False if no integers make it 0: the coefficients' divisor does not divide the constant."""
    constant, rest = sympy.expand(difference).as_coeff_Add()
    if not constant.is_Integer:
        return True
    divisor = 0
    for term in sympy.Add.make_args(rest):
        factor, _ = term.as_coeff_Mul()
        if not factor.is_Integer:
            return True
        divisor = math.gcd(divisor, int(factor))
    return divisor == 0 or int(constant) % divisor == 0
