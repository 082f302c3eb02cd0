"""Gradients of results by results, and hooks on the way between them, beside eager."""

from __future__ import annotations

import importlib.util
import itertools
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call

import refcompiler
from refcompiler.aot import gates
from tests.cpu.aot.programs import Compiler


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    refcompiler.reset()


def _inner(x: Any, w: Any) -> Any:
    y = x * w
    return y, y.sin(), x.cos()


def _chain(x: Any, w: Any) -> Any:
    first = (x * w).tanh()
    second = first * w.sum() + first.exp()
    third = second.softmax(-1) + x
    return third, first, second, (third * second).sum()


def _draws(x: Any, w: Any) -> Any:
    y = F.dropout(x * w, 0.4)
    return y, F.dropout(y.exp(), 0.3).sum(0)


def _views(x: Any, w: Any) -> Any:
    y = (x * w).view(8, 2)
    return y, y.t().contiguous().exp() + w.view(2, 2).repeat(1, 4), x.view(2, 8), x.view(2, 8).cos()


def _several(x: Any, w: Any) -> Any:
    first, second = (x * w).tensor_split(2)
    return first, second, first * second, second.sin()


def _written(x: Any, w: Any) -> Any:
    x.mul_(w.exp())
    w.add_(x.sum(0))
    return None


def _written_and_read(x: Any, w: Any) -> Any:
    y = (x * 2).sin()
    x.add_(y * w)
    return x.exp(), x.view(2, 8), x.view(2, 8).sin(), y


PROGRAMS = [_inner, _chain, _draws, _views, _several, _written, _written_and_read]


def _call(program: Callable[..., Any], n: int, size: int) -> tuple[list[Any], list[Any]]:
    """Leaves, and what of the results and arguments has a gradient."""
    torch.manual_seed(n)
    leaves = [torch.randn(size, 4).requires_grad_(), torch.randn(4).requires_grad_()]
    x, w = arguments = [t * 1 for t in leaves]
    results = program(*arguments) or ()
    tensors = [t for t in (*results, x, w) if t.grad_fn is not None]
    return leaves, tensors


def _loss(ends: Sequence[Any]) -> Any:
    """Of other cotangents for each element."""
    return sum((t * torch.linspace(-1, 2, t.numel()).view(t.shape)).sum() for t in ends)


def _scaling(factor: int, seen: list[Any]) -> Callable[[Any], Any]:
    """A hook that keeps what it sees; eager calls those on parts of a split with None too."""

    def hook(gradient: Any) -> Any:
        if gradient is None:
            return None
        seen.append(gradient.clone())
        return gradient * factor

    return hook


def _same(found: Sequence[Any], wanted: Sequence[Any], rounds: float) -> int:
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        assert (ours is None) == (theirs is None), (found, wanted)
        if theirs is not None:
            assert ours.stride() == theirs.stride() or 0 in theirs.stride()
            torch.testing.assert_close(ours, theirs, rtol=rounds, atol=rounds)
    return len(wanted)


def _compiled(program: Any, backend: Any, **options: Any) -> tuple[Any, Compiler]:
    known = Compiler(separate_reads=True) if backend is None else backend
    refcompiler.reset()
    return refcompiler.compile(program, backend=known, fullgraph=True, **options), known


@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients_by_what_is_on_the_way(program: Callable[..., Any]) -> None:
    call, backend = _compiled(program, None)
    count = 0
    for n in range(2):
        (_, tensors), (_, ours) = _call(program, n, 4), _call(call, n, 4)
        for end in range(len(tensors)):
            found = [
                torch.autograd.grad(
                    _loss(each[end : end + 1 + n]), each, retain_graph=True, allow_unused=True
                )
                for each in (ours, tensors)
            ]
            count += _same(*found, 2e-6)
    assert count >= 8 and backend.reasons == [None] and len(backend.forward) == 1
    assert len(backend.backward) >= 1  # the stages'


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_hooks_see_what_comes_back_from_all_readers(program: Any, dynamic: bool) -> None:
    if dynamic and program in (_views, _written_and_read):
        pytest.skip("made for one size")
    call, backend = _compiled(program, None, dynamic=dynamic)
    count = 0
    for n in range(3):
        sides = []
        for each in (call, program):
            leaves, tensors = _call(each, n, 6 + 2 * n if dynamic else 4)
            seen: list[Any] = []
            for at, t in enumerate(tensors):
                if (at + n) % 2:
                    t.register_hook(_scaling(3, seen))
                else:
                    t.retain_grad()
            _loss(tensors[n:] if n < 2 else tensors[:1]).backward()
            seen.sort(key=lambda t: (t.numel(), float(t.double().sum())))
            sides.append(
                [*seen, *[t.grad for t in (*tensors, *leaves) if t.is_leaf or t.retains_grad]]
            )
        count += _same(*sides, 3e-6)
    assert count >= 9 and backend.reasons == [None] and len(backend.forward) == 1


