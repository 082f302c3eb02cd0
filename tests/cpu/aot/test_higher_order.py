"""Functions within the graph: custom functions, checkpoint, branches, loops, operators, transforms.

Each is compared with eager twice: values, layouts, aliasing, gradients, the generator's state.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)

import refcompiler
from refcompiler.aot import currents, joint_trace
from refcompiler.aot.partition import default_partition, min_cut_partition
from refcompiler.aot.regions import checkpoint as region
from tests.cpu.aot.checks import fails_without
from tests.cpu.aot.programs import Compiler, compare

PARTITIONS = [default_partition, min_cut_partition]


def T(*size: int, grad: bool = True) -> torch.Tensor:
    return torch.randn(*size).requires_grad_(grad)


CASES: dict[str, tuple[Callable[..., Any], Callable[[], list[torch.Tensor]]]] = {}


def case(make: Callable[[], list[torch.Tensor]]) -> Callable[[Callable], Callable]:
    def add(program: Callable) -> Callable:
        CASES[program.__name__] = program, make
        return program

    return add


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    refcompiler.reset()


# ---- custom functions -------------------------------------------------------------------------


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, k: int) -> Any:
        y = x.exp() * k
        ctx.k = k
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (y,) = ctx.saved_tensors
        return g * y * ctx.k, None


class Apart(torch.autograd.Function):
    @staticmethod
    def forward(x: Any, w: Any) -> Any:
        return x.sin() * w

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, w = ctx.saved_tensors
        return g * x.cos() * w, g * x.sin() * 2


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 3


class Sorted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        values, places = x.sort(dim=-1)
        ctx.mark_non_differentiable(places)
        ctx.save_for_backward(places)
        return values, places

    @staticmethod
    def backward(ctx: Any, g: Any, _: Any) -> Any:
        (places,) = ctx.saved_tensors
        return torch.zeros_like(g).scatter(-1, places, g)


class Masked(torch.autograd.Function):
    """Draws in the forward, and again in the backward."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        mask = torch.rand_like(x) > 0.5
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (mask,) = ctx.saved_tensors
        return g * mask * torch.rand_like(g)


@case(lambda: [T(3, 4)])
def attributes(x: Any) -> Any:
    return Scaled.apply(x * 2, 3) + 1


@case(lambda: [T(3, 4), T(3, 4)])
def set_up(x: Any, w: Any) -> Any:
    return Apart.apply(x, w).cos()


@case(lambda: [T(3, 4)])
def dirty(x: Any) -> Any:
    y = x.clone()
    return Doubled.apply(y) * 3, y + 1


@case(lambda: [T(3, 4)])
def not_differentiable(x: Any) -> Any:
    values, places = Sorted.apply(x)
    return values * 2, places


@case(lambda: [T(3, 4)])
def draws_in_backward(x: Any) -> Any:
    return F.dropout(Masked.apply(x * 2), 0.5)


# ---- checkpoint -------------------------------------------------------------------------------

W = lambda: [T(4, 8), T(8, 8)]  # noqa: E731


def kept(function: Callable, x: Any, **options: Any) -> Any:
    return checkpoint(function, x, use_reentrant=False, **options)


@case(W)
def nested(x: Any, w: Any) -> Any:
    def outer(a: Any) -> Any:
        inner = kept(lambda b: F.dropout((b @ w).sin(), 0.3), F.dropout(a, 0.2).exp())
        return inner * torch.rand(8)

    return kept(outer, x).cos() + torch.rand(1)


@case(W)
def several(x: Any, w: Any) -> Any:
    for _ in range(2):
        x = kept(lambda a: F.dropout((a @ w).relu(), 0.5).sin(), x)
    return x


@case(W)
def in_sequence(x: Any, w: Any) -> Any:
    steps = [lambda a: F.dropout(a @ w, 0.3), torch.sin, lambda a: F.dropout(a, 0.1), torch.cos]
    return checkpoint_sequential(steps, 2, x, use_reentrant=False)


@case(W)
def to_its_end(x: Any, w: Any) -> Any:
    with set_checkpoint_early_stop(False):
        return kept(lambda a: (a @ w).sin() + torch.rand(8), x, preserve_rng_state=False).cos()


