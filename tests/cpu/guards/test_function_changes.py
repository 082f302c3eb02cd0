"""Soundness: functions, globals, builtins and modules change."""

from __future__ import annotations

import math
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tests.cpu.guards.history import Compile, attempt, check
from tests.cpu.guards.programs import Programs, globals_of, numbers

PROGRAMS = Programs()
program = PROGRAMS.add


# ---- functions ---------------------------------------------------------------------------------


@program
def defaults_replaced(compile: Compile) -> Iterator[Any]:
    def f(x: torch.Tensor, scale: Any = 2, shift: Any = 1) -> Any:
        return x * scale + shift

    g = compile(f)
    yield g(numbers())
    yield g(numbers(), 5)
    f.__defaults__ = (3, 4)
    yield g(numbers())
    yield g(numbers(), shift=9)
    f.__defaults__ = (7,)
    yield attempt(g, numbers(), 2)
    f.__defaults__ = None
    yield g(numbers(), 2, 3)


@program
def keyword_defaults_replaced(compile: Compile) -> Iterator[Any]:
    def f(x: torch.Tensor, *, scale: Any = 2) -> Any:
        return x * scale

    g = compile(f)
    yield g(numbers())
    f.__kwdefaults__["scale"] = 3
    yield g(numbers())
    f.__kwdefaults__ = {"scale": 4}
    yield g(numbers())
    yield g(numbers(), scale=9)


@program
def defaults_of_a_helper_replaced(compile: Compile) -> Iterator[Any]:
    def helper(x: torch.Tensor, a: Any, b: Any = 2) -> Any:
        return x * a + b

    g = compile(lambda x: helper(x, 1) + helper(x, 2, 3))
    yield g(numbers())
    helper.__defaults__ = (5,)
    yield g(numbers())
    helper.__defaults__ = (2, 7)
    yield g(numbers())


@program
def keyword_defaults_of_a_helper_replaced(compile: Compile) -> Iterator[Any]:
    def helper(x: torch.Tensor, *, b: Any = 2) -> Any:
        return x * b

    g = compile(lambda x: helper(x))
    yield g(numbers())
    helper.__kwdefaults__ = {"b": 5}
    yield g(numbers())


@program
def code_replaced(compile: Compile) -> Iterator[Any]:
    def f(x: torch.Tensor) -> Any:
        return x + 1

    g = compile(f)
    yield g(numbers())
    f.__code__ = (lambda x: x * 10).__code__
    yield g(numbers())
    yield g(numbers())
    f.__code__ = (lambda x, y=3: x * 10 + y).__code__
    f.__defaults__ = (8,)
    yield g(numbers())


@program
def code_of_a_closure_replaced(compile: Compile) -> Iterator[Any]:
    def helper(x: torch.Tensor) -> Any:
        return x + 1

    g = compile(lambda x: helper(x))
    yield g(numbers())
    helper.__code__ = (lambda x: x * 10).__code__
    yield g(numbers())


@program
def code_of_a_global_replaced(compile: Compile) -> Iterator[Any]:
    scope = globals_of("def helper(x): return x + 1\ndef f(x): return helper(x)")
    g = compile(scope["f"])
    yield g(numbers())
    scope["helper"].__code__ = (lambda x: x * 10).__code__
    yield g(numbers())


@program
def one_code_two_globals(compile: Compile) -> Iterator[Any]:
    first = globals_of("def f(x): return x * k", k=2)
    second = {"k": 5, "__name__": "program"}
    g = compile(first["f"])
    h = compile(types.FunctionType(first["f"].__code__, second))
    yield g(numbers())
    yield h(numbers())
    second["k"] = 7
    yield h(numbers())
    yield g(numbers())


@program
def closure_cell(compile: Compile) -> Iterator[Any]:
    k: Any = 2
    f = compile(lambda x: x * k)
    yield f(numbers())
    k = 3
    yield f(numbers())
    k = torch.tensor(2.5)
    yield f(numbers())
    k = torch.tensor([2.5, 1.0, 2.0])
    yield f(numbers())


@program
def closure_function_swapped(compile: Compile) -> Iterator[Any]:
    def make(k: Any) -> Callable:
        return lambda x: x * k

    inner = make(2)
    f = compile(lambda x: inner(x) + 1)
    yield f(numbers())
    inner = make(3)
    yield f(numbers())
    inner = torch.sin
    yield f(numbers())


@program
def two_closures_of_one_code(compile: Compile) -> Iterator[Any]:
    def make(k: Any) -> Callable:
        return lambda x: x * k

    f, g = compile(make(2)), compile(make(3))
    yield f(numbers())
    yield g(numbers())
    yield f(numbers())


