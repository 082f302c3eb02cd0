"""Programs kept on disk: a second process captures nothing, and does what eager does.

Forgetting what was compiled stands for the second process where what another process cannot know is
not the question; two tests have real ones.
"""

from __future__ import annotations

import gc
import io
import logging
import os
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fastpath.cpu import objects
from refcompiler.aot.origin import Origin
from refcompiler.errors import RecompileError
from refcompiler.runtime.config import config
from tests import forked
from tests.cpu.frontend import packaged
from tests.cpu.frontend.packaged import Block, scaled
from tests.cpu.frontend.shelved import (
    _nothing_is_kept,  # noqa: F401
    again,
    close,
    counted,
    kept,
)
from tests.cpu.frontend.test_packages import draws, keeps, parts, views, writes

SEEN: list[Any] = []


def test_what_a_cache_says_once_is_said_by_each_process(monkeypatch: pytest.MonkeyPatch) -> None:
    x, written = torch.randn(3, 4), io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logging.Formatter("%(message)s: %(funcName)s in %(filename)s"))
    monkeypatch.setattr(packaged.LOG, "handlers", [handler])
    monkeypatch.setattr(packaged.LOG, "propagate", False)  # to handlers of the tests' own
    for process in range(3):
        packaged.once.cache_clear()
        compiled = again(packaged.told)
        for _ in range(2):
            close(compiled(x), x * packaged.SCALE)
        assert written.getvalue() == "rows are scaled: once in packaged.py\n" * (process + 1)
        assert packaged.once.cache_info()[:2] == (1, 1)
        assert counted() == ((1, 0, 0) if process else (0, 1, 0))


# ---- another process -----------------------------------------------------------------------------

SCRIPT = """
import sys
import torch, refcompiler
from fastpath.cpu import objects
from tests.cpu.frontend.packaged import Block, scaled

torch.manual_seed(7)
x = torch.randn(6, 8, requires_grad=True)
one, many = Block(), refcompiler.compile(scaled)
other = Block()
other.load_state_dict(one.state_dict())
compiled = refcompiler.compile(one)
compared = 0
for size in (6, 3, 5):
    torch.testing.assert_close(many(x[:size].detach(), n=3), scaled(x[:size], n=3))
    torch.testing.assert_close(compiled(x[:size]), other(x[:size]))
    compiled(x[:size]).square().mean().backward()
    other(x[:size]).square().mean().backward()
    compared += 2
for p, q in zip([*one.parameters(), *one.buffers()], [*other.parameters(), *other.buffers()]):
    torch.testing.assert_close(p, q)
    torch.testing.assert_close(p.grad, q.grad)
    compared += 2
known = refcompiler.counters()
counts = [known[name] for name in ("loaded", "captures", "graphs", "breaks", "uncompiled")]
print(*counts, objects.made > 0, "numba" in sys.modules, compared)
"""


