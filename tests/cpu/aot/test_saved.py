"""What others can write to of what eager saves: a backward behind such a write, beside eager."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import refcompiler
from refcompiler.aot import aot_autograd


def added_to(u: Any, w: Any) -> Any:
    u.add_(1)
    return u.sin()


def twice(u: Any, w: Any) -> Any:
    u.add_(1)
    u.mul_(2)
    return u.sin() * w


def copied(u: Any, w: Any) -> Any:
    h = w * 2
    u.copy_(h)
    return h.sin()  # which is not what was written to


def of_copy(u: Any, w: Any) -> Any:
    u.copy_(w * 2)
    return u.sin()


def without_gradients(u: Any, w: Any) -> Any:
    with torch.no_grad():
        u.add_(1)
    return w * u


def detached(u: Any, w: Any) -> Any:
    u.add_(1)
    return w * u.detach()


def of_data(u: Any, w: Any) -> Any:
    u.add_(1)
    return w * u.data


def read_by_data(u: Any, w: Any) -> Any:
    return w * u.data


def by_data(u: Any, w: Any) -> Any:
    u.data.add_(1)
    return w * u


def overwritten_by_data(u: Any, w: Any) -> Any:
    t = u.sin()
    u.data.add_(1)
    return t


def part(u: Any, w: Any) -> Any:
    u[1:].mul_(2)
    return u[1:].sin()


def older_view(u: Any, w: Any) -> Any:
    view = u[1:]
    u.mul_(2)
    return view.sin()


def other_shape(u: Any, w: Any) -> Any:
    u.view(2, 2).add_(1)
    return u.exp().sin()


def new_shape(u: Any, w: Any) -> Any:
    u.add_(1)
    u.unsqueeze_(0)
    return u.sin().sum() * w.sum()


def results_on_the_way(u: Any, w: Any) -> Any:
    u.add_(1)
    w2 = w * 2
    return u * w2, w2, u.t()


PROGRAMS = (
    *(added_to, twice, copied, of_copy, without_gradients, detached, of_data, read_by_data),
    *(by_data, overwritten_by_data, part, older_view, other_shape, new_shape, results_on_the_way),
)


def _nothing(u: Any, w: Any) -> None: ...


def _write(u: Any, w: Any) -> None:
    u.mul_(3)


def _write_to_view(u: Any, w: Any) -> None:
    with torch.no_grad():
        u.view(-1)[1:].mul_(3)


def _write_to_data(u: Any, w: Any) -> None:
    u.data.mul_(3)


def _write_to_other(u: Any, w: Any) -> None:
    with torch.no_grad():
        w.mul_(3)


def _change_layout(u: Any, w: Any) -> None:
    with torch.no_grad():
        u.as_strided_(u.shape, u.stride())


AFTER = (_nothing, _write, _write_to_view, _write_to_data, _write_to_other, _change_layout)


def told(program: Callable[..., Any], kind: str, after: Callable[..., None], size: int) -> Any:
    """What a caller sees of a call, something behind it, and two backwards."""
    generator = torch.Generator().manual_seed(1)
    leaf, w = (torch.randn(size, generator=generator, requires_grad=True) for _ in range(2))
    plain = torch.randn(2 * size, generator=generator)
    u = leaf * 1 if kind == "computed" else plain[::2] if kind == "gaps" else plain[:size].clone()
    if kind == "view":
        u = torch.cat([leaf, leaf])[1 : size + 1]
    found: list[Any] = []
    try:
        result = program(u, w)
        first = result[0] if isinstance(result, tuple) else result
        after(u, w)
        for kept in (True, False):
            gradients = torch.autograd.grad(
                first.cos().sum(), (leaf, w), allow_unused=True, retain_graph=kept
            )
            found += [g if g is None else g.tolist() for g in gradients]
    except RuntimeError as error:
        found.append(str(error)[:60])
    return [*found, u.tolist(), u._version, u.shape, u.stride()]


@pytest.mark.parametrize(
    ("program", "backend"),
    [
        *[(program, "aot_eager") for program in PROGRAMS],
        *[
            (program, "aot_eager_decomp_partition")
            for program in (added_to, of_copy, read_by_data, part, results_on_the_way)
        ],
    ],
)
def test_a_write_behind_the_graph_to_what_is_saved(program: Any, backend: str) -> None:
    """It is refused where eager refuses it, and read where eager reads it."""
    refcompiler.reset()
    call = refcompiler.compile(program, backend=backend, fullgraph=True)
    refused = compared = 0
    for kind, after in itertools.product(("computed", "plain", "view"), AFTER):
        if program is new_shape and after is _write_to_view:
            continue
        expected = told(program, kind, after, 4)
        if backend != "aot_eager" and after is _write_to_data:
            continue  # what is computed again reads what is there by then
        assert told(call, kind, after, 4) == expected, (kind, after)
        refused += isinstance(expected[0], str)
        compared += 1
    assert compared >= 12 and refused < compared
    assert refused > 2 or program in (
        copied,
        of_data,
        read_by_data,
        overwritten_by_data,
        other_shape,
    )
    assert refcompiler.counters()["uncompiled"] == 0


@pytest.mark.parametrize("program", [added_to, of_copy, without_gradients, part, by_data])
def test_with_sizes_that_change_and_gaps(program: Any) -> None:
    refcompiler.reset()
    call = refcompiler.compile(program, backend="aot_eager", fullgraph=True, dynamic=True)
    for size, kind, after in itertools.product((4, 6), ("computed", "gaps"), AFTER):
        if program is part and after is _write_to_data:
            continue  # a view of sizes that change, and one with gaps, is a value of its own
        assert told(call, kind, after, size) == told(program, kind, after, size), (
            size,
            kind,
            after,
        )
    assert refcompiler.counters()["uncompiled"] == 0


def test_memory_is_that_of_the_input() -> None:
    """There is no second copy, and nothing that the call keeps leads back to it."""
    refcompiler.reset()

    def program(u: Any, v: Any) -> Any:
        u.add_(1)
        v[1:].mul_(u[1:])
        return u.sin().sum() + v[2:].exp().sin().sum() + v[2:].cos().sum()

    call = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    x = torch.randn(4, requires_grad=True)
    for _ in range(2):
        u, v = x * 2, x * 3
        result = call(u, v)
        places = {t.untyped_storage()._cdata for t in (u, v)}
        node, _ = result.grad_fn.at
        kept = [t for t in node.kept if t.untyped_storage()._cdata in places]
        assert {t.untyped_storage()._cdata for t in kept} == places and len(kept) < len(node.kept)
        assert all(t.grad_fn is None and t._base is not u for t in node.kept)
        result.backward()
        assert node.kept is None


def test_saved_tensor_hooks_see_values_and_count_no_writes() -> None:
    refcompiler.reset()
    call = refcompiler.compile(added_to, backend="aot_eager", fullgraph=True)
    sides = []
    for each in (call, added_to):
        for pack in (torch.clone, lambda t: t):
            x = torch.ones(4, requires_grad=True)
            u = x * 1
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
                result = each(u, x)
            if pack is torch.clone:
                u.mul_(3)
            sides.append(torch.autograd.grad(result.sum(), x)[0].tolist())
    assert sides[:2] == sides[2:]


def _element_past(u: Any, x: Any) -> Any:
    v = u * x
    result = v.sin()
    v[0].data.mul_(3)
    return result


def _result_past(u: Any, x: Any) -> Any:
    result = (u * x).exp()
    result.data.mul_(3)
    return result


def _input_past(u: Any, x: Any) -> Any:
    data = u.data
    result = u * x
    data += 1
    return result


def _before_it_is_read(u: Any, x: Any) -> Any:
    v = u * x
    v.data.mul_(3)
    return v.sin()


PAST = [_element_past, _result_past, _input_past]


@pytest.mark.parametrize("program", [*PAST, _before_it_is_read], ids=lambda f: f.__name__)
def test_saved_tensor_hooks_come_before_a_write_past_autograd(program: Callable[..., Any]) -> None:
    """A call under hooks runs as it is then, others do not."""
    refcompiler.reset()
    made = []

    def backend(graph: Any, inputs: Any) -> Any:
        made.append(aot_autograd(fw_compiler=lambda graph, _: graph.forward)(graph, inputs))
        return made[-1]

    call, sides = refcompiler.compile(program, backend=backend, fullgraph=True), []
    for each in (call, program):
        for pack in (torch.clone, None, lambda t: t):
            x = torch.linspace(1, 2, 4).requires_grad_()
            hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t) if pack else None
            with hooks or contextlib.nullcontext():
                result = each(x * 2, x)
            sides.append([result.tolist(), torch.autograd.grad(result.sum(), x)[0].tolist()])
    assert sides[:3] == sides[3:] and (sides[0] != sides[1]) == (program in PAST)
    assert [(c.fallback, c.uncompiled.calls) for c in made] == [(None, 2 * (program in PAST))]


def sized_behind(u: Any, v: Any) -> Any:
    t = u.clamp(min=0)
    v.as_strided_((4,), (1,))
    return t + 1


def sized_before(u: Any, v: Any) -> Any:
    v.as_strided_((4,), (1,))
    return u.clamp(min=0) + 1


def turned(u: Any, v: Any) -> Any:
    v.unsqueeze_(0)
    return u.sin() * v.exp()


OVERLAPS: dict[str, Callable[..., Any]] = {
    "apart": lambda x, y: (x * 1, y * 1),
    "overlapping": lambda x, y: (lambda base: (base[:4], base[2:6]))(torch.cat([x, y])),
    "of one base": lambda x, y: (lambda base: (base[:4], base[4:]))(torch.cat([x, y])),
    "a view": lambda x, y: (lambda q: (q.view(4), q))(x * 1),
}


@pytest.mark.parametrize("program", [sized_behind, sized_before, turned])
def test_a_size_is_changed_of_what_shares_a_base_with_what_is_saved(program: Any) -> None:
    """That counts as a write, in eager's order: behind what is saved or before it."""
    refcompiler.reset()
    call = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    compared = []
    for make in OVERLAPS.values():
        sides = []
        for each in (call, program):
            x, y = (torch.linspace(a, 1, 4).requires_grad_() for a in (-1, -2))
            u, v = make(x, y)
            found: list[Any] = []
            try:
                made = each(u, v).sum()
                gradients = torch.autograd.grad(made, (x, y), allow_unused=True)
                found = [g if g is None else g.tolist() for g in gradients]
            except RuntimeError as error:
                found = [str(error)[:60]]
            sides.append([*found, u._version, v._version, v.shape, v.stride()])
        assert sides[0] == sides[1]
        compared.append(len(sides[1]))
    assert len(compared) == 4 and (program is not sized_behind or len(set(compared)) == 2)


