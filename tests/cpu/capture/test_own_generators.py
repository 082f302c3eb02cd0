"""Draws from generators that the program gives: in the graph, eager's numbers, eager's states."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import refcompiler
from refcompiler.capture.dynamic import History

N = 1500  # kernels of fastpath's draw from 1024 elements on
GLOBAL = torch.Generator()
BACKENDS: list[tuple[str, dict[str, Any]]] = [
    ("eager", {}),
    ("aot_eager", {}),
    ("fastpath", {}),
    ("fastpath", {"fallback_random": True}),
]


def interleaved(x, g):
    a = torch.rand(N, generator=g) - torch.rand(N)
    b = torch.randn(N, generator=GLOBAL) * torch.randn(N, generator=g, device=g.device)
    c = torch.bernoulli(torch.full((N,), 0.3), generator=g) + torch.rand(N, generator=GLOBAL)
    drawn = torch.randint(5, (N,), generator=g) + torch.rand(N, generator=torch.default_generator)
    return x * a + b - c * drawn


def in_place(x, g):
    y = x.detach().clone().uniform_(1, 2, generator=g)
    y += torch.empty(N, dtype=torch.bfloat16).exponential_(generator=g)
    return x[torch.randperm(N, generator=g)] * y.normal_(0, 2, generator=g)


def computed_again(x, g):
    def region(y):  # eager draws anew from ``g``, and the same from the default one
        return y * y * torch.rand(N, generator=g) * torch.rand(N) * y

    return checkpoint(region, x * 2, use_reentrant=False)


def of_two_regions(x, g):
    def region(y, own):
        return y * y * torch.rand(N, generator=own)

    x = checkpoint(region, x, g, use_reentrant=False)
    return checkpoint(region, x, GLOBAL, use_reentrant=False)


def observed(function, g, calls=3):
    """What the calls give, gradients, and the generators' states."""
    torch.manual_seed(7)
    GLOBAL.manual_seed(5)
    g.manual_seed(1)
    found = []
    for call in range(calls):
        x = torch.linspace(call, call + 1, N, requires_grad=True)
        result = function(x, g)
        result.sum().backward()
        found += [result.detach(), x.grad, g.get_state(), GLOBAL.get_state()]
    return [*found, torch.get_rng_state()]


@pytest.mark.parametrize("function", [interleaved, in_place, computed_again, of_two_regions])
@pytest.mark.parametrize("backend,options", BACKENDS)
def test_eagers_numbers_from_one_graph(function, backend, options):
    refcompiler.reset()
    g = torch.Generator()
    expected = observed(function, g)
    given = {"options": options} if options else {}
    compiled = refcompiler.compile(function, backend=backend, fullgraph=True, **given)
    found = observed(compiled, g)
    assert len(found) == 13
    assert all(map(torch.equal, found, expected))
    assert refcompiler.counters()["graphs"] == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "fastpath"])
def test_draws_of_sizes_that_change_are_one_graph(backend):
    def f(x, g):
        n = x.shape[0]
        a = torch.randn(x.shape, generator=g) * torch.rand(n, 1, generator=g)
        picked = torch.randint(n, (n,), generator=g) + torch.randint(1, 2 + n, (n,), generator=g)
        return x[torch.randperm(n, generator=g)] + a, picked

    refcompiler.reset()
    g, same = torch.Generator(), torch.Generator()
    compiled = refcompiler.compile(f, backend=backend, dynamic=True, fullgraph=True)
    for n in (5, 4, 1030):
        x = torch.randn(n, 3)
        for found, expected in zip(compiled(x, g), f(x, same), strict=True):
            assert torch.equal(found, expected)
        assert torch.equal(g.get_state(), same.get_state())
    assert refcompiler.counters()["graphs"] == 1


