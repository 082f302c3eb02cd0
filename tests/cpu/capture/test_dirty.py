"""What an ``autograd.Function`` marks as dirty, where no gradient flows through it."""

from __future__ import annotations

import pytest
import torch

import refcompiler


class MarksTwice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.mark_dirty(x, x)
        x.mul_(3)
        return x, y, x * y

    @staticmethod
    def backward(ctx, g, h, k):
        return g * 3, h


class MarksInside(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.mark_dirty(x, y)
        return y, x

    @staticmethod
    def backward(ctx, g, h):
        return g + h


class MarksAlone(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(3) * 2

    @staticmethod
    def backward(ctx, g):
        return g


def _marked(function, *inputs):
    """What is seen of a function of autograd through which no gradient flows."""
    try:
        found = function(*inputs)
    except RuntimeError as error:
        return str(error), [t._version for t in inputs]
    found = found if isinstance(found, tuple) else (found,)
    seen = [
        (t.detach().tolist(), t._version, t.requires_grad, t._is_view(), [t is x for x in inputs])
        for t in (*found, *inputs)
    ]
    found[0].add_(1)
    return seen, [t._version for t in (*found, *inputs)], [t.tolist() for t in inputs]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("kind", [MarksTwice, MarksInside, MarksAlone], ids=lambda k: k.__name__)
def test_what_a_function_without_gradients_marks_as_dirty(kind, backend):
    refcompiler.reset()
    inputs = 2 if kind is MarksTwice else 1
    call = refcompiler.compile(lambda *given: kind.apply(*given), backend=backend)
    for switched, tracked in ((False, False), (True, False), (True, True)):
        for _ in range(2):
            sides = []
            for function in (call, kind.apply):
                given = [torch.ones(3).requires_grad_(tracked) * 1 for _ in range(inputs)]
                with torch.set_grad_enabled(not switched):
                    sides.append(_marked(function, *given))
            assert sides[0] == sides[1]
    assert refcompiler.counters()["breaks"] == (2 if kind is MarksAlone else 0)