@case(W)
def draws_of_all_kinds(x: Any, w: Any) -> Any:
    def region(a: Any) -> Any:
        noise = torch.randn_like(a) + torch.randn(4, 8, device="cpu")
        return (a @ w) * noise * torch.bernoulli(a.sigmoid())

    return kept(region, x).cos()


@case(W)
def draws_not_preserved(x: Any, w: Any) -> Any:
    return kept(lambda a: F.dropout((a @ w).relu(), 0.5), x, preserve_rng_state=False).cos()


@case(W)
def attention_in_a_checkpoint(x: Any, w: Any) -> Any:
    def region(a: Any) -> Any:
        q, k = (a @ w).view(1, 2, 4, 4), a.view(1, 2, 4, 4)
        return F.scaled_dot_product_attention(q, k, k, dropout_p=0.3)

    return kept(region, x).cos()


# ---- branches and loops -----------------------------------------------------------------------


@case(W)
def branches(x: Any, w: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda a: (a @ w).sin(), lambda a: a.cos() + w.sum(), (x,)).exp()


@case(W)
def branches_in_branches(x: Any, w: Any) -> Any:
    def yes(a: Any) -> Any:
        return torch.cond(a.max() > 1, lambda b: (b @ w).sin(), lambda b: b * 2, (a,))

    return torch.cond(x.sum() > 0, yes, lambda a: a.cos() @ w.t(), (x,)).exp()


@case(W)
def branches_in_a_checkpoint(x: Any, w: Any) -> Any:
    def region(a: Any) -> Any:
        found = torch.cond(a.sum() > 0, lambda b: (b @ w).sin(), lambda b: b * 2, (a,))
        return F.dropout(found, 0.5)

    return kept(region, x)


@case(W)
def branches_that_draw_in_a_checkpoint(x: Any, w: Any) -> Any:
    def branch(a: Any) -> Any:
        yes, no = lambda b: F.dropout(b @ w).sin(), lambda b: b * torch.rand(8)
        return torch.cond(a.sum() < 9, yes, no, (F.dropout(a, 0.2),)).cos()

    def outer(a: Any) -> Any:
        return kept(branch, branch(a)).sin() * torch.rand(8)

    return kept(outer, kept(branch, x)).cos() * torch.rand(8)


@case(W)
def branches_that_draw(x: Any, w: Any) -> Any:
    for _ in range(2):
        x = torch.cond(x.sum() < 9, lambda a: F.dropout(a @ w), lambda a: a * torch.rand(8), (x,))
    return x * torch.rand(8)


@case(lambda: [T(4, grad=False)])
def a_branch_that_nobody_reads(x: Any) -> Any:
    torch.cond(x.sum() < 99, lambda a: a * torch.rand(4), lambda a: a + 1, (x,))
    return x * torch.rand(4)


@case(lambda: [T(4, 8, grad=False)])
def branches_without_gradients(x: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda a: a.sin() * 2, lambda a: a.cos() + a, (x,))


@case(lambda: [torch.tensor(0), T(4, grad=False)])
def loop(i: Any, x: Any) -> Any:
    operator = torch._higher_order_ops.while_loop
    return operator(lambda i, x: i < 5, lambda i, x: (i + 1, x.sin() + 1), (i, x))


# ---- custom operators -------------------------------------------------------------------------


@torch.library.custom_op("refcompiler_tests::triple", mutates_args=())
def triple(x: torch.Tensor, k: float) -> torch.Tensor:
    return x * 3 * k


@triple.register_fake
def _(x: torch.Tensor, k: float) -> torch.Tensor:
    return torch.empty_like(x)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.k = inputs[1]
    ctx.save_for_backward(inputs[0])


triple.register_autograd(
    lambda ctx, g: (g * 3 * ctx.k * ctx.saved_tensors[0], None), setup_context=_keep
)


@torch.library.custom_op("refcompiler_tests::add_one", mutates_args=("x",))
def add_one(x: torch.Tensor) -> None:
    x.numpy()[:] += 1  # which no version tells of besides the operator's


@case(lambda: [T(4, 8)])
def operator_with_a_gradient(x: Any) -> Any:
    return triple(x.sin(), 2.0).cos()


