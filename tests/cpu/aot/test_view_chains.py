"""Views of views that leave a graph: the way from one to the other, beside eager."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import refcompiler
from refcompiler.aot import chains

#: The rules of ``specs/ahead.py`` that are tested here.
KEPT = {"view of a view"}


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    refcompiler.reset()


def _of_a_result(x: Any, y: Any) -> Any:
    whole = x.sin()
    rows = whole.view(2, 4)
    first = rows[0]
    return first, rows, first.unsqueeze(0), first.sum() * 2, whole.view(4, 2).t().chunk(2)[1]


def _of_an_input(x: Any, y: Any) -> Any:
    rows = x.view(2, 4)
    part = rows.t().chunk(2)[1]
    return part.squeeze(), rows, part, part.exp(), rows[1]


def _of_what_is_written(x: Any, y: Any) -> Any:
    z = x * 1
    rows = z.view(2, 4)
    z.mul_(y)
    older, rows = rows[1], z.view(4, 2)
    return rows[2:], older, rows, rows[2:].expand(3, 2, 2), torch.view_as_complex(rows), z


def _of_several(x: Any, y: Any) -> Any:
    first, second = (x * y).split(4)
    pair = second.view(2, 2)
    return pair, first[1:], pair.diagonal(), second[:0], first.view(2, 2).unfold(0, 2, 1)


PROGRAMS = [_of_a_result, _of_an_input, _of_what_is_written, _of_several]


def _leaves(size: int) -> list[torch.Tensor]:
    torch.manual_seed(size)
    return [torch.randn(size).requires_grad_() for _ in range(2)]


def _by_each_other(function: Callable[..., Any], leaves: list[torch.Tensor]) -> list[Any]:
    """The gradient of each result by each other, and by the leaves."""
    results = [t for t in function(*leaves) if t.requires_grad]
    found: list[Any] = []
    for t, other in itertools.permutations((*results, *leaves), 2):
        if t.grad_fn is None:
            continue
        ramp = torch.arange(t.numel()).cos().to(t.dtype).view(t.shape)
        back = torch.autograd.grad(t, other, ramp, retain_graph=True, allow_unused=True)
        found += back
    return found


def _same(expected: list[Any], found: list[Any]) -> int:
    """How many are there."""
    assert len(expected) == len(found)
    for e, f in zip(expected, found, strict=True):
        assert (e is None) == (f is None)
        assert e is None or torch.equal(e, f)
    return sum(e is not None for e in expected)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_view_leads_to_the_view_that_it_is_of(program: Callable[..., Any], dynamic: bool) -> None:
    compiled = refcompiler.compile(program, backend="aot_eager", dynamic=dynamic, fullgraph=True)
    for size in (8, 8):
        count = _same(
            _by_each_other(program, _leaves(size)), _by_each_other(compiled, _leaves(size))
        )
        assert count > len(program(*_leaves(size)))
    assert refcompiler.counters()["uncompiled"] == 0


def test_without_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains.Views, "over", lambda views, t: None)
    with pytest.raises(AssertionError):
        test_a_view_leads_to_the_view_that_it_is_of(_of_a_result, False)


@pytest.mark.parametrize("program", PROGRAMS)
def test_hooks_on_a_view_see_what_comes_by_views_of_it(program: Callable[..., Any]) -> None:
    def run(function: Callable[..., Any], create_graph: bool) -> list[Any]:
        leaves = _leaves(8)
        results = [t for t in function(*leaves) if t.requires_grad]
        seen: dict[int, Any] = {}
        for n, t in enumerate(results):
            t.register_hook(lambda g, n=n: seen.update({n: g.detach().clone()}))
            t.retain_grad()
        loss = sum((n + 1.5) * t.abs().pow(2).sum() for n, t in enumerate(results))
        loss.backward(create_graph=create_graph)  # type: ignore[union-attr]
        kept = [t.grad for t in (*results, *leaves)]
        return [*map(seen.get, range(len(results))), *kept]

    compiled = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    for create_graph in (False, True):
        expected = [t.detach() for t in run(program, create_graph) if t is not None]
        found = [t.detach() for t in run(compiled, create_graph) if t is not None]
        assert len(expected) == len(found) >= 8
        for e, f in zip(expected, found, strict=True):
            torch.testing.assert_close(f, e, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("writes", [False, True])
def test_a_view_leads_to_the_argument_that_it_is_of(writes: bool) -> None:
    """Arguments that overlap are views of a common base in the graph, but the caller's own here."""

    def program(p: torch.Tensor, q: torch.Tensor) -> Any:
        if writes:
            q.mul_(2)
        else:
            with torch.no_grad():
                q.mul_(2)
        return p.view(2, 2), p.view(2, 2)[0], q[1:], p.view(2, 2)[1] * 2

    def run(function: Callable[..., Any]) -> list[Any]:
        (x, _) = _leaves(8)
        base = x * 1
        p, q = base[:4], base[2:6]
        results = function(p, q)
        ends = [p, q, base]
        return [
            *results,
            *[
                torch.autograd.grad(t.sum(), end, retain_graph=True, allow_unused=True)[0]
                for t in results
                for end in ends
            ],
        ]

    compiled = refcompiler.compile(program, backend="aot_eager")
    for _ in range(2):
        assert _same(run(program), run(compiled)) > 10
    assert refcompiler.counters()["uncompiled"] == 0


