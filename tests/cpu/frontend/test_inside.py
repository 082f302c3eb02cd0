"""The compiler's own names, settings and imports in the code that is compiled."""

from __future__ import annotations

import functools
import importlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo

import refcompiler
from refcompiler.runtime.counters import reasons


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    refcompiler.reset()
    yield
    refcompiler.reset()


def compile(function: Callable, **said: Any) -> Any:
    return refcompiler.compile(function, backend="eager", **said)


X = torch.ones(3)


def test_names_that_are_first_used_in_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("is_compiling", "config", "list_options"):
        getattr(refcompiler, name)  # so that it is there again afterwards
        monkeypatch.delitem(refcompiler.__dict__, name)

    def f(x: torch.Tensor) -> Any:
        return x + 1, refcompiler.is_compiling(), refcompiler.config.recompile_limit

    assert compile(f, fullgraph=True)(X)[1:] == (True, 8)
    found = compile(lambda x: x + len(refcompiler.list_options()))(X)
    assert found.equal(X + len(refcompiler.list_options()))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        compile(lambda x: refcompiler.nothing)(X)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: sorted(refcompiler.counters()),
        lambda: refcompiler.get_default_backend(),
        lambda: refcompiler.set_logs(guards=False),
        lambda: refcompiler.list_mode_options("default"),
        lambda: refcompiler.explain(torch.sin)(X).graph_count,
    ],
)
def test_what_asks_the_compiler_runs_natively_behind_a_break(ask: Callable) -> None:
    def f(x: torch.Tensor) -> Any:
        y = x + 1
        return ask(), y * 2

    found, value = compile(f)(X)
    assert found == ask() and value.equal((X + 1) * 2)
    assert {why.row for why in reasons("breaks")} == {"compiler-call"}


def test_reset_in_compiled_code_forgets_and_goes_on() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        refcompiler.reset()
        return y * 2

    compiled = compile(f)
    for _ in range(2):
        assert compiled(X).equal(f(X))


class Elsewhere(types.ModuleType):
    """As torch's settings: attributes are kept elsewhere than in the module's ``__dict__``."""

    kept: dict[str, Any] = {"number": 1}

    def __getattr__(self, name: str) -> Any:
        try:
            return self.kept[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self.kept[name] = value


def test_what_a_module_keeps_elsewhere_is_read_as_it_was_written() -> None:
    settings = Elsewhere("settings")

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * settings.number
        settings.number = settings.number + 1
        return y + settings.number

    compiled = compile(f, fullgraph=True, dynamic=False)
    for start in (1, 5):
        settings.number = start
        want, after = f(X), settings.number
        settings.number = start
        assert compiled(X).equal(want) and settings.number == after, start


def test_torchs_settings_are_read_as_the_program_set_them() -> None:
    config = torch._dynamo.config

    def f(x: torch.Tensor) -> torch.Tensor:
        config.recompile_limit = 9
        with config.patch(recompile_limit=4):
            x = x * config.recompile_limit
        return x + config.recompile_limit

    with config.patch(recompile_limit=3):
        assert compile(f)(X).equal(torch.full((3,), 13.0))
        assert config.recompile_limit == 9
    compiled = compile(lambda x: x + config.recompile_limit, fullgraph=True)
    for limit in (5, 6):
        with config.patch(recompile_limit=limit):
            assert compiled(X).equal(X + limit)


def test_what_the_interpreter_says_of_itself_and_imports_break_no_graph() -> None:
    def f(x: torch.Tensor) -> Any:
        if sys.version_info >= (3, 11) and not sys.flags.verbose:
            x = x + sys.version_info.major
        return x * importlib.import_module("math").pi, importlib.import_module(".nn", "torch")

    found, module = compile(f, fullgraph=True)(X)
    assert found.equal((X + 3) * importlib.import_module("math").pi) and module is torch.nn

    def wrong(x: torch.Tensor) -> Any:
        try:
            return importlib.import_module("no_such_module")
        except ImportError as error:
            return x + 1, str(error)

    assert compile(wrong)(X)[1] == wrong(X)[1]


@pytest.mark.parametrize("name", ["graph_break", "skip_frame", "step_unsupported"])
def test_breaks_that_a_program_asks_for_are_told_as_such(name: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        getattr(torch._dynamo.decorators, name)()
        return x * 2

    assert compile(f)(X).equal((X + 1) * 2)
    assert reasons("breaks")[0].row == "user-graph-break"


def test_the_interpreter_runs_a_compiled_functions_own_code() -> None:
    """Not the compiler's, in which it would compile itself; what only wraps one is itself."""
    f = compile(lambda x, y=2: x * y)
    module = compile(torch.nn.Linear(3, 1, bias=False))

    @functools.wraps(f)
    def wrapper(x: torch.Tensor) -> torch.Tensor:
        return f(x, y=3) + 1

    def program(x: torch.Tensor) -> Any:
        return f(x), wrapper(x), module(x), list(map(f, [x]))

    before = refcompiler.counters()["captures"]
    alone = refcompiler.interpret(f, X)
    found = refcompiler.interpret(program, X)
    assert refcompiler.counters()["captures"] - before <= 2  # what C calls: map, a module's slot
    torch.testing.assert_close(alone, X * 2)
    torch.testing.assert_close(found, (X * 2, X * 3 + 1, module(X), [X * 2]))
