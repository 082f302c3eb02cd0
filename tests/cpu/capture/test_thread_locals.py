"""Attributes of ``threading.local``: in one graph, of the thread that calls."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

import refcompiler


@pytest.fixture(autouse=True)
def _clean() -> Any:
    refcompiler.reset()
    yield
    refcompiler.reset()


class Scope(threading.local):
    depth = 0
    started: list[str] = []

    def __init__(self, name: str = "root"):
        Scope.started.append(threading.current_thread().name)
        self.names = [name]

    def __enter__(self) -> Scope:
        self.names.append("inner")
        self.depth += 1
        return self

    def __exit__(self, *raised: object) -> None:
        self.names.pop()
        self.depth -= 1

    @property
    def path(self) -> str:
        return "/".join(self.names)


def in_thread(name: str, call: Any) -> list[Any]:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(call()), name=name)
    thread.start()
    thread.join()
    return found


def _history(compiled: Any) -> list[Any]:
    """What a compiled function tells of a ``threading.local``, call after call, in two threads."""
    here = threading.local()
    Scope.depth, Scope.started = 0, []
    scope = Scope()

    def f(x: Any, forget: bool = False) -> Any:
        scale = getattr(here, "scale", 1.0)
        known = sorted(vars(here)), hasattr(here, "first")
        if not known[1]:
            here.first = x.shape[0]
        if forget:
            del here.calls
        with scope as entered:
            y = x * scale + entered.depth
            inside = entered.path
        here.calls = here.__dict__.get("calls", 0) + 1
        here.last = y
        return y, known, inside, scope.path, scope.depth

    run, x = compiled(f), torch.ones(2)
    out = [*run(x), *run(x), here.calls, here.first, here.last]
    here.scale = 3.0
    out += run(x)
    with scope:
        out += run(x)
    out += in_thread("other", lambda: [*run(x), *run(x), here.calls, hasattr(here, "scale")])
    out += [*run(x, forget=True), here.calls, sorted(vars(here)), Scope.started]
    scope.depth = 7
    del here.scale
    out += run(x)
    try:
        compiled(lambda x: x * here.scale)(x)
    except AttributeError as error:
        out.append(str(error))
    return out


def test_attributes_of_a_thread() -> None:
    """A thread's first look at its own ``Scope`` calls ``__init__`` there, once."""
    expected = _history(lambda f: f)
    found = _history(lambda f: refcompiler.compile(f, backend="eager"))
    assert len(found) == len(expected) == 49
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b) if isinstance(b, torch.Tensor) else a == b
    assert Scope.started == ["MainThread", "other"]


def test_a_thread_has_its_own_in_one_graph() -> None:
    here = threading.local()

    def f(x: Any) -> Any:
        here.seen = here.seen * 2 + x
        return here.seen + 1

    run = refcompiler.compile(f, backend="eager", fullgraph=True)

    def turns() -> list[Any]:
        here.seen = torch.zeros(2)
        return [run(torch.ones(2)), run(torch.ones(2)), here.seen]

    for found in (turns(), in_thread("other", turns), turns()):
        assert [t.tolist() for t in found] == [[2.0, 2.0], [4.0, 4.0], [3.0, 3.0]]
    counts = refcompiler.counters()
    assert (counts["captures"], counts["breaks"]) == (1, 0)


def test_locals_across_a_break_and_in_a_graph_that_raises() -> None:
    here = threading.local()

    def f(x: Any, n: int) -> Any:
        here.n = n
        here.x = x + 1
        print(end="")
        here.n += 1
        y = here.x * here.n
        here.x = None
        if n > 1:
            raise ValueError(here.n)
        return y

    run, out = refcompiler.compile(f, backend="eager"), []
    for n in (1, 0, 2):
        for function in (run, f):
            here.__dict__.clear()
            try:
                out.append(function(torch.ones(1), n).item())
            except ValueError as error:
                out.append(str(error))
            out.append(dict(here.__dict__))
    assert out[0::4] == out[2::4] and out[1::4] == out[3::4] and len(out) == 12
