"""Transformations of functions, checkpoints, branches, loops and custom gradients.

PYTEST_DONT_REWRITE: the assertions inside the cases are part of them.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import refcompiler
from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()
t = torch.randn
torch.func.jacfwd(torch.sin)(t(1))  # what torch loads at its first use warns


def grad(*shape):
    return torch.randn(*shape, requires_grad=True)


# ---- torch.func -------------------------------------------------------------------------------


@cases()
def vmap_of_two():
    def f(x, y):
        return torch.vmap(lambda a, b: (a * b).sum())(x, y) + 1

    return f, [(t(4, 3), t(4, 3)), (t(4, 3), t(4, 3))]


@cases()
def vmap_reads_the_frame():
    def f(x, w):
        scale = w.sum()
        return torch.vmap(lambda a: (a @ w).relu() * scale, in_dims=1, out_dims=1)(x)

    return f, [(t(3, 4), grad(3, 3))] * 2


_OUTSIDE = torch.vmap(lambda a: a.sin() * 2)


@cases()
def vmap_made_outside():
    return lambda x: _OUTSIDE(x) + 1, [(t(4, 3),)] * 2


@cases(recompiles=1, graphs=2)
def vmap_sees_a_changed_closure():
    scale = 2.0
    mapped = torch.vmap(lambda a: a * scale)

    def change():
        nonlocal scale
        scale = 3.0

    return lambda x: mapped(x), [(t(3),), change, (t(3),)]


@cases()
def vmap_with_a_tree():
    def f(x, y):
        return torch.vmap(lambda d, k: {"s": d["x"] + d["y"] * k}, in_dims=(0, None))(
            {"x": x, "y": y}, 2
        )

    return f, [(t(4, 3), t(4, 3))] * 2


@cases()
def vmap_in_vmap():
    return lambda x: torch.vmap(torch.vmap(lambda a: a * a + 1))(x), [(t(4, 3),)] * 2


@cases(graphs=2, recompiles=1)
def vmap_appends_once():
    seen = []

    def f(x):
        def body(a):
            seen.append("once")
            return a + len(seen)

        return torch.vmap(body)(x)

    return f, [(t(4, 3),)] * 2, [seen]


@cases()
def gradient():
    def f(x, w):
        return torch.func.grad(lambda a: ((a @ w).sin() ** 2).sum())(x)

    return f, [(t(4, 3), t(3, 3)), (t(4, 3), grad(3, 3))][:1] * 2


@cases()
def gradient_and_value_with_aux():
    def f(x):
        return torch.func.grad_and_value(lambda a: ((a**2).sum(), a * 2), has_aux=True)(x)

    return f, [(t(4, 3),)] * 2


@cases()
def gradient_per_sample():
    m = nn.Linear(3, 3)

    def f(x):
        parameters = {k: v.detach() for k, v in m.named_parameters()}

        def loss(p, a):
            return torch.func.functional_call(m, p, (a,)).pow(2).sum()

        return torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)

    return f, [(t(4, 3),)] * 2


@cases()
def jacobians():
    def f(x):
        return (
            torch.func.jacrev(torch.sin)(x),
            torch.func.jacfwd(lambda a: a.sin() * a)(x),
            torch.func.hessian(lambda a: (a.sin() * a).sum())(x),
        )

    return f, [(t(3),)] * 2


@cases()
def products():
    def f(x, y):
        value, tangent = torch.func.jvp(lambda a: a.sin() * 2, (x,), (y,))
        out, pull = torch.func.vjp(lambda a: a.exp(), x)
        return value, tangent, out, pull(y), pull(out)

    return f, [(t(3), t(3))] * 2


@cases()
def pullback_with_aux():
    def f(x, y):
        out, pull, aux = torch.func.vjp(lambda a: (a.sin() * y, {"k": a.cos()}), x, has_aux=True)
        return out, pull(out), aux, torch.vmap(pull)(torch.eye(3))

    return f, [(t(3), t(3))] * 2


@cases()
def vmap_in_chunks():
    def f(x):
        return torch.vmap(lambda a: a.sin().sum() * a, chunk_size=2)(x)

    return f, [(t(5, 3),)] * 2


@cases(graphs=0, breaks=1)
def vmap_in_chunks_with_effects():
    seen = []

    def f(x):
        def body(a):
            seen.append(len(seen))
            return a * 2

        return torch.vmap(body, chunk_size=2)(x)

    return f, [(t(5, 3),)] * 2, [seen]


@cases(graphs=0, breaks=1)
def a_break_inside_is_one():
    def f(x):
        return torch.func.linearize(lambda a: a.sin() * 2, x)[0]

    return f, [(t(3),)] * 2


@cases(graphs=0, breaks=2)  # torch asks whether it is compiled, and might raise because of that
def an_error_inside_is_eager_s():
    def f(x):
        return torch.func.grad(lambda a: a * 2)(x)

    return f, [(t(3),)] * 2


# ---- checkpoint -------------------------------------------------------------------------------


@cases()
def checkpoint_of_a_closure():
    def f(x, w):
        return checkpoint(lambda a: (a @ w).sin().exp(), x, use_reentrant=False) * 2

    return f, [(grad(4, 3), grad(3, 3))] * 2


@cases()
def checkpoint_of_dropout_repeats_its_mask():
    def f(x):
        return checkpoint(lambda a: torch.dropout(a, 0.5, True) * a, x, use_reentrant=False)

    return f, [(grad(64),)] * 2


@cases()
def reentrant_checkpoint():
    def f(x, w):
        return checkpoint(lambda a: (a @ w).sin(), x, use_reentrant=True).sum()

    return f, [(grad(4, 3), t(3, 3))] * 2


@cases()
def checkpoint_without_gradients():
    def f(x):
        with torch.no_grad():
            return checkpoint(lambda a: a.sin(), x, use_reentrant=False)

    return f, [(grad(3),)] * 2


# ---- custom gradients -------------------------------------------------------------------------


class Scaled(torch.autograd.Function):
    """A gradient that automatic differentiation would not give."""

    @staticmethod
    def forward(ctx, x, k):
        y = torch.exp(x) * k
        ctx.save_for_backward(y)
        ctx.k = k
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y * 0.5 * ctx.k, None


@cases()
def custom_gradient():
    return lambda x: Scaled.apply(x + 1, 2.0) * 3, [(grad(3),)] * 2


@cases()
def custom_gradient_unused():
    return lambda x: Scaled.apply(x + 1, 2.0) * 3, [(t(3),)] * 2


class Product(torch.autograd.Function):
    @staticmethod
    def forward(a, b):
        s = a.sin()
        return s @ b, s.cos() > 0

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g, _):
        a, b = ctx.saved_tensors
        return (g @ b.t()) * a.cos(), a.sin().t() @ g


@cases(graphs=2, recompiles=1)
def custom_gradient_with_setup_context():
    return lambda x, w: Product.apply(x, w), [(grad(4, 3), grad(3, 3)), (grad(4, 3), t(3, 3))]


@cases(graphs=1, breaks=1)
def custom_gradient_that_is_differentiated():
    def f(x):
        y = Scaled.apply(x * x, 3.0).sum()
        return torch.autograd.grad(y, x, create_graph=True)[0]

    return f, [(grad(3),), (grad(3),)]


class Steep(torch.autograd.Function):
    """Its gradient is not that of its value, and neither is that of its gradient."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return Steep.apply(g, y) * 2, Scaled.apply(g * x, 3.0)


