"""What happens between a call and its backwards."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad

import refcompiler
from refcompiler.aot import aot_autograd
from refcompiler.aot import backend as ahead
from refcompiler.aot.inputs import Unsupported
from refcompiler.aot.partition import default_partition, min_cut_partition
from tests.cpu.aot.programs import Compiler


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    refcompiler.reset()


def _squares(x: Any) -> Any:
    return (x * x).sin()


def compiled(program: Any, **options: Any) -> tuple[Any, Compiler]:
    backend = Compiler(**options)
    return refcompiler.compile(program, backend=backend, fullgraph=True), backend


def test_tangents_of_other_strides() -> None:
    call, backend = compiled(lambda x: (x.view(2, 16) * 2).view(4, 8).sin())
    x = torch.randn(4, 8, requires_grad=True)
    tangent = torch.randn(8, 4).t()
    (found,) = torch.autograd.grad(call(x), x, tangent)
    (wanted,) = torch.autograd.grad((x * 2).sin(), x, tangent)
    assert torch.equal(found, wanted)
    (found,) = torch.autograd.grad(call(x), x, torch.ones(()).expand(4, 8))
    assert torch.equal(found, (x * 2).cos() * 2)
    assert len(backend.backward) == 1


def test_a_second_backward_needs_what_was_saved() -> None:
    call, backend = compiled(_squares)
    x = torch.randn(4, requires_grad=True)
    y = call(x).sum()
    (first,) = torch.autograd.grad(y, x, retain_graph=True)
    (second,) = torch.autograd.grad(y, x)
    assert torch.equal(first, second)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(y, x)
    assert len(backend.backward) == 1


def _written_part(u: Any) -> Any:
    u[1] = 2
    return u + 1


def _written_view(u: Any) -> Any:
    v = u + 1
    v.view(2, 2).t().add_(1)
    return v


def _two_ways(u: Any) -> Any:
    v = u + 1
    v[:2] += 1
    return v, u + 2


def _one_more(u: Any) -> Any:
    return u + 1


@pytest.mark.parametrize(
    ("program", "raised"),
    [(_written_part, 4), (_written_view, 1), (_two_ways, 1), (_one_more, 0)],
)
def test_a_write_to_a_view_has_one_backward_though_it_saves_nothing(
    program: Any, raised: int
) -> None:
    """One of a result or what was written to, and another, which may be the same."""
    call, backend = compiled(program)
    seen = []
    for each in (call, program):
        told: list[Any] = []
        for first, then, keep in itertools.product((0, -1), (0, -1), (False, True)):
            x = torch.linspace(0, 1, 4).double().requires_grad_()
            u = x.float()
            results = each(u)
            ends = [*(results if isinstance(results, tuple) else (results,)), u]
            for n, kept in ((first, keep), (then, True)):
                try:
                    (found,) = torch.autograd.grad(ends[n].sum(), x, retain_graph=kept)
                    told.append(found.tolist())
                except RuntimeError as error:
                    told.append(str(error)[:50])
        seen.append(told)
    assert seen[0] == seen[1] and len(seen[0]) == 16
    assert sum(isinstance(each, str) for each in seen[1]) == raised
    assert len(backend.forward) == 1


def _added_to(x: Any, y: Any) -> Any:
    x.add_(y)
    return x + 0, y * 2


def _overwritten(x: Any, y: Any) -> Any:
    before = x * 2
    x.copy_(y)
    return x + 1, y * 2, before


WRITING = [_added_to, _overwritten]


@pytest.mark.parametrize("program", WRITING)
def test_what_passes_a_write_to_an_input_that_is_a_view_has_one_backward(program: Any) -> None:
    """Which it is in the caller's hands, and not in the next call's."""
    call, backend = compiled(program)
    seen = []
    for each in (call, program):
        told: list[Any] = []
        orders = itertools.product((0, 1), (0, 1), (False, True))
        for (first, then, keep), view in itertools.product(orders, (True, False)):
            base, y = torch.ones(2), torch.ones(2, requires_grad=True)
            ends = each(base[:] if view else base, y)
            for n, kept in ((first, keep), (then, False), (0, False)):
                try:
                    told.append(
                        torch.autograd.grad(ends[n].sum(), y, retain_graph=kept)[0].tolist()
                    )
                except RuntimeError as error:
                    told.append(str(error))
        seen.append(told)
    assert seen[0] == seen[1] and len(seen[0]) == 48
    assert 0 < sum(isinstance(each, str) for each in seen[1]) < 24
    assert len(backend.forward) == 1


def _compared(bank: Any, w: Any) -> Any:
    return w @ bank.clone().detach(), bank


def _masked(bank: Any, w: Any) -> Any:
    return w * (bank > 0).float(), bank


def _returned(bank: Any, w: Any) -> Any:
    h = w * 2
    return (h * 3) * (h * 3), h


def _read(bank: Any, w: Any) -> Any:
    return w * bank, bank


@pytest.mark.parametrize("partition", [default_partition, min_cut_partition])
def test_inputs_and_results_may_be_written_to_where_eager_has_not_saved_them(
    partition: Any,
) -> None:
    """A memory bank takes new keys before the backward, a result is scaled in place."""
    made = aot_autograd(fw_compiler=lambda graph, _: graph.forward, partition_fn=partition)
    raised = 0
    for program in (_compared, _masked, _returned, _read):
        seen = []
        for each in (program, refcompiler.compile(program, backend=made, fullgraph=True)):
            torch.manual_seed(0)
            bank, w = torch.randn(4, 4), torch.randn(4, 4, requires_grad=True)
            result, other = each(bank, w)
            with torch.no_grad():
                other.neg_()
            try:
                seen.append(torch.autograd.grad(result.sum(), w)[0].tolist())
            except RuntimeError as error:
                seen.append(str(error)[:60])
        assert seen[0] == seen[1]
        raised += isinstance(seen[0], str)
    assert raised == 1 and refcompiler.counters()["uncompiled"] == 0


def _of_a_sine(u: Any) -> Any:
    v = u.sin()
    return u - 1, v, v * 2


def _of_a_scaled(u: Any) -> Any:
    v = u * 2  # autograd saves the number
    return u - 1, v, v + 2


@pytest.mark.parametrize("program", [_of_a_sine, _of_a_scaled])
def test_results_of_which_nothing_is_saved_have_any_number_of_backwards(program: Any) -> None:
    """Whichever came before, alone or together: eager frees what the functions on a way saved."""

    call, backend = compiled(program)
    sets = [[0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2]]
    seen = []
    for each in (call, program):
        told: list[Any] = []
        for *steps, last in itertools.product(sets, sets, sets[:3]):
            x = torch.linspace(0, 1, 4).requires_grad_()
            results = each(x)
            for n, step in enumerate([*steps, last]):
                ends = [results[at] for at in step]
                ramps = [torch.full_like(end, n + at) for at, end in zip(step, ends)]
                try:
                    told.append(torch.autograd.grad(ends, x, ramps)[0].tolist())
                except RuntimeError as error:
                    told.append(str(error)[:50])
        seen.append(told)
    assert seen[0] == seen[1] and len(seen[0]) == 441
    assert sum(isinstance(each, str) for each in seen[1]) == 204
    assert len(backend.forward) == 1


def test_what_nobody_else_has_is_freed_by_the_last_backward() -> None:
    call, backend = compiled(lambda x: (x + 1).sin())
    x = torch.randn(4, requires_grad=True)
    y = call(x)
    kept = y.grad_fn.kept
    assert [type(t) for t in kept] == [torch.Tensor] and not y.grad_fn.saved_tensors
    (first,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
    assert y.grad_fn.kept is kept
    (second,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(first, second) and y.grad_fn.kept is None
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(y.sum(), x)


def test_inputs_are_kept_with_their_versions() -> None:
    """Without autograd's saved tensors, and refused as those are."""

    def program(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> Any:
        return (x * w * v * w).sum(), (x * v).sum()

    call, _ = compiled(program)
    count = 0
    for n in range(3):
        said, gradients = [], []
        for run in (program, call):
            torch.manual_seed(n)
            given = [torch.randn(4, requires_grad=k != n) for k in range(3)]
            with torch.no_grad():
                given[n].add_(1)
            first, second = run(*given)
            if run is call:
                assert len(first.grad_fn.versions) == 3 <= len(first.grad_fn.kept)
                assert not first.grad_fn.saved_tensors
            with torch.no_grad():
                given[n].add_(1)
            with pytest.raises(RuntimeError) as error:
                first.backward(retain_graph=True)
            said.append(str(error.value))
            if n == 1:  # which the other result does not need
                second.backward()
                gradients.append([None if t.grad is None else t.grad.tolist() for t in given])
            alive = weakref.ref(given[0])
            del first, second, given, error
            gc.collect()
            assert alive() is None
        assert said[0] == said[1] and "is at version 2; expected version 1" in said[1]
        assert n != 1 or gradients[0] == gradients[1]
        count += 1
    assert count == 3


def test_inputs_made_in_inference_mode_are_refused_as_in_eager() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x * w.sin()

    with torch.inference_mode():
        x = torch.randn(4)
    w = torch.randn(4, requires_grad=True)
    call = refcompiler.compile(program, backend="aot_eager")
    said = []
    for run in (program, call):
        with pytest.raises(RuntimeError) as error:
            run(x, w)
        said.append(str(error.value))
    assert said[0] == said[1] and "Inference tensors cannot be saved" in said[0]


def test_what_shares_memory_with_inputs_or_outputs_is_saved() -> None:
    """Whoever writes to them is told so by the backward."""

    def program(x: torch.Tensor, w: torch.Tensor) -> Any:
        y = x.exp()
        return (x * w.view(2, 2).t()).sum(), y, (y[0] * x).sum()

    call = refcompiler.compile(program, backend="aot_eager")
    x, w = torch.randn(2, 2, requires_grad=True), torch.randn(4)
    for written in range(2):
        total, y, other = call(x, w)
        assert len(total.grad_fn.kept) == len(total.grad_fn.versions)  # nothing is private
        with torch.no_grad():
            (w, y)[written].add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            (total + other).backward()


def test_results_and_their_views_are_kept_without_what_leads_to_the_call() -> None:
    """A call that keeps its own result is gone with it, and refuses one that was written to."""

    def one(x: torch.Tensor) -> Any:
        return x.exp()

    def several(x: torch.Tensor) -> Any:
        y = x.exp()
        return y, y.t().tanh() * y[0]

    for program in (one, several):
        call = refcompiler.compile(program, backend="aot_eager")
        for keep in (False, True):
            x = torch.randn(2, 2, requires_grad=True)
            results = call(x)
            y = results if program is one else results[0]
            node = y.grad_fn
            assert node.versions and len(node.kept) >= len(node.versions)
            assert not any(t.requires_grad or t._is_view() for t in node.kept)
            total = y.sum() if program is one else y.sum() + results[1].sum()
            alive = weakref.ref(node)
            del node, results
            if keep:
                total.backward(retain_graph=True)
                x.grad = None
            with torch.no_grad():
                y.add_(1)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                total.backward()
            del y, total
            assert alive() is None  # without a collection


def test_tensors_that_are_kept_serve_a_backward_as_often_as_it_is_asked_for() -> None:
    """The list that a backward empties is the call's own where nothing else needs it."""
    call, _ = compiled(lambda x, w: ((x * w).sin() * w, x.cos() * 2))
    x, w = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
    first, second = call(x, w)
    found = [torch.autograd.grad(first.sum(), (x, w), retain_graph=True) for _ in range(2)]
    found.append(torch.autograd.grad(first.sum(), (x, w)))
    assert all(torch.equal(a, b) for n in (1, 2) for a, b in zip(found[0], found[n], strict=True))
    (last,) = torch.autograd.grad(second.sum(), x)  # what the first has left
    assert torch.equal(last, x.detach().sin() * -2)
    for result in (first, second):
        with pytest.raises(RuntimeError, match="a second time"):
            result.sum().backward()


def test_a_saved_tensor_that_is_written_to() -> None:
    call, _ = compiled(lambda x, w: x * w)
    x, w = torch.randn(4, requires_grad=True), torch.randn(4)
    y = call(x, w)
    w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_dual_inputs_run_the_graph_as_it_is() -> None:
    call, _ = compiled(_squares)
    x = torch.randn(4)
    call(x)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones(4))
        tangent = forward_ad.unpack_dual(call(dual)).tangent
    assert torch.equal(tangent, 2 * x * (x * x).cos()) or torch.allclose(
        tangent, 2 * x * (x * x).cos()
    )


