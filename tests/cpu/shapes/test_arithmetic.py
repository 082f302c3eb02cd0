"""The engine of symbolic sizes against plain integers: expressions, decisions, simplification."""

from __future__ import annotations

import itertools
import operator
import random
from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from refcompiler.shapes import ShapeEnv
from refcompiler.shapes.floats import FLOAT
from refcompiler.shapes.ranges import Knowledge, Range
from refcompiler.shapes.text import compiled, is_dense

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "max": torch.sym_max,
    "min": torch.sym_min,
}
COMPARISONS = (
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
)
HINTS = (6, 8, 12)
LIMITS = st.tuples(st.integers(-3, 9), st.integers(0, 20))  # a lower bound, and how much higher


def trees(depth: int) -> st.SearchStrategy:
    """Expressions as (operator, left, right), the index of a symbol as a string, or a number."""
    leaves = st.one_of(st.sampled_from(["0", "1", "2"]), st.integers(-4, 9))
    if not depth:
        return leaves
    return st.one_of(
        leaves, st.tuples(st.sampled_from(list(OPERATORS)), trees(depth - 1), trees(depth - 1))
    )


def value_of(tree: Any, values: tuple[Any, ...]) -> Any:
    if isinstance(tree, str):
        return values[int(tree)]
    if isinstance(tree, int):
        return tree
    name, left, right = tree
    return OPERATORS[name](value_of(left, values), value_of(right, values))


def symbols(env: ShapeEnv) -> tuple[Any, ...]:
    return tuple(env.size(hint) for hint in HINTS)


def samples(seed: int, count: int) -> list[tuple[int, ...]]:
    numbers = random.Random(seed)
    return [tuple(numbers.choice((2, 3, 4, 5, 6, 7, 8, 30)) for _ in HINTS) for _ in range(count)]


def expression(value: Any) -> Any:
    return value.node.expr if hasattr(value, "node") else sympy.sympify(value)


@settings(max_examples=150, deadline=None)
@given(trees(3), st.integers(0, 10**6))
@example(("//", "0", ("%", "0", ("-", "0", 2))), 0)  # whose second condition divides
def test_expressions_are_the_arithmetic_of_integers(tree: Any, seed: int) -> None:
    env = ShapeEnv()
    given_symbols = symbols(env)
    names = tuple(s.node.expr for s in given_symbols)
    try:
        wanted = value_of(tree, HINTS)
    except ZeroDivisionError:
        with pytest.raises(ZeroDivisionError):
            value_of(tree, given_symbols)
        return
    made = value_of(tree, given_symbols)
    assert wanted == (made.node.hint if hasattr(made, "node") else made)
    function = compiled(expression(made), names)
    conditions = [compiled(r.condition, names) for r in env.relations]
    reached = 0
    for values in samples(seed, 12):
        if not all(condition(*values) for condition in conditions):  # in their order
            continue  # another program: it divides by zero
        assert function(*values) == value_of(tree, values), (tree, values, expression(made))
        reached += 1
    assert reached or env.relations


@settings(max_examples=150, deadline=None)
@given(trees(2), trees(2), st.sampled_from(COMPARISONS), st.integers(0, 10**6))
def test_decisions_hold_for_all_sizes(
    left: Any, right: Any, compare: Callable[[Any, Any], Any], seed: int
) -> None:
    env = ShapeEnv()
    given_symbols = symbols(env)
    names = tuple(s.node.expr for s in given_symbols)
    try:
        a, b = value_of(left, given_symbols), value_of(right, given_symbols)
    except ZeroDivisionError:
        return
    before = len(env.relations)
    found = bool(compare(a, b))
    assert found == compare(value_of(left, HINTS), value_of(right, HINTS))
    conditions = [compiled(r.condition, names) for r in env.relations]
    for values in samples(seed, 20):
        try:
            held = all(condition(*values) for condition in conditions)
        except ZeroDivisionError:
            continue
        if held:  # decided once and for all, or the guards say the same
            answer = compare(value_of(left, values), value_of(right, values))
            assert answer == found, (left, right, values, before, env.relations)


