"""Tensor work: gradients, modes, random numbers, and what a graph cannot hold.

PYTEST_DONT_REWRITE: the assertions inside the cases are part of them.
"""

from __future__ import annotations

import contextlib
import functools

import pytest
import torch
import torch.nn.functional as F

from tests.cpu.capture.oracle import Call, Case, Cases, check

cases = Cases()
t = torch.randn


def grad(*shape):
    return torch.randn(*shape, requires_grad=True)


# ---- gradients and modes ---------------------------------------------------------------------


@cases()
def gradients():
    w = grad(4)

    def f(x, y):
        return (x * w).sum() + y.sum(), (x * y).relu()

    return (
        f,
        [(grad(3, 4), grad(3, 4)), (grad(3, 4), t(3, 4)), (grad(3, 4), grad(3, 4))][:1] * 2,
        [w],
    )


@cases(graphs=2, recompiles=1)
def requires_grad_changes():
    return lambda x: (x * 2, x.requires_grad), [(t(3),), (grad(3),), (t(3),), (grad(3),)]


@cases()
def detached():
    def f(x):
        y = x * 2
        return y.detach(), y, (y.detach() * y).sum(), y.requires_grad, y.detach().requires_grad

    return f, [(grad(3),)] * 2


@cases()
def no_grad_block():
    def f(x):
        with torch.no_grad():
            y = x * 2
            inside = torch.is_grad_enabled()
            with torch.enable_grad():
                z = x * 3
        return y, z, inside, torch.is_grad_enabled(), y.requires_grad, z.requires_grad

    return f, [(grad(3),)] * 2


@cases()
def no_grad_decorator():
    @torch.no_grad()
    def inner(x):
        return x * 2

    @torch.enable_grad()
    def other(x):
        return x * 3

    def f(x):
        return inner(x), other(x), torch.is_grad_enabled()

    return f, [(grad(3),)] * 2


@cases()
def compiled_under_no_grad():
    @torch.no_grad()
    def f(x):
        return x * 2

    return f, [(grad(3),)] * 2


@cases()
def set_grad_enabled():
    def f(x, flag):
        with torch.set_grad_enabled(flag):
            y = x * 2
        return y, torch.is_grad_enabled()

    return f, [(grad(3), False)] * 2


@cases()
def set_grad_enabled_left_on():
    def f(x):
        torch.set_grad_enabled(False)
        y = x * 2
        return y, torch.is_grad_enabled()

    return f, [(grad(3),), lambda: torch.set_grad_enabled(True), (grad(3),), _grad_on]


def _grad_on():
    torch.set_grad_enabled(True)


@cases(graphs=2, recompiles=1)
def grad_mode_outside():
    def f(x):
        return x * 2, torch.is_grad_enabled()

    return f, [(grad(3),), lambda: torch.set_grad_enabled(False), (grad(3),), _grad_on, (grad(3),)]


@cases()
def autocast_block():
    w = t(4, 4)

    def f(x):
        y = x + 1
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z = y @ w
        return z, z.dtype, torch.is_autocast_enabled("cpu")

    return f, [(t(3, 4),)] * 2


@cases(graphs=2, breaks=1)
def autocast_around_a_break():
    w = t(4, 4)

    def f(x):
        y = x @ w
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z = y @ w
            print("inside")
            with torch.autocast("cpu", enabled=False):
                v = x @ w
            u = z.float() @ w
        return y, z, v, u, x @ w, torch.is_autocast_enabled("cpu")

    return f, [(t(3, 4),)] * 2


@cases()
def autocast_with_gradients():
    m = torch.nn.Linear(4, 4)

    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return m(x).sum() + m(m(x)).sum()

    return f, [(grad(3, 4),)] * 2, [m]


@cases()
def autocast_as_a_decorator():
    w = t(4, 4)

    @torch.autocast("cpu", dtype=torch.bfloat16)
    def inner(x):
        return x @ w

    return lambda x: (inner(x), x @ w), [(t(3, 4),)] * 2


@cases(graphs=1, breaks=1)
def an_error_leaves_the_modes():
    def f(x, i):
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode():
            return x[i] * 2

    def left():
        assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        assert not torch.is_autocast_enabled("cpu")

    i = torch.tensor([0]), torch.tensor([7])
    return f, [(t(3), i[0]), left, (t(3), i[1]), left]


@cases(graphs=2, recompiles=1)
def autocast_outside():
    w = t(4, 4)
    stack = contextlib.ExitStack()

    def on():
        stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16))

    return lambda x: x @ w, [(t(3, 4),), on, (t(3, 4),), stack.close, (t(3, 4),)]


@cases()
def inference_mode_block():
    def f(x):
        with torch.inference_mode():
            y = x * 2
        return y

    return f, [(t(3),)] * 2


@cases()
def default_dtype_set():
    def f(x):
        torch.set_default_dtype(torch.float64)
        y = torch.ones(2) + x
        torch.set_default_dtype(torch.float32)
        return y

    return f, [(t(2),)] * 2


