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


class AddsTo(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.mark_dirty(x)
        ctx.save_for_backward(y)
        return x.add_(y), y * 2

    @staticmethod
    def backward(ctx, g, h):
        (y,) = ctx.saved_tensors
        return g, g * y + h


def _handled(x, y):
    try:
        AddsTo.apply(x, y)
    except RuntimeError:
        return y * 3
    return y * 2


def _in_a_block(x, y):
    with torch.enable_grad():
        return AddsTo.apply(x, y)[1] * y


def _of_a_view(x, y):
    try:
        AddsTo.apply(x[1:], y[1:])
    except RuntimeError:
        return y * 3
    return y * 2


def _of_both(x, y):
    x = x * 1
    return AddsTo.apply(x, x)[1]._version, x._version, MarksTwice.apply(x, y)[0]._version, x * y


def _of_one_of_several(x, y):
    try:
        AddsTo.apply(x.unbind()[1], y[1])
    except RuntimeError:
        return y * 3
    return y * 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "function", [_handled, _in_a_block, _of_a_view, _of_one_of_several, _of_both]
)
def test_a_leaf_in_one_call_and_none_in_another(function, backend):
    """Autograd's error comes behind what forward has written, and only for the leaf."""
    for order in ((True, False, True), (False, True, False)):
        refcompiler.reset()
        call = refcompiler.compile(function, backend=backend)
        for leaf in order:
            sides = []
            for each in (call, function):
                x, y = torch.ones(3, requires_grad=True), torch.full((3,), 2.0, requires_grad=True)
                x = x if leaf else x * 1
                try:
                    found = each(x, y)
                    found = [t.tolist() if isinstance(t, torch.Tensor) else t for t in found]
                except RuntimeError as error:
                    found = str(error).partition(".")[0]
                sides.append([found, x.tolist(), x._version])
            assert sides[0] == sides[1]