def test_a_backward_that_asks_for_nothing_on_the_way_is_one() -> None:
    call, backend = _compiled(_chain, None)
    for n in range(2):
        (leaves, tensors), (ours, found) = _call(_chain, n, 4), _call(call, n, 4)
        _loss(tensors).backward()
        _loss(found).backward()
        assert _same([t.grad for t in ours], [t.grad for t in leaves], 1e-6) == 2
    assert len(backend.backward) == 1


def test_hooks_whose_tensors_are_gone() -> None:
    call, _ = _compiled(_inner, None)
    for n in range(2):
        sides = []
        for each in (call, _inner):
            seen: list[Any] = []
            leaves, (y, *rest) = _call(each, n, 4)
            y.register_hook(_scaling(2, seen))
            del y
            _loss(rest[:1]).backward()
            sides.append([*seen, *[t.grad for t in leaves]])
        assert _same(*sides, 0) == 3


def test_gates_are_imported_where_gradients_are_off() -> None:
    """What compiles the first graph imports them, in any mode."""
    for mode in (torch.no_grad, torch.inference_mode):
        spec = importlib.util.spec_from_file_location("gates_anew", gates.__file__)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        with mode(), pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "gates_anew", module)
            spec.loader.exec_module(module)
        assert module.PROBE.requires_grad and module._PROBED is not None


def test_versions_and_writes_behind_gates() -> None:
    call, _ = _compiled(_inner, None)
    for n in range(2):
        sides = []
        for each in (call, _inner):
            leaves, (y, z, *_) = _call(each, n, 4)
            found = [y._version, z._version, z._is_view(), z.is_leaf]
            z.mul_(3)
            found += [y._version, z._version]
            _loss([y, z]).backward()
            sides.append((found, [t.grad for t in leaves]))
        assert sides[0][0] == sides[1][0] and _same(sides[0][1], sides[1][1], 0) == 2


@pytest.mark.parametrize("program", [_chain, _draws, _views, _several])
def test_graphs_of_gradients_go_past_hooks_and_results(program: Any) -> None:
    """With hooks on one result, whose gradient is asked for too, or with nothing on the way."""
    count = 0
    call, _ = _compiled(program, "aot_eager")
    ends = len(_call(program, 0, 4)[1]) if program is not _chain else 2
    for end, on in itertools.product(range(ends), (None, *range(ends))):
        sides: list[list[Any]] = []
        for each in (call, program):
            leaves, results = _call(each, end, 4)
            seen: list[Any] = []
            wanted = leaves if on is None else [*leaves, results[on]]
            if on is not None:
                results[on].register_hook(_scaling(2, seen))
            known = {"create_graph": True, "allow_unused": True}
            first = torch.autograd.grad(_loss([results[end].square()]), wanted, **known)
            sum(t.square().sum() for t in first if t is not None).backward()
            sides.append([*first, *[t.grad for t in leaves], *seen])
        count += _same(*sides, 1e-4)
    assert count >= 25


def _read_by_its_view(x: Any, w: Any) -> Any:
    y = x * w
    view = y[0]
    y.add_(1)
    return y, view.sin()


def _written_last(x: Any, w: Any) -> Any:
    y = x * w
    z = y.exp()
    y[0].add_(1)
    y.mul_(2)
    return y, z, (y * z).sin()


def test_a_graph_of_gradients_past_a_result_that_is_written_to() -> None:
    """The caller's tensor is in its place from the last write on; no view is read behind it."""
    call, _ = _compiled(_read_by_its_view, "aot_eager")
    leaves, (y, z, *_) = _call(call, 0, 4)
    y.register_hook(lambda g: g)
    with pytest.raises(RuntimeError, match="create_graph"):
        torch.autograd.grad(_loss([z]), leaves, create_graph=True)
    count = 0
    for backend in ("aot_eager", "fastpath"):
        call, _ = _compiled(_written_last, backend)
        for n in range(2):
            sides = []
            for each in (_written_last, call):
                leaves, tensors = _call(each, n, 4)
                end, inner = _loss(tensors[2:3]), tensors[:2]
                first = torch.autograd.grad(end, [*inner, *leaves], create_graph=True)
                ends = _loss([g for g in first if g.requires_grad])
                second = torch.autograd.grad(ends, leaves, allow_unused=True)
                sides.append([*first, *second])
            count += _same(*sides, 1e-4)
    assert count >= 20


