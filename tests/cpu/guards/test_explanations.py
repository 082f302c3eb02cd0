"""Each recompile names the guard that failed, expected and found values, and the user's line."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import linecache
from collections.abc import Callable
from typing import Any

import pytest
import torch

import refcompiler
from refcompiler.runtime import counters

ones = torch.ones
X = ones(4)


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass
class Point:
    n: int = 1


class Plain:
    def factor(self) -> int:
        return 2


class Other(Plain):
    pass


class Sub(torch.Tensor):
    pass


class Layer(torch.nn.Module):
    def __init__(self, n: int = 4, act: Any = torch.relu, k: float = 2.0):
        super().__init__()
        self.linear = torch.nn.Linear(n, n)
        self.act = act
        self.k = k

    def forward(self, x: Any) -> Any:
        return self.act(self.linear(x)) * self.k


def twice(x: Any) -> Any:
    return x * 2


def scaled(x: Any, n: Any) -> Any:
    return x * n


def by_length(x: Any, items: Any) -> Any:
    return x * len(items)


def second(x: Any, items: Any) -> Any:
    return x * items[1]


def applied(f: Callable, x: Any) -> Any:
    return f(x)


def extended() -> Plain:
    made = Plain()
    made.extra = 1  # type: ignore[attr-defined]
    return made


def hooked() -> Layer:
    made = Layer()
    made.register_forward_hook(lambda module, given, found: found * 2)
    return made


def closed(n: Any) -> Callable:
    return lambda x: x * n


def defaulted(n: Any) -> Callable:
    def function(x: Any, k: Any = n) -> Any:
        return x * k

    return function


STATIC: dict[str, Any] = {"dynamic": False}
SYMBOLS: dict[str, Any] = {"dynamic": True}
#: name -> function, first arguments, second arguments, options, what the explanation has.
CASES: dict[str, tuple[Any, tuple, tuple, dict[str, Any], list[str]]] = {
    "dtype": (twice, (X,), (X.double(),), {}, ["tensor x", "float32", "float64"]),
    "rank": (twice, (X,), (ones(4, 4),), {}, ["tensor x", "(4,)", "(4, 4)"]),
    "size": (twice, (X,), (ones(5),), STATIC, ["tensor x", "(4,)", "(5,)"]),
    "stride": (twice, (ones(4, 5),), (ones(5, 4).t(),), STATIC, ["(5, 1)", "(1, 4)"]),
    "gradient": (twice, (X,), (ones(4, requires_grad=True),), {}, ["grad=False", "grad=True"]),
    "subclass": (twice, (X,), (ones(4).as_subclass(Sub),), {}, ["expected Tensor", "found Sub"]),
    "device": (twice, (X,), (ones(4, device="meta"),), {}, ["device=cpu", "device=meta"]),
    "layout": (twice, (ones(4, 4),), (ones(4, 4).to_sparse(),), {}, ["layout=torch.sparse_coo"]),
    "conj": (twice, (X.cfloat(),), (X.cfloat().conj(),), {}, ["tensor x", ", conj)"]),
    "relation": (
        lambda x: x * 2 if x.shape[0] > 5 else x, (X,), (ones(7),), SYMBOLS,
        ["x.shape[0]", "<= 5", "found 7"],
    ),
    "divisible": (
        lambda x: x * 2 if x.shape[0] % 2 == 0 else x, (X,), (ones(7),), SYMBOLS,
        ["x.shape[0]", "% 2", "found 7"],
    ),
    "one": (twice, (X,), (ones(1),), SYMBOLS, ["x.shape[0]", ">= 2", "found 1"]),
    "int": (scaled, (X, 2), (X, 3), STATIC, ["n: expected 2, found 3"]),
    "float": (scaled, (X, 2.0), (X, -2.0), STATIC, ["n: expected 2.0, found -2.0"]),
    "zeros": (scaled, (X, 0.0), (X, -0.0), STATIC, ["n: expected 0.0, found -0.0"]),
    "nan": (scaled, (X, 1.0), (X, float("nan")), STATIC, ["n: expected 1.0, found nan"]),
    "bool": (scaled, (X, True), (X, 1), STATIC, ["n: expected True, found 1"]),
    "text": (by_length, (X, "ab"), (X, "abc"), {}, ["items: expected 'ab', found 'abc'"]),
    "none": (lambda x, n: x if n is None else -x, (X, None), (X, 1), {}, ["None", "found 1"]),
    "enum": (
        lambda x, n: x * n.value, (X, Color.RED), (X, Color.BLUE), {}, ["Color.RED", "Color.BLUE"],
    ),
    "length": (by_length, (X, [1]), (X, [1, 2]), {}, ["length of items: expected 1, found 2"]),
    "container": (second, (X, [1, 2]), (X, (1, 2)), {}, ["type of items", "list", "tuple"]),
    "item": (second, (X, [1, 2]), (X, [1, 3]), STATIC, ["items[1]: expected 2, found 3"]),
    "keys": (
        lambda d: sum(d.values()), ({"a": X},), ({"b": X},), {}, ["keys of d", "('a',)", "('b',)"],
    ),
    "order": (
        lambda x, d: x * list(d).index("a"), (X, {"a": 1, "b": 2}), (X, {"b": 2, "a": 1}), {},
        ["keys of d", "('a', 'b')", "('b', 'a')"],
    ),
    "set": (by_length, (X, {1, 2}), (X, {1, 2, 3}), {}, ["length of items"]),
    "class": (
        lambda x, a: x * a.factor(), (X, Plain()), (X, Other()), {}, ["type of a", "Other"],
    ),
    "attribute": (
        lambda x, p: x * p.n, (X, Point(1)), (X, Point(5)), STATIC, ["p.n: expected 1, found 5"],
    ),
    "absent": (
        lambda x, a: x * 2 if hasattr(a, "extra") else x, (X, Plain()), (X, extended()), {},
        ["no key 'extra'"],
    ),
    "built-in": (applied, (torch.sin, X), (torch.cos, X), {}, ["function sin>", "function cos>"]),
    "code": (applied, (lambda x: x * 2, X), (lambda x: x * 3, X), {}, ["f: expected", __file__]),
    "closure": (applied, (closed(2), X), (closed(2.5), X), STATIC, ["expected 2, found 2.5"]),
    "default": (applied, (defaulted(2), X), (defaulted(2.5), X), STATIC, ["f.__defaults__[-1]"]),
    "partial": (
        applied,
        (functools.partial(torch.add, alpha=2, other=X), X),
        (functools.partial(torch.add, alpha=3, other=X), X),
        STATIC,
        ["f.keywords['alpha']: expected 2, found 3"],
    ),
    "training": (
        applied, (torch.nn.Dropout(0.0), X), (torch.nn.Dropout(0.0).eval(), X), {},
        ["f.training: expected True, found False"],
    ),
    "function of a module": (applied, (Layer(), X), (Layer(act=torch.sin), X), {}, ["f.act"]),
    "float of a module": (applied, (Layer(), X), (Layer(k=3.0), X), {}, ["f.k: expected 2.0"]),
    "hook": (applied, (Layer(), X), (hooked(), X), {}, ["f._forward_hooks"]),
    "frozen": (
        applied, (Layer(), X), (Layer().requires_grad_(False), X), {},
        ["tensor f.linear.weight", "requires_grad=True", "requires_grad=False"],
    ),
    "variadic": (lambda x, *a: x * len(a), (X, 1), (X, 1, 2), {}, ["length of a"]),
    "range": (lambda x, r: x * sum(r), (X, range(3)), (X, range(4)), {}, ["range(0, 3)"]),
    "slice": (lambda x, r: x[r], (X, slice(0, 2)), (X, slice(0, 3)), STATIC, ["r.stop"]),
    "data type": (
        lambda x, d: x.to(d), (X, torch.float64), (X, torch.int32), {}, ["d: expected"],
    ),
    "named tuple": (
        lambda p: p.x * 2,
        (collections.namedtuple("P", "x y")(X, 1),),
        (collections.namedtuple("Q", "x")(X),),
        {},
        ["type(p)", "class P", "class Q"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_recompile_says_why(name: str) -> None:
    function, first, then, options, parts = CASES[name]
    refcompiler.reset()
    compiled = refcompiler.compile(function, backend="eager", **options)
    compiled(*first)
    compiled(*then)
    assert refcompiler.counters()["captures"] == 2
    (reason,) = map(str, counters.reasons("recompiles"))
    assert all(part in reason for part in ["expected", "found", *parts]), reason
    file, line = reason.rstrip(")").rsplit("guarded at ", 1)[1].rsplit(":", 1)
    assert file == __file__ and linecache.getline(file, int(line)).strip()


def _grad() -> None:
    torch.set_grad_enabled(False)


def _dtype() -> None:
    torch.set_default_dtype(torch.float64)


def _deterministic() -> None:
    torch.use_deterministic_algorithms(True)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (_grad, ["grad mode on", "grad mode off"]),
        (_dtype, ["default dtype torch.float32", "default dtype torch.float64"]),
        (_deterministic, ["deterministic algorithms off", "deterministic algorithms on"]),
    ],
)
def test_a_setting_that_changed_is_named(change: Callable, parts: list[str]) -> None:
    refcompiler.reset()
    x = ones(4, requires_grad=True)
    compiled = refcompiler.compile(twice, backend="eager")
    compiled(x)
    try:
        change()
        compiled(x)
    finally:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)
    (reason,) = map(str, counters.reasons("recompiles"))
    assert all(part in reason for part in parts), reason


def test_two_arguments_that_become_one() -> None:
    refcompiler.reset()
    compiled = refcompiler.compile(lambda x, y: x.add_(y), backend="eager")
    compiled(ones(3), ones(3))
    one = ones(3)
    assert torch.equal(compiled(one, one), ones(3) * 2)
    (reason,) = map(str, counters.reasons("recompiles"))
    assert "x, y: expected different objects, found one object" in reason


class Called(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.settings = {"a": [1, 2]}

    def forward(self, x: Any, y: Any = None, *rest: Any, scale: Any = 1, **more: Any) -> Any:
        if y is not None:
            x = x + y
        return (x + sum(rest) + sum(more.values())) * scale * self.settings["a"][1]


#: First and second arguments of a compiled module: what the explanation says of them.
CALLS: dict[str, tuple[tuple[tuple, dict], tuple[tuple, dict], str]] = {
    "by place": (((X,), {}), ((ones(4, 4),), {}), "tensor x: expected"),
    "by name": (((), {"x": X}), ((), {"x": ones(4, 4)}), "tensor x: expected"),
    "of more": (((X, X, 1), {}), ((X, X, 2), {}), "rest[0]: expected 1, found 2"),
    "only by name": (((X,), {"scale": 1}), ((X,), {"scale": 2}), "scale: expected 1, found 2"),
    "by another name": (((X,), {"b": 1}), ((X,), {"b": 2}), "more['b']: expected 1, found 2"),
    "none": (((X, None), {}), ((X, X), {}), "y: expected None, found"),
    "a name more": (
        ((X,), {}), ((X,), {"b": 2}), "keys of keyword arguments: expected (), found ('b',)",
    ),
    "one more": (((X,), {}), ((X, X), {}), "length of positional arguments: expected 1, found 2"),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_arguments_of_compiled_modules_have_the_users_names(name: str) -> None:
    (first, named), (then, also), part = CALLS[name]
    module = Called()
    compiled = refcompiler.compile(module, backend="eager", dynamic=False)
    compiled(*first, **named)
    assert torch.equal(compiled(*then, **also), module(*then, **also))
    (reason,) = map(str, counters.reasons("recompiles"))
    assert part in reason
    line = int(reason.rstrip(")").rsplit(f"guarded at {__file__}:", 1)[1])
    start = Called.forward.__code__.co_firstlineno
    assert start <= line <= start + 3


def test_what_a_compiled_module_holds_has_the_users_names() -> None:
    compiled = refcompiler.compile(module := Called(), backend="eager", dynamic=False)
    compiled(X)
    module.settings["a"][1] = 5
    compiled(X)
    held = 2

    def function(x: Any) -> Any:
        return x * held

    compiled = refcompiler.compile(function, backend="eager", dynamic=False)
    compiled(X)
    held = 3
    compiled(X)
    first, second = map(str, counters.reasons("recompiles"))
    assert "self.settings['a'][1]: expected 2, found 5" in first
    assert "function: held: expected 2, found 3" in second