def test_hooks_of_inputs() -> None:
    """They are told what eager tells them, and nothing where eager has nothing to say."""

    def unreached(a: Any, b: Any, c: Any) -> Any:
        c.detach().add_(1)
        return a * 2, b.detach() + 1

    def written(a: Any, b: Any, c: Any) -> Any:
        double = a * 2
        c.mul_(3)
        return double, b.detach() + 1

    def turned(a: Any, b: Any, c: Any) -> Any:
        double = a * 2
        b.swapaxes_(0, 0)  # another function of the same: its hooks are gone
        return double, b.detach() + c.detach()

    def run(call: Any, into: Any) -> list[Any]:
        told: list[Any] = []
        leaf = torch.arange(8.0, requires_grad=True)
        inputs = into(leaf)
        for n, t in enumerate(inputs):
            t.register_hook(lambda g, n=n: told.append((n, g.clone())) or g * 3)
        call(*inputs)[0].sum().backward()
        return [*told, leaf.grad]

    for program, into in (
        (unreached, lambda x: (x[:4] * 1, x[2:6] * 1, x[4:] * 1)),
        (written, lambda x: (lambda y: (y[:4], y[4:], y[2:6]))(x * 1)),  # it overlaps
        (turned, lambda x: (x[:4] * 1, x[2:6] * 1, x[4:] * 1)),
    ):
        call, backend = compiled(program)
        found, wanted = run(call, into), run(program, into)
        assert backend.reasons == [None] and len(found) == len(wanted) == 2
        assert torch.equal(found[1], wanted[1]) and found[0][0] == wanted[0][0]
        assert torch.equal(found[0][1], wanted[0][1])