@pytest.mark.parametrize("program", [_chain, _draws, _several])
def test_stages_are_compiled_by_every_backend(program: Any) -> None:
    for backend in ("fastpath", "aot_eager_decomp_partition"):
        call, _ = _compiled(program, backend)
        for n in range(2):
            (leaves, tensors), (mine, ours) = _call(program, n, 4), _call(call, n, 4)
            wanted = torch.autograd.grad(_loss(tensors), [*tensors, *leaves], allow_unused=True)
            found = torch.autograd.grad(_loss(ours), [*ours, *mine], allow_unused=True)
            assert _same(found, wanted, 1e-5) >= 4


def _asked(arguments: Sequence[Any], results: Sequence[Any], way: str) -> list[Any]:
    """Gradients by what is not on the way between results, or by some of what is."""
    x, w = arguments
    end, edge = _loss(results[:1]), torch.autograd.graph.get_gradient_edge
    keep = {"retain_graph": True, "allow_unused": True}
    if way == "inputs=":
        end.backward(inputs=[x, w], retain_graph=True)
        return [t.grad for t in (x, w)]
    if way == "another thread":
        found: list[Any] = []
        ask = lambda: found.extend(torch.autograd.grad(end, [x, w], **keep))  # noqa: E731
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        return found
    if way == "batched":
        ends = torch.ones(2)
        return [*torch.autograd.grad(end, [x, w], ends, is_grads_batched=True, **keep)]
    if way == "by the engine":
        engine = torch.autograd.Variable._execution_engine
        given = (end,), (torch.ones(()),), True, False, (x, results[1]), True
        return [*engine.run_backward(*given, accumulate_grad=False)]
    wanted = {
        "leaves": [x, w],
        "edges": [edge(x), edge(w)],
        "what comes later": [results[1].exp(), w],
        "a result": [results[1], w],
        "a result's edge": [x, edge(results[2])],
        "the end": [end, results[0]],
    }
    return [*torch.autograd.grad(end, wanted[way], **keep)]


@pytest.mark.parametrize(
    "way, graphs",
    [
        ("leaves", 1),
        ("inputs=", 1),
        ("edges", 1),
        ("another thread", 1),
        ("batched", 1),
        ("what comes later", 1),
        ("the end", 0),
        ("a result", 2),
        ("a result's edge", 2),
        ("by the engine", 2),
    ],
)
def test_stages_are_for_who_asks_for_them(way: str, graphs: int) -> None:
    call, backend = _compiled(_chain, None)
    count = 0
    for n in range(2):
        sides = []
        for each in (call, _chain):
            torch.manual_seed(n)
            arguments = [torch.randn(4, 4).requires_grad_(), torch.randn(4).requires_grad_()]
            sides.append(_asked(arguments, each(*arguments), way))
        count += _same(*sides, 2e-6)
    assert (count, len(backend.forward), backend.reasons) == (4, 1, [None])
    assert min(len(backend.backward), 2) == graphs


def test_one_backward_within_another() -> None:
    """Which of the two asks for a result is told apart."""
    call, backend = _compiled(_chain, None)

    class Within(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, t: Any, way: str, *more: Any) -> Any:
            ctx.given = way, more
            return t.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            way, (arguments, results) = ctx.given
            with torch.enable_grad():
                seen.extend(_asked(arguments, results, way))
            return gradient, None, None, None

    count = 0
    for inner, outer in (("leaves", "leaves"), ("leaves", "a result"), ("a result", "leaves")):
        sides = []
        for each in (call, _chain):
            torch.manual_seed(0)
            seen: list[Any] = []
            arguments = [torch.randn(4, 4).requires_grad_(), torch.randn(4).requires_grad_()]
            results, others = each(*arguments), each(*arguments)
            end = Within.apply(results[0], inner, arguments, others)
            sides.append([*_asked(arguments, (end, *results[1:]), outer), *seen])
        count += _same(*sides, 2e-6)
        assert (len(backend.backward) == 1) == (inner == outer)
    assert count == 12 and backend.reasons == [None]