def test_another_process_captures_and_compiles_nothing(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "REFCOMPILER_CACHE_PROGRAMS": "1"}
    made = forked.fresh(script, environment, tmp_path)
    environment["PYTHONHASHSEED"] = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    command = [sys.executable, str(script)]  # in which hashes of texts are others
    given = {**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    found = subprocess.run(command, env=given, capture_output=True, text=True, timeout=240)
    lines = []
    for done in (made, found):
        assert done.returncode == 0, done.stderr
        lines.append(done.stdout.strip())
    compared = 6 + 2 * len([*Block().parameters(), *Block().buffers()])
    # Of two programs one for the first size, and one for the sizes that come after it.
    first, second = lines
    assert first.startswith("0 4 4 0 0 ") and first.endswith(f" {compared}")
    assert second == f"4 0 0 0 0 False False {compared}"


# ---- what a program that was found does ----------------------------------------------------------


def steps(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    for _ in range(2):
        x = torch.tanh(x @ w) + x
    return x.sum()


def hooked(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.sigmoid(x @ w)
    return y, (y * y).sum()


X = torch.randn(6, 6)
CASES: dict[str, tuple[Callable, Callable[[], tuple[Any, ...]]]] = {
    "views": (views, lambda: (X.clone(),)),
    "writes": (writes, lambda: (X.clone(), X.clone())),
    "keeps": (keeps, lambda: (X.clone(),)),
    "draws": (draws, lambda: (torch.ones(64, 32),)),
    "scaled": (scaled, lambda: (X.clone(), 3)),
}


@pytest.mark.parametrize("backend", ["eager", "fastpath"])
@pytest.mark.parametrize("name", CASES)
def test_a_program_that_was_found_is_eager(name: str, backend: str) -> None:
    function, given = CASES[name]
    compared = 0
    for process in range(2):
        compiled = again(function, backend=backend)
        for _ in range(2):
            expected, args = given(), given()
            torch.manual_seed(5)
            wanted = function(*expected)
            state = torch.get_rng_state()
            torch.manual_seed(5)
            found = compiled(*args)
            close(found, wanted)
            close(args, expected)
            assert torch.equal(torch.get_rng_state(), state)
            assert type(found) is type(wanted)
            compared += 1
        assert counted() == ((0, 1, 0), (1, 0, 0))[process]
    assert compared == 4
    if name == "views":  # of one memory, as eager's are
        a, b, *_ = again(function, backend=backend)(X)
        a.zero_()
        assert b.eq(0).all() and counted()[0] == 1


def test_training_is_kept_when_its_backward_was_compiled() -> None:
    w = torch.randn(6, 6, requires_grad=True)
    for process in range(2):
        compiled = again(steps)
        for _ in range(2):
            (expected,) = torch.autograd.grad(steps(X, w), w)
            (found,) = torch.autograd.grad(compiled(X, w), w)
            close(found, expected)
        assert counted() == ((0, 1, 0), (1, 0, 0))[process]
    before = kept()
    again(parts)(X, w)
    assert kept() == before  # nobody has asked for its backward
    made = objects.made
    compiled = again(steps)
    torch.autograd.grad(compiled(X, w), w)
    assert objects.made == made


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> list[Origin]:
    """The programs that were found and compiled again, for what nobody had asked for."""
    found: list[Origin] = []
    compiled = Origin.compiled

    def counting(self: Origin, compile: Callable) -> Any:
        found.append(self)
        return compiled(self, compile)

    monkeypatch.setattr(Origin, "compiled", counting)
    return found


@pytest.mark.parametrize("backend", ["fastpath", "aot_eager"])
def test_another_set_of_gradients_is_compiled_and_kept_too(
    backend: str, whole: list[Origin]
) -> None:
    w = torch.randn(6, 6, requires_grad=True)

    def gradients(function: Callable, which: int) -> Any:
        return torch.autograd.grad(function(X, w)[which].sum(), w)

    gradients(again(parts, backend=backend), 0)
    for times in (1, 0):  # the second time it is in the cache
        whole.clear()
        compiled = again(parts, backend=backend)
        for which in (0, 1, 0, 1):
            close(gradients(compiled, which), gradients(parts, which))
        assert counted() == (1, 0, 0) and len(whole) == times


def test_a_second_derivative_of_a_program_that_was_found() -> None:
    w = torch.randn(6, 6, requires_grad=True)

    def seen(function: Callable) -> list[Any]:
        (first,) = torch.autograd.grad(function(X, w), w, create_graph=True)
        return [first.detach(), *torch.autograd.grad(first.sum(), w)]

    torch.autograd.grad(again(steps)(X, w), w)  # which a program is kept behind
    close(seen(again(steps)), seen(steps))
    assert counted() == (1, 0, 0)


def noisy(w: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    return ((w + noise) @ w).tanh()


@pytest.mark.parametrize("backend", ["fastpath", "aot_eager"])
def test_backwards_under_autocast_and_of_backwards(backend: str, whole: list[Origin]) -> None:
    """Nobody has asked for them when the program was kept; inputs of the call are gone."""
    w = torch.randn(6, 6, requires_grad=True)

    def seen(function: Callable) -> list[Any]:
        torch.manual_seed(0)
        result = function(w, torch.rand(6, 6))
        with torch.autocast("cpu", torch.bfloat16):
            (cast,) = torch.autograd.grad(result.sum(), w, retain_graph=True)
        (first,) = torch.autograd.grad(result.sum(), w, create_graph=True)
        return [cast, first.detach(), *torch.autograd.grad(first.square().sum(), w)]

    torch.autograd.grad(again(noisy, backend=backend)(w, torch.rand(6, 6)).sum(), w)
    compiled = again(noisy, backend=backend)
    for _ in range(2):
        found, expected = seen(compiled), seen(noisy)
        assert torch.allclose(found[0], expected[0], rtol=1e-4)  # as coarse as eager's
        close(found[1:], expected[1:])
        assert not torch.allclose(found[0], found[1], rtol=1e-4)
    assert counted() == (1, 0, 0) and len(whole) == 1


@pytest.mark.parametrize("backend", ["fastpath", "aot_eager"])
def test_results_of_results_and_hooks_on_them(backend: str, whole: list[Origin]) -> None:
    """A loss and what it was computed from: the stages of its backward are traced when wanted."""
    w = torch.randn(6, 6, requires_grad=True)

    def plainly(function: Callable) -> Any:
        return torch.autograd.grad(function(X, w)[1], w)

    def seen(function: Callable) -> list[Any]:
        found: list[Any] = []
        y, total = function(X, w)
        y.register_hook(found.append)
        found += torch.autograd.grad(total + y.mean(), [w, y])
        return found

    for process in range(2):
        compiled = again(hooked, backend=backend)
        close(plainly(compiled), plainly(hooked))
        assert counted() == ((0, 1, 0), (1, 0, 0))[process] and kept() == 1
    assert not whole
    for _ in range(2):
        close(seen(compiled), seen(hooked))
    assert counted() == (1, 0, 0) and len(whole) == 1


def norms(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    spread, middle = torch.var_mean(x @ w, dim=1)
    return spread, middle, (spread * middle).sum() / x.shape[0]


@pytest.mark.parametrize("backend", ["fastpath", "aot_eager"])
def test_with_symbols_for_sizes_the_whole_is_compiled_again(
    backend: str, whole: list[Origin]
) -> None:
    """Results of results, of functions with several of them: any of them may have gradients."""
    w = torch.randn(6, 6, requires_grad=True)
    compared = 0

    def gradients(function: Callable, size: int, which: tuple[int, ...]) -> list[Any]:
        results = function(X[:size], w)
        chosen = [results[at].sum() for at in which]
        return [*[t.detach() for t in results], *torch.autograd.grad(sum(chosen), w)]

    for process, asked in enumerate([((2,),), ((2,), (0, 2), (1,)), ((1,), (2,), (0, 2))]):
        whole.clear()
        compiled = again(norms, backend=backend, dynamic=True)
        for size in (5, 3, 6, 4):
            for which in asked:
                close(gradients(compiled, size, which), gradients(norms, size, which))
                compared += 1
        assert counted() == ((1, 0, 0) if process else (0, 1, 0))
        assert len(whole) == (process == 1)  # what came of it is kept too
    assert compared == 28 and kept() == 1


@pytest.mark.parametrize("dynamic, otherwise", [(False, True), (True, False), (True, True)])
def test_what_is_compiled_otherwise_is_captured_anew(
    dynamic: bool, otherwise: bool, whole: list[Origin], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a backward of outputs that nobody had asked for, of a program that was found."""
    w = torch.randn(6, 6, requires_grad=True)
    compiled = Origin.compiled

    def gradients(function: Callable, which: int) -> Any:
        return torch.autograd.grad(function(X[:5], w)[which].sum(), w)

    def more(self: Origin, compile: Callable) -> Any:
        def relying(graph: Any, inputs: list[Any]) -> Any:
            for number in inputs:
                assert type(number) is not torch.SymInt or number < 100
            return None if otherwise else compile(graph, inputs)

        return compiled(self, relying)

    gradients(again(norms, dynamic=dynamic), 1)
    monkeypatch.setattr(Origin, "compiled", more)
    call = again(norms, dynamic=dynamic)
    close(gradients(call, 1), gradients(norms, 1))
    assert counted() == (1, 0, 0) and not whole
    if dynamic and otherwise:
        with pytest.raises(RuntimeError, match=r"outputs \[1, 2\], .* captured anew"):
            gradients(call, 0)
    else:
        close(gradients(call, 0), gradients(norms, 0))
    assert len(whole) == 1
    for which in (0, 1, 2):
        close(gradients(call, which), gradients(norms, which))
    assert counted()[:2] == (1, 1) and len(whole) == 1


def test_a_program_that_was_found_says_what_has_changed_as_the_user_calls_it() -> None:
    module = Block().requires_grad_(False)
    for process in range(2):
        compiled = again(module)
        compiled(x=torch.randn(6, 8))
        with config.patch(error_on_recompile=True), pytest.raises(RecompileError) as caught:
            compiled(x=torch.randn(6, 8, dtype=torch.float64))
        assert "kwargs" not in str(caught.value) and " x" in str(caught.value)
        assert counted()[0] == process


def helped(x: torch.Tensor, n: int) -> torch.Tensor:
    if n:
        y = x.sin()
    SEEN.append(n)
    torch._dynamo.graph_break()
    return y * n if n else x.cos()


def breaking(x: torch.Tensor, n: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    parts = [x.exp(), x]
    for at in range(2):
        with torch.set_grad_enabled(at == 0):
            parts.append(helped(parts[at], n) + at)
    try:
        if parts[2].sum() > 1e9:
            raise ValueError
    except ValueError:
        parts.clear()
    finally:
        parts.append((lambda z: (z * parts[0]).relu())(parts[3]))
    return sum(parts), parts  # type: ignore[return-value]


@pytest.mark.filterwarnings("error:the cache")
@pytest.mark.parametrize("backend", ["eager", "fastpath"])
def test_programs_that_break_are_kept_in_pieces(backend: str) -> None:
    x = torch.randn(4, 4)
    for process, numbers in enumerate([(1, 1), (0, 1), (1, 0)]):
        compiled = again(breaking, backend=backend)
        for n in numbers:  # without it, another variable is alive at the same places
            SEEN.clear()
            wanted = breaking(x + n, n), [*SEEN]
            SEEN.clear()
            close((compiled(x + n, n), [*SEEN]), wanted)
        assert counted() == ((0, 4, 0), (4, 3, 0), (7, 0, 0))[process]


def indexed(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    SEEN.append("before")
    y = x.relu()
    found = F.embedding(at, y)
    SEEN.append("after")
    return found


@pytest.mark.parametrize("backend", ["eager", "fastpath"])
def test_an_error_of_the_graph_is_eagers_at_its_line(backend: str) -> None:
    good, bad = torch.tensor([0, 1]), torch.tensor([0, 9])
    compiled = again(indexed, backend=backend)
    compiled(X, good)
    compiled = again(indexed, backend=backend)
    compiled(X, good)
    assert counted() == (1, 0, 0)
    told = []
    for run in (indexed, compiled):
        SEEN.clear()
        with pytest.raises(IndexError) as caught:
            run(X, bad)
        lines = [e.lineno for e in caught.traceback if str(e.path) == __file__][1:]
        told.append((str(caught.value), lines, list(SEEN)))
    assert told[0] == told[1] and told[0][2] == ["before"]


def test_sizes_become_symbols_as_if_the_first_call_had_been_captured() -> None:
    compiled = again(scaled)
    compiled(X, 3)
    compiled = again(scaled)
    compiled(X, 3)
    assert counted() == (1, 0, 0)
    for size in (4, 5, 3):
        close(compiled(X[:size], 3), scaled(X[:size], 3))
    assert counted() == (1, 1, 0)  # one program for all of them
    compiled = again(scaled)
    for size in (5, 6, 2):
        close(compiled(X[:size], 3), scaled(X[:size], 3))
    assert counted() == (1, 0, 0)


def test_a_program_that_was_found_keeps_nothing_alive() -> None:
    module = Block()
    for _ in range(2):
        compiled = again(module)
        with torch.no_grad():
            compiled(X.new_ones(6, 8))
    assert counted() == (1, 0, 0)
    gone = weakref.ref(module)
    del module, compiled
    gc.collect()
    assert gone() is None
