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
