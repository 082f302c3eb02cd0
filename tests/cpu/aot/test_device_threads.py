"""Backwards in threads where nothing of Python waits for autograd, as a device's threads are."""

from __future__ import annotations

import _thread
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import refcompiler
from refcompiler.aot import wanted

Compile = Callable[..., Any]
_engine = torch.autograd.Variable._execution_engine
_run = _engine.run_backward


def _elsewhere(*given: Any, **more: Any) -> Any:
    """What autograd's engine gives, run in a thread that has nothing of Python in it."""
    found: list[Any] = []
    errors: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.unraisablehook", lambda told: errors.append(told.exc_value))
        run = functools.partial(_run, **more)
        _thread.start_new_thread(found.extend, (map(run, *([each] for each in given)),))
        end = time.monotonic() + 60
        while not found and not errors and time.monotonic() < end:
            time.sleep(0.001)
    if errors:
        raise errors[0]
    assert len(found) == 1
    return found[0]


class Engine:
    """Autograd's, as who calls it from Python has it: the caller waits for other threads."""

    is_checkpoint_valid, queue_callback = _engine.is_checkpoint_valid, _engine.queue_callback

    def run_backward(self, *given: Any, **more: Any) -> Any:
        tracing = torch._C._len_torch_dispatch_stack()
        return (_run if tracing else _elsewhere)(*given, **more)


def gradients(results: Sequence[Any], inputs: Sequence[Any] = (), graph: bool = False) -> list[Any]:
    """As ``torch.autograd.grad``; into leaves, where no ``inputs`` are given."""
    ones = [torch.ones_like(t) for t in results]
    if torch.autograd.Variable._execution_engine is _engine:  # nobody waits
        given = tuple(results), tuple(ones), graph, graph, tuple(inputs), True, not inputs
        return [*(_elsewhere(*given) or ())]
    if inputs:
        return [*torch.autograd.grad(results, inputs, ones, create_graph=graph)]
    torch.autograd.backward(results, ones)
    return []


def _leaves() -> list[Any]:
    return [torch.linspace(-1, n, 12).view(3, 4).requires_grad_() for n in (1, 2)]


def _two(x: Any, w: Any) -> Any:
    h = (x * w).sin()
    return h, (h * w).exp()


def hooked(compile: Compile) -> list[Any]:
    call = compile(_two)
    told: list[Any] = []
    x, w = _leaves()
    a, b = call(x, w)
    a.register_hook(lambda g: told.append(g) or g * 3)
    b.register_hook(told.append)
    gradients([a.sum(), b.square().sum()])
    a, b = call(x, w)
    a.register_hook(told.append)
    return [*told, x.grad, w.grad, *gradients([a.sum() * 2], [w])]


def retained(compile: Compile) -> list[Any]:
    call = compile(_two)
    x, w = _leaves()
    results = call(x, w)
    for t in results:
        t.retain_grad()
    gradients([t.sum() for t in results])
    return [x.grad, w.grad, *[t.grad for t in results]]


def penalised(compile: Compile) -> list[Any]:
    call = compile(lambda x, w: torch.nn.functional.silu(x @ w.t()))
    x, w = _leaves()
    score = call(x, w)
    (slope,) = gradients([score], [x], graph=True)
    gradients([call(x * 2, w).sum() + (slope.norm(2, 1) - 1).square().mean()])
    return [slope, x.grad, w.grad]


def twice(compile: Compile) -> list[Any]:
    call = compile(_two)
    x, w = _leaves()
    slopes = gradients([call(x, w)[1].sum()], [x, w], graph=True)
    seconds = gradients([slopes[0].sum()], [w], graph=True)
    return [*slopes, *seconds, *gradients([seconds[0].sum()], [x])]


def some(compile: Compile) -> list[Any]:
    call = compile(_two)
    x, w = _leaves()
    return [*gradients([call(x, w)[1].sum()], [x]), *gradients([call(x, w)[0].sum()], [w])]


def between(compile: Compile) -> list[Any]:
    call = compile(_two)
    a, b = call(*_leaves())
    return gradients([b.sum()], [a])


def _behind(x: Any, w: Any) -> Any:
    h = x.sigmoid()
    return h, (h * w).tanh()


def both(compile: Compile) -> list[Any]:
    """With a graph, of a result and of one that is computed from it, though the graph cannot run
    again: nobody asks what comes back between."""
    call = compile(_behind)
    x, w = _leaves()
    results = call(x, w)
    with torch.no_grad():
        x.add_(1)
    return gradients([t.sum() for t in results], [x, w], graph=True)


def score(compile: Compile) -> list[Any]:
    """A loss of a result and of its gradient with a graph, which another thread has made."""
    call = compile(lambda x, w: torch.nn.functional.silu((x @ w.t()).tanh()))
    x, w = _leaves()
    y = call(x, w)
    (slope,) = gradients([y.sum()], [x], graph=True)
    gradients([y.square().sum() + slope.square().sum()])
    return [x.grad, w.grad]


PROGRAMS = (score, hooked, retained, penalised, twice, some, between)


@pytest.mark.parametrize("backend", ["aot_eager", "fastpath"])
@pytest.mark.parametrize(
    "program, waits", [*[(p, n) for p in PROGRAMS for n in (False, True)], (both, True)]
)
def test_as_eager(
    program: Callable[..., Any], waits: bool, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refcompiler.reset()
    if waits:
        monkeypatch.setattr(torch.autograd.Variable, "_execution_engine", Engine())
        monkeypatch.setattr(wanted, "_TELLS", False)  # as with torch 2.11
    compiled: dict[Any, Any] = {}

    def compile(f: Any) -> Any:
        key = f.__code__
        if key not in compiled:
            compiled[key] = refcompiler.compile(f, backend=backend, fullgraph=True)
        return compiled[key]

    for _ in range(2):
        found, expected = program(compile), program(lambda f: f)
        assert len(found) == len(expected) > 0
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b)
    assert refcompiler.counters()["uncompiled"] == 0
