"""Backwards of backwards of compiled graphs."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import refcompiler
from tests.cpu.aot.programs import Compiler
from tests.cpu.aot.test_backward import compiled


def _twice(function: Any, x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
    """Gradients of gradients, and of those."""
    (first,) = torch.autograd.grad(function(x, w).exp().sum(), x, create_graph=True)
    second = torch.autograd.grad(first.square().sum(), (x, w), create_graph=True)
    third = torch.autograd.grad(second[0].sum() + second[1].sum(), (x, w))
    return [first, *second, *third]


@pytest.mark.parametrize("inner", [False, True])
def test_second_and_third_derivatives_are_eagers(inner: bool) -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x @ w
        return torch.tanh(y) * y.sin()

    call, _ = compiled(function)
    x, w = [torch.randn(n, 4, dtype=torch.float64, requires_grad=True) for n in (3, 4)]
    given = x * 2 if inner else x  # no leaf: kept by nobody but the caller
    wanted = _twice(function, given, w)
    for got, expected in zip(_twice(call, given, w), wanted, strict=True):
        torch.testing.assert_close(got, expected)


def test_a_second_derivative_goes_through_several_graphs() -> None:
    inner, _ = compiled(lambda x, w: torch.tanh(x * w))
    outer, _ = compiled(lambda x, w: (x * w).sin())
    x, w = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
    wanted = _twice(lambda x, w: (torch.tanh(x * w) * w).sin(), x, w)
    for got, expected in zip(_twice(lambda x, w: outer(inner(x, w), w), x, w), wanted, strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("order", ["penalty", "penalty real fake", "real penalty fake"])
def test_gradient_penalties_have_eagers_bits(order: str) -> None:
    """``silu`` has another formula for gradients with a graph; parts are added up as they come."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(32, 64), torch.nn.SiLU(), torch.nn.Linear(64, 64), torch.nn.SiLU()]
    net = torch.nn.Sequential(*layers, torch.nn.Linear(64, 1))
    call, backend = compiled(net)
    given = {name: torch.randn(16, 32) for name in order.split()}
    sides = []
    for score in (call, net):
        terms = []
        for name, x in given.items():
            if name == "penalty":
                x = x.clone().requires_grad_()
                result = score(x)
                (slope,) = torch.autograd.grad(
                    result, x, torch.ones_like(result), create_graph=True
                )
                terms.append(((slope.norm(2, 1) - 1) ** 2).mean() * 10)
            else:
                terms.append(score(x).mean())
        found = torch.autograd.grad(sum(terms), [*net.parameters()], allow_unused=True)
        sides.append([slope, *found])
    assert [g is None for g in sides[0]] == [g is None for g in sides[1]]
    assert all(torch.equal(a, b) for a, b in zip(*sides, strict=True) if a is not None)
    assert len(backend.forward) == len(given) - (len(given) == 3), backend.reasons