def test_gradients_stay_off_in_inference_mode() -> None:
    def program(x: Any) -> Any:
        with torch.enable_grad():
            return x * 2, x.view(-1)

    call, backend = compiled(program)
    leaf = torch.randn(3, requires_grad=True)
    with torch.inference_mode():
        for x in (leaf, leaf * 1):
            pairs = list(zip(call(x), program(x), strict=True))
            assert all(a.requires_grad == b.requires_grad for a, b in pairs)
            assert all(a.is_inference() == b.is_inference() for a, b in pairs)
    assert set(backend.reasons) == {None}


def test_hooks_of_saved_tensors_see_what_is_saved() -> None:
    call, _ = compiled(_squares)
    x = torch.randn(4, requires_grad=True)
    packed: list[Any] = []

    def pack(t: Any) -> Any:
        packed.append(t)
        return t.clone()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = call(x)
    (found,) = torch.autograd.grad(y.sum(), x)
    (wanted,) = torch.autograd.grad(_squares(x).sum(), x)
    assert packed and torch.equal(found, wanted)


@pytest.mark.parametrize("partition", [default_partition, min_cut_partition])
def test_autocast(partition: Any) -> None:
    layer = torch.nn.Linear(8, 8)

    def program(x: Any) -> Any:
        return layer(x).float() + F.softmax(layer(x), -1)

    call, backend = compiled(program, partition_fn=partition)
    x = torch.randn(4, 8)
    found = []
    for function in (call, program):
        layer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = function(x)
        y.sum().backward()
        found.append((y.detach(), layer.weight.grad.clone(), layer.bias.grad.clone()))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    assert backend.reasons == [None]


