"""Threads, re-entrancy, the recompile limit, and what recompiles say."""

from __future__ import annotations

import functools
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import refcompiler
from refcompiler.runtime import counters


def compiled(model: Any, backend: Any = "eager", **options: Any) -> Any:
    return refcompiler.compile(model, backend=backend, **options)


def in_threads(count: int, work: Callable[[int], int]) -> int:
    """Run ``work(i)`` in threads that start together; the sum of what they counted."""
    barrier = threading.Barrier(count)
    done: list[int] = []
    errors: list[BaseException] = []

    def run(i: int) -> None:
        try:
            barrier.wait()
            done.append(work(i))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    if errors:
        raise errors[0]
    return sum(done)


# ---- threads -----------------------------------------------------------------------------------


def test_threads_with_three_shapes() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    model = compiled(net)
    shapes = [(1, 4), (3, 4), (2, 5, 4)]
    inputs = [torch.randn(shape) for shape in shapes]
    expected = [net(x) for x in inputs]

    def work(i: int) -> int:
        for step in range(30):
            j = (i + step) % 3
            torch.testing.assert_close(model(inputs[j]), expected[j], rtol=0, atol=0)
        return 30

    assert in_threads(8, work) == 240
    counted = refcompiler.counters()
    assert counted["captures"] == 3 and counted["recompiles"] == 2 and counted["fallbacks"] == 0


