"""Lifetime of what plans name: classes, functions, modules and namespaces that others drop."""

from __future__ import annotations

import abc
import enum
import gc
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import refcompiler

#: A program whose classes and functions no module has. ``{line}`` stands at several depths.
_SOURCE = """
import torch, types
from torch import nn

BIG = torch.ones(3)
K = 2


class Tag:
    pass


class Base(nn.Module):
    shared = torch.full((3,), 2.0)

    def forward(self, x):
        return self.scale(x) + helper(x)


class Scale(Base):
    def __init__(self, k):
        super().__init__()
        self.k = nn.Parameter(torch.full((3,), float(k)))
        self.tag = Tag()

    @property
    def times(self):
        return K

    @staticmethod
    def plus(x):
        return x + BIG

    @classmethod
    def name(cls):
        return len(cls.__name__)

    def scale(self, x):
        {line}
        return self.plus(x) * self.k * self.times * self.shared + self.name()


class Called:
    def __init__(self, inner):
        self.inner = inner

    def __call__(self, x):
        y = self.inner(x)
        {line}
        return (y if isinstance(self.inner, nn.Module) else y * 2) + K


def helper(x, d=BIG):
    {line}
    return x * K + d


def made(k):
    def inner(x):
        return helper(x) * k

    return inner


space = types.ModuleType("space")
space.deep = types.SimpleNamespace(f=made(3), cls=Scale)
"""
_LINES = ("pass", "torch._dynamo.graph_break()")
#: What the program is given, as an expression in that namespace.
_GIVEN = ("helper", "made(4)", "Scale(3).scale", "[Called(Scale(2))][0]", "space.deep.f")
_NAMES = ("BIG", "Tag", "Base", "Scale", "Called", "helper", "made", "space")


def x() -> torch.Tensor:
    return torch.arange(3.0)


def collect() -> None:
    gc.collect()
    gc.collect()


def world(line: str, name: str = "dropped") -> dict[str, Any]:
    scope: dict[str, Any] = {"__name__": name}
    exec(_SOURCE.replace("{line}", line), scope)
    return scope


def watch(scope: dict[str, Any]) -> list[weakref.ref]:
    return [weakref.ref(scope[name]) for name in _NAMES]


def dead(watched: list[weakref.ref]) -> list[bool]:
    collect()
    return [reference() is None for reference in watched]


@pytest.mark.parametrize("line", _LINES)
@pytest.mark.parametrize("given", _GIVEN)
def test_what_was_given_goes_with_its_world(given: str, line: str) -> None:
    def program(x: torch.Tensor, v: Callable) -> Any:
        y = v(x)
        return y * 2, v

    run = refcompiler.compile(program, backend="eager")
    for _ in range(2):
        scope = world(line)
        value = eval(given, scope)
        for _ in range(2):
            out, same = run(x(), value)
            assert same == value and torch.equal(out, program(x(), value)[0])
        scope["K"] = 5
        assert torch.equal(run(x(), value)[0], program(x(), value)[0])
        watched = watch(scope)
        assert None not in [reference() for reference in watched]
        del scope, value, out, same
        assert all(dead(watched))
    assert not refcompiler.counters()["fallbacks"]
    assert refcompiler.counters()["captures"] >= 2


@pytest.mark.parametrize("line", _LINES)
def test_a_module_that_goes(line: str) -> None:
    def program(x: torch.Tensor, space: Any) -> Any:
        return space.Scale(2)(x) + space.helper(x), lambda: space.K

    run = refcompiler.compile(program, backend="eager")
    for _ in range(2):
        space = types.ModuleType("dropped")
        exec(_SOURCE.replace("{line}", line), space.__dict__)
        for _ in range(2):
            out, late = run(x(), space)
            assert torch.equal(out, program(x(), space)[0]) and late() == 2
        watched = [*watch(space.__dict__), weakref.ref(space)]
        del space, out, late
        assert all(dead(watched))


def test_plans_go_with_what_they_name() -> None:
    """So that a limit of recompilations counts only those that could still hold."""

    def program(x: torch.Tensor, v: Any) -> torch.Tensor:
        return v(x) * 2

    run = refcompiler.compile(program, backend="eager", recompile_limit=2)
    for k in range(4):

        class Scale:
            def __call__(self, x: torch.Tensor, k: str = str(k)) -> torch.Tensor:
                return x * int(k)

        assert torch.equal(run(x(), Scale()), x() * k * 2)
        del Scale
        collect()
    assert refcompiler.counters()["captures"] == 4 and not refcompiler.counters()["fallbacks"]


