"""Programs kept on disk: when none is found, or none is kept, and a process captures anew."""

from __future__ import annotations

import logging
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import refcompiler
from fastpath.cpu import objects
from refcompiler.aot import aot_autograd
from refcompiler.cache import store
from refcompiler.package import names
from refcompiler.runtime import shelf
from refcompiler.runtime.config import config
from tests.cpu.frontend import packaged
from tests.cpu.frontend.packaged import Block, scaled
from tests.cpu.frontend.shelved import (
    _nothing_is_kept,  # noqa: F401
    again,
    close,
    counted,
    entries,
    kept,
)

SEEN: list[Any] = []
WORDS = {"one", "two", "three", "four", "five"}
X = torch.randn(6, 6, generator=torch.Generator().manual_seed(0))


def other_helper(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + x.shape[0]


def branches(x: torch.Tensor) -> torch.Tensor:
    return x * len(packaged.SETTINGS) if packaged.SCALE > 1 else x - 1


@pytest.mark.parametrize(
    "change", ["code", "line", "value", "option", "setting", "backend", "release", "environment"]
)
def test_a_change_captures_anew(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    again(scaled)(X, 3)
    options: dict[str, Any] = {}
    if change == "code":
        monkeypatch.setattr(packaged.helper, "__code__", other_helper.__code__)
    elif change == "line":  # for what is said of it
        code = packaged.helper.__code__
        moved = code.replace(co_firstlineno=code.co_firstlineno + 1)
        monkeypatch.setattr(packaged.helper, "__code__", moved)
    elif change == "value":
        monkeypatch.setattr(packaged, "SCALE", 2.5)
    elif change == "option":
        options["options"] = {"numerics": "strict"}
    elif change == "setting":
        monkeypatch.setattr(config, "capture_scalar_outputs", True)
    elif change == "backend":
        options["backend"] = "aot_eager"
    elif change == "release":
        monkeypatch.setattr("refcompiler.runtime.shelf._versions", lambda: "another")
    else:
        monkeypatch.setenv("TORCH_SOMETHING", "1")
    compiled = again(scaled, **options)
    close(compiled(X, 3), scaled(X, 3))
    assert counted() == (0, 1, 0)
    monkeypatch.undo()


def order(x: torch.Tensor) -> torch.Tensor:
    for word in WORDS:
        x = x + len(word) * x
    return x


def listed(x: torch.Tensor) -> torch.Tensor:
    return x * len(list(WORDS)[0])


def unpacked(x: torch.Tensor) -> torch.Tensor:
    first, *_ = WORDS
    return x * len(first)


def hashed(x: torch.Tensor) -> torch.Tensor:
    return x * (hash("refcompiler") % 7)


def addressed(x: torch.Tensor) -> torch.Tensor:
    return x * (id(Block) % 7)


def described(x: torch.Tensor) -> torch.Tensor:
    return x * int(repr(SEEN.append)[-6:-1], 16)


TOLD = {"one"}


def grown(x: torch.Tensor) -> torch.Tensor:
    TOLD.update(("six", "ten"))  # which of them comes first in the set the hashes say
    return x * 2


@pytest.mark.parametrize("function", [order, listed, unpacked, hashed, addressed, grown])
def test_what_only_this_process_knows_is_not_kept(function: Callable) -> None:
    for _ in range(2):
        globals()["TOLD"] = {"one"}
        close(again(function)(X), function(X))
        assert kept() == 0 and counted()[0] == 0 and counted()[1] >= 1


def test_behind_a_break_guards_ask_for_what_only_this_process_knows() -> None:
    for _ in range(3):
        globals()["SEEN"] = [*SEEN]
        close(again(described)(X), described(X))
    assert sum(counted()) == 2


def regardless(x: torch.Tensor) -> torch.Tensor:
    both = {"one", "two"} | {"six"}
    return x * len(both) * ("one" in both) * (1 + sorted(both).index("two")) * sum({1, 2, 3})


def test_sets_whose_order_does_not_matter_are_kept() -> None:
    again(regardless)(X)
    close(again(regardless)(X), regardless(X))
    assert counted() == (1, 0, 0)


def test_local_functions_are_captured_by_each_process() -> None:
    scale = torch.nn.Identity()

    def local(x: torch.Tensor) -> torch.Tensor:
        return scale(x) * 2

    for _ in range(2):
        close(again(local)(X), X * 2)
    assert counted()[:2] in ((0, 1), (1, 0))


def test_backends_made_of_compilers_are_asked_by_each_process() -> None:
    """Nothing says which compilers a backend of ``aot_autograd`` is made of."""
    seen: list[str] = []

    def made(name: str) -> Any:
        def compiler(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
            seen.append(name)
            return graph.forward

        return aot_autograd(fw_compiler=compiler)

    for name in ("one", "one", "another"):
        compiled = again(packaged.scaled, backend=made(name))
        close(compiled(X.clone().requires_grad_(), 3), scaled(X, 3))
        assert counted() == (0, 1, 0)
    assert seen == ["one", "one", "another"]


def test_who_wants_to_see_a_capture_sees_one(tmp_path: Path) -> None:
    again(scaled)(X, 3)
    refcompiler.reset()
    assert len(refcompiler.explain(scaled)(X, 3).graphs) == 1
    for setting in ("trace", "force_disable_caches", "cache_programs"):
        value: Any = {"trace": str(tmp_path / "trace")}.get(setting, setting[0] == "f")
        with config.patch({setting: value}):
            again(scaled)(X, 3)
            assert counted()[:2] == (0, 1), setting
    refcompiler.set_logs(graph=True)
    try:
        again(scaled)(X, 3)
    finally:
        refcompiler.set_logs(graph=False)
    assert counted()[:2] == (0, 1)
    again(scaled)(X, 3)
    assert counted()[:2] == (1, 0)


@pytest.mark.parametrize("name", ["guards", "plan"])
def test_logs_of_plans_tell_of_what_is_found_too(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    monkeypatch.setattr(logging.getLogger(f"refcompiler.{name}"), "handlers", [handler])
    refcompiler.set_logs(**{name: True})
    try:
        for found in ((0, 1), (1, 0)):
            again(scaled)(X, 3)
            assert counted()[:2] == found
    finally:
        refcompiler.set_logs(**{name: False})
    made, loaded = told
    assert f"{name} of scaled:" in made and f"{name} of scaled:" in loaded
    assert len(loaded.splitlines()) == len(made.splitlines()) > 3


def test_a_kernel_that_is_gone_is_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    again(scaled)(X, 3)
    monkeypatch.setattr(objects, "_loaded", {})
    get = store.Store.get
    gone = lambda self, kind, key: None if kind == "kernel" else get(self, kind, key)  # noqa: E731
    monkeypatch.setattr(store.Store, "get", gone)
    close(again(scaled)(X, 3), scaled(X, 3))
    assert counted() == (0, 1, 0)


def test_a_damaged_entry_is_one_warning_and_a_capture() -> None:
    again(scaled)(X, 3)
    assert kept() == 1
    for entry in entries():
        data = entry.path.read_bytes()
        entry.path.write_bytes(data[:-9] + b"?" + data[-8:])
    store.warn.cache_clear()
    with pytest.warns(UserWarning, match="damaged entries"):
        close(again(scaled)(X, 3), scaled(X, 3))
    assert counted() == (0, 1, 0)
    again(scaled)(X, 3)
    assert counted() == (1, 0, 0)


def test_an_entry_that_cannot_be_read_is_said_and_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    again(scaled)(X, 3)

    def fails(*args: Any) -> Any:
        raise KeyError("made up")

    monkeypatch.setattr("refcompiler.package.plans._unpack_source", fails)
    monkeypatch.setitem(
        sys.modules["refcompiler.package.rows"].KINDS,
        "source",
        sys.modules["refcompiler.package.rows"].KINDS["source"]._replace(unpack=fails),
    )
    store.warn.cache_clear()
    with pytest.warns(UserWarning, match="cannot be read .KeyError: 'made up'"):
        close(again(scaled)(X, 3), scaled(X, 3))
    assert counted() == (0, 1, 0)


def test_a_place_has_so_many_entries() -> None:
    compiled = again(branches, recompile_limit=30)
    for number in range(shelf.SLOTS + 3):
        packaged.SETTINGS = list(range(number))
        close(compiled(X), branches(X))
    assert kept() == shelf.SLOTS
    found = again(branches)
    close(found(X), branches(X))
    assert sum(counted()[:2]) == 1


def test_lines_are_a_part_of_what_code_is() -> None:
    code = scaled.__code__
    moved = code.replace(co_firstlineno=code.co_firstlineno + 5)
    assert names.digest_of(code) == names.digest_of(moved)
    assert names.digest_of(code, lined=True) != names.digest_of(moved, lined=True)
    assert names.has_digest(code, names.digest_of(moved))
    assert not names.has_digest(code, names.digest_of(moved, lined=True))
    assert isinstance(code, types.CodeType)


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


@torch.no_grad()
def test_another_instance_and_another_shape_of_a_module() -> None:
    again(Layers())(X)
    module = Layers()
    compiled = again(module)
    close(compiled(X), module(X))
    assert counted() == (1, 0, 0)
    module.layers[1] = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.0))
    close(compiled(X), module(X))
    assert counted() == (1, 1, 0)
    module.layers[1].register_forward_hook(lambda m, args, out: out * 2)
    close(compiled(X), module(X))
    assert counted()[0] == 1 and counted()[1] == 2


class Strict(types.ModuleType):
    """It takes each question for a key, and notes it."""

    def __init__(self) -> None:
        super().__init__("strict")
        self.table, self.asked = {"factor": 3.0}, []

    def __getattr__(self, name: str) -> Any:
        vars(self)["asked"].append(name)
        return vars(self)["table"][name]


STRICT = Strict()


def strict(x: torch.Tensor) -> torch.Tensor:
    return x * STRICT.factor


@pytest.mark.filterwarnings("error")
def test_what_writes_a_program_down_asks_nothing_of_the_users_objects() -> None:
    """Of this module either, which no process finds by its name."""
    for _ in range(2):
        before = len(STRICT.asked)
        close(again(strict)(X), 3 * X)
        assert STRICT.asked[before:] == ["factor"]
        assert counted() == (0, 1, 0) and kept() == 0
