"""Tensors made of other tensors: wrapper subclasses with a ``__torch_dispatch__``."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils.checkpoint import checkpoint

from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()
t = torch.randn


class Two(torch.Tensor):
    """Each operation is done to both tensors."""

    @staticmethod
    def __new__(cls, a, b):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            a.size(),
            strides=a.stride(),
            dtype=a.dtype,
            device=a.device,
            requires_grad=a.requires_grad,
        )

    def __init__(self, a, b):
        self.a, self.b = a, b

    def __tensor_flatten__(self):
        return ["a", "b"], None

    @classmethod
    def __tensor_unflatten__(cls, inner, meta, size, stride):
        return cls(inner["a"], inner["b"])

    def tolist(self):
        return [self.a.tolist(), self.b.tolist()]

    def swapped(self):
        return type(self)(self.b, self.a)

    @property
    def total(self):
        return self.a + self.b

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        found = []
        for name in ("a", "b"):
            inner = pytree.tree_map_only(Two, lambda x, n=name: getattr(x, n), (args, kwargs))
            found.append(pytree.tree_flatten(func(*inner[0], **inner[1])))
        (first, spec), (second, _) = found
        made = [
            cls(x, y) if isinstance(x, torch.Tensor) else x
            for x, y in zip(first, second, strict=True)
        ]
        out = pytree.tree_unflatten(made, spec)
        return return_and_correct_aliasing(func, args, kwargs, out)


class Scaled(torch.Tensor):
    """Integers and a number that they are multiplied by."""

    @staticmethod
    def __new__(cls, data, scale):
        return torch.Tensor._make_wrapper_subclass(cls, data.size(), dtype=torch.float32)

    def __init__(self, data, scale):
        self.integers, self.scale = data, scale

    def __tensor_flatten__(self):
        return ["integers"], {"scale": self.scale}

    @staticmethod
    def __tensor_unflatten__(inner, meta, size, stride):
        return Scaled(inner["integers"], meta["scale"])

    def dequantize(self):
        return self.integers.float() * self.scale

    def tolist(self):
        return self.integers.tolist()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            made = Scaled(args[0].integers, args[0].scale)
            return return_and_correct_aliasing(func, args, kwargs or {}, made)
        return func(*pytree.tree_map_only(Scaled, Scaled.dequantize, args), **(kwargs or {}))


class Rectified(Two):
    """With a ``__torch_function__``, which sees what the program writes."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is F.relu:
            return Two(args[0].a * 10, args[0].b * 10)
        return super().__torch_function__(func, types, args, kwargs or {})


class Replacing(Two):
    """Some of its operations in place are none for the tensors inside."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.add_.Tensor:
            args[0].a = args[0].a + args[1]
            return args[0]
        return Two.__torch_dispatch__.__func__(cls, func, types, args, kwargs)


def two(*sizes):
    return Two(t(*sizes), t(*sizes))


def scaled(scale, dtype=torch.int8):
    return Scaled(torch.randint(-9, 9, (3, 3)).to(dtype), scale)


@cases()
def argument():
    return lambda x: x.sin() + 1, [(two(3),), (two(3),)]


@cases()
def identity():
    return lambda x: (x, x.a, x.a * 2, x.total), [(two(3),), (two(3),)]


@cases()
def made_from_arguments():
    def f(a, b):
        w = Two(a, b)
        y = w * 2
        return y.a + y.b, y.swapped(), type(y) is Two, isinstance(y, Two), hasattr(y, "c")

    return f, [(t(3), t(3)), (t(3), t(3))]


@cases()
def gradients_of_a_parameter():
    m = nn.Linear(3, 3)
    m.weight = nn.Parameter(Two(t(3, 3), t(3, 3)))
    return lambda x: m(Two(x, x + 1)).total.sum(), [(t(2, 3),), (t(2, 3),)], [m]


@cases()
def quantised_weight():
    m = nn.Linear(3, 3)
    m.weight = nn.Parameter(scaled(0.5), requires_grad=False)
    return lambda x: m(x).relu(), [(t(2, 3),), (t(2, 3),)]


@cases(graphs=2, recompiles=1)
def another_scale():
    calls = [(scaled(s), t(2, 3)) for s in (0.5, 0.25, 0.5)]
    return lambda w, x: F.linear(x, w) * w.scale, calls


@cases(graphs=2, recompiles=1)
def another_dtype_inside():
    return lambda w: w.dequantize() + w, [(scaled(1.0, d),) for d in (torch.int8, torch.int16)]


@cases(graphs=2, recompiles=1)
def other_sizes():
    return lambda x: x * 2, [(two(3),), (two(4),), (two(3),)]


@cases()
def mutated():
    def f(x):
        y = x.view(4)
        y.mul_(2)
        x.a.add_(1)
        return y, x.t()

    return f, [(two(2, 2),), (two(2, 2),)]


@cases()
def shared_inside():
    a = t(3)

    def f(x, y, z):
        x.add_(1)
        z.mul_(3)
        return y * 2

    return f, [(Two(a, t(3)), Two(a, t(3)), a), (two(3), two(3), t(3))]


@cases()
def replaced_inside():
    def f(x):
        before = x.a
        x.add_(1)
        return x.a * 2, before, x.a is before

    return f, [(Replacing(t(3), t(3)),) for _ in range(2)]


@cases(graphs=2, breaks=1)
def across_a_break():
    def f(x):
        y = x * 2
        print("between")
        return (y + 1).sin()

    return f, [(two(2).requires_grad_(),), (two(2).requires_grad_(),)]


@cases(graphs=3, breaks=2)
def views_across_breaks():
    def f(x):
        y = x.view(4)
        print("first")
        y.mul_(2)
        z = y[1:]
        print("second")
        z.add_(1)
        return y, z, x

    return f, [(two(2, 2),), (two(2, 2),)]


@cases(graphs=0, breaks=1)
def that_do_not_say_what_they_are_made_of():
    class Silent(Two):
        def __tensor_flatten__(self):
            raise RuntimeError("no")

    return lambda x: (x, x.a is x.b), [(Silent(t(3), t(3)),) for _ in range(2)]


@cases()
def inside_others():
    return lambda x: x.sin() * 2, [(Two(two(3), two(3)),), (Two(two(3), two(3)),)]


@cases()
def in_a_region():
    w = two(3, 3).requires_grad_()
    return lambda x: checkpoint(lambda v: (v @ w).sin(), x, use_reentrant=False), [
        (two(3, 3),),
        (two(3, 3),),
    ]


@cases()
def attributes_of_the_programs():
    def f(x):
        x.tag = 3
        return x * x.tag

    return f, [(two(3),), (two(3),)]


@cases()
def with_a_function():
    def f(x):
        return F.relu(x), x + 1

    return f, [(Rectified(t(3), t(3)),) for _ in range(2)]


@pytest.mark.parametrize("case", cases, ids=str)
def test_captured_as_in_eager(case: Case):
    assert check(case) > 0
