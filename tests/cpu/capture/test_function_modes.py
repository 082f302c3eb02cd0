"""``TorchFunctionMode``: one that the frame enters is interpreted, and sees what eager shows it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()
t = torch.randn


class Swap(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.sin:
            return torch.cos(*args)
        return func(*args, **(kwargs or {}))


class Names(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(func.__name__)
        return func(*args, **(kwargs or {}))


@cases(graphs=2, recompiles=1)
def replaces_an_operation():
    def f(x):
        with Swap():
            y = torch.sin(x * 2) + 1
        return torch.sin(y)

    return f, [(t(3),), (t(4),)]


@cases()
def sees_what_eager_shows():
    mode, layer = Names(), nn.Linear(3, 3)

    def f(x):
        y = x * 2
        with mode:
            w = F.relu(layer(y))
            sizes = w.shape[0], w.dim(), len(w), w.size(0), w.dtype, w.requires_grad
            with torch.no_grad():
                ones = torch.ones(3) - w
            best, place = w[None].max(0)
            w = -w + 2
            w[0] = 1
            parts = w > 1, w.view(3, 1), torch.cat([w, w]), 2 - w, w.to(torch.float64)
        return torch.sin(w), sizes, ones, best, place, parts

    return f, [(t(3),), (t(3),)], [mode]


@cases(graphs=2, recompiles=1)
def nested_modes():
    class Twice(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            found = func(*args, **(kwargs or {}))
            return found * 2 if func is torch.cos else found

    def f(x):
        with Twice():
            with Swap():
                y = torch.sin(x)
            z = torch.sin(x)
        return y, z

    return f, [(t(3),), (t(4),)]


@cases()
def fills_in_an_argument():
    class Double(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            if func in (torch.ones, torch.zeros):
                kwargs["dtype"] = torch.float64
            return func(*args, **kwargs)

    def f(x):
        with Double():
            return x + torch.ones(3) + torch.zeros(3)

    return f, [(t(3),), (t(3),)]


@cases()
def raises():
    class Refuse(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func is torch.sin:
                raise ValueError("no sine")
            return func(*args, **(kwargs or {}))

    def f(x):
        y = x * 2
        try:
            with Refuse():
                y = torch.sin(y) + 1
        except ValueError as error:
            return y.cos(), str(error)
        return y

    return f, [(t(3),), (t(3),)]


@cases(graphs=2, breaks=1)
def block_that_breaks():
    """All of it runs natively."""
    mode = Names()

    def f(x):
        y = x * 2
        with mode:
            y = torch.sin(y) + 1
            if y.sum() > 0:
                y = y * 2
        return torch.sin(y)

    return f, [(t(3),), (t(3),)], [mode]


@cases(graphs=2, breaks=1)
def method_that_prints():
    class Telling(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            print("operation", func.__name__)
            return func(*args, **(kwargs or {}))

    def f(x):
        y = x * 2
        with Telling():
            y = torch.sin(y) + 1
        return torch.sin(y)

    return f, [(t(3),), (t(3),)]


@pytest.mark.parametrize("case", cases, ids=str)
def test_captured_as_in_eager(case: Case):
    assert check(case) > 0