@case(lambda: [T(6, 6), T(6, 6, grad=False)])
def spectra_without_vectors(x: Any, b: Any) -> Any:
    """Eager computes vectors where there is a gradient, which rounds the values otherwise."""
    with torch.no_grad():
        alone = torch.linalg.svdvals(x)
    found = torch.linalg.eigvalsh(b), torch.linalg.eigvals(b), torch.linalg.cond(b), b.norm("nuc")
    return *found, torch.linalg.svdvals(b), alone, torch.linalg.svdvals(x)


@case(lambda: [T(4, 8), T(4, 8, grad=False)])
def operator_that_writes(x: Any, b: Any) -> Any:
    add_one(b)
    return x * b


# ---- attention and transformations ------------------------------------------------------------

QKV = lambda: [T(2, 3, 8, 4) for _ in range(3)]  # noqa: E731


@case(QKV)
def attention_by_mathematics(q: Any, k: Any, v: Any) -> Any:
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.3, is_causal=True) * 2


@case(QKV)
def attention_in_a_kernel(q: Any, k: Any, v: Any) -> Any:
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True) * 2


@case(lambda: [*QKV(), T(8, 8)])
def attention_with_a_mask(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, mask)


@case(lambda: [T(4, 8)])
def gradient_of_a_function(x: Any) -> Any:
    return torch.func.grad(lambda a: (a.sin() ** 2).sum())(x) * 2


@case(lambda: [T(4, 8), T(8)])
def gradients_of_rows(x: Any, w: Any) -> Any:
    row = torch.func.grad(lambda a, w: (a * w).sin().sum())
    return torch.func.vmap(row, in_dims=(0, None))(x, w)


@case(lambda: [T(4, 8)])
def draws_of_rows(x: Any) -> Any:
    return torch.func.vmap(lambda a: F.dropout(a, 0.5), randomness="different")(x)


# ---- the order of draws -----------------------------------------------------------------------


@case(lambda: [T(4, 8)])
def order(x: Any) -> Any:
    torch.rand(3)
    y = F.dropout(x, 0.5)
    torch.randint(0, 4, (3,))
    made = [torch.randn(2), torch.empty(3).uniform_(), torch.empty(5).normal_(0, 2)]
    made += [torch.empty(3).exponential_(), torch.randperm(5), torch.multinomial(torch.ones(5), 3)]
    rows = x.view(1, 4, 8)
    return (
        y,
        *made,
        F.rrelu(x, training=True),
        F.gumbel_softmax(x),
        F.alpha_dropout(x, 0.5, True),
        F.feature_alpha_dropout(rows, 0.5, True),
    )


@pytest.mark.parametrize("name", CASES)
def test_as_eager(name: str) -> None:
    program, make = CASES[name]
    partition = PARTITIONS[list(CASES).index(name) % 2]
    backend, seen = compare(program, make, partition)
    assert backend.reasons == [None]
    assert seen.count > 10


def test_draws_of_two_masks_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison fails where a recompute draws other masks."""
    monkeypatch.setattr(region, "takes_numbers", lambda *call: False)
    with pytest.raises(AssertionError):
        compare(*CASES["several"], default_partition)


# ---- what can be run backward once, and what is refused ----------------------------------------


def once(program: Callable[..., Any], *options: Any) -> tuple[Compiler, list[list[Any]]]:
    """Loss, gradients and the generator's state of one step, compiled and eager."""
    backend = Compiler()
    found = []
    for function in (refcompiler.compile(program, backend=backend), program):
        torch.manual_seed(0)
        leaves = W()
        loss = function(*leaves).sum()
        loss.backward()
        found.append([loss.detach(), *[t.grad for t in leaves], torch.get_rng_state()])
    return backend, found


def _saves(*operators: Any) -> Callable[[], Any]:
    def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        if op in operators:
            return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    return functools.partial(create_selective_checkpoint_contexts, policy)


def _region(w: Any) -> Callable[[Any], Any]:
    return lambda a: F.dropout((a @ w).relu() * torch.rand(8), 0.5).sin() @ w


def _reentrant(x: Any, w: Any) -> Any:
    return checkpoint(_region(w), x, use_reentrant=True).cos()


def _selective(x: Any, w: Any) -> Any:
    return kept(_region(w), x, context_fn=_saves(torch.ops.aten.mm.default)).cos()


