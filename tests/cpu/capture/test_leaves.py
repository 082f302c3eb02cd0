"""Tensors that the frame makes and that require gradients, inside a graph and leaving it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import refcompiler
from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()
t = torch.randn


@cases()
def beside_what_requires_gradients_anyway():
    w = t(3, requires_grad=True)

    def f(x):
        leaf = torch.zeros(3, requires_grad=True)
        y = (x + leaf) * w
        return y, leaf.requires_grad, leaf.grad is None, leaf.is_leaf

    return f, [(t(3),), (t(3),)], [w]


@cases()
def without_gradients():
    def f(x):
        with torch.no_grad():
            leaf = torch.zeros_like(x).requires_grad_()
            y = leaf + x
            said = leaf.requires_grad, leaf.is_leaf, y.requires_grad
        return y * 2, said

    return f, [(t(3),), (t(3),)]


@cases()
def detached_before_it_leaves():
    def f(x):
        y = x.detach().requires_grad_(requires_grad=True) * 2
        return y.detach(), y.requires_grad, torch.tensor(1.0, requires_grad=True).detach() + x

    return f, [(t(3),), (t(3),)]


@cases(graphs=2, breaks=1)
def the_leaf_itself():
    def f(x):
        leaf = (x * 2).requires_grad_()
        return leaf, leaf * 3

    return f, [(t(3),), (t(3),)]


@cases(graphs=3, breaks=2)
def its_gradient_is_asked_for():
    def f(x):
        leaf = (x * 2).requires_grad_()
        y = (leaf**2).sum()
        y.backward()
        return leaf.grad, y.detach()

    return f, [(t(3),), (t(3),)]


@cases(breaks=1)
def written_to_an_input():
    def f(x, into):
        into.copy_(torch.ones(3, requires_grad=True) * x)
        return into.requires_grad

    return f, [(t(3), t(3)), (t(3), t(3))]


@cases(breaks=1)
def kept_by_a_module():
    class Keeping(nn.Module):
        def forward(self, x):
            self.kept = torch.zeros(3, requires_grad=True)
            return (self.kept * x).detach()

    m = Keeping()
    return m, [(t(3),), (t(3),)], [m]


@cases(graphs=2, breaks=1)
def of_integers():
    def f(x):
        y = x.long()
        try:
            return y.requires_grad_()
        except RuntimeError as error:
            return x + 1, str(error)

    return f, [(t(3),), (t(3),)]


@cases(graphs=3, recompiles=2)
def frozen_before_they_are_read():
    m = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))

    def f(x, wanted):
        for p in m.parameters():
            p.requires_grad_(wanted)
        y = m(x)
        return y, y.requires_grad, [p.requires_grad for p in m.parameters()]

    return f, [(t(2, 3), False), (t(2, 3), False), (t(2, 3), True), (t(2, 3), False)], [m]


@cases()
def a_module_at_once_and_by_attribute():
    m, n = nn.Linear(3, 3), nn.Linear(3, 3)

    def g(x):
        m.requires_grad_(False)
        n.weight.requires_grad = False
        return m(x), n(x), m.weight.requires_grad, n.weight.requires_grad

    def thaw():
        m.requires_grad_(True)
        n.requires_grad_(True)

    return g, [(t(2, 3),), thaw, (t(2, 3),)], [m, n]


@cases(graphs=2, breaks=1)
def read_before_it_is_switched():
    m = nn.Linear(3, 3)

    def f(x):
        y = m(x)
        m.weight.requires_grad_(False)
        return y, m(y), m.weight.requires_grad

    return f, [(t(2, 3),), lambda: m.requires_grad_(True) and None, (t(2, 3),)], [m]


@cases()
def an_argument_that_is_to_have_a_gradient():
    def f(x):
        x.requires_grad_()
        return x**3, x.is_leaf

    return f, [(t(3),), (t(3),)]


@cases(graphs=2, recompiles=1)
def one_tensor_in_two_places():
    def f(x, y):
        x.requires_grad_()
        return x * 2, (y * 3).requires_grad

    same = t(3)
    return f, [(t(3), t(3)), (same, same)]


@cases()
def the_graph_raises_behind_it():
    w = t(3, requires_grad=True)

    def f(x, i):
        before = w.requires_grad
        w.requires_grad_(not before)
        y = w * 2
        try:
            return (y + x)[i], before
        except IndexError:
            return "no", before, w.requires_grad

    return (
        f,
        [(t(3), torch.tensor([5])), lambda: w.requires_grad_(), (t(3), torch.tensor([7]))],
        [w],
    )


@pytest.mark.parametrize("case", cases, ids=str)
def test_as_in_eager(case: Case):
    assert check(case) > 0


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_gradients_go_past_a_leaf(backend: str):
    def f(x, w):
        leaf = torch.full_like(x, 2.0).requires_grad_()
        return ((x + leaf) * w).sum()

    compiled = refcompiler.compile(f, backend=backend, fullgraph=True)
    compared = 0
    for seed in (1, 2):
        torch.manual_seed(seed)
        x, w = t(3), t(3, requires_grad=True)
        (wanted,) = torch.autograd.grad(f(x, w), w)
        (found,) = torch.autograd.grad(compiled(x, w), w)
        assert torch.equal(found, wanted)
        compared += 1
    assert compared == 2 and refcompiler.counters()["graphs"] == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_gradients_of_what_is_frozen_and_thawed(backend: str):
    def made():
        torch.manual_seed(0)
        m = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))

        def f(x, wanted):
            for p in m[0].parameters():
                p.requires_grad = wanted
            return m(x).sum()

        return m, f

    (ours, f), (eager, g) = made(), made()
    compiled = refcompiler.compile(f, backend=backend, fullgraph=True)
    compared = 0
    for wanted in (False, True, False):
        x = t(4, 3, requires_grad=True)
        compiled(x, wanted).backward()
        mine, x.grad = x.grad, None
        g(x, wanted).backward()
        assert torch.equal(mine, x.grad)
        for p, q in zip(ours.parameters(), eager.parameters(), strict=True):
            assert p.requires_grad == q.requires_grad
            assert (p.grad is None) == (q.grad is None)
            if p.grad is not None:
                assert torch.equal(p.grad, q.grad)
                compared += 1
    assert compared == 10