def test_what_is_not_compiled_says_why() -> None:
    def write(a: Any, b: Any) -> Any:
        a.add_(1)
        return a + b

    call, backend = compiled(write)
    base = torch.randn(8, dtype=torch.complex64)
    other = base.clone()
    call(base.conj(), base), write(other.conj(), other)
    assert torch.equal(base, other)
    wanted = "an input that is written to shares memory with a conjugate or negative"
    assert backend.reasons == [wanted]

    x = torch.randn(4).to_sparse()
    call = aot_autograd(fw_compiler=_unused)(torch.fx.symbolic_trace(lambda x: x * 2), [x])
    assert torch.equal(call(x).to_dense(), x.to_dense() * 2)
    assert call.fallback == "an input is not a strided tensor"


def _unused(graph: Any, inputs: Any) -> Any:
    raise AssertionError("this graph is not compiled")


def test_inputs_that_come_to_overlap() -> None:
    def write(a: Any, b: Any) -> Any:
        a.add_(1)
        return a + b

    graphs: list[Any] = []
    refcompiler.compile(write, backend=lambda g, i: graphs.append(g) or g.forward)(
        torch.zeros(6), torch.zeros(6)
    )
    backend = aot_autograd(fw_compiler=lambda graph, inputs: graph.forward)
    call = backend(graphs[0], [torch.zeros(6), torch.zeros(6)])
    base, other = torch.randn(8), torch.empty(8)
    other.copy_(base)
    ours, theirs = call(base[:6], base[2:]), write(other[:6], other[2:])
    assert torch.equal(ours[0], theirs)
    assert torch.equal(base, other)