@pytest.mark.parametrize("way, graphs", [("leaves", 1), ("a result", 2)])
def test_stages_in_a_thread_of_the_engine(
    way: str, graphs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a device: backwards that are nested this deep run where no caller's frame is."""
    call, backend = _compiled(_chain, None)
    looked, frames = [], sys._current_frames
    monkeypatch.setattr(sys, "_current_frames", lambda: looked.append(way) or frames())

    class Deep(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, t: Any, depth: int) -> Any:
            ctx.depth = depth
            return t.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            with torch.enable_grad():
                if ctx.depth:
                    Deep.apply(torch.ones((), requires_grad=True), ctx.depth - 1).backward()
                else:
                    seen.extend(_asked(arguments, results, way))
            return gradient, None

    sides = []
    for each in (call, _chain):
        torch.manual_seed(0)
        seen: list[Any] = []
        arguments = [torch.randn(4, 4).requires_grad_(), torch.randn(4).requires_grad_()]
        results = each(*arguments)
        Deep.apply(torch.ones((), requires_grad=True), 60).backward()
        sides.append(seen)
    assert _same(*sides, 2e-6) == 2 and backend.reasons == [None]
    # One look is for how many gradients a backward of leaves is asked for.
    assert looked == [way] * (1 + (way == "leaves"))
    assert min(len(backend.backward), 2) == graphs


def test_a_graph_of_gradients_by_a_result() -> None:
    call, _ = _compiled(_chain, None)
    arguments = [torch.randn(4, 4).requires_grad_(), torch.randn(4).requires_grad_()]
    sides = []
    for each in (call, _chain):
        results = each(*arguments)
        by = torch.autograd.grad(results[0].square().sum(), results[1:3], create_graph=True)
        ends = sum(t.square().sum() for t in by)
        sides.append([*by, *torch.autograd.grad(ends, arguments)])
    assert _same(*sides, 1e-4) == 4
    results = call(*arguments)
    found = torch.autograd.grad(results[0].square().sum(), arguments, create_graph=True)
    wanted = _chain(*arguments)
    expected = torch.autograd.grad(wanted[0].square().sum(), arguments, create_graph=True)
    assert _same([t.detach() for t in found], [t.detach() for t in expected], 2e-6) == 2
    assert all(t.requires_grad for t in found)


def _branching(x: Any, w: Any) -> Any:
    h = x * 2
    return h, (h * w).sin(), (h * w[:1]).cos() * h, h.exp()


@pytest.mark.parametrize(("hooked", "functions"), [(False, 2), (True, 3)])
def test_one_gate_for_results_with_the_same_on_their_ways(hooked: bool, functions: int) -> None:
    """Unless a hook on an input that not all of them lead to has the call apart."""
    call, backend = _compiled(_branching, None)
    count = 0
    for n in range(2):
        ways = []
        for each in (_branching, call):
            torch.manual_seed(n)
            given = [torch.randn(3, 4).requires_grad_(), torch.randn(3, 4).requires_grad_()]
            if hooked:
                given[1].register_hook(lambda g: g * 3)
            ways.append((given, each(*given)))
        (inputs, wanted), (own, found) = ways
        for end in range(1, 4):
            pairs = []
            for leaves, results in ((own, found), (inputs, wanted)):
                asked = [results[0], *leaves]
                pairs.append(
                    torch.autograd.grad(
                        _loss(results[end:]), asked, retain_graph=True, allow_unused=True
                    )
                )
            count += _same(*pairs, 2e-6)
        assert len({t.grad_fn for t in found}) == functions
        assert [t._version for t in found] == [t._version for t in wanted]
    assert count == 18 and backend.reasons == [None]


def test_a_second_derivative_through_gradients_that_the_frame_lets_go_of() -> None:
    """Steps of learning to learn: what the graph behind the break was given ends with the frame."""
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))

    def learnt(x: torch.Tensor, y: torch.Tensor, steps: int) -> torch.Tensor:
        p = dict(model.named_parameters())
        for _ in range(steps):
            loss = F.cross_entropy(functional_call(model, p, (x[:3],)), y[:3])
            found = torch.autograd.grad(loss, p.values(), create_graph=True)
            p = {k: v - 0.1 * g for (k, v), g in zip(p.items(), found, strict=True)}
        return F.cross_entropy(functional_call(model, p, (x,)), y)

    refcompiler.reset()
    compiled, compared = refcompiler.compile(learnt, backend="aot_eager"), 0
    for steps in (1, 2, 1):
        x, y = torch.randn(4, 6), torch.tensor([0, 1, 2, 0])
        wanted = torch.autograd.grad(learnt(x, y, steps), [*model.parameters()])
        found = torch.autograd.grad(compiled(x, y, steps), [*model.parameters()])
        for mine, eagers in zip(found, wanted, strict=True):
            torch.testing.assert_close(mine, eagers)
            compared += 1
    assert compared == 12 and refcompiler.counters()["graphs"] >= 3


def _fork(x: Any, w: Any) -> Any:
    y, z = x * 2, w.sin()
    inner = y * z
    return y, z, inner, w.cos(), inner.exp()