def test_writes_are_counted_before_a_result_is_led_past_a_view() -> None:
    """A view whose base is written to gets another function, to which nothing would lead."""

    def program(u: torch.Tensor, v: torch.Tensor) -> Any:
        u.add_(1)
        view = u.unsqueeze(0).squeeze()
        u.add_(1)
        return view, view + 1

    def run(function: Callable[..., Any], overlap: bool) -> list[Any]:
        leaves = _leaves(8)
        base = torch.cat(leaves)
        arguments = (base[:4], base[2:6]) if overlap else (base[:8] * 1, base[8:])
        results = function(*arguments)
        seen: list[Any] = []
        results[0].register_hook(lambda g: seen.append(g.clone()))
        torch.autograd.backward(results, [torch.ones_like(t) for t in results])
        return [*seen, *[t.grad for t in leaves]]

    compiled = refcompiler.compile(program, backend="aot_eager")
    for overlap in (False, True):
        for _ in range(2):
            assert _same(run(program, overlap), run(compiled, overlap)) == 3


def _seen(t: torch.Tensor, x: torch.Tensor) -> list[Any]:
    base = t._base
    own = t._is_view(), t.stride(), t.storage_offset(), t._version, t.requires_grad
    if base is None:
        return [own]
    known = base.shape, base.stride(), base._version, base.requires_grad, base is x
    return [own, known, base.detach().tolist()]


ALONE: list[Callable[..., Any]] = [
    lambda x: (x * 2)[1:],
    lambda x: (x * 2).t(),
    lambda x: (x * 2).detach()[1:],
    lambda x: (x * 2)[1:].detach(),
    lambda x: torch.ones(4).unsqueeze(0).add_(1),
    lambda x: (x * 2).view(-1).mul_(2).view(4),
    lambda x: torch.complex(x, x).view(2, 2).real,
    lambda x: torch.view_as_real(torch.complex(x, x)),
    lambda x: x[1:].detach(),
    lambda x: x.view(torch.int32)[1:],
    lambda x: (x * 2).data[1:],
]


@pytest.mark.parametrize("n", range(len(ALONE)))
@pytest.mark.parametrize("backend", ["aot_eager", "fastpath"])
def test_a_result_is_a_view_where_it_is_in_eager(n: int, backend: str) -> None:
    """So is its base, and writes to either; ``detach_`` is an error of views."""
    program = ALONE[n]
    call = refcompiler.compile(program, backend=backend, fullgraph=True)
    for tracked, grad in ((True, True), (False, True), (True, False)):
        sides: list[list[Any]] = []
        for function in (call, program):
            x = torch.arange(1.0, 5).requires_grad_(tracked) * 1
            with torch.set_grad_enabled(grad):
                found = function(x)
            seen = _seen(found, x)
            with torch.no_grad():
                (found if found._base is None else found._base).add_(1)
            seen += _seen(found, x)
            if found.requires_grad:
                seen.append(type(found.grad_fn).__name__ if found._is_view() else None)
            if found._is_view():
                with pytest.raises(RuntimeError, match="detach"):
                    found.detach_()
            sides.append([*seen, found.tolist(), x.tolist(), x._version])
        assert sides[0] == sides[1]
    assert refcompiler.counters()["uncompiled"] == 0