def test_bad_arguments_say_what_they_should_be() -> None:
    with pytest.raises(TypeError, match="fw_compiler has to be callable"):
        aot_autograd(fw_compiler="inductor")  # type: ignore[arg-type]
    for name in ("bw_compiler", "inference_compiler", "partition_fn"):
        for wrong in ("inductor", 0):
            given: Any = {"fw_compiler": lambda graph, inputs: graph.forward, name: wrong}
            with pytest.raises(TypeError, match=f"{name} has to be callable, not {wrong!r}"):
                aot_autograd(**given)
    given = {"fw_compiler": lambda graph, inputs: graph.forward, "decompositions": 3}
    with pytest.raises(TypeError, match="decompositions is a dict of functions by operator"):
        aot_autograd(**given)
    backend = aot_autograd(fw_compiler=lambda graph, inputs: 3)  # type: ignore[arg-type,return-value]
    with pytest.raises(refcompiler.errors.BackendError, match="answered with 3"):
        refcompiler.compile(_squares, backend=backend)(torch.ones(3))


def test_checks_of_values_stay() -> None:
    call, backend = compiled(torch.linalg.inv)
    x = (torch.randn(3, 3) + 3 * torch.eye(3)).requires_grad_()
    (found,) = torch.autograd.grad(call(x).sum(), x)
    (wanted,) = torch.autograd.grad(torch.linalg.inv(x).sum(), x)
    assert torch.equal(found, wanted) and backend.reasons == [None]
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        call(torch.zeros(3, 3, requires_grad=True))