def test_views_of_what_overlaps_count_no_writes_in_inference_mode() -> None:
    refcompiler.reset()

    def program(u: Any, v: Any) -> Any:
        _ = v * u
        u.add_(1)
        return u.view(torch.int32)

    call = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    for make in (lambda x: (x, x + 1), lambda x: (x, x.view(4)), lambda x: (x.view(4), x)):
        sides = []
        for each in (call, program):
            u, v = make(torch.ones(4))
            with torch.inference_mode():
                made = each(u, v)
            sides.append([made.tolist(), made.is_inference(), u.tolist(), v.tolist(), u._version])
        assert sides[0] == sides[1]


def test_a_view_that_is_saved_tells_of_a_write_to_what_it_is_of() -> None:
    refcompiler.reset()

    def program(z: Any) -> Any:
        view = z.t()
        return view, torch.nn.functional.logsigmoid(view)

    errors = []
    for call in (refcompiler.compile(program, backend="aot_eager", fullgraph=True), program):
        for _ in range(2):
            z = torch.ones(3, 3).requires_grad_() * 1
            view, result = call(z)
            with torch.no_grad():
                z.add_(1)
            with pytest.raises(RuntimeError) as raised:
                (view.sum() + result.sum()).backward()
            errors.append(str(raised.value).partition("[")[0])
    assert errors[:2] == errors[2:]


