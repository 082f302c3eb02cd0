"""Threads and re-entrancy at the places where they meet: a compilation, a reset, a collection.

Threads wait for one another at events, never for time; a deadlock shows as a thread that is alive.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import refcompiler

LIMIT = 120  # seconds until a thread counts as hung


class Slow:
    """A backend that tells when it begins to compile, and ends when it may."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.graphs = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable:
        self.graphs += 1
        self.begun.set()
        assert self.may_end.wait(LIMIT)
        return graph.forward


class Work(threading.Thread):
    """Runs a function; ``result()`` waits for it, and raises what it raised."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.function = function
        self.found: Any = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.found = self.function()
        except BaseException as error:
            self.error = error

    def result(self) -> Any:
        self.join(LIMIT)
        assert not self.is_alive(), "a thread hangs"
        if self.error is not None:
            raise self.error
        return self.found


def full(value: float, n: int = 2) -> torch.Tensor:
    return torch.full((n,), float(value))


def compiled(function: Callable, backend: Any = "eager") -> Callable:
    return refcompiler.compile(function, backend=backend, dynamic=False)


def test_one_compiles_while_another_runs_what_is_compiled() -> None:
    slow = Slow()
    slow.may_end.set()
    same = compiled(lambda x, k: x * k, slow)
    other = compiled(lambda x, k: x + k)
    for k in range(3):
        same(full(1), k), other(full(1), k)
    assert slow.graphs == 3
    slow.may_end.clear()
    slow.begun.clear()
    compiling = Work(lambda: same(full(1), 7))
    assert slow.begun.wait(LIMIT)
    # Other plans of both functions, each time another one than before.
    for step in range(12):
        k = step % 3
        assert same(full(2), k).tolist() == [2 * k] * 2
        assert other(full(2), k).tolist() == [2 + k] * 2
    slow.may_end.set()
    assert compiling.result().tolist() == [7, 7]
    assert slow.graphs == 4 and refcompiler.counters()["recompiles"] == 5
    assert [same(full(2), k).tolist()[0] for k in (7, 0, 1, 2, 7)] == [14, 0, 2, 4, 14]
    assert slow.graphs == 4


def test_two_want_the_same_and_one_compiles() -> None:
    slow = Slow()
    run = compiled(lambda x: x * 2, slow)
    first = Work(lambda: run(full(1)))
    assert slow.begun.wait(LIMIT)
    second = Work(lambda: run(full(3)))
    slow.may_end.set()
    assert first.result().tolist() == [2, 2] and second.result().tolist() == [6, 6]
    assert slow.graphs == 1 and refcompiler.counters()["captures"] == 1


def test_two_compile_different_functions() -> None:
    slow, run = Slow(), compiled(lambda x, k: (x * k).relu())
    held = compiled(lambda x: x - 1, slow)
    first = Work(lambda: held(full(1)))
    assert slow.begun.wait(LIMIT)
    others = [Work(lambda k=k: run(full(k), k)) for k in range(4)]  # type: ignore[misc]
    slow.may_end.set()
    assert first.result().tolist() == [0, 0]
    assert [work.result().tolist()[0] for work in others] == [0, 1, 4, 9]
    assert refcompiler.counters()["captures"] == 5


def test_a_reset_in_the_middle_of_a_compilation() -> None:
    slow = Slow()

    def function(x: torch.Tensor, k: int) -> torch.Tensor:
        y = x * k
        torch._dynamo.graph_break()
        return y + 1

    run = compiled(function, slow)
    compiling = Work(lambda: run(full(1), 2))
    assert slow.begun.wait(LIMIT)
    refcompiler.reset()
    slow.may_end.set()
    assert compiling.result().tolist() == [3, 3]
    refcompiler.reset()
    assert [run(full(1), k).tolist()[0] for k in (2, 5, 2)] == [3, 6, 3]
    # What began before the first reset ended as two graphs, and these are three more.
    assert slow.graphs == 5 and refcompiler.counters()["fallbacks"] == 0


def test_a_stance_in_the_middle_of_a_compilation() -> None:
    slow = Slow()
    run = compiled(lambda x: x * 2, slow)
    compiling = Work(lambda: run(full(1)))
    assert slow.begun.wait(LIMIT)

    def set_and_back() -> None:
        with refcompiler.set_stance("force_eager"):
            assert run(full(4)).tolist() == [8, 8]

    setting = Work(set_and_back)
    slow.may_end.set()
    assert compiling.result().tolist() == [2, 2]
    setting.result()
    assert run(full(3)).tolist() == [6, 6] and slow.graphs == 1


def test_two_functions_that_call_each_other() -> None:
    def even(x: torch.Tensor, n: int) -> torch.Tensor:
        return x if n == 0 else compiled_odd(x * 2, n - 1)

    def odd(x: torch.Tensor, n: int) -> torch.Tensor:
        return x if n == 0 else compiled_even(x + 1, n - 1)

    compiled_even, compiled_odd = compiled(even), compiled(odd)
    works = [Work(lambda n=n: compiled_even(full(1), n)) for n in (0, 1, 2, 3, 2)]  # type: ignore[misc]
    assert [work.result().tolist()[0] for work in works] == [1, 2, 3, 6, 3]
    assert refcompiler.counters()["fallbacks"] == 0


@pytest.fixture
def eager_collector() -> Iterator[None]:
    """A garbage collection at nearly every allocation."""
    before = gc.get_threshold()
    gc.collect()
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def test_garbage_that_calls_compiled_code_when_it_goes(eager_collector: None) -> None:
    """Finalisers run where guards are checked, in captures and in breaks, and enter anew."""
    answers: list[float] = []
    inner = compiled(lambda x, k: x * k)

    class Node:
        def __init__(self, k: int) -> None:
            self.k = k
            self.me = self  # so that only the collector finds it

        def __del__(self) -> None:
            answers.append(inner(full(2), self.k % 3)[0].item() - 2 * (self.k % 3))

    def outer(x: torch.Tensor, items: list, table: dict, k: int) -> torch.Tensor:
        y = x * len(items) + table["k"]
        torch._dynamo.graph_break()
        return y * k

    run = compiled(outer)
    for step in range(8):
        Node(step)
        found = run(full(1), [1, 2], {"k": step % 2}, step % 3)
        assert found.tolist() == [(2 + step % 2) * (step % 3)] * 2
    gc.collect()
    assert answers == [0.0] * 8
    assert refcompiler.counters()["fallbacks"] == 0


def test_what_dies_while_its_guards_are_checked(eager_collector: None) -> None:
    """Collections in the middle of an entry free what only a cycle of garbage holds."""

    class Holder:
        def __init__(self, w: torch.Tensor) -> None:
            self.w = w
            self.me = self

    run = compiled(lambda x, holder: x * holder.w)
    for n in range(20):
        holder = Holder(full(n))
        assert run(full(3), holder).tolist() == [3 * n] * 2
    assert refcompiler.counters()["captures"] == 1


def test_a_parameter_that_changes_while_it_is_compiled_for() -> None:
    """What was compiled misses at once; the call is captured anew."""
    slow, model = Slow(), torch.nn.Linear(2, 2)
    run = refcompiler.compile(model, backend=slow)
    x = full(1)[None]
    compiling = Work(lambda: run(x))
    assert slow.begun.wait(LIMIT)
    model.weight.data = model.weight.data.t()
    slow.may_end.set()
    torch.testing.assert_close(compiling.result(), model(x))
    assert slow.graphs == 2 and refcompiler.counters()["captures"] == 2
    torch.testing.assert_close(run(x), model(x))
    assert slow.graphs == 2


def test_a_parameter_that_changes_at_each_compilation() -> None:
    """In the end the call runs natively, and so does what follows a break."""
    model, graphs = torch.nn.Linear(2, 2), []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable:
        graphs.append(graph)
        model.weight.data = torch.zeros(2, 2)[:, :1].expand(2, 2 + len(graphs))[:, :2]
        model.weight.data = torch.ones(2, 2 + len(graphs))[:, :2]  # strides that were not there
        return graph.forward

    def breaks(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        torch._dynamo.graph_break()
        return model(x)

    x = full(1)[None]
    for run in (refcompiler.compile(model, backend=backend), compiled(breaks, backend)):
        before = len(graphs)
        found = Work(lambda run=run: run(x)).result()  # type: ignore[misc]
        assert found.shape == (1, 2) and len(graphs) - before >= 3
    assert refcompiler.counters()["fallbacks"] == 0


def test_parameters_that_change_under_eight_threads() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.Linear(2, 2) for _ in range(6)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

    net, x, states = Net(), full(1)[None], []
    weight = net.layers[0].weight
    for change in (lambda data: data.t(), lambda data: data.clone()):
        for wanted in (True, False):
            data = change(weight.data)
            weight.data = data
            weight.requires_grad_(wanted)
            states.append((data, wanted, net(x).detach()))
    run = refcompiler.compile(net, backend="eager")
    done = threading.Event()

    def calls() -> int:
        count = 0
        while not done.is_set():
            found = run(x)
            assert any(torch.allclose(found, answer) for _, _, answer in states)
            count += 1
        return count

    for data, wanted, _ in states:
        weight.data = data
        weight.requires_grad_(wanted)
        run(x)
    works = [Work(calls) for _ in range(8)]
    for step in range(200):
        data, wanted, _ = states[step % len(states)]
        weight.data = data
        weight.requires_grad_(wanted)
        done.wait(0.001)
    done.set()
    assert sum(work.result() for work in works) > 100
    torch.testing.assert_close(run(x), net(x))


def test_recursion_errors_and_generators_in_threads() -> None:
    def factorial(x: torch.Tensor, n: int) -> torch.Tensor:
        return x if n == 0 else times(x * n, n - 1)

    def fails(x: torch.Tensor, n: int) -> torch.Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        if n % 3 == 0:
            raise ValueError(str(n))
        return y * n

    times, failing, scaled = compiled(factorial), compiled(fails), compiled(lambda x, k: x * k)

    def numbers(n: int) -> Iterator[torch.Tensor]:
        for k in range(n):
            yield scaled(full(1), k)

    def calls(first: int) -> int:
        for n in [(first + step) % 6 for step in range(6)]:
            if n % 3 == 0:
                with pytest.raises(ValueError, match=f"^{n}$"):
                    failing(full(1), n)
            else:
                assert failing(full(1), n).tolist() == [2 * n] * 2
            assert times(full(1), 4).tolist() == [24, 24]
            assert [found[0].item() for found in numbers(3)] == [0, 1, 2]
        return 6

    works = [Work(lambda first=first: calls(first)) for first in range(4)]  # type: ignore[misc]
    assert sum(work.result() for work in works) == 24
    assert refcompiler.counters()["fallbacks"] == 0