def _saved_draws(x: Any, w: Any) -> Any:
    return kept(_region(w), x, context_fn=_saves(torch.ops.aten.rand.default)).cos()


def _listed(x: Any, w: Any) -> Any:
    operators = [torch.ops.aten.mm.default]
    context = functools.partial(create_selective_checkpoint_contexts, operators)
    return kept(_region(w), x, context_fn=context).cos()


def _read_by_several(x: Any, w: Any) -> Any:
    """What comes back to ``e`` is a sum for each region, and then their sum."""
    e, y = (x @ w).sin(), x
    for _ in range(3):
        y = checkpoint(lambda a, e: (a + (e @ w) * (e @ w.t())).sin(), y, e, use_reentrant=True)
    return y


@pytest.mark.parametrize("program", [_reentrant, _selective, _listed, _read_by_several])
def test_one_backward(program: Callable[..., Any]) -> None:
    backend, (ours, theirs) = once(program)
    assert backend.reasons == [None]
    assert len(ours) == 4 and all(map(torch.equal, ours, theirs))


def test_a_draw_that_is_saved_leaves_the_masks_of_the_others() -> None:
    """Eager, which does not draw it in the recompute, draws other masks after it."""
    gradients = []
    backend = Compiler()
    compiled = refcompiler.compile(_saved_draws, backend=backend)
    for function in (compiled, lambda x, w: _region(w)(x).cos()):
        torch.manual_seed(0)
        leaves = W()
        function(*leaves).sum().backward()
        gradients.append([t.grad for t in leaves])
    assert backend.reasons == [None]
    assert all(map(torch.equal, *gradients))


def test_what_a_policy_saves_is_not_computed_again() -> None:
    counts = {}
    for program in (_selective, _reentrant):
        backend, _ = once(program)
        (graph,) = backend.backward
        nodes = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default)
        counts[program] = len(nodes)
    assert counts[_reentrant] == counts[_selective] + 1


def test_a_region_that_a_policy_saves_of_has_one_backward() -> None:
    """Of one saved result: torch 2.11 goes on with the next one where there is another."""

    def program(x: Any, w: Any) -> Any:
        y = kept(lambda a: (a @ w).relu(), x, context_fn=_saves(torch.ops.aten.mm.default))
        return y.sum(), (x * w[:4]).sin().sum()

    for function in (refcompiler.compile(program, backend="aot_eager"), program):
        x, w = W()
        outputs = function(x, w)
        for n in (1, 0, 1):
            torch.autograd.grad(outputs[n], (x, w), retain_graph=True)
        with pytest.raises(RuntimeError, match="backward an extra time"):
            torch.autograd.grad(outputs[0], (x, w), retain_graph=True)


def test_a_region_that_no_gradient_comes_to_does_not_draw_again() -> None:
    """With ``preserve_rng_state=False`` whether it is computed again shows in the generator."""

    def region(a: Any) -> Any:
        return F.dropout(a, 0.5) * 2

    def program(x: Any, w: Any) -> Any:
        y = kept(region, x, preserve_rng_state=False)
        z = kept(region, w, preserve_rng_state=False)
        return x * x, y[1:], w.sin() * z

    backend = Compiler()
    seen = []
    for function in (refcompiler.compile(program, backend=backend), program):
        torch.manual_seed(3)
        leaves = W()
        outputs = function(*leaves)
        found = []
        for n in (0, 2, 1, 0, 1, 2):
            found += torch.autograd.grad(
                outputs[n].sum(), leaves, retain_graph=True, allow_unused=True
            )
            found.append(torch.get_rng_state())
        seen.append(found)
    assert backend.reasons == [None] and len(seen[1]) == 18
    assert all(a is b or torch.equal(a, b) for a, b in zip(*seen, strict=True))
    assert not torch.equal(seen[1][5], seen[1][8]) and torch.equal(seen[1][8], seen[1][11])


def test_a_saved_result_that_is_written_to_is_refused_as_in_eager() -> None:
    def program(x: Any, w: Any) -> Any:
        def region(a: Any) -> Any:
            z = a @ w
            z.add_(1)
            return z.sin()

        return kept(region, x, context_fn=_saves(torch.ops.aten.mm.default)).cos()

    backend = Compiler()
    for function in (refcompiler.compile(program, backend=backend), program):
        with pytest.raises(RuntimeError, match="has been mutated"):
            function(*W()).sum().backward()
    assert backend.reasons == ["what a selective checkpoint saved is written to"]


