"""Random arithmetic on symbols against the same arithmetic on ints, also after decisions.

``python -m tests.cpu.shapes.fuzz 0 20000`` runs seeds 0 to 19999 and prints those that fail.
"""

from __future__ import annotations

import operator
import random
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from refcompiler.shapes import ShapeEnv
from refcompiler.shapes.text import compiled

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "max": torch.sym_max,
    "min": torch.sym_min,
    "**": lambda a, b: a**b,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "round/": lambda a, b: torch.sym_int(a / b),
}
UNARY: dict[str, Callable[[Any], Any]] = {"neg": operator.neg, "abs": abs}
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_COMMON = ("+", "-", "*", "//", "%", "max", "min")
Tree = Any


class Symbol(NamedTuple):
    """``kind`` is size, integer or unbacked (a size that depends on data)."""

    kind: str
    hint: int

    def choices(self) -> list[int]:
        if self.kind == "size":
            return [2, 3, 4, 5, 6, 7, 8, 12, 16, 30]
        if self.kind == "integer":
            return [-9, -4, -2, -1, 0, 1, 2, 3, 5, 8, 20]
        return [0, 1, 2, 3, 4, 6, 8, 12]


def tree(draw: random.Random, depth: int, leaves: int) -> Tree:
    """An index of a symbol as a string, a number, or an operator and its operands."""
    if not depth or draw.random() < 0.2:
        return str(draw.randrange(leaves)) if draw.random() < 0.7 else draw.randrange(-4, 10)
    if draw.random() < 0.1:
        return draw.choice(list(UNARY)), tree(draw, depth - 1, leaves)
    name = draw.choice(_COMMON) if draw.random() < 0.85 else draw.choice(list(BINARY))
    left = tree(draw, depth - 1, leaves)
    if name in ("**", "<<", ">>"):
        return name, left, draw.randrange(0, 4)
    return name, left, tree(draw, depth - 1, leaves)


def windows(draw: random.Random, depth: int, leaves: int) -> Tree:
    """As :func:`tree`, of what models make of images: padded to windows, counted, multiplied."""
    if not depth or draw.random() < 0.1:
        return str(draw.randrange(leaves)) if draw.random() < 0.85 else draw.choice((1, 2, 4))
    inner, size = windows(draw, depth - 1, leaves), draw.choice((-2, 2, 3, 4, 8))
    padded = ("+", inner, ("%", ("-", size, ("%", inner, size)), size))
    other = windows(draw, depth - 1, leaves)
    return draw.choice(
        (
            ("//", padded, size),
            padded,
            ("//", inner, size),
            ("%", inner, size),
            ("*", inner, size),
            ("//", ("*", inner, other), other),
            ("//", ("*", ("*", inner, inner), size), inner),
            ("%", ("*", inner, other), other),
            ("max", 1, inner),
            ("+", inner, other),
            ("*", inner, other),
        )
    )


def value(tree: Tree, values: tuple[Any, ...]) -> Any:
    """``tree`` computed from the left to the right."""
    if isinstance(tree, str):
        return values[int(tree)]
    if isinstance(tree, int):
        return tree
    name, *operands = tree
    found = [value(operand, values) for operand in operands]
    return UNARY[name](*found) if name in UNARY else BINARY[name](*found)


def _expression(made: Any) -> Any:
    return made.node.expr if hasattr(made, "node") else sympy.sympify(made)


class Wrong(AssertionError):
    """What was simplified, for which numbers, and the two values."""


def check(seed: int, tree: Callable[..., Tree] = tree) -> int:
    """Some decisions, and expressions before and after; the number of values compared.

    Raises :class:`Wrong` for a decision, a range or an expression that does not hold for numbers
    that agree with what was recorded.
    """
    draw = random.Random(seed)
    env = ShapeEnv()
    symbols = [
        Symbol("size", draw.choice((6, 8, 12))),
        Symbol("size", draw.choice((5, 8, 24))),
        Symbol(draw.choice(("integer", "unbacked")), draw.choice((-3, 2, 7))),
    ]
    given = tuple([_make(env, symbol) for symbol in symbols])
    names = tuple([v.node.expr for v in given])
    hints = tuple([None if s.kind == "unbacked" else s.hint for s in symbols])
    assignments = [tuple(draw.choice(s.choices()) for s in symbols) for _ in range(60)]
    made: list[tuple[Tree, Any]] = []
    checks: list[tuple[str, Tree, Tree, Any]] = []
    for _ in range(draw.randrange(1, 5)):
        left, right = tree(draw, 2, 3), tree(draw, draw.randrange(2), 3)
        name = draw.choice(list(COMPARISONS))
        try:
            a, b = value(left, given), value(right, given)
            made += [(left, a), (right, b)]
            condition = COMPARISONS[name](a, b)
            if type(condition) is torch.SymBool and not condition.node.has_hint():
                if draw.random() < 0.5:
                    torch._check(condition)
                    checks.append((name, left, right, True))
                else:
                    known = env.knowledge.decide(condition.node.expr)
                    if known is not None:
                        checks.append((name, left, right, known))
            else:
                checks.append((name, left, right, bool(condition)))
        except (ZeroDivisionError, RuntimeError, OverflowError, GuardOnDataDependentSymNode):
            break  # eager raises too, or the number has to be known
    whole = tree(draw, 3, 3)
    try:
        made.append((whole, value(whole, given)))
    except (ZeroDivisionError, ValueError, OverflowError, GuardOnDataDependentSymNode):
        pass
    conditions = [compiled(r.condition, names) for r in (*env.relations, *env.assertions)]
    compared = 0
    for numbers in assignments:
        try:
            if not all(condition(*numbers) for condition in conditions):
                continue
            found = [value(each, numbers) for each, _ in made]
        except (ZeroDivisionError, ValueError):
            continue  # another program
        for (each, symbolic), wanted in zip(made, found, strict=True):
            for expr in (_expression(symbolic), env.replace(_expression(symbolic))):
                if compiled(expr, names)(*numbers) != wanted:
                    raise Wrong(f"{each} as {expr} for {numbers}: wanted {wanted}; {env.relations}")
            bounds = env.knowledge.range_of(_expression(symbolic))
            if not bounds.low <= wanted <= bounds.high:
                raise Wrong(f"{each} from {bounds.low} to {bounds.high} for {numbers}: {wanted}")
            compared += 3
        for name, left, right, answer in checks:
            got = COMPARISONS[name](value(left, numbers), value(right, numbers))
            if got != answer:
                known = f"{env.relations}, {env.assertions}"
                raise Wrong(f"{left} {name} {right} is {answer}, for {numbers} {got}; {known}")
            compared += 1
    for each, symbolic in made:
        if all(h is not None for h in hints) and hasattr(symbolic, "node"):
            if symbolic.node.hint != value(each, hints):
                raise Wrong(f"the hint of {each} is {symbolic.node.hint}")
    return compared


def _make(env: ShapeEnv, symbol: Symbol) -> Any:
    if symbol.kind == "size":
        return env.size(symbol.hint)
    if symbol.kind == "integer":
        return env.integer(symbol.hint)
    made = env.create_unbacked_symint()
    env._constrain_range_for_size(made.node.expr)
    return made


def main(first: int, last: int) -> None:
    compared = failed = 0
    for seed in range(first, last):
        for make in (tree, windows):
            try:
                compared += check(seed, make)
            except Exception as error:
                failed += 1
                print(make.__name__, seed, type(error).__name__, str(error)[:400])
    print(f"{last - first} seeds, {compared} comparisons, {failed} failed")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