@cases(backends=("eager",))
def custom_gradients_of_custom_gradients():
    return lambda x, y: Steep.apply(x, y), [(grad(3), grad(3))] * 2


def test_second_derivative_by_the_rules_of_functions():
    """The backward calls functions that have backwards of their own."""

    def derivatives(function):
        x, y = torch.arange(3.0).requires_grad_(), torch.ones(3).requires_grad_()
        first = torch.autograd.grad((function(x, y) ** 2).sum(), (x, y), create_graph=True)
        return [*first, *torch.autograd.grad((first[0] * first[1]).sum(), (x, y))]

    def steep(x, y):
        return Steep.apply(x, y)

    found = derivatives(refcompiler.compile(steep, backend="eager", fullgraph=True))
    for compiled, eager in zip(found, derivatives(steep), strict=True):
        assert torch.equal(compiled, eager)


@cases(graphs=0, breaks=1)
def checkpoint_that_counts_its_runs():
    runs = []

    def inner(x):
        runs.append(1)
        return x.sin()

    return lambda x: checkpoint(inner, x, use_reentrant=False), [(grad(3),), (grad(3),)], [runs]


class Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.middle = a.sin() * 3
        return ctx.middle.exp()

    @staticmethod
    def backward(ctx, g):
        return g * ctx.middle if ctx.needs_input_grad[0] else None


@cases()
def custom_gradient_keeps_an_intermediate():
    return lambda x: Kept.apply(x), [(grad(3),)] * 2


class Printing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        return a * 2

    @staticmethod
    def backward(ctx, g):
        print("backward")
        return g * 3