@program
def captured_tensor_in_a_slot(compile: Compile) -> Iterator[Any]:
    class Holder:
        __slots__ = ("t",)

    holder = Holder()
    holder.t = torch.tensor(2.0)
    f = compile(lambda x: x * holder.t)
    yield f(numbers())
    holder.t = torch.tensor(3.0)
    yield f(numbers())
    holder.t = 4
    yield f(numbers())
    del holder.t
    yield attempt(f, numbers())


@program
def function_attribute(compile: Compile) -> Iterator[Any]:
    def helper() -> None: ...

    helper.k = 2
    f = compile(lambda x: x * helper.k)
    yield f(numbers())
    helper.k = 3
    yield f(numbers())
    del helper.k
    yield attempt(f, numbers())


# ---- globals, builtins and modules --------------------------------------------------------------


@program
def global_rebound(compile: Compile) -> Iterator[Any]:
    scope = globals_of("def f(x): return x * k", k=2)
    f = compile(scope["f"])
    yield f(numbers())
    for value in (3, 2.0, True, torch.tensor(4.0), [1.0]):
        scope["k"] = value
        yield attempt(f, numbers())
    del scope["k"]
    yield attempt(f, numbers())


@program
def global_appears(compile: Compile) -> Iterator[Any]:
    scope = globals_of(
        "def f(x):\n    try:\n        return x * k\n    except NameError:\n        return x"
    )
    f = compile(scope["f"])
    yield f(numbers())
    scope["k"] = 3
    yield f(numbers())
    del scope["k"]
    yield f(numbers())


@program
def builtin_shadowed(compile: Compile) -> Iterator[Any]:
    scope = globals_of("def f(x, n): return x * len(n)")
    f = compile(scope["f"])
    yield f(numbers(), [1, 2])
    scope["len"] = lambda n: 10
    yield f(numbers(), [1, 2])


@program
def builtin_replaced(compile: Compile) -> Iterator[Any]:
    builtins = dict(vars(__import__("builtins")))
    scope = globals_of("def f(x, n): return x * len(n)", __builtins__=builtins)
    f = compile(scope["f"])
    yield f(numbers(), [1, 2])
    builtins["len"] = lambda n: 10
    yield f(numbers(), [1, 2])


@program
def builtin_appears(compile: Compile) -> Iterator[Any]:
    builtins = dict(vars(__import__("builtins")))
    scope = globals_of(
        "def f(x):\n    try:\n        return x * k\n    except NameError:\n        return x",
        __builtins__=builtins,
    )
    f = compile(scope["f"])
    yield f(numbers())
    builtins["k"] = 3
    yield f(numbers())


@program
def module_attribute(compile: Compile) -> Iterator[Any]:
    module = types.ModuleType("settings")
    module.k = 2
    f = compile(lambda x: x * module.k)
    yield f(numbers())
    module.k = 3
    yield f(numbers())


@program
def module_attribute_appears(compile: Compile) -> Iterator[Any]:
    module = types.ModuleType("settings")
    f = compile(lambda x: x * getattr(module, "k", 2))
    yield f(numbers())
    module.k = 3
    yield f(numbers())
    del module.k
    yield f(numbers())


@program
def module_with_getattr(compile: Compile) -> Iterator[Any]:
    module = types.ModuleType("settings")
    exec("store = {'k': 2}\ndef __getattr__(name): return store[name]", module.__dict__)
    f = compile(lambda x: x * module.k)
    yield f(numbers())
    module.store["k"] = 3
    yield f(numbers())
    module.k = 9
    yield f(numbers())


@program
def constant_of_a_module_of_c(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x: x * math.pi)
    old = math.pi
    try:
        yield f(numbers())
        math.pi = 3
        yield f(numbers())
    finally:
        math.pi = old


@program
def methods_with_one_decorator(compile: Compile) -> Iterator[Any]:
    """Torch's reflected operators have the code of what they are wrapped in."""

    def f(x: torch.Tensor, method: Any = torch.Tensor.__rsub__) -> Any:
        return method(x, 5.0)

    g = compile(f)
    for method in (torch.Tensor.__rsub__, torch.Tensor.__rpow__, torch.Tensor.__rdiv__):
        yield g(numbers(), method)
        f.__defaults__ = (method,)
        yield g(numbers())


@pytest.mark.parametrize("name", PROGRAMS)
def test_change_is_noticed(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        check(PROGRAMS[name])
