"""What a program asks of autograd: versions of tensors, and the nodes behind them."""

from __future__ import annotations

import operator

import pytest
import torch
from torch.nn import functional as F

import refcompiler
from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()
t = torch.randn


def grown(*shape: int) -> torch.Tensor:
    return t(*shape, requires_grad=True)


def told(node):
    """Names of a node and of all before it."""
    if node is None:
        return None
    before = tuple([(told(inner), place) for inner, place in node.next_functions])
    return node.name(), type(node).__name__, before


@cases()
def nodes_and_those_before_them():
    w = grown(3)

    def f(x):
        y = F.layer_norm(x * w, (3,)).relu() @ x.T
        z = torch.cat([y, y.view(-1)[:3, None].expand(3, 3)]).sum()
        return z, told(z.grad_fn), told(F.gelu(y).grad_fn)

    return f, [(grown(3, 3),), (grown(3, 3),)], [w]


@cases(graphs=2, recompiles=1)
def whether_there_is_a_node():
    def f(x):
        with torch.no_grad():
            y = x * 2
        z = x * 3
        return z, y.grad_fn is None, z.grad_fn is not None, z.grad_fn is z.grad_fn

    return f, [(grown(3),), (t(3),)]


@cases()
def nodes_as_keys():
    def f(x):
        y = x * 2
        z = y + 1
        places = {y.grad_fn: "first"}
        (before, _), _ = z.grad_fn.next_functions
        return z, places.get(before), isinstance(before, torch.autograd.graph.Node)

    return f, [(grown(3),), (grown(3),)]


@cases(graphs=2, breaks=3)
def a_node_over_a_break():
    def f(x):
        y = x * 2
        node = y.grad_fn
        torch._dynamo.graph_break()
        return y + 1, node.name(), node is y.grad_fn

    return f, [(grown(3),), (grown(3),)]


@cases(breaks=2)
def what_a_node_has_saved():
    def f(x):
        y = x**2
        return y, y.grad_fn._saved_self

    return f, [(grown(3),), (grown(3),)]


@cases(graphs=3, recompiles=2)
def whether_an_input_was_computed():
    def f(x):
        return x * 2, x.grad_fn is None, x.grad_fn is not None and x.requires_grad

    return f, [(grown(3),), (t(3),), (grown(3) + 1,), (grown(3) * 2,)]


@cases(breaks=7)
def nodes_before_an_input_that_was_computed():
    def f(x):
        y = x * 2
        return y, told(y.grad_fn)

    return f, [(grown(3) + 1,), (grown(3) + 1,)]


@cases()
def versions():
    def f(x):
        y = x * 2
        counts = [y._version]
        y.add_(1)
        y[0].mul_(2)
        counts += [y._version, y.detach()._version, F.alpha_dropout(y, 0.5, True)._version]
        torch.add(x, 1, out=y)
        return y, counts, y._version

    return f, [(t(3),), (t(3),)]


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


@cases(graphs=2, breaks=2)
def versions_beside_a_custom_gradient():
    def f(x):
        y = Doubled.apply(x * 1)
        return y._version, y.grad_fn.name(), y.detach()

    return f, [(grown(3),), (grown(3),)]


@cases(graphs=2, breaks=1)
def versions_of_an_input():
    x = t(3)

    def f(x):
        view = x[:2]
        view.add_(1)
        return view._version, x * 2

    return f, [(x,), (x,)], [x]


def related():
    """Pairs of tensors that are in another way of one another each time."""
    for n in (3, 3, 4):
        x = torch.arange(2.0 * n).view(2, n).clone()
        yield from [(x, x.view(-1)), (x, x), (x, x.clone()), (x[:], x), (x, x[0])]


def of_what_they_are(x, y):
    v = x.view(-1)
    w = (x * 2).view(-1)
    known = v._base is x, v._base is y, y._base is None, w._base is None, y._base is x
    return *known, y + 1, v + 1


def by_a_base(x, y):
    base = y._base
    return y * 2 if base is None else base.sum() + y


@pytest.mark.parametrize("program", [of_what_they_are, by_a_base])
def test_what_a_tensor_is_a_view_of(program):
    call = refcompiler.compile(program, backend="eager", recompile_limit=40)
    compared = 0
    for given in related():
        for found, expected in zip(call(*given), program(*given), strict=True):
            assert type(found) is type(expected)
            same = torch.equal if isinstance(expected, torch.Tensor) else operator.is_
            assert same(found, expected)
            compared += 1
    assert compared >= 30
    counts = refcompiler.counters()
    assert counts["graphs"] >= 3 and not counts["fallbacks"] + counts["breaks"]


@pytest.mark.parametrize("case", cases, ids=str)
def test_told_as_in_eager(case: Case):
    assert check(case) > 0