def every(x, g):
    fresh = torch.empty
    return [
        torch.normal(torch.zeros(40), 1.0, generator=g),
        torch.normal(0.0, torch.ones(40), generator=g),
        torch.multinomial(torch.ones(5), 3, generator=g),
        torch.poisson(torch.ones(40), generator=g),
        torch.binomial(torch.full((40,), 9.0), torch.full((40,), 0.3), generator=g),
        fresh(40).log_normal_(generator=g),
        fresh(40).cauchy_(generator=g),
        fresh(40).geometric_(0.4, generator=g),
        fresh(40).random_(generator=g),
        fresh(40).bernoulli_(0.3, generator=g) + x,
    ]


@pytest.mark.parametrize("backend", ["eager", "fastpath"])
def test_every_operation_takes_one(backend):
    refcompiler.reset()
    compiled = refcompiler.compile(every, backend=backend, fullgraph=True)
    g, x = torch.Generator(), torch.ones(40)
    for seed in (1, 2):
        expected = every(x, g.manual_seed(seed)), g.get_state()
        found = compiled(x, g.manual_seed(seed)), g.get_state()
        assert len(found[0]) == 10 and all(map(torch.equal, found[0], expected[0]))
        assert torch.equal(found[1], expected[1])
    assert refcompiler.counters()["graphs"] == 1


def draw(x, g, h):
    return x + torch.rand(5, generator=g) * 2 + torch.rand(5, generator=h)


def test_which_generator_it_is_is_guarded():
    refcompiler.reset()
    compiled = refcompiler.compile(draw, backend="eager")
    x = torch.ones(5)
    a, b = torch.Generator(), torch.Generator()
    graphs = []
    for g, h in ((a, b), (b, a), (a, a), (a, b), (b, a), (a, a)):
        states = []
        for function in (draw, compiled):
            a.manual_seed(1)
            b.manual_seed(2)
            states.append((function(x, g, h), a.get_state(), b.get_state()))
        assert all(map(torch.equal, *states))
        graphs.append(refcompiler.counters()["graphs"])
    assert graphs == [1, 2, 3, 3, 3, 3]


def test_new_ones_at_each_call_do_not_fill_the_cache():
    refcompiler.reset()
    compiled = refcompiler.compile(draw, backend="eager")
    x = torch.ones(5)
    graphs = []
    for seed in range(12):
        made = [torch.Generator().manual_seed(seed + n) for n in (0, 9, 0, 9)]
        assert torch.equal(compiled(x, *made[:2]), draw(x, *made[2:]))
        assert torch.equal(made[0].get_state(), made[2].get_state())
        graphs.append(refcompiler.counters()["graphs"])
    assert graphs[0] == 1 and graphs[7] == graphs[-1] < 9
    assert refcompiler.counters()["fallbacks"] == 0


def fails(x, g, index):
    y = x + torch.rand(5, generator=g)
    try:
        return y[index] + torch.rand(5, generator=g)
    except IndexError:
        return y + 1


@pytest.mark.parametrize("backend", ["eager", "fastpath"])
def test_a_run_that_fails_has_drawn_once(backend):
    refcompiler.reset()
    compiled = refcompiler.compile(fails, backend=backend)
    g, x = torch.Generator(), torch.ones(5)
    for place in (1, 9, 2, 9):
        given = torch.tensor([place])
        expected = fails(x, g.manual_seed(4), given), g.get_state()
        found = compiled(x, g.manual_seed(4), given), g.get_state()
        assert all(map(torch.equal, found, expected))
    assert refcompiler.counters()["graphs"] >= 1


def test_objects_that_take_no_weak_reference_are_told_apart() -> None:
    """As generators do not with torch 2.11."""

    class Bare:
        __slots__ = ()

    history, some = History(), [Bare() for _ in range(3)]
    assert [history.distinct("here", each) for each in (*some, some[1])] == [1, 2, 3, 3]
    assert history.distinct("there", some[0]) == 1
    history.clear()
    assert history.distinct("here", some[0]) == 1