def test_threads_with_a_break_and_a_slow_backend() -> None:
    def slow(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable:
        time.sleep(0.02)
        return graph.forward

    def function(x: torch.Tensor, k: int) -> Any:
        y = x * k
        if y.sum() > 0:
            y = y + 1
        return y, y.shape

    run = compiled(function, slow)

    def work(i: int) -> int:
        for step in range(12):
            k, n = 1 + (i + step) % 2, 1 + step % 3
            y, shape = run(torch.full((n,), float(i - 3)), k)
            want = (i - 3.0) * k
            want += want > 0
            assert shape == (n,) and y.tolist() == [want] * n
        return 12

    assert in_threads(8, work) == 96
    assert refcompiler.counters()["fallbacks"] == 0


def test_threads_that_differ_in_ambient_state() -> None:
    weight = torch.ones(3, requires_grad=True)
    run = compiled(lambda x: x * weight)

    def work(i: int) -> int:
        for _ in range(20):
            with torch.set_grad_enabled(i % 2 == 0):
                assert run(torch.ones(3)).requires_grad is (i % 2 == 0)
        return 20

    assert in_threads(6, work) == 120
    assert refcompiler.counters()["captures"] == 2


def test_reset_while_others_call() -> None:
    run = compiled(lambda x, k: x * k)

    def work(i: int) -> int:
        for step in range(15):
            if i == 0:
                refcompiler.reset()
            assert run(torch.ones(2), step % 3).tolist() == [step % 3] * 2
        return 15

    assert in_threads(4, work) == 60


# ---- re-entrancy -------------------------------------------------------------------------------


def test_a_function_that_calls_itself_compiled() -> None:
    def power(x: torch.Tensor, n: int) -> torch.Tensor:
        return x if n == 0 else x * run(x, n - 1)

    run = compiled(power)
    for n in (3, 0, 5, 3):
        assert run(torch.tensor(2.0), n).item() == 2.0 ** (n + 1)
    assert refcompiler.counters()["fallbacks"] == 0


def test_a_function_that_calls_itself_after_a_break() -> None:
    def halve(x: torch.Tensor) -> int:
        if x.item() < 1:
            return 0
        return 1 + run(x / 2)

    run = compiled(halve)
    assert [run(torch.tensor(v)) for v in (8.0, 0.5, 100.0, 8.0)] == [4, 0, 7, 4]


def test_a_backend_that_calls_compiled_functions() -> None:
    ran: list[float] = []
    helper = compiled(lambda x: x * 3)

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable:
        ran.append(helper(torch.tensor(2.0)).item())
        ran.append(compiled(lambda x: x - 1)(torch.tensor(2.0)).item())
        return graph.forward

    run = compiled(lambda x: x + 1, backend)
    assert run(torch.tensor(1.0)).item() == 2.0
    assert run(torch.tensor([1.0])).item() == 2.0
    assert ran == [6.0, 1.0] * 2
    assert helper(torch.tensor(2.0)).item() == 6.0
    assert run(torch.tensor(5.0)).item() == 6.0


def test_a_compiled_function_inside_another_is_guarded() -> None:
    k = 2
    inner = compiled(lambda x, j=1: x * k + j)
    outer = compiled(lambda x: inner(x) * 10)
    x = torch.tensor(1.0)
    assert outer(x).item() == 30
    k = 3
    assert outer(x).item() == 40
    inner.__wrapped__.__defaults__ = (5,)
    assert outer(x).item() == 80
    assert inner(x).item() == 8


def test_a_compiled_module_inside_another_is_guarded() -> None:
    net = nn.Linear(2, 2)
    nn.init.ones_(net.weight)
    nn.init.zeros_(net.bias)
    inner = compiled(net)
    outer = compiled(nn.Sequential(inner, nn.Identity()))
    x = torch.ones(1, 2)
    assert outer(x).tolist() == [[2, 2]]
    net.register_forward_hook(lambda module, args, out: out * 5)
    assert outer(x).tolist() == net(x).tolist() == [[10, 10]]
    assert inner(x).tolist() == [[10, 10]]


def test_a_hook_that_calls_the_compiled_module() -> None:
    net = nn.Linear(2, 2)
    model = compiled(net)
    seen: list[Any] = []

    def hook(module: nn.Module, args: tuple, out: torch.Tensor) -> None:
        if not seen:
            seen.append(None)
            seen[0] = model(args[0] * 2)

    net.register_forward_hook(hook)
    x = torch.ones(1, 2)
    out = model(x)
    assert len(seen) == 1
    torch.testing.assert_close(out, nn.functional.linear(x, net.weight, net.bias))
    torch.testing.assert_close(seen[0], nn.functional.linear(x * 2, net.weight, net.bias))


# ---- the recompile limit -----------------------------------------------------------------------


def test_past_the_limit_one_warning_then_native() -> None:
    limit = refcompiler.config.recompile_limit
    run = compiled(lambda x, k: x * k, dynamic=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for k in range(limit + 5):
            assert run(torch.ones(2), k).tolist() == [k, k]
        for k in range(limit + 5):
            assert run(torch.ones(2), k).tolist() == [k, k]
    messages = [str(w.message) for w in caught if "recompile_limit" in str(w.message)]
    assert len(messages) == 1
    assert f"k: expected {limit - 1}, found {limit}" in messages[0]
    assert f"k (EQUALS) failed {limit} times of {limit}. What to do: pass a number" in messages[0]
    (warning,) = [w for w in caught if "recompile_limit" in str(w.message)]
    assert warning.filename == __file__
    counted = refcompiler.counters()
    assert counted["captures"] == limit and counted["recompiles"] == limit - 1
    assert counted["fallbacks"] == 1
    assert counters.reasons("fallbacks") == messages


def test_the_limit_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refcompiler.config, "recompile_limit", 2)
    run = compiled(lambda x, k: x * k, dynamic=False)
    with pytest.warns(UserWarning, match="compiled 2 times"):
        for k in range(4):
            assert run(torch.ones(2), k).tolist() == [k, k]
    assert refcompiler.counters()["captures"] == 2


def test_the_limit_of_a_continuation() -> None:
    def function(x: torch.Tensor, k: int) -> torch.Tensor:
        y = x * 2
        print(end="")
        return y * k

    run = compiled(function, dynamic=False)
    with pytest.warns(UserWarning, match="after a break"):
        for k in range(refcompiler.config.recompile_limit + 3):
            assert run(torch.ones(2), k).tolist() == [2 * k, 2 * k]
    assert refcompiler.counters()["fallbacks"] == 1


def test_past_the_limit_of_a_continuation_its_caller_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[list[str]] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable:
        names = [n.name for n in graph.graph.nodes if n.op in ("call_function", "call_method")]

        def run(*args: Any) -> Any:
            ran.append(names)
            return graph(*args)

        return run

    def inner(x: torch.Tensor, k: int) -> torch.Tensor:
        y = x * 2
        print(end="")
        return y * k

    def function(x: torch.Tensor, k: int) -> torch.Tensor:
        return inner(x + 1, k).cos() + 1

    monkeypatch.setattr(refcompiler.config, "recompile_limit", 2)
    run = compiled(function, backend, dynamic=False)
    with pytest.warns(UserWarning, match=r"inner:\d+ \(after a break\) was compiled 2 times"):
        for k in range(2, 6):
            ran.clear()
            assert torch.equal(run(torch.ones(2), k), function(torch.ones(2), k))
            assert ran == [["add", "mul"], ["mul", "cos", "add"] if k < 4 else ["cos", "add"]]
    counted = refcompiler.counters()
    assert counted["fallbacks"] == 1 and counted["graphs"] == 4


def test_reset_lifts_the_limit() -> None:
    run = compiled(lambda x, k: x * k, dynamic=False)
    with pytest.warns(UserWarning):
        for k in range(12):
            run(torch.ones(2), k)
    refcompiler.reset()
    assert run(torch.ones(2), 3).tolist() == [3, 3]
    assert refcompiler.counters()["captures"] == 1


# ---- explanations ------------------------------------------------------------------------------


def test_reasons_name_source_values_and_line() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.eps = 1.0
            self.layers = nn.ModuleList([nn.Linear(2, 2)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x)
            return x + self.eps

    net = Net()
    model = compiled(net)
    model(torch.ones(1, 2))
    net.eps = 2.0
    model(torch.ones(1, 2))
    net.layers[0].bias = None
    model(torch.ones(1, 2))
    model(torch.ones(3, 2))
    first, second, third = counters.reasons("recompiles")
    assert "self.eps: expected 1.0, found 2.0 (guarded at " in first and __file__ in first
    assert "self.layers.0.bias" in second and "found None" in second
    assert "shape=(1, 2)" in third and "shape=(3, 2)" in third


def test_reasons_are_there_for_odd_arguments() -> None:
    class Rude:
        def __repr__(self) -> str:
            raise RuntimeError("no")

        def __len__(self) -> int:
            raise RuntimeError("no")

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("no")

        __hash__ = None  # type: ignore[assignment]

    run = compiled(lambda x, v: (x * 2, [1 for _ in v] if isinstance(v, (list, tuple)) else 0))
    for value in ([1], Rude(), (1, 2), 5, torch.ones(2).to_sparse(), None, functools.partial(int)):
        run(torch.ones(2), value)
    reasons = counters.reasons("recompiles")
    assert len(reasons) == refcompiler.counters()["recompiles"] >= 4
    assert all(reason.partition(": ")[2] for reason in reasons)
