"""What tensors hold besides their contents: gradients, attributes, the requires_grad flag."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()


def t(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, requires_grad=True)


@cases()
def gradient_assigned():
    def f(x):
        x.grad = torch.ones(3) * 2
        return x * 2, x.grad + 1

    return f, [(t(3),), (t(3),)]


@cases()
def gradient_reset():
    def f(x):
        x.grad = None
        return x * 2, x.grad

    return f, [(x := t(3),), (x,), (t(3),)]


@cases()
def gradients_of_a_module_reset():
    m = nn.Linear(3, 3)

    def f(x):
        m.zero_grad()
        return m(x)

    return f, [(t(2, 3),)] * 3, [m]


@cases(graphs=2, recompiles=1)
def gradient_of_one_of_two():
    def f(x, y):
        x.grad = torch.ones(3)
        return y * 2 if y.grad is None else y.grad

    return f, [(t(3), t(3)), (x := t(3), x), (t(3), t(3))]


@cases(graphs=2, breaks=1)
def gradient_that_does_not_fit():
    def f(x):
        try:
            x.grad = torch.ones(4)
        except RuntimeError:
            return x * 3
        return x * 2

    return f, [(t(3),)] * 2


@cases()
def attribute_assigned():
    def f(x, n):
        before = getattr(x, "tag", None)
        x.tag = [n]
        return x * x.tag[0], before, hasattr(x, "tag"), hasattr(x, "other")

    return f, [(t(3), 3), (t(3), 3)]


@cases()
def requires_grad_as_it_is():
    def f(x):
        y = torch.ones(3).requires_grad_(False)
        return y * x.requires_grad_()

    return f, [(t(3),)] * 2


@cases(graphs=2, recompiles=1)
def gradient_function_of_leaves():
    def f(x):
        return x * 2 if x.grad_fn is None else x * 3, torch.ones(2).grad_fn

    return f, [(t(3),), (t(3) * 1,), (t(3),)]


@cases()
def lists_of_parameters():
    class Lists(nn.Module):
        def __init__(self):
            super().__init__()
            self.p = nn.ParameterList([nn.Parameter(t(4)) for _ in range(3)])
            self.q = nn.ParameterDict({"u": nn.Parameter(t(4)), "v": nn.Parameter(t(4))})

        def forward(self, x):
            for p in self.p[1:]:
                x = x + p
            for p, (name, q) in zip(self.p, self.q.items(), strict=False):
                x = x + p * q * len(name)
            return x + self.q.get("w", 1) + sum(p.sum() for p in self.parameters())

    m = Lists()
    return lambda x: m(x), [(torch.randn(3, 4),)] * 2


@cases()
def made_like_a_tensor():
    def f(x):
        with torch.no_grad():
            made = x.new(2).zero_(), x.new([1.0, 2.0]), x.new_full((2,), 3)
        return (
            *made,
            torch.asarray(x.detach(), dtype=torch.float64),
            torch.asarray([1, 2]) + x.sum(),
        )

    return f, [(t(3),)] * 2


@cases()
def contents_of_a_parameter():
    m = nn.Linear(3, 2)

    def f(x):
        y = m(x)
        m.weight.data = m.weight.data * 2
        y = y + m(x)
        m.weight.data = m.weight.data + x.sum()
        m.weight.data.add_(1)
        with torch.no_grad():
            m.weight.mul_(0.5)
        return y + m(x), m.weight, m.weight.is_leaf, m.weight.requires_grad

    return f, [(torch.randn(2, 3),), (torch.randn(2, 3),)], [m]


@cases()
def contents_of_what_has_a_gradient():
    def f(x, y):
        before, doubled = x * 2, x * 3
        x.data = y
        doubled.data = y
        y.mul_(3)
        return before, x * 3, doubled * 2, x

    return f, [(t(3), torch.randn(3)), (t(3), torch.randn(3))]


@cases(graphs=2, recompiles=1)
def inference_of_results():
    def f(x):
        y = x * 2
        with torch.inference_mode():
            z = x * 3
        return y.is_inference(), z.is_inference(), y

    return f, [(t(3),), (t(4),)]


@cases(graphs=0, breaks=1)
def contents_of_another_shape():
    def f(x, y):
        x.data = y
        return x * 3

    return f, [(t(3), torch.randn(4)), (t(3), torch.randn(4))]


@cases()
def memory_of_another():
    def f(x, y):
        z = x + 1
        same = z.set_(y)
        z.add_(1)
        return z, same is z, y * 2

    return f, [(torch.randn(3), torch.randn(4)), (torch.randn(3), torch.randn(4))]


@pytest.mark.parametrize("case", cases, ids=str)
def test_captured_as_in_eager(case: Case):
    assert check(case) > 0
