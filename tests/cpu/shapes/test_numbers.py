"""What Python does with sizes and numbers that are symbols: eager's answers, captures counted."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.symbolic_shapes import (
    guard_or_false,
    guard_or_true,
    statically_known_true,
    sym_and,
    sym_eq,
    sym_or,
)

import refcompiler
from tests.cpu.shapes.programs import compare

SIZES = (4, 6, 9, 4)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    refcompiler.reset()


class Box:
    def __init__(self, n: int):
        self.n = n


NAMED = Box(0)


def _texts(x: Any) -> Any:
    text = "a"
    text += f"{x.shape[0]:>4}|{x.shape[0]!r}"
    text += "%d" % x.shape[0]  # noqa: UP031
    other = "%s"
    other %= x.shape[1]
    NAMED.n = f"{x.shape[0]} rows"
    return text + other, NAMED.n, vars(NAMED), f"{x.dim()!r:}"


def _checks(x: Any) -> Any:
    n = x.shape[0]
    torch._check(n > 1)
    torch._check(n >= 2, lambda: "small")
    torch._check_value(n < 100)
    assert x.shape[1] == n + 3, f"{x.shape}"
    return x


def _written(x: Any) -> Any:
    n = x.shape[0]
    y = torch.zeros(n)
    y[n - 1] = n
    y[: n // 2] = 1
    return y


def _indexed(x: Any, k: Any) -> Any:
    n = x.shape[0]
    rows = x[n - 1], x[-n, k], x[:, k], x[..., k], x[k, ..., None, k], x[None, :2, k], x[k, [0, 1]]
    y = x.clone()
    y[k] += 1
    y[:, n // 2] = x[torch.tensor([0, 1]), k].sum()
    y[None, k, 1] = 5
    return rows, [row.stride() for row in rows], y


def _matched(x: Any) -> list[Any]:
    found = []
    for value in (x.shape[0], x.shape[0] / 2, x.shape[0] > 1):
        match value:
            case bool(b):
                found.append(("bool", b))
            case int(n) if n > 0:
                found.append(("int", n))
            case float():
                found.append("float")
        match {"n": value}:
            case {"n": str() | None}:
                found.append("none")
            case {"n": object()}:
                found.append("any")
    return found


def _matrix(s: int) -> tuple:
    return (torch.arange(s * (s + 3)).float().reshape(s, s + 3),)


#: One program each for all sizes.
ONCE: dict[str, Callable[[Any], Any]] = {
    "arithmetic": lambda x: (
        x.shape[0] // 3, x.shape[0] % 3, x.shape[0] ** 2, 2 ** x.shape[0],
        divmod(x.shape[1], x.shape[0]), -x.shape[0] // 2, -x.shape[0] % 3, 7 // x.shape[0],
        x.shape[0] / 2, 7 % x.shape[0], x.shape[0] ** -1, x.shape[0] ** 0.5, pow(x.shape[0], 2),
    ),
    "negative divisors": lambda x: (
        x.shape[0] // -3, x.shape[0] % -3, (x.shape[0] // -2) // (1 - x.shape[0]),
    ),
    "bits": lambda x: (
        x.shape[0] & 3, x.shape[0] | 8, x.shape[0] ^ 5, x.shape[0] << 2, x.shape[0] >> 1,
        ~x.shape[0],
    ),
    "rounding": lambda x: (
        round(x.shape[0] / 3), round(x.shape[0] / 3, 1), round(x.shape[0]), round(x.shape[0], 2),
        math.floor(x.shape[0] / 3), math.ceil(x.shape[0] / 3), math.trunc(x.shape[0] / 2),
        int(x.shape[0] / 2),
    ),
    "functions": lambda x: (
        math.sqrt(x.shape[0]), math.log(x.shape[0]), math.log2(x.shape[0]), math.sin(x.shape[0]),
        math.exp(x.shape[0]), math.pow(x.shape[0], 0.5), math.prod(x.shape), float(x.shape[0]),
    ),
    "in tensors": lambda x: (x / math.sqrt(x.shape[1]), x * math.log(x.shape[0]), x ** x.shape[0]),
    "extremes": lambda x: (
        min(x.shape), max(x.shape), min(x.shape[0], 5), max(3, x.shape[1]), sum(x.shape),
        min([x.shape[0], x.shape[1]]), max(x.shape[0], 2), sum([x.shape[0], x.shape[1]], 3),
        sum(n for n in x.shape), sorted(x.shape, reverse=True),
    ),
    "comparisons": lambda x: (
        2 < x.shape[0] < 100, x.shape[0] > 1 and x.shape[1] > 2, not x.shape[0],
        x.shape[0] is None, x.shape[0] == None, x.shape[0] != "a",  # noqa: E711
    ),
    "methods": lambda x: (
        x.shape[0].__add__(2), x.shape[0].__mul__(2), int.__add__(x.shape[0], 2), x.shape[0].real,
        operator.add(x.shape[0], 3), operator.floordiv(x.shape[0], 2), x.shape[0].__index__(),
        x.shape[0].numerator, x.shape[0].imag, x.shape[0].denominator, abs(-x.shape[0]),
    ),
    "sizes": lambda x: (
        x.shape.numel(), x.numel(), len(x), x.shape[-1], x.stride(), x.t().stride(), x.size(),
        x[1:, 2:].storage_offset(), torch.broadcast_shapes(x.shape, (1, 1)), list(x.shape),
    ),
    "containers": lambda x: (
        [(i, n) for i, n in enumerate(x.shape)], {i: x.shape[i] for i in range(2)},
        list(zip(x.shape, x.stride())), list(map(abs, x.shape)),
        functools.reduce(lambda a, b: a * b, x.shape, 1), [*x.shape, 1], (x.shape[0],) * 2,
    ),
    "tensors of numbers": lambda x: (
        torch.tensor(x.shape[0]), torch.tensor([x.shape[0], 2]), torch.as_tensor(x.shape[0]),
        torch.tensor(x.shape[0] / 2), torch.tensor([x.shape[0], 1.5]),
        torch.tensor(x.shape[0], dtype=torch.float64), torch.scalar_tensor(x.shape[0]),
    ),
    "texts": _texts,
    "texts of sizes": lambda x: (
        str(x.shape), f"{x.shape}", repr(x.shape), f"{x.stride()!r}", f"{((len(x), 1.5), 'n')}",
        "%s and %d" % (x.shape, x.numel()), "{} {!r}".format(x.shape, x.stride()),  # noqa: UP031,UP032
    ),
    "patterns": _matched,
    "writes": _written,
    "places": lambda x: _indexed(x, x.shape[0] // 2),
    "parts of one element": lambda x: (
        x[: x.shape[0] // 4], x.narrow(0, 1, x.shape[0] // 4), x.narrow(1, 0, x.shape[0] // 4).t(),
    ),
    "checks": _checks,
    "torch's functions": lambda x: (
        torch.sym_max(x.shape[0], 5), torch.sym_min(x.shape[0], 5), torch.sym_int(x.shape[0] / 2),
        torch.sym_float(x.shape[0]), torch.sym_sum([x.shape[0], 3]), torch.sym_sqrt(x.shape[0]),
    ),
    "torch's questions": lambda x: (
        guard_or_false(x.shape[0] > 1), guard_or_true(x.shape[0] < 1), sym_eq(x.shape, x.size()),
        statically_known_true(x.shape[0] > 1), sym_and(x.shape[0] > 1, x.shape[1] > 2),
        sym_or(x.shape[0] > 50, x.shape[1] > 2),
    ),
    "composed operators": lambda x: (
        F.pad(x, (0, 20 - x.shape[1])), F.interpolate(x[None, None], size=(x.shape[0] * 2, 5)),
        F.interpolate(x[None], scale_factor=2), torch.cdist(x, x),
    ),
}  # fmt: skip
#: And those that need the number itself: one for each size.
SPECIALISED: dict[str, Callable[[Any], Any]] = {
    "texts that are read": lambda x: (len(f"{x.shape}"), {str(len(x)): 1}),
    "methods of texts": lambda x: f"{x.shape[0]}".isdigit(),
    "keys": lambda x: ({x.shape[0]: 1}, {x.shape[0], 2}),
    "loops": lambda x: (len(range(x.shape[0])), [x[i].sum() for i in range(x.shape[0])]),
    "items": lambda x: (list(range(20))[x.shape[0]], list(range(20))[: x.shape[0]]),
    "methods": lambda x: (x.shape[0].bit_length(), x.shape[0].to_bytes(4, "big")),
    "functions": lambda x: (math.gcd(x.shape[0], 6), math.factorial(x.shape[0]), complex(len(x))),
    "power": lambda x: pow(x.shape[0], 2, 5),
    "rounding": lambda x: round(x.shape[0], -1),
    "repetition": lambda x: ("a" * x.shape[0], [0] * x.shape[0]),
}


@pytest.mark.parametrize("name", ONCE)
def test_one_program_for_all_sizes(name: str) -> None:
    assert compare(ONCE[name], [_matrix(s) for s in SIZES], dynamic=True, fullgraph=True) == 1


@pytest.mark.parametrize("name", SPECIALISED)
def test_what_needs_the_number(name: str) -> None:
    assert compare(SPECIALISED[name], [_matrix(s) for s in SIZES], dynamic=True) == 3
    assert refcompiler.counters()["breaks"] == 0


FLOATS: dict[str, Callable[[Any, float], Any]] = {
    "arithmetic": lambda x, f: (x * f, f + 1, f // 1, f % 1, -f, abs(f), f**2, f < 100.0, f / 3),
    "functions": lambda x, f: (math.sqrt(f), math.floor(f), round(f, 2), int(f), f == 0.5),
    "tensors": lambda x, f: (torch.tensor(f), torch.full((2,), f), x + f),
}


@pytest.mark.parametrize("name", FLOATS)
def test_floats(name: str) -> None:
    calls = [(torch.ones(3), s / 7 + 0.01) for s in SIZES]
    assert compare(FLOATS[name], calls, dynamic=True, fullgraph=True) == 1
    assert compare(FLOATS[name], calls, dynamic=None, fullgraph=True) == 2


def test_numbers_of_arguments_of_all_kinds() -> None:
    def function(x: Any, d: Any, t: Any, box: Any, *, k: int = 3) -> Any:
        return x[: t[0]] * d["k"][0] + box.n + t[1][0] * k, len(x) * k

    def call(s: int) -> tuple:
        return torch.ones(20, 2), {"k": [s + 1]}, (s, (s * 2,)), Box(s + 2)

    assert compare(function, [call(s) for s in SIZES], dynamic=True, fullgraph=True) == 1
    assert compare(function, [call(s) for s in SIZES], dynamic=None, fullgraph=True) == 2


FACTOR = 3


def test_a_global_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Any) -> Any:
        return x[:FACTOR] * FACTOR

    compiled = refcompiler.compile(function, backend="eager")
    for k in (3, 4, 7, 5):
        monkeypatch.setitem(globals(), "FACTOR", k)
        assert torch.equal(compiled(torch.ones(9)), function(torch.ones(9)))
    assert refcompiler.counters()["captures"] == 2


def test_membership_in_a_range_is_a_relation() -> None:
    def program(x: Any) -> Any:
        n = x.shape[0]
        return x + 1, n in range(5, 20), n in range(30, 2, -4), n in range(0)

    compiled = refcompiler.compile(program, backend="eager", dynamic=True, fullgraph=True)
    for n in (6, 10, 14, 7, 8, 19, 22, 26, 21, 25):  # each kind several times
        x = torch.ones(n)
        assert compiled(x)[1:] == program(x)[1:], n
    assert refcompiler.counters()["captures"] == 4


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_elements_of_a_tensor_as_numbers(backend: str) -> None:
    """As many numbers as there are elements, where numbers may be read from tensors."""

    def program(x: Any, sizes: Any) -> Any:
        numbers = sizes.tolist()
        for number in numbers:
            torch._check(number >= 0)
        return x.split(numbers), torch.tensor([[1, 2], [3, 4]]).tolist()

    compiled = refcompiler.compile(program, backend=backend, fullgraph=True)
    for sizes in ([1, 2], [2, 3], [0, 4], [3, 3]):
        x = torch.arange(float(sum(sizes)))
        found, known = compiled(x, torch.tensor(sizes))
        assert all(map(torch.equal, found, x.split(sizes))) and known == [[1, 2], [3, 4]]
    assert refcompiler.counters()["captures"] == 2
    for values in ([[1, 2], [3, 4]], [], 5, [1.5, 2.5], [True]):
        refcompiler.reset()
        given = torch.tensor(values)
        read = refcompiler.compile(lambda t: (t.tolist(), t + 1), backend=backend, fullgraph=True)
        for value in (given, given.flip(0) if given.dim() else given):
            assert read(value)[0] == value.tolist()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    "test",
    [
        lambda v: v == v,
        lambda v: v != v,
        lambda v: v <= v,
        lambda v: abs(v) >= 0,
        lambda v: -v == -v,
        lambda v: v - v == 0,
        lambda v: not v > 1,
    ],
)
def test_what_holds_of_every_number_does_not_of_nan(test: Any, dynamic: bool | None) -> None:
    def program(x: Any, v: float) -> Any:
        return x * v if test(v) else x + 1

    compiled = refcompiler.compile(program, backend="eager", dynamic=dynamic)
    x = torch.ones(2)
    for v in (1.5, 2.5, math.nan, 3.5, math.inf, -0.0, math.nan):
        assert repr(compiled(x, v)) == repr(program(x, v)), v
    assert 2 <= refcompiler.counters()["captures"] <= 6


class Pair(NamedTuple):
    first: int
    second: int


class Row(tuple):
    note: str


def test_tuples_keep_their_class_where_sizes_become_numbers() -> None:
    """As keys and members, and as texts that their class has for itself."""

    def program(x: Any) -> Any:
        row = Row((x.shape[0],))
        row.note = "kept"
        key = next(iter({Pair(x.shape[0], 2): 1}))
        (member,) = {row}
        return x * key.first + key.second, key, type(member), member.note, f"{key}"

    assert compare(program, [(torch.ones(n, 2),) for n in (3, 4, 3)], dynamic=True) == 2