def test_an_object_with_a_limit_of_its_own() -> None:
    """The same for a compiled module, which shares its plans with the others of its class."""

    class Net(nn.Module):
        def forward(self, x: torch.Tensor, v: Any) -> torch.Tensor:
            return v(x)

    net = refcompiler.compile(Net(), backend="eager", recompile_limit=2)
    for k in range(4):

        class Plus:
            def __call__(self, x: torch.Tensor, k: str = str(k)) -> torch.Tensor:
                return x + int(k)

        assert torch.equal(net(x(), Plus()), x() + k)
        del Plus
        collect()
    assert not refcompiler.counters()["fallbacks"]


def test_what_a_loaded_module_has_replaced() -> None:
    """It lived in its module when it was captured; with the next plan the old ones let it go."""
    module = types.ModuleType("replacing_module")
    sys.modules["replacing_module"] = module
    try:
        text = "import torch\ndef helper(x, d=torch.ones(3)):\n    return x * {k} + d\n"
        text += "class Box:\n    k = {k}\n"
        exec(text.format(k=2) + "def f(x):\n    return helper(x) * Box.k\n", module.__dict__)
        space: Any = module
        run = refcompiler.compile(space.f, backend="eager")
        for k in (2, 3, 4):
            exec(text.format(k=k), module.__dict__)
            assert torch.equal(run(x()), (x() * k + 1) * k)
            old = [space.helper, space.helper.__defaults__[0], space.Box]
            watched = [weakref.ref(value) for value in old]
            del old
            exec(text.format(k=9), module.__dict__)
            assert torch.equal(run(x()), (x() * 9 + 1) * 9)
            assert all(dead(watched)), k
    finally:
        del sys.modules["replacing_module"]


def test_a_swap_and_back_finds_the_first_plan() -> None:
    first, second = world("pass"), world("pass")
    scope: dict[str, Any] = {"__name__": "swapping", "v": first["helper"]}
    exec("def f(x):\n    return v(x)\n", scope)
    run = refcompiler.compile(scope["f"], backend="eager")
    for scope["v"] in (first["helper"], second["helper"]) * 3:
        assert torch.equal(run(x()), x() * 2 + 1)
    assert refcompiler.counters()["captures"] == 1  # what says the same serves both


class _Tagged(torch.Tensor):
    pass


def _subclass(base: type) -> tuple[type, Any]:
    cls: Any = type("Sub", (base,), {})
    return cls, cls(torch.ones(3))


def _member() -> tuple[type, Any]:
    kinds = enum.Enum("kinds", "a b")
    return kinds, kinds.a


def _registered() -> tuple[type, Any]:
    base: Any = abc.ABCMeta("Base", (), {})
    cls = base.register(type("Other", (), {}))
    return base, (cls(), base)


#: makes a class and what is read of it -> a program of that
_NAMED: dict[str, tuple[Callable[[], tuple[type, Any]], Callable]] = {
    "subclass of a tensor": (lambda: _subclass(_Tagged), lambda x, space: x + space.v),
    "of a parameter": (lambda: _subclass(nn.Parameter), lambda x, space: x + space.v),
    "member": (_member, lambda x, space: x + 1 if space.v is not None and space.v.value else x),
    "registered": (_registered, lambda x, space: x + isinstance(*space.v)),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", _NAMED)
def test_classes_that_guards_name(name: str, dynamic: bool) -> None:
    make, program = _NAMED[name]
    space = types.SimpleNamespace()
    run = refcompiler.compile(program, backend="eager", dynamic=dynamic)
    watched = []
    for _ in range(3):
        cls, space.v = make()
        watched.append(weakref.ref(cls))
        for _ in range(2):
            assert torch.equal(run(x(), space), x() + 1)
        del cls
    assert dead(watched) == [True, True, False]


def test_threads() -> None:
    """Worlds come and go in four threads; each call is right, and nothing of them stays."""

    def program(x: torch.Tensor, v: Callable) -> torch.Tensor:
        return v(x) * 2

    run = refcompiler.compile(program, backend="eager", recompile_limit=64)
    watched: list[weakref.ref] = []
    wrong: list[Any] = []

    def work(number: int) -> None:
        try:
            for i in range(4):
                scope = world(_LINES[(number + i) % 2], f"dropped{number}")
                scope["K"] = number
                value = eval(_GIVEN[(number + i) % 4], scope)
                for _ in range(3):
                    if not torch.equal(run(x(), value), program(x(), value)):
                        wrong.append((number, i))
                watched.extend(watch(scope))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(watched) == 4 * 4 * len(_NAMES) and all(dead(watched))
