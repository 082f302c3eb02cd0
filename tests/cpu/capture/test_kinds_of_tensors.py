"""Gradients and random numbers asked for in a frame, and tensors that no graph holds."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from tests.cpu.capture.oracle import Case, Cases, check

with warnings.catch_warnings():  # torch gives them once for each process
    warnings.simplefilter("ignore")
    torch.nested.nested_tensor([torch.ones(1)])
    torch.quantize_per_tensor(torch.ones(1), 0.1, 0, torch.qint8)
    torch.eye(2).to_sparse_csr()

cases = Cases()
t = torch.randn


def grad(*s):
    return torch.randn(*s, requires_grad=True)


@cases(graphs=2, breaks=1)
def backward_inside():
    def f(x):
        y = (x * 2).sum()
        y.backward()
        return x.grad + 1

    return f, [(grad(3),), (grad(3),)]


@cases(graphs=2, breaks=1)
def backward_with_gradient():
    def f(x):
        y = x * 2
        y.backward(torch.ones(3))
        return x.grad + 1

    return f, [(grad(3),), (grad(3),)]


@cases(graphs=2, breaks=1)
def grad_inside():
    def f(x):
        y = (x**2).sum()
        (g,) = torch.autograd.grad(y, x)
        return g * 2

    return f, [(grad(3),), (grad(3),)]


@cases(graphs=2, breaks=1)
def grad_create_graph():
    def f(x):
        y = (x**3).sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        return (g**2).sum()

    return f, [(grad(3),), (grad(3),)]


@cases(breaks=1)
def grad_allow_unused():
    def f(x, z):
        y = (x**2).sum()
        return torch.autograd.grad(y, [x, z], allow_unused=True)

    return f, [(grad(3), grad(2)), (grad(3), grad(2))]


@cases(graphs=2, breaks=2)
def grad_of_detached():
    def f(x):
        w = x.detach().requires_grad_()
        y = (w**2).sum()
        return torch.autograd.grad(y, w)[0]

    return f, [(t(3),), (t(3),)]


@cases(graphs=2, breaks=1)
def gradient_penalty():
    m = nn.Linear(3, 1)

    def f(x):
        x = x.requires_grad_()
        y = m(x).sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        return ((g.norm(2, 1) - 1) ** 2).mean()

    return f, [(t(2, 3),), (t(2, 3),)], [m]


@cases(breaks=1)
def seeded():
    def f(x):
        torch.manual_seed(5)
        return x + torch.rand(3)

    return f, [(t(3),), (t(3),)]


@cases(graphs=2, breaks=1)
def seeded_middle():
    def f(x):
        a = torch.rand(3) + x
        torch.manual_seed(5)
        return a, x + torch.rand(3)

    return f, [(t(3),), (t(3),)]


@cases(graphs=2, breaks=2)
def seeded_twice():
    def f(x, s):
        torch.manual_seed(s)
        a = torch.rand(3) + x
        torch.manual_seed(s)
        return a, x + torch.rand(3)

    return f, [(t(3), 3), (t(3), 3), (t(3), 4)]


@cases(graphs=2, breaks=2)
def rng_state_saved():
    def f(x):
        s = torch.get_rng_state()
        a = torch.rand(3) + x
        torch.set_rng_state(s)
        return a, x + torch.rand(3)

    return f, [(t(3),), (t(3),)]


@cases(graphs=1, breaks=2)
def fork():
    def f(x):
        with torch.random.fork_rng(devices=[]):
            a = torch.rand(3) + x
        return a, x + torch.rand(3)

    return f, [(t(3),), (t(3),)]


@cases(graphs=2, breaks=2)
def fork_seeded():
    def f(x):
        y = x * 2
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            a = torch.rand(3) + x
            a = a * y
        return a, x + torch.rand(3)

    return f, [(t(3),), (t(3),)]


@cases(graphs=3, breaks=2)
def fork_around_a_function():
    def drawn(x):
        return (x * torch.rand(3)).sin()

    def f(x):
        y = x * 2
        try:
            with torch.random.fork_rng(devices=[]):
                y = drawn(y)
                raise ValueError
        except ValueError:
            return y + torch.rand(3)

    return f, [(t(3),), (t(3),)]


@cases()
def generator_outside():
    g = torch.Generator().manual_seed(3)

    def f(x):
        return x + torch.rand(3, generator=g)

    return f, [(t(3),), (t(3),)]


@cases(graphs=2, recompiles=1)
def generator_argument():
    def f(x, g):
        return x + torch.rand(3, generator=g), x.clone().normal_(generator=g)

    g = torch.Generator().manual_seed(3)
    return f, [(t(3), g), (t(3), g), (t(3), torch.Generator().manual_seed(9))]


@cases(graphs=2, breaks=2, recompiles=1)
def generator_made():
    def f(x):
        g = torch.Generator()
        g.manual_seed(3)
        return x + torch.rand(3, generator=g)

    return f, [(t(3),), (t(3),)]


@cases(breaks=1)
def seed_random():
    def f(x):
        s = torch.initial_seed()
        return x + 1, s

    return f, [(t(3),), (t(3),)]


@cases(graphs=2, recompiles=1)
def default_dtype_read():
    def f(x):
        return x.to(torch.get_default_dtype()), torch.ones(1)

    return f, [
        (t(2),),
        lambda: torch.set_default_dtype(torch.float64),
        (t(2).float(),),
        lambda: torch.set_default_dtype(torch.float32),
    ]


@cases(graphs=0, breaks=2)
def nested_made():
    def f(x, y):
        n = torch.nested.nested_tensor([x, y])
        return (n * 2).unbind()[0] + 1

    return f, [(t(2), t(3)), (t(2), t(3))]


@cases(graphs=2, breaks=1)
def sparse_argument():
    return lambda x, y: (y * 2, x.to_dense() + 1), [
        (torch.eye(3).to_sparse(), t(3)),
        (torch.eye(3).to_sparse(), t(3)),
    ]


@cases(breaks=1)
def sparse_matmul():
    return lambda x, y: torch.sparse.mm(x, y) + 1, [
        (torch.eye(3).to_sparse(), t(3, 3)),
        (torch.eye(3).to_sparse(), t(3, 3)),
    ]


@cases(graphs=2, breaks=1)
def sparse_made():
    return lambda x: (x * 2).to_sparse().to_dense() + 1, [(torch.eye(3),), (torch.eye(3),)]


@cases(graphs=4, breaks=4)
def sparse_among_others():
    """What follows a break on a sparse tensor stays outside; functions are captured as ever."""
    layer = nn.Linear(3, 3)

    def convolve(h, adjacency):
        return (torch.sparse.mm(adjacency, h) + h).relu()

    def f(x, adjacency):
        h = convolve(layer(x), adjacency)
        doubled = adjacency * 2
        doubled = doubled.coalesce()
        return convolve(layer(h), doubled), doubled.to_dense()

    return f, [(t(4, 3), torch.eye(4).to_sparse()), (t(4, 3), 2 * torch.eye(4).to_sparse())]


@cases(breaks=1)
def sparse_csr_argument():
    return lambda x, y: x @ y + 1, [
        (torch.eye(3).to_sparse_csr(), t(3, 3)),
        (torch.eye(3).to_sparse_csr(), t(3, 3)),
    ]


@cases()
def embedding_sparse_grad():
    e = nn.Embedding(5, 3, sparse=True)
    return lambda i: e(i).sum(), [(torch.tensor([0, 1]),), (torch.tensor([2, 1]),)], [e]


@cases(graphs=2, breaks=1)
def quantized_made():
    def f(x):
        q = torch.quantize_per_tensor(x * 2, 0.1, 0, torch.qint8)
        return q.dequantize() + 1

    return f, [(t(3),), (t(3),)]


@cases()
def fake_quantized():
    return lambda x: torch.fake_quantize_per_tensor_affine(x * 2, 0.1, 0, -128, 127), [
        (t(3),),
        (t(3),),
    ]


@cases()
def complex_tensors():
    def f(x):
        y = torch.complex(x, x * 2)
        return (
            y.abs(),
            y.conj().real,
            torch.fft.fft(x),
            y * (1 + 2j),
            torch.view_as_real(y),
            y.angle(),
        )

    return f, [(t(3),), (t(3),)]


@cases(breaks=1)
def mkldnn():
    def f(x):
        return x.to_mkldnn().to_dense() + 1

    return f, [(t(3, 3),), (t(3, 3),)]


@cases()
def zero_tensor():
    return lambda x: x + torch._efficientzerotensor(3), [(t(3),), (t(3),)]


@cases(graphs=2, recompiles=1)
def buffer_registered_by_its_class():
    m = nn.Module()

    def f(x):
        m.b = nn.Buffer(x * 2)
        return x + m.b, isinstance(m.b, nn.Buffer)

    return f, [(t(3),), (t(3),)], [m]


@pytest.mark.parametrize("case", cases, ids=str)
def test_captured_as_in_eager(case: Case):
    assert check(case) > 0