def _kept(function: Any, *arguments: Any) -> Any:
    return checkpoint(function, *arguments, use_reentrant=False)


def _written_before(x: Any, b: Any) -> Any:
    b.add_(1)
    return _kept(lambda x, b: (x * b).sin(), x, b)


def _and_read(x: Any, b: Any) -> Any:
    b.add_(1)
    y = _kept(lambda x, b: (x * b).sin(), x, b)
    return y + (x * b).detach()


def _read_as_it_is(x: Any, b: Any) -> Any:
    """It is no argument, so that a recompute reads it as it is by then."""
    b.add_(1)
    return _kept(lambda x: (x * b).sin(), x)


@pytest.mark.parametrize("program", [_written_before, _and_read, _read_as_it_is])
def test_an_argument_of_a_checkpoint_is_saved_as_the_tensor_that_it_is(program: Any) -> None:
    refcompiler.reset()
    call = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    seen = []
    for each in (call, program):
        for write in ("nothing", "counted", "uncounted", "another call"):
            x, b = torch.arange(3.0).requires_grad_(), torch.ones(3)
            y = each(x, b)
            if write == "another call":
                each(x, b)
            elif write != "nothing":
                (b if write == "counted" else b.data).add_(2)
            error = ""
            try:
                y.sum().backward()
            except RuntimeError as raised:
                error = str(raised)
            seen.append((x.grad if x.grad is None else x.grad.tolist(), b.tolist(), error))
    assert seen[:4] == seen[4:]
    assert sum(bool(error) for *_, error in seen) == (0 if program is _read_as_it_is else 4)
    assert not refcompiler.counters()["uncompiled"]