@pytest.mark.parametrize("hooked", [False, True])
def test_a_gradient_with_a_graph_ends_at_each_input(hooked: bool) -> None:
    """Also where one is computed from another, is there twice, or has a hook."""

    def program(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x * w) * y.sin()

    backend = Compiler()
    sides = []
    x, w = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
    graph = torch.fx.symbolic_trace(program)
    called: list[torch.Tensor] = []
    for call in (backend.made(graph, [x, x, w]), program):
        handle = w.register_hook(called.append) if hooked else None
        same = _twice(lambda x, w, call=call: call(x, x, w), x, w)
        other = _twice(lambda x, w, call=call: call(x, (x * w).exp(), w), x, w)
        if handle is not None:
            handle.remove()
        sides.append([*same, *other])
    for got, expected in zip(*sides, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    assert len(called) % 2 == 0 and all(
        torch.allclose(a, b, rtol=1e-4, atol=1e-4)
        for a, b in zip(called, called[len(called) // 2 :])
    )


@pytest.mark.parametrize("backend", ["aot_eager", "fastpath"])
def test_second_derivatives_of_what_draws_are_of_the_same_numbers(backend: str) -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = F.dropout(x.sin() * w, 0.4) * torch.rand_like(x)
        return F.dropout(y.exp(), 0.3)

    call = refcompiler.compile(function, backend=backend)
    for seed in range(2):
        leaves = torch.randn(5, 6, requires_grad=True), torch.randn(6, requires_grad=True)
        sides = []
        for each in (call, function):
            torch.manual_seed(seed)
            (first,) = torch.autograd.grad(each(*leaves).sum(), leaves[0], create_graph=True)
            torch.rand(3)
            found = torch.autograd.grad(first.square().sum(), leaves)
            sides.append([first.detach(), *found, torch.get_rng_state()])
        for got, expected in zip(*sides, strict=True):
            torch.testing.assert_close(got, expected)
        assert sides[0][1].any() and sides[0][2].any()


def test_second_derivatives_by_inputs_that_only_the_backward_keeps() -> None:
    call, _ = compiled(lambda x, w: (x * w).sin())
    for seed in range(2):
        sides = []
        for each in (call, lambda x, w: (x * w).sin()):
            torch.manual_seed(seed)
            leaves = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
            result = each(leaves[0] * 2, leaves[1].exp())
            (first,) = torch.autograd.grad(result.sum(), leaves[0], create_graph=True)
            sides.append([first.detach(), *torch.autograd.grad(first.square().sum(), leaves)])
        for got, expected in zip(*sides, strict=True):
            torch.testing.assert_close(got, expected)


def _slope(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.sin(x * 2 + w.exp() + F.linear(x, b)).exp()


@pytest.mark.parametrize("name", ["w", "b", "x"])
def test_second_derivatives_are_of_what_leaves_were(name: str) -> None:
    """A leaf of which eager saves nothing, or what is computed of it, is written to before them."""
    sides = []
    for call in (refcompiler.compile(_slope, backend="aot_eager", fullgraph=True), _slope):
        torch.manual_seed(3)
        given = {n: torch.nn.Parameter(torch.randn(3, 3)) for n in "xwb"}
        y = call(**given)
        with torch.no_grad():
            given[name].mul_(1.5)
        seen: list[Any] = []
        try:
            first = torch.autograd.grad(y.sum(), [*given.values()], create_graph=True)
            sum(g.sum() for g in first).backward()
            seen += [*first, *[t.grad for t in given.values()]]
        except RuntimeError as error:
            seen.append(str(error).partition("[")[0])
        sides.append(seen)
    assert len(sides[0]) == len(sides[1])
    for ours, theirs in zip(*sides, strict=True):
        if isinstance(theirs, str):
            assert ours == theirs
        else:
            torch.testing.assert_close(ours, theirs)
    assert not refcompiler.counters()["uncompiled"]


def test_second_derivatives_ask_for_what_they_read_alone() -> None:
    """What another result has saved is written to between the derivatives: no error of theirs."""

    def program(x: Any, w: Any) -> Any:
        x.relu_()
        return x.exp(), F.dropout(w.sin(), 0.3) * w

    sides = []
    for each in (refcompiler.compile(program, backend="aot_eager", fullgraph=True), program):
        torch.manual_seed(3)
        x, w = (torch.randn(4, requires_grad=True) for _ in range(2))
        given = x * 1
        first, second = each(given, w)
        gradients = torch.autograd.grad(second.sum(), w, create_graph=True)
        gradients += torch.autograd.grad(first.sum(), x, create_graph=True)
        given.add_(1)
        seen: list[Any] = []
        for gradient in gradients:
            try:
                found = torch.autograd.grad(gradient.sum(), [x, w], allow_unused=True)
                seen += [None if t is None else t.tolist() for t in found]
            except RuntimeError as error:
                seen.append(str(error).partition(":")[0])
        sides.append(seen)
    assert sides[0] == sides[1] and type(sides[0][-1]) is str
    assert not refcompiler.counters()["uncompiled"]


def test_a_call_notes_no_inputs_that_autograd_keeps() -> None:
    """Second derivatives find those there, unless hooks pack them; nothing keeps the others."""
    call, _ = compiled(lambda x, w, v: (x * w).sin() + v)

    def eager(x: Any, w: Any, v: Any) -> Any:
        return (x * w).sin() + v

    count = 0
    for seed, packs in itertools.product(range(2), (False, True)):
        sides = []
        for each in (call, eager):
            torch.manual_seed(seed)
            leaves = [torch.randn(4, requires_grad=True) for _ in range(3)]
            given = [leaves[0], leaves[1].exp(), leaves[2]]  # found as a leaf, or by its function
            hooks = torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone)
            with hooks if packs else contextlib.nullcontext():
                result = each(*given)
            if each is call:
                assert len(result.grad_fn.noted[1]) == (3 if packs else 1)
            (first,) = torch.autograd.grad(result.sum(), leaves[0], create_graph=True)
            second = torch.autograd.grad(first.square().sum(), leaves[:2])
            sides.append([first.detach(), *second])
        for got, expected in zip(*sides, strict=True):
            torch.testing.assert_close(got, expected)
            count += 1
    assert count == 12


def test_second_derivatives_of_batch_norms_in_training_are_eagers() -> None:
    statistics = torch.zeros(4), torch.ones(4)

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.tanh(F.batch_norm(x * w, *statistics, training=True)) * w

    call, _ = compiled(function)
    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, requires_grad=True)
    wanted = _twice(function, x, w)
    for got, expected in zip(_twice(call, x, w), wanted, strict=True):
        torch.testing.assert_close(got, expected)


def _writes_noise(x: Any, n: Any) -> Any:
    n.mul_(2)
    return (x * n).tanh()


def _writes_its_first(x: Any, n: Any) -> Any:
    x.mul_(2)
    return x.exp() * n


def _drops(x: Any, n: Any) -> Any:
    return F.dropout(x.sin() * x, 0.4) + n


def _adds(x: Any, n: Any) -> Any:
    return ((x + n) * 2).sin()


@pytest.mark.parametrize("program", [_writes_noise, _writes_its_first, _drops, _adds])
def test_second_derivatives_of_what_cannot_run_again_are_compiled(program: Any) -> None:
    """Inputs are gone or were written to, or the numbers drawn: what is saved is all there is."""
    call, compiler = compiled(program)
    count = 0
    for seed, later in itertools.product(range(2), (False, True)):
        sides = []
        for each in (call, program):
            torch.manual_seed(seed)
            w, v = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
            noise = torch.rand(4)
            result = each(w * v, noise)
            if later and program in (_adds, _drops):
                noise.add_(1)  # which no backward reads
            del noise
            first = torch.autograd.grad(result.sum(), (w, v), create_graph=True)
            penalty = sum(g.square().sum() for g in first) + result.sum()
            sides.append([*first, *torch.autograd.grad(penalty, (w, v))])
        for got, expected in zip(*sides, strict=True):
            assert torch.equal(got, expected) or torch.allclose(got, expected)
            count += 1
    assert count == 16 and len(compiler.backward) == 2


def _multiplied(x: Any, n: Any) -> Any:
    n.mul_(2)
    return (x * n).tanh() * x


def _of_data(x: Any, n: Any) -> Any:
    n.mul_(2)
    return x * n.data * 2


def _several(x: Any, n: Any) -> Any:
    n.add_(1)
    y = x * n
    return y.tanh() * x, y.sum() * 2


def _of_result(x: Any, n: Any) -> Any:
    n.add_(1)
    return (x * n).exp()


def _derivatives(program: Any, given: Any, hooks: str) -> tuple[list[Any], list[Any]]:
    """Gradients up to the fourth, with their flags, and what hooks are told."""
    x, w = torch.linspace(-1, 1, 4).double(), torch.linspace(1, 2, 4).double()
    x, w = x.requires_grad_(), w.requires_grad_()
    told: list[Any] = []

    def hook(name: str, t: Any) -> None:
        t.register_hook(lambda g: told.append((name, g.detach().clone())))

    inner = x * w if given else x
    if hooks == "inputs":
        hook("x", x)
        hook("inner", inner)
    results = program(inner, torch.full((4,), 0.3).double())
    results = results if isinstance(results, tuple) else (results,)
    if hooks == "result":
        hook("result", results[0])
    tangents = [torch.full_like(t, 0.5).requires_grad_(not n) for n, t in enumerate(results)]
    wanted = (x, w, tangents[0])
    ends, given_to, found = [*results], tangents, []
    for _ in range(4):
        gradients = torch.autograd.grad(
            ends, wanted, given_to, create_graph=True, allow_unused=True
        )
        found += [g if g is None else (g.detach(), g.requires_grad) for g in gradients]
        left = [g for g in gradients if g is not None and g.requires_grad]
        if not left:
            break
        ends, given_to = [sum(g.cos().sum() for g in left)], None  # type: ignore[list-item]
    return found, told


def _assert_alike(ours: Any, theirs: Any) -> None:
    for got, expected in zip(ours, theirs, strict=True):
        assert (got is None) == (expected is None)
        if got is not None:
            torch.testing.assert_close(got[0], expected[0])
            assert got[1] == expected[1]


@pytest.mark.parametrize(
    ("program", "backend"),
    [
        *[(program, "aot_eager") for program in (_multiplied, _of_data, _several)],
        (_multiplied, "fastpath"),
    ],
)
def test_derivatives_of_any_order_of_what_cannot_run_again(program: Any, backend: str) -> None:
    """With eager's flags; hooks on leaves, other inputs and results are told what eager's are."""
    refcompiler.reset()
    call = refcompiler.compile(program, backend=backend, fullgraph=True)
    compared = told = 0
    for given, hooks in itertools.product((False, True), ("", "inputs", "result")):
        ours, theirs = (_derivatives(each, given, hooks) for each in (call, program))
        _assert_alike(ours[0], theirs[0])
        names = [sorted([name for name, _ in each[1]]) for each in (ours, theirs)]
        assert names[0] == names[1]
        for name in {*names[0]}:
            pairs = [[g for other, g in each[1] if other == name] for each in (ours, theirs)]
            for a, b in zip(*pairs, strict=True):
                torch.testing.assert_close(a, b)
                told += 1
        compared += len(theirs[0])
    assert compared >= 45 and told >= 8
    assert refcompiler.counters()["uncompiled"] == 0


@pytest.mark.parametrize("way", ["hook", "hook later", "keeps", "asked"])
def test_a_derivative_that_passes_a_result_that_tells_of_it_is_refused(way: str) -> None:
    """Of what comes back there no gradient of the call's does."""
    call, _ = compiled(_of_result)
    x = torch.randn(4, requires_grad=True)
    result = call(x, torch.rand(4))
    if way == "hook":
        result.register_hook(lambda g: None)
    (first,) = torch.autograd.grad(result.sum(), x, create_graph=True)
    if way != "hook":
        torch.autograd.grad(first.sum() + result.sum(), x, retain_graph=True)
    if way == "hook later":
        result.register_hook(lambda g: None)
    elif way == "keeps":
        result.retain_grad()
    asked = [result, x] if way == "asked" else [x]
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(first.sum() + result.sum(), asked)


def _of_written(x: Any, w: Any, b: Any) -> Any:
    h = x.mul_(w).exp()
    return h, (x * b).sum(), (h * b).sum()


@pytest.mark.parametrize(("number", "passed"), [(1, "x"), (2, "h")])
def test_a_derivative_passes_what_its_gradient_is_not_of(number: int, passed: str) -> None:
    """A gradient by ``b`` is of what was written, or of another result, which gets none itself."""
    call, _ = compiled(_of_written)
    leaves = [torch.randn(4, requires_grad=True) for _ in range(3)]
    refused = 0
    for asked in (passed, "leaf"):
        found = []
        for function in (_of_written, call):
            given = [t * 1 for t in leaves]
            results = function(*given)
            (first,) = torch.autograd.grad(results[number].sin(), leaves[2], create_graph=True)
            by = {"x": given[0], "h": results[0], "leaf": leaves[0]}[asked]
            try:
                found.append(torch.autograd.grad(first.square().sum(), by)[0])
            except RuntimeError as error:
                assert function is call and "no second derivative" in str(error)
                refused += 1
        assert len(found) == 1 or torch.allclose(*found)
    assert refused == 1


def test_functional_second_derivatives_are_eagers() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.sin().exp()

    call, _ = compiled(function)
    x = torch.randn(4)
    for derivative in (torch.autograd.functional.jvp, torch.autograd.functional.vhp):
        got = derivative(lambda x: call(x).sum(), x, torch.ones(4))
        wanted = derivative(lambda x: function(x).sum(), x, torch.ones(4))
        torch.testing.assert_close(got, wanted)


def test_second_derivatives_by_several_ways() -> None:
    """Results that lead to different inputs have functions of autograd of their own; inputs that
    are results of others are reached through them too."""

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))

    def laplacian(x: Any) -> Any:
        x = x.requires_grad_()
        (first,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        return sum(
            torch.autograd.grad(first[:, n].sum(), x, create_graph=True)[0][:, n] for n in range(3)
        )

    run, compared = refcompiler.compile(laplacian, backend="aot_eager"), 0
    for n in (2, 3):
        found = []
        for function in (run, laplacian):
            torch.manual_seed(n)
            y = function(torch.randn(n, 3))
            found.append([y, *torch.autograd.grad(y.sum(), [*net.parameters()][:3])])
        assert all(map(torch.equal, *found))
        compared += len(found[0])
    assert compared == 8


def _one(x: torch.Tensor, w: torch.Tensor) -> Any:
    return ((x * w).exp(),)


def _apart(x: torch.Tensor, w: torch.Tensor) -> Any:
    """Not both lead to both."""
    return (x * w).exp(), w.tanh()


def _computed(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = (x * w).exp()
    return y, (y * w).tanh()


def _seen_by_hooks(
    call: Any, inner: bool, on: int, way: str, dropped: bool
) -> tuple[list[torch.Tensor], int]:
    """Gradients, and what a hook that clamps is given; how often it was called by then."""
    x, w = [torch.randn(5, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    seen: list[torch.Tensor] = []

    def clamped(gradient: torch.Tensor) -> torch.Tensor:
        seen.append(gradient.detach().clone())
        return gradient.clamp(-0.5, 0.7)

    results = call(x * 1 if inner else x, w)
    results[on].register_hook(clamped)
    loss = sum(t.square().sum() for t in results)
    first = torch.autograd.grad(loss, (x, w), create_graph=True)
    penalty, others = sum(t.square().sum() for t in first), sum(t.sin().sum() for t in results)
    if dropped:
        del results, loss
    found = [*first]
    if way == "gradients alone":
        found += torch.autograd.grad(penalty, (x, w))
    elif way == "both":
        found += torch.autograd.grad(penalty + others, (x, w))
    elif way == "one after the other":
        found += torch.autograd.grad(others, (x, w), retain_graph=True)
        found += torch.autograd.grad(penalty, (x, w))
    else:
        second = torch.autograd.grad(penalty + others, (x, w), create_graph=True)
        third = torch.autograd.grad(sum(t.sum() for t in second) + others, (x, w))
        found += [*second, *third]
    return [*[t.detach() for t in found], *seen], len(seen)


@pytest.mark.parametrize("program", [_one, _apart, _computed])
def test_a_hook_on_a_result_is_told_once_of_all_that_comes_there(program: Any) -> None:
    """Of what its own operation keeps of it, too, whether somebody has it or not."""
    call, backend = compiled(program)
    told = 0
    ways = ("gradients alone", "both", "one after the other", "third")
    for case in itertools.product((False, True), (0, -1), ways, (False, True)):
        sides = []
        for each in (call, program):
            torch.manual_seed(3)
            found, count = _seen_by_hooks(each, *case)
            sides.append(found)
            told += count
        assert len(sides[0]) == len(sides[1]) > 4
        for got, expected in zip(*sides, strict=True):
            torch.testing.assert_close(got, expected)
    assert told > 100 and backend.reasons == [None]


def test_a_result_keeps_its_whole_gradient() -> None:
    call, _ = compiled(_one)
    sides = []
    for each in (call, _one):
        x, w = [torch.linspace(n, 2, 5, dtype=torch.float64).requires_grad_() for n in (-1, 1)]
        (y,) = each(x, w)
        (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        y.retain_grad()
        (first.square().sum() + y.sum()).backward()
        sides.append([first.detach(), y.grad, x.grad, w.grad])
    for got, expected in zip(*sides, strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.swapaxes_(0, 1).swapaxes_(0, 1),
        lambda x: x.unsqueeze_(0),
        lambda x: x.t_(),
    ],
)
def test_a_second_run_leaves_sizes_that_the_graph_has_changed(change: Any) -> None:
    """There is none: the inputs are not as they were, and it would change them once more."""
    refcompiler.reset()

    def program(x: Any, y: Any) -> Any:
        change(x)
        return x.exp() * y.sum(1, keepdim=True).sum()

    call = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        sides = []
        for each in (call, program):
            torch.manual_seed(3)
            x, y = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
            u = x * 1
            found = torch.autograd.grad(each(u, y).sum(), [x, y], create_graph=True)
            more = torch.autograd.grad(sum((t * t).sum() for t in found), [x, y])
            sides.append([u._version, u.shape, u.stride(), *found, *more])
        assert sides[0][:3] == sides[1][:3]
        torch.testing.assert_close(sides[0][3:], sides[1][3:])


def score(x: Any, w: Any, b: Any) -> Any:
    h = (x @ w + b).tanh()
    return torch.nn.functional.softplus(h @ w).sum(-1)


def kept_result(x: Any, w: Any, b: Any) -> Any:
    h = x * x + b
    return (h @ w).exp(), h.sin() * w


def of_another(x: Any, w: Any, b: Any) -> Any:
    h = torch.nn.functional.layer_norm(x @ w + b, (6,))
    return h, (h * b).sigmoid() @ w


def slopes(call: Any, turn: int) -> list[Any]:
    """A loss of results, and a penalty on their slopes; then one or both, once more."""
    torch.manual_seed(turn)
    shapes = (6, 6), (6, 6), (6,)
    leaves = [torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in shapes]
    given = [t * 1 for t in leaves] if turn % 2 else leaves
    found = call(*given)
    results = found if isinstance(found, tuple) else (found,)
    before = sum((t * t).mean() for t in results)
    asked = sum((t * torch.randn_like(t)).sum() for t in results)
    slope, *more = torch.autograd.grad(asked, given[: 1 + turn % 3], create_graph=True)
    loss = sum((t * t).mean() for t in results) if turn % 4 < 2 else before
    penalty = ((slope.square().sum(-1) + 0.1).sqrt() - 1).square().mean()
    loss = loss + penalty + sum(g.square().sum() for g in more) + given[0].sin().sum()
    if turn >= 8:
        with torch.no_grad():
            results[0].add_(1)
    loss.backward(retain_graph=turn % 5 == 0)
    if turn % 5 == 0:
        (results[-1].sum() if turn else slope.sum()).backward()
    third = turn == 3 or turn == 6
    deeper = torch.autograd.grad(slope.square().sum(), leaves, create_graph=True) if third else ()
    return [*deeper, *[t.grad for t in leaves]]


@pytest.mark.parametrize("function", [score, kept_result, of_another], ids=lambda f: f.__name__)
def test_scores_and_slopes_are_added_up_between(function: Any) -> None:
    compiled = refcompiler.compile(function, backend="aot_eager")
    for turn in range(12):
        wanted, found = _or_error(function, turn), _or_error(compiled, turn)
        assert len(found) == len(wanted), turn
        for a, b in zip(found, wanted):
            assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b, turn


def _or_error(call: Any, turn: int) -> list[Any]:
    try:
        return slopes(call, turn)
    except RuntimeError as error:
        return [str(error)[:40]]
