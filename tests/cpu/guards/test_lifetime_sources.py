"""Lifetime by kind and place: what a program read is freed when the program's world drops it."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import refcompiler


class Box:
    def __init__(self, k: Any) -> None:
        self.k = k

    def method(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.k


def local_function() -> Callable:
    k = torch.ones(3)
    return lambda x: x * k


def instance_of_its_own_class() -> Any:
    class Scale:
        n = 2

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.n

    return Scale()


def module_of_its_own_class() -> nn.Module:
    class Scale(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    return Scale()


def hooked() -> nn.Module:
    made = nn.Linear(3, 3)
    made.register_forward_hook(lambda module, args, out: out * 2)
    return made


class Sub(torch.Tensor):
    pass


#: kind -> how one is made, and the expression that reads it
KINDS: dict[str, tuple[Callable[[], Any], str]] = {
    "tensor": (lambda: torch.ones(3), "x * v"),
    "tensor of a subclass": (lambda: torch.ones(3).as_subclass(Sub), "x * v"),
    "parameter": (lambda: nn.Parameter(torch.ones(3)), "x * v"),
    "object": (lambda: Box(2), "x * v.k"),
    "object with a tensor": (lambda: Box(torch.ones(3)), "x * v.k"),
    "module": (lambda: nn.Linear(3, 3), "v(x)"),
    "module with a hook": (hooked, "v(x)"),
    "module of its own class": (module_of_its_own_class, "v(x)"),
    "closure": (local_function, "v(x)"),
    "instance of its own class": (instance_of_its_own_class, "v(x)"),
    "partial": (lambda: functools.partial(torch.add, other=2), "v(x)"),
    "cached function": (lambda: functools.lru_cache(lambda n: n * 2), "x * v(3)"),
    "cached function of an object": (lambda: functools.lru_cache(lambda n: Box(n)), "x * v(3).k"),
    "receiver of a method": (lambda: Box(2), "v.method(x)"),
    "identity": (lambda: Box(2), "x * 2 if v is x else x + 1"),
    "equality": (lambda: Box(2), "x * 2 if v == 3 else x + 1"),
    "class of it": (lambda: Box(2), "x * 2 if isinstance(v, str) else x + 1"),
    "set": (lambda: frozenset({1}), "x * len(v)"),
    "generator": (lambda: (i for i in [1, 2, 3]), "x * next(v, 1)"),
}
#: place -> the rest of the program, how a value gets there, and how the function is called
PLACES: dict[str, tuple[str, str, str]] = {
    "argument": ("def f(x, v): return use(x, v)", "ARGS = (v,)", "f(x, *ARGS)"),
    "global": ("def f(x): return use(x, V)", "V = v", "f(x)"),
    "attribute": ("def f(x): return use(x, BOX.v)", "BOX.v = v", "f(x)"),
    "container": ("def f(x): return use(x, TABLE['k'])", "TABLE['k'] = v", "f(x)"),
    "cell": (
        "def make(v):\n    def f(x): return use(x, v)\n    return f\nf = make(0)",
        "f.__wrapped__.__closure__[0].cell_contents = v",
        "f(x)",
    ),
    "behind a break": (
        "def f(x):\n    torch._dynamo.graph_break()\n    return use(x, V)", "V = v", "f(x)"
    ),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_what_was_read_is_freed(place: str) -> None:
    rest, put, call = PLACES[place]
    watched: dict[str, list[weakref.ref]] = {}
    scopes = []
    for kind, (make, use) in KINDS.items():
        scope: dict[str, Any] = {"__name__": "program", "torch": torch, "BOX": Box(0), "TABLE": {}}
        exec(f"def use(x, v): return {use}\n{rest}", scope)
        scope["f"] = refcompiler.compile(scope["f"], backend="eager")
        value = make()
        _put(put, scope, value)
        for _ in range(2):
            eval(call, scope, {"x": torch.ones(3)})
        parts = getattr(value, "parameters", list)()
        watched[kind] = [weakref.ref(value), *map(weakref.ref, parts)]
        scopes.append(scope)
    del value, parts
    assert all(ref() is not None for refs in watched.values() for ref in refs)
    for scope in scopes:
        _put(put, scope, None)
    gc.collect()
    gc.collect()
    kept = [kind for kind, refs in watched.items() if any(ref() is not None for ref in refs)]
    assert not kept and len(watched) == len(KINDS)
    assert refcompiler.counters()["captures"] >= len(KINDS)


def _put(statement: str, scope: dict[str, Any], value: Any) -> None:
    scope["v"] = value
    exec(statement, scope)
    del scope["v"]


def test_what_a_program_was_made_of() -> None:
    """Plans name functions and classes of a program, but keep none that it has replaced."""
    scope: dict[str, Any] = {"__name__": "program"}
    exec("def helper(x): return x * 2\ndef f(x): return helper(x)", scope)
    run = refcompiler.compile(scope["f"], backend="eager")
    run(torch.ones(2))
    watched = weakref.ref(scope["helper"])
    exec("def helper(x): return x * 3", scope)
    assert run(torch.ones(2)).tolist() == [3, 3]
    gc.collect()
    assert watched() is None
    refcompiler.reset()
    assert run(torch.ones(2)).tolist() == [3, 3]


def _local_module() -> tuple[Any, list[Any]]:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch._dynamo.graph_break()
            return self.linear(x) * 2

    made = Scale()
    return refcompiler.compile(made, backend="eager"), [made, Scale, Scale.forward]


def _local_function() -> tuple[Any, list[Any]]:
    class Half:
        k = 0.5

    def helper(x: torch.Tensor, half: Half) -> torch.Tensor:
        return x * half.k

    def function(x: torch.Tensor) -> torch.Tensor:
        half = Half()
        torch._dynamo.graph_break()
        return helper(x, half) + isinstance(half, Half)

    return refcompiler.compile(function, backend="eager"), [Half, helper, function]


def _function_of_a_program() -> tuple[Any, list[Any]]:
    scope: dict[str, Any] = {"__name__": "program", "Box": type("Box", (), {"k": 3})}
    exec("def helper(x): return x * Box.k\ndef f(x): return helper(x)", scope)
    objects = [scope["Box"], scope["helper"], scope["f"]]
    return refcompiler.compile(scope["f"], backend="eager"), objects


def _callable_object() -> tuple[Any, list[Any]]:
    class Runner:
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    made = Runner()
    return refcompiler.compile(made, backend="eager"), [made, Runner]


@pytest.mark.parametrize(
    "make", [_local_module, _local_function, _function_of_a_program, _callable_object]
)
def test_classes_and_functions_go_with_what_was_compiled(
    make: Callable[[], tuple[Any, list[Any]]],
) -> None:
    run, objects = make()
    for _ in range(2):
        run(torch.ones(1, 3))
    watched = [weakref.ref(value) for value in objects]
    assert refcompiler.counters()["captures"] >= 1 and not refcompiler.counters()["fallbacks"]
    del run, objects
    for _ in range(3):
        gc.collect()
    assert [ref() for ref in watched] == [None] * len(watched)


def test_what_was_compiled_stays_as_long_as_its_function() -> None:
    class Half:
        k = 0.5

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * Half().k

    for _ in range(3):
        assert refcompiler.compile(function, backend="eager")(torch.ones(1)).item() == 0.5
        gc.collect()
    assert refcompiler.counters()["captures"] == 1
