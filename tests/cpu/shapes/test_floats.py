"""Floats that are symbols, from arguments and from tensors: all of IEEE 754, as in eager."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch

import refcompiler
from refcompiler.shapes import ShapeEnv
from refcompiler.shapes.floats import FLOAT, float_of, identical
from refcompiler.shapes.text import compiled

VALUES = (1.5, 2.5, math.nan, math.inf, -math.inf, -0.0, 0.0, 1.0, -3.25, 1e308, 5e-324, 1.5)
#: Programs of a tensor and a float, and the most captures that they may cost for ``VALUES``.
PROGRAMS: dict[str, tuple[Callable, int]] = {
    "equal to itself": (lambda x, v: (x + 1, v == v, v != v, v <= v, v < v), 3),
    "a number as a result": (lambda x, v: (x + 1, v if v == v else 7.0), 3),
    "finite": (lambda x, v: (x + 1, v < math.inf, v - v == 0), 5),
    "kinds": (lambda x, v: (x + 1, math.isnan(v), math.isinf(v), math.isfinite(v)), 4),
    "extremes": (lambda x, v: (x + 1, max(v, 1.0), min(v, 1.0), max(1.0, v), min(1.0, v)), 2),
    "zeros": (lambda x, v: (x + 1, -v, v * 0.0, v + 0, v + -0.0, 0 - v, v * 1, v - -0.0), 2),
    "powers": (lambda x, v: (x + 1, v**2, v**0, v**1), 2),
    "quotients": (lambda x, v: (x + 1, v / v, v // 1, v % 1) if v else x, 4),
    "truth": (lambda x, v: (x + 1, bool(v), not v, v and 1, v or 2), 4),
    "negation": (lambda x, v: (x + 1, not v < 1, not v >= 1), 4),
    "sums": (lambda x, v: (x + 1, sum([v, 0.1, 0.2]), sum([0.1, v, 3, v, v], -0.0)), 12),
    "sums of what is not a number only": (
        lambda x, v: (sum([0.1] * 10), sum([0.1, 0.1, v, x, 0.1, 0.1]), sum([x.shape[0], v, 0.1])),
        8,
    ),
    "the number itself": (lambda x, v: (x * v, math.copysign(1.0, v), str(v)), 12),
    "operand": (lambda x, v: (x * v, x + (v == v), x * -v), 3),
}


def see(value: Any) -> str:
    if isinstance(value, tuple):
        return str([see(item) for item in value])
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {tuple(value.shape)} {value.tolist()}"
    return f"{type(value).__name__} {value!r}"


def attempt(function: Callable, *arguments: Any) -> str:
    try:
        return see(function(*arguments))
    except ArithmeticError as error:
        return repr(error)


@pytest.mark.parametrize("name", PROGRAMS)
def test_floats_of_arguments(name: str) -> None:
    program, most = PROGRAMS[name]
    compiled_program = refcompiler.compile(program, backend="eager", dynamic=True)
    x = torch.ones(2)
    with refcompiler.config.patch(recompile_limit=100):
        for v in (*VALUES, *VALUES[::-1]):
            assert attempt(compiled_program, x, v) == attempt(program, x, v), v
    assert 1 <= refcompiler.counters()["captures"] <= most


@pytest.mark.parametrize("name", PROGRAMS)
def test_floats_of_tensors(name: str) -> None:
    program, _ = PROGRAMS[name]

    def reading(x: Any, t: torch.Tensor) -> Any:
        return program(x, t.item())

    x = torch.ones(2)
    with refcompiler.config.patch(capture_scalar_outputs=True, recompile_limit=100):
        made = refcompiler.compile(reading, backend="eager")
        for v in VALUES:
            t = torch.tensor(v, dtype=torch.float64)
            assert attempt(made, x, t) == attempt(reading, x, t), v
    assert refcompiler.counters()["graphs"] >= 1
    assert refcompiler.counters()["fallbacks"] == 0


def test_a_check_of_a_float_is_checked_and_known() -> None:
    def program(t: torch.Tensor) -> Any:
        v = t.item()
        torch._check(v <= v)
        torch._check(v > 0)
        return t * 2 if v > 0 else t

    made = refcompiler.compile(program, backend="eager", fullgraph=True)
    for v, fails in ((1.5, False), (math.nan, True), (-1.0, True), (2.5, False)):
        t = torch.tensor(v)
        if fails:
            with pytest.raises(RuntimeError, match="Expected cond to be True"):
                made(t)
        else:
            assert made(t) == program(t)
    assert refcompiler.counters()["captures"] <= 3  # one more where a check has failed


def test_operations_on_floats_as_python() -> None:
    """Each row of the table as text, for all pairs of numbers, and after one becomes a constant."""
    a, b = sympy.Symbol("a", real=True), sympy.Symbol("b", real=True)
    count = 0
    for name, build in FLOAT.items():
        expression = build(a, b)
        run = compiled(expression, (a, b))
        for x in VALUES:
            for y in VALUES:
                if (name in ("mod", "floordiv") and not y) or y != y:
                    continue
                wanted = run(x, y)
                for symbols, values in (((a,), {b: y}), ((b,), {a: x}), ((), {a: x, b: y})):
                    known = expression.xreplace({s: float_of(v) for s, v in values.items()})
                    given = [{a: x, b: y}[s] for s in symbols]
                    assert repr(compiled(known, symbols)(*given)) == repr(wanted), (name, x, y)
                    count += 1
    assert count > 3000


def test_identical_floats() -> None:
    z = sympy.Symbol("z", real=True)
    for value in VALUES:
        condition = compiled(identical(z, value), (z,))
        assert [repr(v) for v in {repr(v): v for v in VALUES}.values() if condition(v)] == [
            repr(value)
        ]
    env = ShapeEnv()
    x = env.floating(1.5)
    assert env.evaluate_sym_node((-x).node) == -1.5 and env.evaluate_sym_node((x + 1).node) == 2.5