@pytest.mark.parametrize("leaves", [True, False])
def test_hooks_are_called_on_the_ways_to_what_is_asked_for(leaves: bool) -> None:
    """Of results that have a function of autograd with others, too, which are not."""
    call, _ = _compiled(_fork, "aot_eager")
    count = 0
    for ends in [*itertools.combinations(range(5), 2), *[(n,) for n in range(5)]]:
        for wanted in range(7):
            sides = []
            for each in (call, _fork):
                torch.manual_seed(count)
                given = [torch.randn(4, dtype=torch.double, requires_grad=True) for _ in range(2)]
                results = each(*(given if leaves else [t * 1 for t in given]))
                told: list[Any] = []
                for n, t in enumerate(results):
                    t.register_hook(lambda g, n=n, told=told: told.append((n, g.tolist())))
                found = torch.autograd.grad(
                    [results[n] for n in ends],
                    [*results, *given][wanted],
                    [results[n].detach() for n in ends],
                    allow_unused=True,
                )
                sides.append((sorted(told), [None if t is None else t.tolist() for t in found]))
            assert sides[0] == sides[1], (ends, wanted)
            count += 1
    assert count == 105


@pytest.mark.parametrize("first", [0, 1])
def test_what_a_backward_in_stages_leaves(first: int) -> None:
    """Of what is saved: what the ways of others read, which may end where others have begun."""

    def program(x: Any, w: Any) -> Any:
        y = x + w
        return y, y * x, y.where(y > 0, w), y + 2, y * 2

    call, _ = _compiled(program, "aot_eager")
    sides = []
    for each in (call, program):
        torch.manual_seed(first)
        x, w = (torch.randn(4, requires_grad=True) for _ in range(2))
        results = each(x, w)
        told: list[Any] = []
        for n, t in enumerate(results):
            t.register_hook(lambda g, n=n, told=told: told.append((n, g.tolist())))
        results[2].sum().backward()
        results[3].sum().backward()
        (again,) = torch.autograd.grad(results[3].sum(), results[0])  # which reads nothing
        results[first].sum().backward()
        results[4].sum().backward()
        sides.append(([*told], [t.tolist() for t in (again, x.grad, w.grad)]))
        for end in (2, 4):
            with pytest.raises(RuntimeError, match="second time"):
                torch.autograd.grad(results[end].sum(), results[0])
    assert sides[0] == sides[1] and len(sides[0][0]) > 5


def test_a_part_whose_gradient_is_zeros_whatever_comes() -> None:
    """That of ``angle`` lies as what is saved, and is read though no tangent leads there."""

    def program(x: Any) -> Any:
        x.relu_()
        return x, x.angle()

    call, _ = _compiled(program, "aot_eager")
    for first in (0, 1):
        sides = []
        for each in (call, program):
            leaf = torch.randn(4, generator=torch.Generator().manual_seed(first))
            x = leaf.requires_grad_() * 1
            results, ones = each(x), torch.ones(4)
            found = [
                torch.autograd.grad(results[n], [leaf, x], ones, retain_graph=True)
                for n in (first, 1 - first)
            ]
            sides.append([[t.tolist() for t in each] for each in found])
            torch.autograd.grad(results[0], [leaf, x], ones)
            with pytest.raises(RuntimeError, match="second time"):
                torch.autograd.grad(results[1], [leaf, x], ones)
        assert sides[0] == sides[1]


def test_stages_where_tracing_made_sizes_constants() -> None:
    """The first trace reads the symbols by then, the second has numbers in their places."""

    def program(x: Any) -> Any:
        x.mul_(2)
        return torch._foreach_abs([x, x.expand(2, *x.shape)])[1]

    call, _ = _compiled(program, "aot_eager", dynamic=True)
    for length in (3, 5):
        sides = []
        for each in (call, program):
            x = torch.arange(-4.0, length).requires_grad_() * 1
            y = each(x)
            sides.append([y, *torch.autograd.grad(y, x, torch.ones_like(y))])
        assert all(map(torch.equal, *sides))


def test_gradients_by_results_alone_are_computed_of_the_calls_results() -> None:
    def program(x: Any) -> Any:
        y = x.tanh()
        return y, y.square().sigmoid()

    call, _ = _compiled(program, "aot_eager")
    sides = []
    for each in (call, program):
        x = torch.linspace(-1, 1, 4).requires_grad_()
        y, z = each(x)
        (first,) = torch.autograd.grad(z.sum(), y, create_graph=True)  # eager's reads z
        second = torch.autograd.grad(first.square().sum(), [x, y, z])
        sides.append([t.tolist() for t in (first, *second)])
    assert sides[0] == sides[1]
