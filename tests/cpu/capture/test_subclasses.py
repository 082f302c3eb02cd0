"""Subclasses of tensors: their classes, methods, and what they make of torch's functions."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()
t = torch.randn


def grad(*s):
    return torch.randn(*s, requires_grad=True)


class Tagged(torch.Tensor):
    factor = 3

    @property
    def twice(self):
        return self * 2

    def scaled(self, by=2):
        return self * by * self.factor

    @classmethod
    def of(cls, x):
        return x.as_subclass(cls)


class Counting(torch.Tensor):
    calls = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


class Doubling(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.add or func is torch.Tensor.add:
            func = torch.mul
        return super().__torch_function__(func, types, args, kwargs)


class Plain(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl


class Adding(torch.Tensor):
    def __add__(self, other):
        return "added"


class MyParameter(nn.Parameter):
    pass


def tagged(*s, cls=Tagged):
    return t(*s).as_subclass(cls)


@cases()
def operations():
    def f(x):
        y = x * 2
        return y + 1, type(y).__name__, isinstance(y, Tagged), isinstance(y, torch.Tensor), y.shape

    return f, [(tagged(3),), (tagged(3),)]


@cases()
def mixed_with_plain_tensors():
    def f(x, z):
        y = z * 2
        return x + y, y, y - x, F.linear(y, x), torch.cat([y, y]), torch.stack([x, y])

    return f, [(tagged(3), t(3)), (tagged(3), t(3))]


@cases()
def methods_and_properties():
    def f(x):
        return x.twice, x.scaled(), x.scaled(5), x.factor, (x * 2).twice, Tagged.of(x.data)

    return f, [(tagged(3),), (tagged(3),)]


@cases(graphs=2, recompiles=1)
def class_attribute_changed():
    def f(x):
        return x.scaled()

    def change():
        Tagged.factor = 7

    def back():
        Tagged.factor = 3

    return f, [(x := tagged(3),), change, (x,), back]


@cases()
def attributes():
    def mk():
        x = tagged(3)
        x.k = 3
        return x

    def f(x):
        y = x * x.k
        y.k = 4
        return y, y.k, hasattr(x, "other")

    return f, [(mk(),), (mk(),)]


@cases()
def gradients():
    def f(x):
        y = x * 2
        return y.sum(), y, x.requires_grad, x.is_leaf

    return f, [(grad(3).as_subclass(Tagged),), (grad(3).as_subclass(Tagged),)]


@cases()
def gradients_of_a_leaf():
    def f(x):
        return (x * x).sum()

    return f, [(tagged(3).requires_grad_(),), (tagged(3).requires_grad_(),)]


@cases()
def in_place():
    def f(x):
        y = x.add_(1)
        x[0] = 5
        y.mul_(2)
        return x, y is x, type(y).__name__

    return f, [(tagged(3),), (tagged(3),)]


@cases()
def views_and_results_in_containers():
    def f(x):
        return x[0], x.T, x.view(-1), x.split(1), x.max(0), {"x": x.sum()}, [*x], x.data, x.detach()

    return f, [(tagged(3, 4),), (tagged(3, 4),)]


@cases()
def identity():
    def f(x, y):
        return x is y, x, x + y

    x = tagged(3)
    return f, [(x, tagged(3)), (tagged(3), x)]


@cases(graphs=2, recompiles=1)
def class_of_an_argument():
    def f(x):
        return x * 2 if isinstance(x, Tagged) else x * 3

    return f, [(tagged(3),), (t(3),), (tagged(3),)]


@cases()
def function_that_rewrites():
    def f(x):
        return torch.add(x, 3), x.add(2), x + 1, x.shape, x * 2

    return f, [(tagged(3, cls=Doubling),), (tagged(3, cls=Doubling),)]


@cases()
def function_with_side_effects():
    def f(x):
        y = torch.sin(x * 2 + 1)
        return y[0], -y, x.size(0), x.T

    Counting.calls = []
    return f, [(tagged(3, 3, cls=Counting),), (tagged(3, 3, cls=Counting),)], [Counting.calls]


@cases()
def function_that_is_disabled():
    def f(x):
        y = x * 2
        return y, type(y).__name__, type(x).__name__

    return f, [(tagged(3, cls=Plain),), (tagged(3, cls=Plain),)]


@cases(graphs=0, breaks=1)
def operator_of_its_own():
    return lambda x: (x + 1, x * 2), [(tagged(3, cls=Adding),), (tagged(3, cls=Adding),)]


@cases(breaks=1)
def two_subclasses():
    return lambda x, y: x * 2 + y, [
        (tagged(3), tagged(3, cls=Counting)),
        (tagged(3), tagged(3, cls=Counting)),
    ]


@cases()
def made_inside():
    def f(x):
        y = (x * 2).as_subclass(Tagged)
        z = y.as_subclass(torch.Tensor)
        return y * 2, z * 2, type(y).__name__, type(z).__name__

    return f, [(t(3),), (t(3),)]


@cases(graphs=3, breaks=1, recompiles=1)
def given_back_across_a_break():
    def f(x):
        y = x * 2
        n = x.sum().item()
        return y * n, type(y).__name__

    return f, [(tagged(3),), (tagged(3),)]


@cases()
def parameters():
    p = MyParameter(t(3))

    def f(x):
        return x * p, isinstance(p, nn.Parameter), type(p).__name__

    return f, [(t(3),), (t(3),)], [p]


@cases()
def parameters_of_a_module():
    m = nn.Linear(3, 3)
    m.weight = MyParameter(m.weight.detach())
    return lambda x: m(x), [(t(2, 3),), (t(2, 3),)], [m]


@cases(graphs=2, recompiles=1)
def attributes_that_the_class_has_too():
    first, second = tagged(3), tagged(3)

    def f(x):
        y = x * x.factor
        y.factor, before = 5, y.factor
        return y, y.factor, before, (y + 1).factor, x.scaled()

    def change():
        second.factor = 7

    return f, [(first,), (second,), change, (second,)], [second]


@cases()
def without_torch_functions():
    def f(x):
        with torch._C.DisableTorchFunctionSubclass():
            y = x * 2
            enabled = torch._C._is_torch_function_enabled()
        z = torch.stack([x, y])
        return y, type(y).__name__, z, type(z).__name__, enabled

    return f, [(tagged(3),), (tagged(3),)]


@cases(graphs=1, breaks=2)
def a_break_without_torch_functions():
    def f(x):
        try:
            with torch._C.DisableTorchFunctionSubclass():
                y = x * x.sum().item()
                raise ValueError
        except ValueError:
            return y, type(y).__name__, x * 3

    return f, [(tagged(3),), (tagged(3),)]


@cases(graphs=1, breaks=1, recompiles=1)
def called_without_torch_functions():
    return lambda x: x * 2, [(tagged(3),), switched_off, (tagged(3),), switched_on, (tagged(3),)]


def switched_off():
    torch._C._set_torch_function_state(torch._C._TorchFunctionState.SUBCLASSES_DISABLED)


def switched_on():
    torch._C._set_torch_function_state(torch._C._TorchFunctionState.ENABLED)


class Scalar:
    """No tensor, but torch's functions take it; each tells its name."""

    told: list = []

    def __init__(self, value):
        self.value = value

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.told.append((func.__name__, [kind.__name__ for kind in types]))
        args = [a.value if isinstance(a, Scalar) else a for a in args]
        return func(*args, **(kwargs or {}))

    def __add__(self, other):
        return torch.mul(other, self)


class Declining:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Scalar.told.append("declined")
        return NotImplemented


@cases(graphs=1)
def objects_that_torch_asks():
    known = Scalar(torch.ones(4))
    Scalar.told.clear()

    def f(x):
        known.value = known.value + 1
        return (
            torch.add(x, Scalar(2.0)), Scalar(3.0) + x, x + Scalar(1.0), x.sub(known),
            F.softmax(Scalar(x), dim=-1), F.layer_norm(known, (4,)), F.linear(x, Scalar(t(2, 4))),
        )  # fmt: skip

    return f, [(t(3, 4),), (t(3, 4),)], [Scalar.told, [known]]


@cases(graphs=2, breaks=1)
def objects_that_decline():
    Scalar.told.clear()

    def f(x):
        y = x * 2
        try:
            torch.add(y, Declining())
        except TypeError as error:
            Scalar.told.append(str(error)[:30])
        return y.sin()

    return f, [(t(3),), (t(3),)], Scalar.told


@pytest.mark.parametrize("case", cases, ids=str)
def test_captured_as_in_eager(case: Case):
    assert check(case) > 0
