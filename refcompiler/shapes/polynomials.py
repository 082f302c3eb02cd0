"""Integer expressions as polynomials: sums of products of what is no sum or product itself.

Two sizes are compared by the polynomial of their difference. Its terms are kept in a dict, since
multiplying out with sympy takes most of the time of a capture with many symbols. An expression that
would have too many terms has no polynomial.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import sympy

#: The factors of a term that are no numbers, with their exponents.
Monomial = frozenset[tuple[Any, int]]
Polynomial = dict[Monomial, Any]  # -> the coefficient, an int or a Fraction

ONE: Monomial = frozenset()
#: What would have more terms is not multiplied out.
MOST_TERMS = 200


class TooLarge(Exception):
    """The polynomial would have more terms than are worth it."""


def _number(value: Any) -> Any:
    return int(value) if value.is_Integer else Fraction(int(value.p), int(value.q))


def add(terms: Polynomial, monomial: Monomial, coefficient: Any) -> None:
    found = terms.get(monomial, 0) + coefficient
    if found:
        terms[monomial] = found
    else:
        terms.pop(monomial, None)


def _joined(a: Monomial, b: Monomial) -> Monomial:
    if not a or not b:
        return a or b
    powers = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) + power
    return frozenset((atom, power) for atom, power in powers.items() if power)


def times(a: Polynomial, b: Polynomial) -> Polynomial:
    if len(a) * len(b) > MOST_TERMS:
        raise TooLarge
    made: Polynomial = {}
    for first, x in a.items():
        for second, y in b.items():
            add(made, _joined(first, second), x * y)
    return made


def _inverse(base: Any) -> Polynomial:
    made: Polynomial = {ONE: 1}
    for factor in sympy.Mul.make_args(base):
        if factor.is_Rational and factor:
            part: Polynomial = {ONE: 1 / Fraction(_number(factor))}
        elif factor.is_Pow and factor.args[1].is_Integer:
            part = {frozenset({(factor.args[0], -int(factor.args[1]))}): 1}
        else:
            part = {frozenset({(factor, -1)}): 1}
        made = times(made, part)
    return made


def polynomial(
    expression: Any,
    memo: dict[Any, Polynomial],
    parts: Callable[[Any], tuple[Any, Any] | None],
) -> Polynomial:
    """The polynomial of ``expression``; ``parts`` tells of an atom if it is an exact quotient.

    Raises :class:`TooLarge`.
    """
    found = memo.get(expression)
    if found is None:
        found = memo[expression] = _polynomial(expression, memo, parts)
    return found


def _polynomial(expression: Any, memo: dict[Any, Polynomial], parts: Callable) -> Polynomial:
    if expression.is_Rational:
        return {ONE: _number(expression)} if expression else {}
    if expression.is_Add:
        made: Polynomial = {}
        for part in expression.args:
            for monomial, coefficient in polynomial(part, memo, parts).items():
                add(made, monomial, coefficient)
        return made
    if expression.is_Mul:
        made = {ONE: 1}
        for part in expression.args:
            made = times(made, polynomial(part, memo, parts))
        return made
    if expression.is_Pow and expression.args[1].is_Integer:
        base, exponent = expression.args[0], int(expression.args[1])
        if exponent < 0:
            base, exponent = base**-exponent, -1
            return _inverse(base)
        made, factor = {ONE: 1}, polynomial(base, memo, parts)
        for _ in range(exponent):
            made = times(made, factor)
        return made
    quotient = parts(expression)
    if quotient is not None:
        return times(polynomial(quotient[0], memo, parts), _inverse(quotient[1]))
    return {frozenset({(expression, 1)}): 1}


def minus(a: Polynomial, b: Polynomial) -> Polynomial:
    made = dict(a)
    for monomial, coefficient in b.items():
        add(made, monomial, -coefficient)
    return made


def split(terms: Polynomial) -> tuple[Any, Polynomial]:
    """The constant, and the polynomial without it."""
    rest = dict(terms)
    return rest.pop(ONE, 0), rest


def divisor(coefficients: Iterable[Any]) -> int:
    """The common divisor of the coefficients; 1 if one is a fraction, 0 if there are none."""
    found = 0
    for coefficient in coefficients:
        if type(coefficient) is not int and coefficient.denominator != 1:
            return 1
        found = math.gcd(found, int(coefficient))
    return found


def primitive(rest: Polynomial) -> tuple[Any, Polynomial]:
    """A number, an int or Fraction, and the polynomial divided by it, without common divisors."""
    below = math.lcm(*[1 if type(c) is int else c.denominator for c in rest.values()])
    if below > 1:
        rest = {monomial: int(c * below) for monomial, c in rest.items()}
    size = math.gcd(*[int(c) for c in rest.values()])
    if size > 1:
        rest = {monomial: int(c) // size for monomial, c in rest.items()}
    return (size or 1) if below == 1 else Fraction(size, below), rest


def symbol_of(rest: Polynomial) -> tuple[Any, int] | None:
    """The symbol and its sign, if the polynomial is no more than that."""
    if len(rest) == 1:
        ((monomial, coefficient),) = rest.items()
        if coefficient in (1, -1) and len(monomial) == 1:
            ((atom, power),) = monomial
            if power == 1 and atom.is_Symbol:
                return atom, int(coefficient)
    return None


def key_of(rest: Polynomial) -> frozenset:
    return frozenset(rest.items())


def symbols_of(key: frozenset) -> set[Any]:
    """The symbols in a polynomial that serves as a key."""
    return {s for monomial, _ in key for atom, _ in monomial for s in atom.free_symbols}


def shifted(terms: Polynomial, lows: dict[Any, int]) -> Polynomial:
    """With ``low + s`` for each symbol ``s`` that has a lowest value; ``s`` stands for the rest.

    Raises :class:`TooLarge`.
    """
    made: Polynomial = {}
    for monomial, coefficient in terms.items():
        part: Polynomial = {ONE: coefficient}
        for atom, power in monomial:
            low = lows.get(atom, 0)
            factor: Polynomial = {frozenset({(atom, power)}): 1}
            if low and power > 0:
                offset = {frozenset({(atom, 1)}): 1, ONE: low}
                factor = {ONE: 1}
                for _ in range(power):
                    factor = times(factor, offset)
            part = times(part, factor)
        for found, c in part.items():
            add(made, found, c)
    if len(made) > MOST_TERMS:
        raise TooLarge
    return made


def _over(a: Monomial, b: Monomial) -> Monomial | None:
    """``a / b``, if that is a product too."""
    powers = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) - power
        if powers[atom] < 0:
            return None
    return frozenset((atom, power) for atom, power in powers.items() if power)


def ratio(a: Polynomial, b: Polynomial) -> Polynomial | None:
    """``a / b``, if it has integer coefficients and ``b`` or it is one term; else None."""
    if not b:
        return None
    if len(b) == 1:
        ((below, size),) = b.items()
        made: Polynomial = {}
        for monomial, coefficient in a.items():
            found, part = _over(monomial, below), Fraction(coefficient) / size
            if found is None or part.denominator != 1:
                return None
            made[found] = int(part)
        return made
    if len(a) != len(b):
        return None
    below, size = next(iter(b.items()))
    for monomial, coefficient in a.items():
        found, part = _over(monomial, below), Fraction(coefficient) / size
        if found is not None and part.denominator == 1:
            one = {found: int(part)}
            if times(b, one) == a:
                return one
    return None


def residue(terms: Polynomial, modulus: int, inside: Callable[[Any], Polynomial | None]) -> Any:
    """What is left of ``terms`` modulo a number, with coefficients below it; None if unknown.

    ``inside`` gives what an atom is congruent to (``x % (k * modulus)`` to ``x``), or None.
    """
    made: Polynomial = {}
    for monomial, coefficient in terms.items():
        if type(coefficient) is not int or any(power < 0 for _, power in monomial):
            return None
        if not coefficient % modulus:
            continue
        part: Polynomial = {ONE: coefficient}
        for atom, power in monomial:
            found = inside(atom)
            if found is None:
                found = {frozenset({(atom, 1)}): 1}
            for _ in range(power):
                part = times(part, found)
        for each, c in part.items():
            if type(c) is not int:
                return None
            add(made, each, c)
    return {monomial: c % modulus for monomial, c in made.items() if c % modulus}


def expression(terms: Polynomial) -> Any:
    """The sum again."""
    return sympy.Add(
        *[
            sympy.Mul(sympy.sympify(c), *[atom**power for atom, power in monomial])
            for monomial, c in terms.items()
        ]
    )
