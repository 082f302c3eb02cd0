"""Rules of ``specs/ahead.py`` that need more than one call and one backward: kept, and broken once.

The tests that need no breaking are in ``test_backward.py``; ``test_rules.py`` counts them all.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad

import refcompiler
from refcompiler.aot import (
    aot_autograd,
    backend,
    function,
    functional,
    gates,
    inferring,
    joint_trace,
    observation,
    saved,
    twice,
    wrapper,
)
from refcompiler.aot import program as program_of
from refcompiler.aot.partition import min_cut, split
from refcompiler.backends import parts
from tests.cpu.aot import (
    test_backward,
    test_gates,
    test_hooks,
    test_layouts,
    test_saved,
    test_second_derivatives,
    test_toward,
    test_ways,
)
from tests.cpu.aot.checks import Checks, fails_without, raw
from tests.cpu.aot.test_backward import compiled

check = Checks()


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    refcompiler.reset()


def _nothing(*_: Any) -> Any:
    return contextlib.nullcontext()


def _as_attributes(patch: pytest.MonkeyPatch) -> None:
    """What the backward needs is kept by the node itself, unknown to autograd."""
    real_forward, real_backward = function.Compiled.forward, function.Compiled.backward

    class Context:
        def __init__(self, ctx: Any):
            object.__setattr__(self, "ctx", ctx)

        def __getattr__(self, name: str) -> Any:
            return self.ctx.own if name == "saved_tensors" else getattr(self.ctx, name)

        def __setattr__(self, name: str, value: Any) -> None:
            setattr(self.ctx, name, value)

        def save_for_backward(self, *tensors: Any) -> None:
            self.ctx.own = tuple([t.detach().clone() for t in tensors])

    patch.setattr(function, "keeps_graph", lambda: True)
    patch.setattr(
        function.Compiled,
        "forward",
        staticmethod(lambda ctx, *inputs: real_forward(Context(ctx), *inputs)),
    )
    patch.setattr(
        function.Compiled._backward_cls,
        "apply_boxed" if function.BOXED else "apply",
        lambda ctx, *given: real_backward(Context(ctx), *given),
    )


@contextlib.contextmanager
def _anything(*_: Any) -> Iterator[None]:
    yield


def _nothing_of(*_: Any) -> None:
    pass


def _unrefused(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(wrapper.Wrapper, "_refuse", lambda *_: None)


check("strides of tangents", lambda p: p.setattr(program_of, "laid_out", lambda t, layout: t))(
    test_backward.test_tangents_of_other_strides
)
check("second backward", _as_attributes)(test_backward.test_a_second_backward_needs_what_was_saved)


@check(
    "one backward of a write to a view",
    lambda patch: patch.setattr(wrapper.Wrapper, "_once", lambda *_: None),
)
def _writes_to_views() -> None:
    for program in test_backward.WRITING:
        test_backward.test_what_passes_a_write_to_an_input_that_is_a_view_has_one_backward(program)


check(
    "flags where gradients are off",
    lambda p: p.setattr(joint_trace, "_leaf", lambda t: getattr(t, "detach", lambda: t)()),
)(test_layouts.test_products_are_chosen_by_flags_where_gradients_are_off)
check(
    "layout of what is written to",
    lambda p: p.setattr(functional.FunctionalMode, "_lay_out", lambda *_: None),
)(test_layouts.test_what_is_written_to_keeps_its_gaps)


@check(
    "saved as eager saves",
    lambda patch: patch.setattr(min_cut, "_others", lambda *_: set()),
)
def _written_between() -> None:
    test = test_backward.test_inputs_and_results_may_be_written_to_where_eager_has_not_saved_them
    test(min_cut.min_cut_partition)


check("written after the call", lambda p: p.setattr(function, "_VERSION", lambda t: 0))(
    test_backward.test_a_saved_tensor_that_is_written_to
)


check("saved written input", lambda p: p.setattr(saved.Links, "kept", lambda *_: iter(())))(
    lambda: test_saved.test_a_write_behind_the_graph_to_what_is_saved(
        test_saved.added_to, "aot_eager"
    )
)
check("saved data", lambda p: p.setattr(saved.Links, "note", lambda *_: None))(
    lambda: test_saved.test_a_write_behind_the_graph_to_what_is_saved(
        test_saved.read_by_data, "aot_eager"
    )
)


def _without_graph(*known: Any) -> list[Any]:
    return [g if g is None else g.detach() for g in twice.derivable(*known)]


check("double backward", lambda p: p.setattr(function, "derivable", _without_graph))(
    test_second_derivatives.test_a_second_derivative_goes_through_several_graphs
)
check("double backward of another run", lambda p: p.setattr(function, "reach", _nothing_of))(
    lambda: test_second_derivatives.test_second_derivatives_of_what_cannot_run_again_are_compiled(
        test_second_derivatives._adds
    )
)
check("saved-tensor hooks", _as_attributes)(
    test_backward.test_hooks_of_saved_tensors_see_what_is_saved
)
check("checks of values", lambda p: p.setattr(split, "stays", lambda node: False))(
    test_backward.test_checks_of_values_stay
)


check("order of hooks", lambda p: p.setattr(backend, "_as_eager", lambda *_: []))(
    lambda: test_hooks.test_hooks_on_leaves_are_called_in_eagers_order("aot_eager")
)


@check("autocast", lambda patch: patch.setattr(joint_trace, "cached_casts", _nothing))
def _autocast() -> None:
    test_backward.test_autocast(test_backward.default_partition)


def _all_as_parameters(patch: pytest.MonkeyPatch) -> None:
    real = joint_trace._Tracer._functional

    def functional(self: Any, n: int, t: Any) -> Any:
        self.parameters = [True] * len(self.parameters)
        return real(self, n, t)

    patch.setattr(joint_trace._Tracer, "_functional", functional)


@check("remembered cast", _all_as_parameters)
def _remembered_cast() -> None:
    def program(x: Any, w: Any) -> Any:
        return x @ w, x.sin() @ w

    call, backend = compiled(program)
    kinds = {
        torch.nn.Parameter: True,
        lambda t: t.requires_grad_(): True,  # any leaf
        lambda t: t.requires_grad_().clone(): False,
        lambda t: t.clone()[:].requires_grad_(): False,  # but views
    }
    for (make, cached), graphs in itertools.product(kinds.items(), (1, 2)):
        found = []
        for run, remembers in ((call, True), (program, True), (program, False)):
            torch.manual_seed(1)
            x, w = torch.randn(8, 8), make(torch.randn(8, 8))
            with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=remembers):
                results = [*run(x, w)]
                if graphs == 2:
                    with torch.no_grad():
                        w.add_(1)
                    torch.clear_autocast_cache()  # or the cast of before would be read
                    results = [t.detach() for t in results] + [*run(x.cos(), w)]
            loss = sum((t.float() * (n + 1)).sin().sum() for n, t in enumerate(results))
            found.append([*results, *torch.autograd.grad(loss, w)])
        ours, eager, other = found
        assert all(map(torch.equal, ours, eager)) and all(map(torch.equal, ours, other)) != cached
    assert set(backend.reasons) == {None}


@check("forward-mode AD", _unrefused)
def _forward_mode() -> None:
    call, graphs = raw(lambda x: (x * x).sin(), torch.ones(4, requires_grad=True))
    assert len(graphs) == 1
    x = torch.randn(4)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.clone().requires_grad_(), torch.ones(4))
        tangent = forward_ad.unpack_dual(call(dual)).tangent
    assert tangent is not None
    torch.testing.assert_close(tangent, 2 * x * (x * x).cos(), rtol=0, atol=1e-6)


@check("transformations", _unrefused)
def _transformations() -> None:
    call, graphs = raw(lambda x: (x * x).sin().sum(), torch.ones(4, requires_grad=True))
    assert len(graphs) == 1
    x = torch.randn(3, 4)
    assert torch.equal(torch.func.vmap(call)(x), torch.func.vmap(graphs_as_they_are)(x))
    gradients = torch.func.vmap(torch.func.grad(call))(x)
    assert torch.equal(gradients, torch.func.vmap(torch.func.grad(graphs_as_they_are))(x))


def graphs_as_they_are(x: Any) -> Any:
    return (x * x).sin().sum()


def _in_memory(graph: Any, inputs: Any) -> Any:
    """A compiler whose code takes tensors by their address, which a batch has not."""

    def run(*given: Any) -> Any:
        assert all(t.data_ptr() for t in given if isinstance(t, torch.Tensor) and t.numel())
        return graph.forward(*given)

    return run


@check(
    "batch of gradients",
    lambda patch: patch.setattr(program_of, "has_batch", lambda given: False),
)
def _batch_of_gradients() -> None:
    def program(x: Any, w: Any) -> Any:
        y = (x @ w).sin()
        return y * y, x.exp().sum(1)

    compiled = refcompiler.compile(program, backend=aot_autograd(fw_compiler=_in_memory))
    x = torch.randn(3, 4, requires_grad=True)
    w = torch.randn(4, 2, requires_grad=True)
    v = torch.randn(5, 3, 2)

    def by_autograd(outputs: Any, batch: Any) -> Any:
        keep = {"retain_graph": True, "allow_unused": True}
        return torch.autograd.grad(outputs[0], (x, w), batch, is_grads_batched=True, **keep)

    def by_func(outputs: Any, batch: Any) -> Any:
        def one(v: Any) -> Any:
            rest = torch.ones(3)
            return torch.autograd.grad(outputs, (x, w), (v, rest), retain_graph=True)

        return torch.func.vmap(torch.func.vmap(one, in_dims=1))(batch)

    wanted, found = program(x, w), compiled(x, w)
    laid = v.transpose(1, 2).contiguous().transpose(1, 2)
    cases = [
        (by_autograd, v),
        (by_func, torch.randn(2, 3, 0, 2)),
        (by_autograd, v.movedim(0, 2).contiguous().movedim(2, 0)),
        (by_autograd, laid),
        (by_func, torch.randn(2, 3, 5, 2)),
    ]
    for way, batch in cases:
        ours, theirs = way(found, batch), way(wanted, batch)
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b)
    (one,) = torch.autograd.grad(found[1], x, torch.eye(3), True, is_grads_batched=True)
    torch.testing.assert_close(one, torch.eye(3)[..., None] * x.detach().exp())
    # Another backward, without a batch, finds all that it needs.
    for a, b in zip(torch.autograd.grad(found[0].sum(), (x, w)), by_autograd(wanted, v * 0 + 1)):
        torch.testing.assert_close(a, b[0])


@check(
    "hooks while tracing", lambda patch: patch.setattr(inferring, "_without_saving_hooks", _nothing)
)
def _hooks_while_tracing() -> None:
    call, compiler = compiled(lambda x: x.sin() * 2)
    x = torch.randn(4, requires_grad=True)
    packed: list[Any] = []

    def pack(t: Any) -> Any:
        packed.append(type(t))
        return t.clone()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t + 1):
        y = call(x)
    assert packed == [torch.Tensor]  # the front end's own run and these are all there are
    (found,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(found, 2 * (x + 1).cos())
    (found,) = torch.autograd.grad(call(x).sum(), x)
    assert torch.equal(found, 2 * x.cos()) and len(compiler.forward) == 1


@check(
    "checks of gradients",
    lambda patch: patch.setattr(joint_trace, "derivative_checks", lambda n: 0),
)
def _checks_of_gradients() -> None:
    def program(x: Any) -> Any:
        return torch.linalg.eig(x).eigenvectors

    x = torch.randn(3, 3, requires_grad=True)
    call, graphs = raw(program, x)
    assert not graphs and "linalg_eig" in call.fallback
    with pytest.raises(RuntimeError, match="up to multiplication by e"):
        call(x).imag.sum().backward()


check("way of a result", lambda patch: patch.setattr(wrapper, "apart", function.apply))(
    lambda: test_ways.test_each_result_has_its_own_way(test_ways.PROGRAMS[0], False)
)

check("gradients of some inputs", lambda patch: patch.setattr(function, "unasked", lambda *_: ()))(
    lambda: test_toward.test_a_write_to_what_only_others_need_is_no_error("aot_eager")
)


@check(
    "backward of some outputs",
    lambda patch: patch.setattr(program_of, "remaining", lambda *_: None),
)
def _one_after_the_other() -> None:
    def program(x: Any, g: Any, d: Any) -> Any:
        fake = (x @ g).tanh()
        return (fake.detach() * d).sin().sum(), fake, (fake * 2).exp().sum()

    compiled = refcompiler.compile(program, backend="aot_eager")
    x = torch.randn(2, 3)
    for steps in ((0, 1), (1, 0), (2, 0), (0, 2), (1, 2), (2, 1), (0, 0)):
        found = []
        for run in (compiled, program):
            torch.manual_seed(1)
            leaves = [torch.randn(size, requires_grad=True) for size in ((3, 4), (2, 4))]
            losses = run(x, *leaves)
            found.append([])
            for n in steps:
                try:
                    losses[n].sum().backward()
                except RuntimeError as error:
                    found[-1].append(str(error)[:50])
                    break
                found[-1] += [t.grad if t.grad is None else t.grad.clone() for t in leaves]
        for mine, eager in zip(*found, strict=True):
            same = torch.equal(mine, eager) if isinstance(mine, torch.Tensor) else mine == eager
            assert same, steps
    leaf = torch.randn(2, 4, requires_grad=True)
    first, fake, _ = compiled(x, torch.randn(3, 4, requires_grad=True), leaf)
    first.backward()
    fake.detach().add_(1)  # which the other one has saved
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        fake.sum().backward()


def _switched(x: Any, on: bool) -> Any:
    y = x * 2
    torch.set_grad_enabled(on)
    return y, y + x.sin()


@check("gradient mode", lambda patch: patch.setattr(wrapper.Wrapper, "_switch", lambda self: None))
def _modes() -> None:
    left = []

    def backend(gm: Any, inputs: Any) -> Any:
        ours = refcompiler.lookup_backend("aot_eager")(gm, inputs)

        def call(*inputs: Any) -> Any:
            found = ours(*inputs)
            left.append(torch.is_grad_enabled())
            return found

        return call

    compiled = refcompiler.compile(_switched, backend=backend)
    for given, on in itertools.product((False, True), repeat=2):
        x = torch.randn(4, requires_grad=True)
        for program in (compiled, _switched):
            with torch.set_grad_enabled(given):
                found = program(x, on)
                assert torch.is_grad_enabled() == on
            assert [t.requires_grad for t in found] == [given, on]
        assert left.pop() == on
        if given:
            torch.set_grad_enabled(True)
            y, _ = compiled(x, on)
            torch.set_grad_enabled(True)
            (gradient,) = torch.autograd.grad(y.sum(), x)
            assert torch.equal(gradient, torch.full((4,), 2.0))
    torch.set_grad_enabled(True)
    assert refcompiler.counters()["uncompiled"] == 0


@check("inference mode", lambda patch: patch.setattr(wrapper, "inferred", lambda t: t))
def _inferred() -> None:
    weight = torch.randn(4, requires_grad=True)

    def program(x: Any) -> Any:
        y = x * weight
        with torch.inference_mode():
            z = y + 1
            z += x
        return y, z, z[1:], x[1:]

    call = refcompiler.compile(program, backend="aot_eager")
    for given in (False, True):
        with torch.inference_mode(given):
            x = torch.randn(4)
            expected, found = program(x), call(x)
        for a, b in zip(expected, found, strict=True):
            assert torch.equal(a, b) and a.requires_grad == b.requires_grad
            assert a.is_inference() == b.is_inference()
        assert found[2].data_ptr() == found[1].data_ptr() + 4
        assert found[3].data_ptr() == x.data_ptr() + 4
    (gradient,) = torch.autograd.grad(call(x := torch.randn(4))[0].sum(), weight)
    assert torch.equal(gradient, x)
    assert refcompiler.counters()["uncompiled"] == 0


@pytest.mark.parametrize("rule", check)
def test_rule(rule: str) -> None:
    check[rule].run()


@pytest.mark.parametrize("rule", check)
def test_without_what_keeps_it(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fails_without(check[rule].run, check[rule].without, monkeypatch)


def _asked(x: Any) -> Any:
    y = x * 2
    view = y[1:]
    y.add_(1)  # with a graph, no gate takes a backward past what an older view reads
    return torch.autograd.grad(view.sin().sum(), y, create_graph=True)


def _retained(x: Any) -> Any:
    y = x * 2
    z = y.sin()
    y.retain_grad()
    z.sum().backward()
    return y.grad


def _hooked(x: Any) -> Any:
    y, seen = x * 2, []
    y.add_(1)
    z = y.sin()
    y.register_hook(lambda gradient: seen.append(gradient.clone()))
    (z * y).sum().backward()
    return seen[0], x.grad


@check("anomaly mode", lambda p: p.setattr(torch.autograd, "set_detect_anomaly", _anything))
def _anomalies() -> None:
    with torch.autograd.detect_anomaly(check_nan=True):
        call, _ = compiled(lambda x: x.sqrt() * 0)
        for value, fails in ((1.0, False), (0.0, True)):
            x = torch.full((3,), value, requires_grad=True)
            y = call(x)
            assert type(y.grad_fn).__name__ == "CompiledBackward"
            with pytest.raises(RuntimeError, match="nan") if fails else contextlib.nullcontext():
                torch.autograd.grad(y.sum(), x)


@check("gradient of a result", lambda p: p.setattr(parts, "cuts_behind", lambda *_: []))
def _results_that_autograd_is_asked_about() -> None:
    for program in (_asked, _retained, _hooked):
        found = []
        for call in (refcompiler.compile(program, backend="aot_eager"), program):
            found.append(call(torch.ones(3, requires_grad=True)))
        torch.testing.assert_close(*found, rtol=0, atol=0)


def _of_no_base(patch: pytest.MonkeyPatch) -> None:
    def own(self: Any, places: Any) -> Any:
        return [observation.Value(self._slot(n, False, self.flat[n])) for n in places]

    patch.setattr(observation._Observer, "_of_base", own)


@check("result that is a view", _of_no_base)
def _one_of_several_views() -> None:
    for program in (lambda x: (x * 2).unbind()[1], lambda x: (x * 2).view(2, 2).chunk(2)[0]):
        call, compiler = compiled(program)
        for factor in (1, 3):
            y = call(torch.full((4, 1), 1.0 * factor, requires_grad=True))
            assert torch.equal(y, torch.full(y.shape, 2.0 * factor))
            with pytest.raises(RuntimeError, match="function that returns multiple views"):
                y.mul_(2)
        assert len(compiler.forward) == 1 and compiler.reasons == [None]


@check("detached input", lambda p: p.setattr(observation, "_check_flag", _nothing_of))
def _detached_input() -> None:
    def program(w: Any) -> Any:
        w.detach_()
        w.t().mul_(2)
        return w * 1

    call, compiler = compiled(program)
    for value in (1.0, 2.0):
        w = torch.full((2, 2), value, requires_grad=True)
        assert torch.equal(call(w), torch.full((2, 2), value * 2))
        assert not w.requires_grad and w.is_leaf
    assert compiler.reasons == ["the graph detaches an input"]


def _straight_through(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gates.Gates, "begins", lambda *_: False)


def _called_with_none(patch: pytest.MonkeyPatch) -> None:
    class Hooks(gates._OfGradients):
        def __setitem__(self, number: int, hook: Any) -> None:
            OrderedDict.__setitem__(self, number, hook)
            self.called[number] = hook

    patch.setattr(gates, "_OfGradients", Hooks)


def _as_if_without_hooks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(wrapper.Wrapper, "_hooked", _nothing_of)


check("hook on an inner result", _straight_through)(test_hooks.test_hooks_on_inner_results)
check("gradient of a result by another", _straight_through)(
    lambda: test_gates.test_gradients_by_what_is_on_the_way(test_gates.PROGRAMS[0])
)
check("hook on one of several results", _called_with_none)(
    test_hooks.test_hooks_on_one_of_several_results_are_called_with_gradients
)
check("hook on a leaf", lambda p: p.setattr(function, "spare", _nothing_of))(
    lambda: test_hooks.test_hooks_on_leaves_are_not_told_of_nothing(True, True)
)
check("hook on a view of an inner result", _straight_through)(
    test_hooks.test_hooks_on_views_of_inner_results_and_on_written_inputs
)
check(
    "hook on a view that is written to",
    lambda p: p.setattr(wrapper.Wrapper, "_hooked", _nothing_of),
)(test_hooks.test_a_hook_on_a_view_that_is_written_to)
