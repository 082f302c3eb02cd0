"""``autograd.Function`` without zeros for gradients, and with what it leaves with ``ctx``."""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import refcompiler
from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()
t = torch.randn


def pairs(count=2):
    return [tuple(t(3).requires_grad_() for _ in range(2)) for _ in range(count)]


@cases(graphs=1)
def gradients_that_are_not_made_of_zeros():
    class Best(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            total = x.sum()
            ctx.mark_non_differentiable(total)
            ctx.save_for_backward(x)
            return x.argmax(0), total, x * 2

        @staticmethod
        def backward(ctx, of_place, of_total, gradient):
            assert of_place is None and of_total is None
            return gradient * ctx.saved_tensors[0]

    def f(x):
        place, total, y = Best.apply(x)
        return place, total, y * total

    return f, [(t(3).requires_grad_(),), (t(3).requires_grad_(),)]


class Both(torch.autograd.Function):
    """Reads another intermediate for each of its two gradients, and gives one to what it can."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        ctx.sine = x.sin()
        ctx.save_for_backward(x, y)
        return ctx.sine * y, x + y.exp(), x > 0

    @staticmethod
    def backward(ctx, first, second, of_mask):
        assert of_mask is None
        x, y = ctx.saved_tensors
        if first is None:
            return second, second * y.exp()
        if second is None:
            return first * x.cos() * y, None
        return first * y * ctx.sine + second, first * x


def using(choose, **expected):
    def case():
        def f(x, y):
            return choose(*Both.apply(x, y))

        return f, pairs()

    case.__name__ = choose.__name__.strip("<>") + str(len(list(cases)))
    cases(graphs=1, **expected)(case)


using(lambda a, b, m: a * m)
using(lambda a, b, m: b.sin())
using(lambda a, b, m: a.sum() + b)
using(lambda a, b, m: (a.detach(), b.detach(), m))


@cases(graphs=2, recompiles=1)
def the_gradients_that_there_are_change():
    return (
        lambda x, y, which: Both.apply(x, y)[which] * 2,
        [(*pair, which) for pair, which in zip(pairs(3), (0, 1, 0), strict=True)],
    )


class Careless(torch.autograd.Function):
    """Raises where only the second output has a gradient."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, first, second):
        return first * 2 if second is None else first * 2 + second


@cases(graphs=1)
def a_backward_that_looks_for_no_none():
    return lambda x, y: Careless.apply(x)[0] + y, pairs()


class Quiet(torch.autograd.Function):
    """Gives nothing where it is given nothing."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return None if gradient is None else gradient * 3


@cases(graphs=1)
def no_output_has_a_gradient():
    """Autograd's function of a list calls those of all operands."""
    return lambda x, y: torch._foreach_mul([Quiet.apply(x), y], 2.0)[1], pairs()


class Four(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3, x * 4, x * 5

    @staticmethod
    def backward(ctx, *given):
        return sum(g * i for i, g in enumerate(given) if g is not None)


@cases(graphs=1, breaks=1)
def more_outputs_than_are_tried():
    return lambda x, y: sum(Four.apply(x)[1:3]) * y, pairs()


@pytest.mark.parametrize("case", cases, ids=str)
def test_captured_as_in_eager(case: Case) -> None:
    assert check(case) > 0


def test_a_backward_raises_what_it_raises_in_eager() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return Careless.apply(x)[1]

    errors = []
    for function in (f, refcompiler.compile(f, backend="eager", fullgraph=True)):
        with pytest.raises(TypeError) as caught:
            function(t(3).requires_grad_()).sum().backward()
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


class LeftWithContext(torch.autograd.Function):
    """Its mask and its slope are attributes of ``ctx``, of which autograd does not know."""

    @staticmethod
    def forward(ctx, x):
        ctx.mask = torch.rand(4)
        ctx.slope = x.detach() * 2
        ctx.save_for_backward(x)
        return x * 3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.mask + ctx.slope * x


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("preserve", [True, False, None])
def test_what_is_left_with_the_context_is_not_computed_again(preserve, backend):
    """A checkpoint computes again what is saved; attributes are those of its first run."""
    refcompiler.reset()

    def f(x):
        if preserve is None:
            return LeftWithContext.apply(x * 2)
        options = {"use_reentrant": False, "preserve_rng_state": preserve}
        return checkpoint(lambda p: LeftWithContext.apply(p * 2), x, **options)

    call = refcompiler.compile(f, backend=backend, fullgraph=True)
    for written in (False, True):
        sides = []
        for each in (call, f):
            torch.manual_seed(4)
            x = torch.linspace(1, 2, 4).requires_grad_()
            u = x * 1
            result = each(u)
            if written:
                u.data.mul_(2)
            result.sum().backward()
            sides.append([result.tolist(), x.grad.tolist(), torch.get_rng_state().tolist()])
        assert sides[0] == sides[1]


class Tripled(torch.autograd.Function):
    """Saves nothing."""

    @staticmethod
    def forward(ctx, x, y):
        return x * 3, y * 2

    @staticmethod
    def backward(ctx, first, second):
        return first * 3, second * 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_saves_nothing_may_run_again(backend):
    call = refcompiler.compile(lambda x, y: Tripled.apply(x, y), backend=backend)
    for _ in range(2):
        x, y = pairs(1)[0]
        first, second = call(x, y)
        for result in (first, second, first):
            result.sum().backward()
        assert x.grad.tolist() == [6.0] * 3 and y.grad.tolist() == [2.0] * 3
    assert refcompiler.counters()["graphs"] == 1
