"""What a program asks about types, signatures, namespaces and identities."""

from __future__ import annotations

import collections
import inspect
import types
import typing

import pytest
import torch

from tests.cpu.capture.oracle import Case, Cases, check
from tests.cpu.capture.test_objects import Scale

cases = Cases()
t = torch.randn


@cases()
def types_asked():
    class Sub(Scale):
        pass

    s = Sub(1)

    def f(x):
        return (
            type(x) is torch.Tensor, isinstance(x, torch.Tensor), isinstance(s, Scale),
            isinstance(x, (int, torch.Tensor)), type(s) is Scale, type(s).__name__, s.__class__,
            issubclass(Sub, Scale), isinstance(1, int | str), x.__class__, callable(s),
            isinstance(x, torch.nn.Parameter), type(x).__name__, isinstance(True, int), x + 1,
            isinstance([], collections.abc.Sequence), isinstance(s, collections.abc.Callable),
        )  # fmt: skip

    return f


@cases()
def parameter_types():
    p = torch.nn.Parameter(t(4))

    def f(x):
        return x * p, type(p) is torch.nn.Parameter, isinstance(p, torch.nn.Parameter), type(p + 0)

    return f


@cases()
def signatures():
    def g(a, b=1, *c, d, **e):
        return a

    def f(x):
        s = inspect.signature(g)
        bound = s.bind(x, d=1)
        return x + 1, list(s.parameters), s.parameters["b"].default, bound.arguments["a"], str(s)

    return f


@cases()
def namespaces():
    space = types.SimpleNamespace(k=2.0, deep=types.SimpleNamespace(v=torch.ones(2)))

    def f(x):
        made = types.SimpleNamespace(a=x, b=1)
        made.c = made.b + 1
        space.last = x * space.k + space.deep.v
        return made, space.last, vars(made)["c"], sorted(made.__dict__)

    return f, [(t(2),)] * 2, [space]


@cases()
def instance_dict():
    s = Scale(2.0)

    def f(x):
        d = s.__dict__
        own = Scale(x)
        own.__dict__.update(j=1)
        vars(own)["i"] = 2
        return x * d["k"], list(d), "k" in vars(s), own.i + own.j, own.__dict__

    return f, [(t(2),)] * 2, [s]


@cases()
def instance_dict_after_a_write():
    s = Scale(2.0)

    def f(x):
        s.k = x + 1
        return s.__dict__["k"] * 2, vars(s)

    return f, [(t(2),)] * 2, [s]


@cases(graphs=2, recompiles=1)
def instance_dict_and_attributes():
    s = Scale(2.0)

    def f(x):
        d = s.__dict__
        s.k = x + 1
        d["other"] = x + 2
        y = d["k"] * s.other
        d["k"] = 3.0
        del d["other"]
        return y, s.k, hasattr(s, "other"), list(d)

    return f, [(t(2),)] * 3, [s]


@cases()
def mapping_proxy_and_dir():
    class K:
        a = 1
        b = 2

    def f(x):
        return x + 1, [k for k in vars(K) if len(k) == 1], K.__dict__["a"], "b" in K.__dict__

    return f


@cases()
def class_getitem_and_generic():
    T = typing.TypeVar("T")

    class Box(typing.Generic[T]):
        def __init__(self, v):
            self.v = v

    class K:
        def __class_getitem__(cls, item):
            return item * 2

    return lambda x: (Box(x).v + 1, K[3], Box[int](x).v)


@cases()
def instancecheck_hooks():
    class Meta(type):
        def __instancecheck__(cls, obj):
            return hasattr(obj, "quack")

    class Duck(metaclass=Meta):
        pass

    class Q:
        quack = 1

    return lambda x: (x + 1, isinstance(Q(), Duck), isinstance(1, Duck))


@cases()
def object_graph_shared():
    def f(x):
        a = Scale(x)
        b = Scale(a)
        a.other = b
        shared = [x + 1]
        return [a, b, shared, shared, {"a": a, "s": shared}], shared[0]

    return f


@cases()
def equality_of_external_objects():
    a, b = Scale(1), Scale(1)
    return lambda x: (x + 1, a == b, a != b, a is b, a in [b, a], [a, b].index(b))


@pytest.mark.parametrize("case", cases, ids=str)
def test_introspection(case: Case) -> None:
    assert check(case) > 0