# ---- random numbers --------------------------------------------------------------------------


@cases()
def random_numbers():
    def f(x):
        return (
            torch.rand(3) + x, torch.randn_like(x), F.dropout(x, 0.5), torch.bernoulli(x.sigmoid()),
            torch.randint(0, 10, (2,)), torch.randperm(5), x.clone().uniform_(), torch.normal(x, 1.0),  # noqa: E501
            torch.multinomial(x.softmax(0), 2), x.clone().normal_(),
        )  # fmt: skip

    return f, [(t(3),)] * 3


@cases()
def random_order_across_functions():
    def noise(x):
        return x + torch.randn(3)

    def f(x):
        a = noise(x)
        b = [noise(x) for _ in range(3)]
        return a, b

    return f, [(t(3),)] * 2


@cases(breaks=0, graphs=1)
def python_random():
    import random

    def f(x):
        y = x * random.random()
        return y + random.random()

    return f, [(t(3),)] * 2


@cases(breaks=1, graphs=1)
def seeded_inside():
    def f(x):
        torch.manual_seed(5)
        return x + torch.rand(3)

    return f, [(t(3),)] * 2


@cases()
def generator_argument():
    g = torch.Generator().manual_seed(3)

    def f(x):
        return x + torch.rand(3, generator=g)

    return f, [(t(3),)] * 2


# ---- what a graph cannot hold ----------------------------------------------------------------


@cases()
def attribute_on_a_tensor():
    def f(x):
        y = x + 1
        y.tag = "mine"
        return y * 2, y, y.tag

    return f, [(t(3),)] * 2


@cases()
def attribute_of_a_tensor_read():
    x = t(3)
    x.scale = 2.0
    return lambda v: v * v.scale, [(x,)] * 2


@cases()
def hook_on_a_tensor():
    def f(x):
        y = x * 2
        y.register_hook(lambda g: g * 10)
        return (y * 3).sum()

    return f, [(grad(3),)] * 2


@cases(breaks=1, graphs=2)
def backward_inside():
    def f(x):
        y = (x * 2).sum()
        y.backward()
        return x.grad + 1

    return f, [(grad(3),)] * 2


@cases(breaks=1, graphs=1)
def autograd_grad_inside():
    def f(x):
        y = (x**2).sum()
        return torch.autograd.grad(y, x)[0]

    return f, [(grad(3),)] * 2


@cases(breaks=1, graphs=1)
def requires_grad_set_inside():
    def f(x):
        y = x + 1
        y.requires_grad_()
        return y

    return f, [(t(3),)] * 2


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 7


@cases()
def numpy_inside():
    def f(x):
        y = x * 2
        return y.numpy().sum()

    return f, [(t(3),)] * 2


@cases()
def data_assigned():
    def f(x):
        x.data = x.data * 2
        return x + 1

    return f, [(t(3),)] * 2


@cases(graphs=2, recompiles=1)
def data_read():
    def f(x):
        y = x * 3
        y.data.add_(1)
        return y, y.data, x.data * 2, x.data is x

    return f, [(t(3),), (grad(3),)]


@cases(graphs=2, breaks=1)
def sparse_inside():
    return lambda x: (x * 2).to_sparse().to_dense() + 1, [(torch.eye(3),)] * 2


@cases(graphs=0, breaks=1)
def sparse_argument():
    return lambda x: x * 2, [(torch.eye(3).to_sparse(),)] * 2


class Tagged(torch.Tensor):
    pass


@cases()
def subclass_argument():
    return lambda x: x * 2, [(t(3).as_subclass(Tagged),)] * 2


@cases()
def unused_argument():
    return lambda x, y, z=None: x + 1, [(t(3), object()), (t(3), [1, 2]), (t(3), t(4))]


@cases(graphs=0)
def nothing_to_do():
    return lambda x, y: (y, x), [(t(3), 1), (t(3), "a")]


@cases()
def conjugate_views():
    return lambda x: (x.conj() * 2, x.conj(), x.real), [(torch.complex(t(3), t(3)),)] * 2


@cases()
def partial_compiled():
    return functools.partial(lambda a, b, c=1: a * b + c, t(3), c=2), [(t(3),)] * 2


@cases()
def new_of_a_size():
    return lambda x: (x.new(x.shape).fill_(2), x.new((4.0, 6.0))), [(t(2, 3),)] * 2


@cases()
def keyword_call():
    return lambda x, *, scale: x * scale, [Call(t(3), scale=2), Call(x=t(3), scale=2)]


@cases()
def what_it_shows_of_its_class():
    p = torch.nn.Parameter(t(3, 4))
    return lambda x: ((x * 2).__module__, x.__doc__ is None, p.__module__, type(p).__doc__, x + p)


@pytest.mark.parametrize("case", cases, ids=str)
def test_tensors(case: Case) -> None:
    try:
        assert check(case) > 0
    finally:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
