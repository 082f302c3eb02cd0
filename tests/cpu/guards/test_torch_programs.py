"""Soundness: programs of tensors, arrays and modules, with a change between their calls."""

from __future__ import annotations

import types

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from tests.cpu.guards.history import Box, Programs, attempt, check
from tests.cpu.guards.history import small as _x

program = Programs()


@program
def tensor_grad_fn(compile):
    f = compile(lambda x: x * 2 if x.grad_fn is None else x * 3)
    yield f(_x())
    yield f(_x().requires_grad_() * 1)


@program
def tensor_hooks(compile):
    log = []
    f = compile(lambda x: (x * 2).sum())
    x = _x().requires_grad_()
    f(x).backward()
    yield x.grad.clone(), len(log)
    x.register_hook(lambda g: log.append(1))
    f(x).backward()
    yield x.grad.clone(), len(log)


@program
def param_alias(compile):
    a, b = nn.Linear(3, 3), nn.Linear(3, 3)
    m = nn.Sequential(a, b)
    f = compile(m)
    yield f(_x())
    b.weight = a.weight
    yield f(_x())
    with torch.no_grad():
        a.weight.add_(1)
    yield f(_x())
    b.weight = nn.Parameter(torch.eye(3))
    yield f(_x())


@program
def buf_mut_alias(compile):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.register_buffer("a", torch.zeros(3))
            s.register_buffer("b", torch.zeros(3))

        def forward(s, x):
            s.a.add_(1)
            return x * s.b + s.a

    m = M()
    f = compile(m)
    yield f(_x())
    m.b = m.a
    yield f(_x())
    yield f(_x())


@program
def train_norm(compile):
    m = nn.BatchNorm1d(3)
    f = compile(m)
    yield f(_x()), m.running_mean.clone()
    m.eval()
    yield f(_x()), m.running_mean.clone()
    m.train()
    m.momentum = None
    yield f(_x()), m.running_mean.clone()
    m.track_running_stats = False
    yield f(_x()), m.running_mean.clone()


@program
def parametrize(compile):
    m = nn.Linear(3, 3)
    f = compile(m)
    yield f(_x())

    class D(nn.Module):
        def forward(s, w):
            return w * 2

    torch.nn.utils.parametrize.register_parametrization(m, "weight", D())
    yield f(_x())
    torch.nn.utils.parametrize.remove_parametrizations(m, "weight")
    yield f(_x())


@program
def weightnorm(compile):
    m = nn.Linear(3, 3)
    f = compile(m)
    yield f(_x())
    torch.nn.utils.weight_norm(m)
    m.weight_g.data.mul_(2)
    yield f(_x())
    torch.nn.utils.remove_weight_norm(m)
    yield f(_x())


@program
def pruned(compile):
    m = nn.Linear(3, 3)
    f = compile(m)
    yield f(_x())
    prune.l1_unstructured(m, "weight", amount=0.5)
    yield f(_x())
    prune.remove(m, "weight")
    yield f(_x())


@program
def functional_call_(compile):
    m = nn.Linear(3, 3)
    f = compile(m)
    yield f(_x())
    yield torch.func.functional_call(m, {"weight": torch.eye(3)}, (_x(),))
    yield torch.func.functional_call(f, {"weight": torch.eye(3)}, (_x(),))
    yield f(_x())


@program
def swap_forward_of_compiled(compile):
    m = nn.Linear(3, 3)
    f = compile(m)
    yield f(_x())
    m.forward = types.MethodType(lambda self, x: x * 3, m)
    yield f(_x())
    del m.forward
    yield f(_x())


@program
def call_impl_patch(compile):
    m = nn.Linear(3, 3)
    f = compile(m)
    yield f(_x())

    class L2(nn.Linear):
        def __call__(self, *a):
            return super().__call__(*a) * 2

    m.__class__ = L2
    yield f(_x())


@program
def torch_dtype_attr(compile):
    b = Box(torch.float32)
    f = compile(lambda x: x.to(b.k))
    yield f(_x())
    b.k = torch.float64
    yield f(_x())
    b.k = torch.device("meta")
    yield f(_x())


@program
def float_shapes(compile):
    f0 = compile(lambda x: x.reshape(x.shape[0], -1) * x.numel())

    def f(x):
        return attempt(f0, x)

    yield f(_x())
    yield f(torch.ones(3, 2))
    yield f(torch.ones(2, 3, 2))
    yield f(torch.ones(0, 3))


@program
def memo_format(compile):
    f = compile(lambda x: (x * 2, x.is_contiguous(memory_format=torch.channels_last)))
    x = torch.ones(1, 2, 3, 3)
    yield f(x)
    yield f(x.to(memory_format=torch.channels_last))
    yield f(torch.ones(1, 1, 3, 3))


@program
def autocast_inside(compile):
    def f(x, on):
        with torch.autocast("cpu", torch.bfloat16, enabled=on):
            return x @ x.t()

    g = compile(f)
    yield g(_x(), True)
    yield g(_x(), False)


@program
def saved_hooks(compile):
    log = []
    f = compile(lambda x: (x.sin() * x).sum())
    x = _x().requires_grad_()
    f(x).backward()
    yield len(log)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: log.append(1) or t, lambda t: t):
        f(x).backward()
    yield len(log)


@program
def anomaly(compile):
    f = compile(lambda x: x * 2 if torch.is_anomaly_enabled() else x)
    yield f(_x())
    with torch.autograd.detect_anomaly():
        yield f(_x())


@program
def numpy_dtype(compile):
    np = pytest.importorskip("numpy")
    f = compile(lambda x, n: x * float(n))
    yield f(_x(), np.float32(2))
    yield f(_x(), np.float64(2.5))
    yield f(_x(), np.float64("nan"))
    yield f(_x(), np.int8(3))


@program
def np_array_global(compile):
    np = pytest.importorskip("numpy")
    a = np.ones(3)
    f = compile(lambda x: x * a.sum() + a.shape[0])
    yield f(_x())
    a[0] = 5
    yield f(_x())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", program)
def test_program(name):
    assert not check(program[name]).fallbacks