def test_an_error_of_a_saved_tensor_hook_is_the_backwards() -> None:
    """Nobody asks once more, as for what other results have left."""
    left = ["not found"]

    def unpack(t: Any) -> Any:
        if left:
            raise RuntimeError(left.pop())
        return t

    call = refcompiler.compile(lambda x: (x.sin(), x.exp()), backend="aot_eager", fullgraph=True)
    x = torch.randn(4, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
        results = call(x)
    with pytest.raises(RuntimeError, match="not found"):
        sum(results).sum().backward()
    refcompiler.reset()


class _Left(torch.autograd.Function):
    """Leaves one operand with ``ctx``, and has autograd save another."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        ctx.x = x
        ctx.save_for_backward(w)
        return x * w

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (w,) = ctx.saved_tensors
        return gradient * w, gradient * ctx.x


@pytest.mark.parametrize("backend", ["aot_eager", "fastpath"])
@pytest.mark.parametrize("also", [False, True])
def test_writes_to_what_a_function_has_left_with_its_context(also: bool, backend: str) -> None:
    """They do not count, and are read; what autograd has saved too tells of them."""

    def program(x: Any, w: Any) -> Any:
        return _Left.apply(x, w) + (x.sin() if also else 0)

    for write in (None, 0, 1):
        sides = []
        for each in (refcompiler.compile(program, backend=backend, fullgraph=True), program):
            leaves = [(torch.arange(4.0) + n).requires_grad_() for n in range(2)]
            given = [t * 1 for t in leaves]
            result = each(*given)
            if write is not None:
                with torch.no_grad():
                    given[write].add_(1)
            try:
                result.sum().backward()
                sides.append([t.grad.tolist() for t in leaves])  # type: ignore[union-attr]
            except RuntimeError as error:
                sides.append(str(error).partition(":")[0])
        assert sides[0] == sides[1] and (type(sides[0]) is str) == (
            write == 1 or write == 0 and also
        )
    refcompiler.reset()