@pytest.mark.parametrize("dynamic", [False, True])
def test_torchs_front_end_takes_the_same_backend(dynamic: bool) -> None:
    backend = Compiler()
    layer = torch.nn.Linear(8, 4)
    call = torch.compile(layer, backend=backend, dynamic=dynamic)
    for n in (3, 5):
        x = torch.randn(n, 8)
        (found,) = torch.autograd.grad(call(x).sum(), layer.weight)
        (wanted,) = torch.autograd.grad(layer(x).sum(), layer.weight)
        assert torch.equal(found, wanted)
    assert set(backend.reasons) == {None}


def test_a_view_of_a_view_made_under_no_grad_gives_its_input_no_gradient() -> None:
    def program(x: Any, inner: bool) -> Any:
        with torch.no_grad():
            view = x.view(4)
        return x * 2, view[3] if inner else view

    for inner in (True, False):
        found = []
        for call in (program, compiled(program)[0]):
            x = torch.arange(4.0, requires_grad=True)
            outs = call(x * 1, inner)
            sum((n + 2) * out.sum() for n, out in enumerate(outs) if out.grad_fn).backward()
            found.append((x.grad, [out.requires_grad for out in outs]))
        assert torch.equal(found[0][0], found[1][0]) and found[0][1] == found[1][1]


def test_a_write_to_a_list_of_tensors_shows_in_views_made_before() -> None:
    def program(x: Any, y: Any) -> Any:
        views = x.view(2, 2), y[1:]
        torch._foreach_mul_([x, y], 3)
        return views[0].sin(), views[1] * x[1:], x.view(4)

    found = []
    for call in (program, compiled(program)[0]):
        x, y = torch.arange(4.0, requires_grad=True), torch.ones(4, requires_grad=True)
        outs = call(x * 1, y * 1)
        gradients = [torch.autograd.grad(o.sum(), (x, y), retain_graph=True, allow_unused=True)
                     for o in outs]  # fmt: skip
        found.append([t for t in (*outs, *sum(gradients, ())) if t is not None])
    assert len(found[0]) == len(found[1]) == 7 and all(map(torch.equal, *found))


@pytest.mark.parametrize("error", [Unsupported("not this one"), ValueError("our fault")])
def test_a_second_trace_that_is_refused_is_done_without_and_other_errors_show(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, compiler = compiled(lambda x: torch.var_mean(x.sin()))
    x = torch.arange(4.0, requires_grad=True)
    first, _ = call(x)

    def refuse(*given: Any) -> Any:
        raise error

    monkeypatch.setattr(ahead, "trace", refuse)
    if isinstance(error, Unsupported):
        (found,) = torch.autograd.grad(first, x)
        (wanted,) = torch.autograd.grad(x.sin().var(), x)
        assert torch.equal(found, wanted) and len(compiler.backward) == 1
    else:
        with pytest.raises(ValueError, match="our fault"):
            torch.autograd.grad(first, x)


def test_a_backward_under_autocast_casts_as_eager() -> None:
    """Also where some results have no gradient, or one that is expanded."""
    layer = torch.nn.Linear(8, 8)

    def program(x: Any) -> Any:
        return layer(x).exp() @ layer.weight, x.sin() @ x.t()

    def gradients(call: Any) -> list[Any]:
        torch.manual_seed(2)
        found: list[Any] = []
        for dtype in (None, torch.bfloat16, torch.float16):
            for chosen in (slice(0, 1), slice(0, 2)):
                x = torch.randn(8, 8, requires_grad=True)
                results = call(x)[chosen]
                with torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None):
                    sum(t.sum() for t in results).backward()
                found += [x.grad, *[p.grad.clone() for p in layer.parameters()]]
                layer.zero_grad()
        return found

    call, backend = compiled(program, tangents_as_given=True)
    wanted, got = gradients(program), gradients(call)
    assert len({t.sum().item() for t in wanted[::3]}) == 6  # autocast makes a difference
    for a, b in zip(got, wanted, strict=True):
        assert torch.equal(a, b) and a.dtype == b.dtype
    assert len(backend.forward) == 1 and len(backend.backward) == 6