def test_statistics_are_counted_twice() -> None:
    """Eager's recompute updates them a second time, in the backward."""
    found = []
    backend = Compiler()
    for compiled in (True, False):
        mean, var = torch.zeros(8), torch.ones(8)

        def program(x: Any, w: Any, mean: Any = mean, var: Any = var) -> Any:
            return kept(lambda a: F.batch_norm(a @ w, mean, var, training=True).sin(), x)

        torch.manual_seed(0)
        leaves = W()
        call = refcompiler.compile(program, backend=backend) if compiled else program
        call(*leaves).sum().backward()
        found.append((mean, var, leaves[0].grad))
    assert all(map(torch.equal, *found))
    assert backend.reasons == [None]


def test_a_custom_function_inside_vmap_keeps_its_gradient() -> None:
    class Rows(Apart):
        generate_vmap_rule = True

    def program(x: Any) -> Any:
        return torch.func.vmap(lambda a: Rows.apply(a, a * 2))(x)

    grads = []
    for function in (refcompiler.compile(program, backend=Compiler()), program):
        x = torch.ones(2, 3, requires_grad=True)
        function(x).sum().backward()
        grads.append(x.grad)
    assert torch.equal(*grads)


def test_products_have_the_gradients_of_eager() -> None:
    def program(x: Any, w: Any) -> Any:
        y = x.prod() + torch.prod(x, 1, keepdim=True).sum() * w.prod(dim=0)
        return torch.masked.prod(x, 1, mask=x > 0).sum() + y

    backend, (ours, theirs) = once(program)
    assert backend.reasons == [None]
    assert len(ours) == 4 and all(map(torch.equal, ours, theirs))
    for zeros in (1, 2):
        x = torch.ones(3, 4)
        x[0, :zeros] = 0
        gradients = []
        for function in (
            refcompiler.compile(lambda x: x.prod(1), backend=backend),
            lambda x: x.prod(1),
        ):
            leaf = x.clone().requires_grad_()
            gradients += torch.autograd.grad(function(leaf).sum(), leaf)
        assert torch.equal(*gradients)


# ---- rules of ``specs/ahead.py``, broken once each ---------------------------------------------


def _branches_are_compiled() -> None:
    backend, _ = compare(*CASES["branches"], default_partition)
    assert backend.reasons == [None]


KEPT: dict[str, tuple[Callable[[], None], Callable[[pytest.MonkeyPatch], None]]] = {
    "selective checkpoint": (
        test_what_a_policy_saves_is_not_computed_again,
        lambda patch: patch.setattr(region, "_SAVED", ()),
    ),
    "one backward of a selective checkpoint": (
        test_a_region_that_a_policy_saves_of_has_one_backward,
        lambda patch: patch.setattr(region._Kept, "mark", lambda *_: None),
    ),
    "write in a checkpoint": (
        test_statistics_are_counted_twice,
        lambda patch: patch.setattr(currents, "write", lambda *_: None),
    ),
    "derivative that asks": (
        test_products_have_the_gradients_of_eager,
        lambda patch: patch.delitem(joint_trace.REGIONS, "prod"),
    ),
    "branches and loops": (
        _branches_are_compiled,
        lambda patch: patch.setattr(joint_trace, "REGIONS", {}),
    ),
}


@pytest.mark.parametrize("rule", KEPT)
def test_without_what_keeps_it(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fails_without(*KEPT[rule], monkeypatch)


def test_what_cannot_be_traced_leaves_the_dispatcher_as_it_was() -> None:
    """Guards in C++ that torch's own frames hold are freed with the error, whenever that is."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.func.vmap(torch.func.hessian(torch.prod))(x)

    x = torch.arange(6.0).reshape(2, 3)
    before = torch._C._dispatch_tls_local_exclude_set()
    assert torch.equal(refcompiler.compile(function, backend="aot_eager")(x), function(x))
    assert torch._C._dispatch_tls_local_exclude_set() == before
