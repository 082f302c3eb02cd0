"""Soundness: ambient state changes, and what hangs on torch itself."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tests.cpu.guards.history import Compile, Program, attempt, check
from tests.cpu.guards.programs import Programs, numbers

PROGRAMS = Programs()
program = PROGRAMS.add


# ---- ambient state ------------------------------------------------------------------------------


def _ambient(*states: Callable[[], Any]) -> Program:
    def run(compile: Compile) -> Iterator[Any]:
        def f(x: torch.Tensor, w: torch.Tensor) -> Any:
            y = x @ w + torch.ones(3)
            return (
                x @ w,
                y,
                torch.is_grad_enabled(),
                torch.zeros(2),
                y.requires_grad,
                y.is_inference(),
            )

        g = compile(f)
        x, w = numbers(), torch.eye(3).requires_grad_()
        for state in (contextlib.nullcontext, *states, contextlib.nullcontext, *states):
            with state():
                yield attempt(g, x, w)

    return run


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    old = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(old)


class _Doubling(torch.overrides.TorchFunctionMode):
    def __init__(self, factor: int = 2) -> None:
        super().__init__()
        self.factor = factor

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        return found * self.factor if func is torch.ones else found


class _Logging(torch.utils._python_dispatch.TorchDispatchMode):
    seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        _Logging.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def _autocast(dtype: torch.dtype, enabled: bool = True) -> Callable[[], Any]:
    return lambda: torch.autocast("cpu", dtype=dtype, enabled=enabled)


AMBIENT: dict[str, Program] = {
    "grad": _ambient(torch.no_grad),
    "inference": _ambient(torch.inference_mode),
    "autocast": _ambient(_autocast(torch.bfloat16), _autocast(torch.float16)),
    "default dtype": _ambient(lambda: _default_dtype(torch.float64)),
    "function mode": _ambient(_Doubling, lambda: _Doubling(3)),
    "default device": _ambient(lambda: torch.device("meta"), lambda: torch.device("cpu")),
    "dispatch mode": _ambient(_Logging),
}


@pytest.mark.parametrize("name", AMBIENT)
def test_ambient_state(name: str) -> None:
    _Logging.seen.clear()
    check(AMBIENT[name], changes=name != "dispatch mode")
    if name == "dispatch mode":
        half = len(_Logging.seen) // 2
        assert half >= 4 and _Logging.seen[:half] == _Logging.seen[half:]


@program
def deterministic_algorithms(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x: x * 2 if torch.are_deterministic_algorithms_enabled() else x)
    try:
        yield f(numbers())
        torch.use_deterministic_algorithms(True)
        yield f(numbers())
    finally:
        torch.use_deterministic_algorithms(False)
    yield f(numbers())


@program
def state_that_the_program_reads(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x: x * torch.get_num_threads() + len(torch.get_float32_matmul_precision()))
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    try:
        yield f(numbers())
        torch.set_num_threads(threads + 1)
        yield f(numbers())
        torch.set_float32_matmul_precision("medium")
        yield f(numbers())
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)


@program
def inside_a_function_transformation(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x: (x.sin() * 2).sum())
    x = torch.arange(3.0)
    yield f(x)
    yield torch.func.grad(f)(x)
    yield torch.func.vmap(f)(numbers())
    yield torch.func.jvp(f, (x,), (torch.ones(3),))
    yield torch.func.vmap(torch.func.grad(f))(numbers())
    yield torch.func.jacrev(f)(x)
    yield f(x)


@program
def tensor_method_patched(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x: x.guarded_test() + 1)
    try:
        torch.Tensor.guarded_test = lambda self: self * 2
        yield f(numbers())
        torch.Tensor.guarded_test = lambda self: self * 3
        yield f(numbers())
    finally:
        del torch.Tensor.guarded_test
    yield attempt(f, numbers())


@program
def torch_function_patched(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x: torch.sin(x) + 1)
    old = torch.sin
    try:
        yield f(numbers())
        torch.sin = lambda x: x * 3
        yield f(numbers())
    finally:
        torch.sin = old
    yield f(numbers())


@program
def attributes_of_a_tensor(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x: x * getattr(x, "tag", 2))
    x = numbers()
    yield f(x)
    x.tag = 3
    yield f(x)
    x.tag = 4
    yield f(x)
    yield f(numbers())


@pytest.mark.parametrize("name", PROGRAMS)
def test_change_is_noticed(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        check(PROGRAMS[name])