@cases(breaks=1, graphs=2)
def custom_gradient_that_prints():
    return lambda x: Printing.apply(x + 1) * 2, [(grad(3),)] * 2


class Itself(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        return a

    @staticmethod
    def backward(ctx, g):
        return g * 7


@cases()
def custom_gradient_of_identity():
    return lambda x: Itself.apply(x + 1) * 2, [(grad(3),)] * 2


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        x.add_(y)
        ctx.mark_dirty(x)
        ctx.save_for_backward(y)
        return x, x * y

    @staticmethod
    def backward(ctx, g, h):
        (y,) = ctx.saved_tensors
        return g * 2 + h * y, h * 3


@cases(recompiles=1, graphs=2)  # the first call changes whether its argument has a history
def custom_gradient_in_place():
    def f(x, y):
        a, b = InPlace.apply(x, y)
        return a is x, a + 1, b * x

    return f, [(t(3), grad(3))] * 2


@cases(breaks=1, graphs=0)
def custom_gradient_in_place_of_a_leaf():
    return lambda x, y: InPlace.apply(x, y), [(grad(3), t(3))] * 2


class OfList(torch.autograd.Function):
    @staticmethod
    def forward(ctx, given, x):
        ctx.save_for_backward(given[0])
        return given[0] * x

    @staticmethod
    def backward(ctx, g):
        return None, g * ctx.saved_tensors[0] * 4


@cases()
def custom_gradient_with_a_list():
    return lambda x, y: OfList.apply([y + 1, 3], x), [(grad(3), grad(3))] * 2


class OwnRule(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def vmap(info, in_dims, x):
        return x * 100, in_dims[0]


@cases(graphs=0, breaks=1)
def custom_gradient_with_a_rule_for_vmap():
    return lambda x: torch.vmap(OwnRule.apply)(x), [(t(3, 2),)] * 2


@cases()
def custom_identity_without_gradients():
    return lambda x: Itself.apply(x), [(t(3),)] * 2


@cases()
def custom_gradient_of_a_class_made_in_the_frame():
    def f(x):
        class Fifth(torch.autograd.Function):
            @staticmethod
            def forward(ctx, a):
                return a * 2

            @staticmethod
            def backward(ctx, g):
                return g * 5

        return Fifth.apply(x + 1) * 3

    return f, [(grad(3),)] * 2


# ---- branches and loops -----------------------------------------------------------------------


@cases()
def branches():
    def f(x, y):
        return torch.cond(x.sum() > 0, lambda a: a + y, lambda a: (a * 2).sin(), (x,))

    return f, [(torch.ones(3), t(3)), (-torch.ones(3), t(3))]


@cases()
def branch_of_a_number():
    return lambda x, k: torch.cond(k, lambda a: a + 1, lambda a: a - 1, (x,)), [(t(3), True)] * 2


@cases()
def loop():
    def f(x, n):
        return torch.while_loop(
            lambda i, a: i < n, lambda i, a: (i + 1, a * 2), (torch.tensor(0), x)
        )

    return f, [(t(3), torch.tensor(3)), (t(3), torch.tensor(5))]


@cases()
def loop_that_reads_what_it_starts_with():
    def f(x):
        return torch.while_loop(
            lambda i, a: i < 3, lambda i, a: (i + 1, a + x), (torch.tensor(0), x)
        )

    return f, [(t(3),)] * 2


@cases()
def scan():
    from torch._higher_order_ops.scan import scan

    def f(start, x, w):
        def step(carry, a):
            new = torch.tanh(carry["h"] @ w + a[0] + start)
            return {"h": new}, (new * 2, a[1] + 1)

        return scan(step, {"h": start}, (x, x * 2), dim=1, reverse=True)

    f(grad(2, 3), t(2, 4, 3), grad(3, 3))  # torch warns of what it loads
    return f, [(grad(2, 3), t(2, 4, 3), grad(3, 3))] * 2


@cases()
def map_over_trees():
    from torch._higher_order_ops.map import map as over

    def f(x, y, w, b):
        return over(lambda a, b: {"s": a[0] @ w, "d": a[1]["k"].cos() + b}, (x, {"k": y}), b)

    return f, [(grad(4, 3), t(4, 3), grad(3, 3), t(3))] * 2


@cases()
def attention_with_scores_and_masks():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def causal(b, h, i, j):
        return i >= j

    outside = create_block_mask(causal, None, None, 16, 16, device="cpu", BLOCK_SIZE=8)

    def f(q, k, v, bias):
        def score(s, b, h, i, j):
            return s + bias[h, i - j + 16]

        mask = create_block_mask(causal, None, None, 16, 16, device="cpu", BLOCK_SIZE=8)
        first = flex_attention(q, k, v, score_mod=score, block_mask=mask)
        with torch.no_grad():
            second = flex_attention(q, k[:, :1], v[:, :1], enable_gqa=True, block_mask=outside)
        return first.transpose(1, 2), second

    f(*[t(1, 2, 16, 8) for _ in range(3)], t(2, 40))  # torch warns once
    return f, [(*[t(1, 2, 16, 8) for _ in range(3)], t(2, 40))] * 2


@cases()
def associative_scan():
    from torch._higher_order_ops.associative_scan import associative_scan as scan

    def combine(left, right):
        return left[0] * right[0], right[0] * left[1] + right[1]

    def f(a, b, reverse):
        return scan(combine, (a, b), dim=1, reverse=reverse, combine_mode="generic")

    return f, [(t(2, 9, 3), t(2, 9, 3), True)] * 2


# ---- nested regions ---------------------------------------------------------------------------


@torch.compiler.nested_compile_region
def _block(a):
    return a.sin() + 1


@cases()
def nested_regions():
    return lambda x: _block(_block(_block(x))), [(grad(3),)] * 2


# ---- functions that another compiler has ---------------------------------------------------------


@torch.jit.script
def _scripted(x: torch.Tensor, n: int) -> torch.Tensor:
    for i in range(n):
        x = x + i
    return x


@cases()
def scripted():
    return lambda x: _scripted(x, 3) * torch.jit.annotate(int, 2), [(t(3),)] * 2


@pytest.mark.parametrize("case", cases, ids=str)
def test_regions(case: Case) -> None:
    assert check(case) > 0


def test_a_branch_that_appends_is_refused_as_in_eager() -> None:
    """Torch refuses effects in branches; capture must not run both branches' effects instead."""

    def f(x: torch.Tensor, seen: list[int]) -> torch.Tensor:
        def yes(a: torch.Tensor) -> torch.Tensor:
            seen.append(1)
            return a + 1

        return torch.cond(x.sum() > 0, yes, lambda a: a - 1, (x,))

    errors = []
    for function in (f, refcompiler.compile(f, backend="eager")):
        seen: list[int] = []
        with pytest.raises(Exception) as caught:
            function(torch.ones(3), seen)
        errors.append((type(caught.value), seen))
    assert errors[0] == errors[1]


def test_checkpoint_frees_what_is_in_between() -> None:
    """Only inputs are kept for backward, as in eager."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda a: a.sin().exp().cos().tanh(), x, use_reentrant=False)

    kept = []
    for function in (f, refcompiler.compile(f, backend="eager")):
        saved: list[tuple[int, ...]] = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor, saved=saved: saved.append(type(tensor)) or tensor, lambda t: t
        ):
            function(torch.randn(1000, requires_grad=True))
        kept.append(saved)
    assert kept[0] == kept[1]


def test_equal_regions_share_a_graph() -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    refcompiler.compile(lambda x: _block(_block(_block(x))), backend=backend)(t(3))
    (graph,) = graphs
    assert len(graph.graph.find_nodes(op="get_attr")) == 3
    assert len(list(graph.children())) == 1


def test_what_torch_compiles_is_inlined() -> None:
    inner = torch.compile(lambda x: x.sin() * 2, backend="eager")
    module = torch.compile(nn.Linear(3, 3), backend="eager").eval()
    graphs = []

    def f(x: torch.Tensor) -> tuple:
        again = torch.compile(lambda y: y.cos(), backend="eager")
        return again(inner(x)) + module(x), module.weight * 2, module.training

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    compiled = refcompiler.compile(f, backend=backend, fullgraph=True)
    for _ in range(2):
        x = t(2, 3)
        torch.testing.assert_close(compiled(x), f(x), rtol=0, atol=0)
    assert len(graphs) == 1


@pytest.mark.parametrize("name", ["loop", "branch"])
def test_arguments_that_are_too_many_are_eagers_error(name: str) -> None:
    """The operator of loops takes one more, tensors that all steps read; the function does not."""

    def loop(x: torch.Tensor) -> tuple:
        return torch.while_loop(lambda x: x.sum() < 4, lambda x: (x + 1,), (x,), (x,))

    def branch(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,), (x,))

    function = {"loop": loop, "branch": branch}[name]
    said = []
    for run in (function, refcompiler.compile(function, backend="eager")):
        with pytest.raises(TypeError) as told:
            run(torch.ones(2))
        said.append(str(told.value))
    assert said[0] == said[1] != ""