@settings(max_examples=150, deadline=None)
@given(
    trees(2), st.lists(st.tuples(st.integers(-3, 9), st.integers(0, 20)), min_size=3, max_size=3)
)
def test_ranges_hold_inside_the_symbols_ranges(tree: Any, limits: list[tuple[int, int]]) -> None:
    names = sympy.symbols("a b c", integer=True)
    knowledge = Knowledge()
    choices = []
    for name, (low, size) in zip(names, limits, strict=True):
        knowledge.bound(name, Range(low, low + size))
        choices.append(sorted({low, low + size // 2, low + size}))
    env = ShapeEnv()
    nodes = [torch.SymInt(env.node(name, int, choice[0])) for name, choice in zip(names, choices)]
    try:
        made = value_of(tree, tuple(nodes))
    except ZeroDivisionError:
        return
    found = knowledge.range_of(expression(made))
    count = 0
    for values in itertools.product(*choices):
        try:
            value = value_of(tree, values)
        except ZeroDivisionError:
            continue
        count += 1
        assert found.low <= value <= found.high, (tree, values, found)
    assert count or env.relations


def test_what_was_decided_is_used_further_on() -> None:
    env = ShapeEnv()
    a, b = env.size(8), env.size(12)
    assert a % 4 == 0
    assert len(env.relations) == 1
    assert (a // 4) * 4 == a and a // 4 * 8 == 2 * a
    assert len(env.relations) == 1
    assert a + 4 == b
    assert len(env.relations) == 2
    assert (a * 2 + 8 == 2 * b) and b >= 6 and not b < a
    assert len(env.relations) == 2
    assert b == 12
    assert isinstance(env.replace(b.node.expr), sympy.Integer)
    assert env.fixed


def test_zero_and_one_are_numbers() -> None:
    env = ShapeEnv()
    assert [type(env.size(n)) for n in (0, 1)] == [int, int]
    size = env.size(5)
    assert size != 1 and size != 0 and size > 1 and size * size > size
    assert not env.relations


def test_unbacked_symbols_ask_for_assertions() -> None:
    env = ShapeEnv()
    count, size = env.create_unbacked_symint(), env.size(9)
    with pytest.raises(Exception, match="data"):
        bool(count > 3)
    torch._check(count >= 0)
    torch._check(count <= size)
    assert [str(a.condition) for a in env.assertions] == ["u0 >= 0", "u0 <= s0"]
    assert count + 1 > 0 and size - count >= 0
    torch._check(count == 2 * size)
    assert str(count) == "2*s0" and count % 2 == 0
    assert not env.relations


def test_floats_are_not_rearranged() -> None:
    env = ShapeEnv()
    x = env.floating(0.1)
    made = (x + 0.2) - 0.2
    (symbol,) = made.node.expr.free_symbols
    assert compiled(made.node.expr, (symbol,))(0.1) == (0.1 + 0.2) - 0.2 != 0.1
    assert made.node.hint == (0.1 + 0.2) - 0.2
    assert env.floating(float("inf")) == float("inf")


def test_a_rounded_float_may_be_a_whole_number() -> None:
    z = sympy.Symbol("z", real=True)
    for name in "add sub mul mod floordiv".split():
        for value in (9.0, 8.5):
            made = FLOAT[name](z, sympy.Float(1.0))
            assert sympy.Eq(made, value) is not sympy.false, name


def test_dense_layouts() -> None:
    count = 0
    for sizes in ((2, 3, 4), (1, 3, 2), (2, 2), (5,)):
        for order in itertools.permutations(range(len(sizes))):
            real = torch.empty([sizes[i] for i in order]).permute(
                [order.index(i) for i in range(len(sizes))]
            )
            for t in (real, real[..., :1], real[:1]):
                wanted = torch.ops.aten.is_non_overlapping_and_dense(t)
                assert is_dense(*t.shape, *t.stride()) == wanted
                count += 1
    assert count == 3 * (6 + 6 + 2 + 1)


def test_windows_of_a_padded_size_decide_nothing() -> None:
    """A size padded to a multiple is one: what follows from that is known, and stays small."""
    env = ShapeEnv()
    size, batch = env.size(13), env.size(5)
    padded = size + -size % 4
    count = padded // 4
    assert padded % 4 == 0 and count * 4 == padded and padded // count == 4
    assert count * count // count == count and count * batch % batch == 0
    assert str((batch * 16 * count * count) // (batch * 4 * count)) == str(4 * count)
    assert padded // -1 * -1 == padded and padded // -4 == -count and padded % -4 == 0
    assert torch.sym_max(1, count) == count
    assert env.relations == []


def test_what_is_learnt_of_quotients_replaces_them() -> None:
    env = ShapeEnv()
    size = env.size(32)
    rest = (4 - size // 4 % 4) % 4
    assert size % 4 == 0 and rest <= 0
    assert [str(r.condition) for r in env.relations] == [
        "Eq(Mod(s0, 4), 0)",
        "(Mod(4 - (Mod((s0//4), 4)), 4)) <= 0",
    ]
    assert str(size // 4 + rest) == "(s0//4)" and str(size % 4) == "0"
    assert size // 16 * 16 == size and size // 4 % 4 == 0 and (size // 4) // 4 * 4 == size // 4
    assert len(env.relations) == 2
