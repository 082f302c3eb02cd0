"""Results that lead to different inputs, each with a backward of its own, beside eager."""

from __future__ import annotations

import gc
import itertools
import operator
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import refcompiler
from refcompiler.aot import ways
from tests.cpu.aot.programs import Compiler


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    refcompiler.reset()


def _apart(x: Any, y: Any, s: Any) -> Any:
    return (x * x).sum(), (y * y.exp()).sum(), x * 2


def _trunk(x: Any, y: Any, s: Any) -> Any:
    h = (x * s).tanh()
    return h * 2, (h * y).sum(), y * y


def _inner(x: Any, y: Any, s: Any) -> Any:
    h = x * s
    z = h.sin() * y
    return h, z, (z * s).sum(), y.view(2, 2), y.view(2, 2).cos()


def _written(x: Any, y: Any, s: Any) -> Any:
    x.mul_(s)
    return x * 2, y * y, y.exp()


def _lists(x: Any, y: Any, s: Any) -> Any:
    """Autograd's function of a list runs once, though nothing here reads what it saves."""
    a, b = torch._foreach_mul([x, y], 0.5)
    return a.sin(), a.cos() * b, torch._foreach_neg([s])[0]


def _draws(x: Any, y: Any, s: Any) -> Any:
    return F.dropout(x * s, 0.5), F.dropout(y, 0.5), s * 1


ORDERS = [(0,), (1, 0), (0, 1, 2), (None,), (0, None), (2, 1)]
PROGRAMS = [_apart, _trunk, _inner, _written, _lists, _draws]


def _given(kinds: str) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Leaves, and arguments that are they (l), computed of them (c), or views (v)."""
    torch.manual_seed(3)
    leaves = [torch.randn(4).requires_grad_() for _ in kinds]
    make = {"l": lambda t: t, "c": lambda t: t.sin(), "v": lambda t: (t * 2).view(4)}
    return leaves, [make[kind](t) for kind, t in zip(kinds, leaves, strict=True)]


def _weighted(t: torch.Tensor) -> torch.Tensor:
    return (t * torch.linspace(-1, 2, t.numel()).view(t.shape)).sum()


def _run(call: Any, kinds: str, order: Sequence[Any], retain: bool, hooked: bool) -> list[Any]:
    """Results, what became of a backward of each in ``order`` (None: of all), hooks, gradients."""
    leaves, arguments = _given(kinds)
    told: list[Any] = []
    if hooked:
        for n, t in enumerate(arguments):
            t.register_hook(lambda g, n=n: told.append((n, g if g is None else g.clone())))
    results = [t for t in call(*arguments) if t.grad_fn is not None]
    found: list[Any] = [t.detach().clone() for t in results]
    for n in order:
        ends = results if n is None else results[n : n + 1]
        try:
            torch.autograd.backward([_weighted(t) for t in ends], retain_graph=retain)
        except RuntimeError as error:
            return [*found, str(error)[:45]]
    told.sort(key=lambda pair: pair[0])
    return [*found, *itertools.chain(*told), *[t.grad for t in leaves]]


def _same(found: Sequence[Any], wanted: Sequence[Any]) -> int:
    assert [type(each) for each in found] == [type(each) for each in wanted]
    for mine, eager in zip(found, wanted, strict=True):
        tensor = isinstance(eager, torch.Tensor)
        assert torch.equal(mine, eager) if tensor else mine == eager, (mine, eager)
    return len(wanted)


@pytest.mark.parametrize(
    ("program", "dynamic"), [*[(each, False) for each in PROGRAMS], (_trunk, True), (_inner, True)]
)
def test_each_result_has_its_own_way(program: Callable[..., Any], dynamic: bool) -> None:
    backend = Compiler(separate_reads=True, eager_draws=True)
    call = refcompiler.compile(program, backend=backend, fullgraph=True, dynamic=dynamic)
    count = errors = 0
    for kinds in ("ccc", "lcc", "vcl", "lll"):
        if program is _written and kinds[0] != "c":
            continue
        for order, retain, hooked in itertools.product(ORDERS, (False, True), (False, True)):
            case = kinds, order, retain, hooked
            found, wanted = _run(call, *case), _run(program, *case)
            count += _same(found, wanted)
            errors += isinstance(wanted[-1], str)
    assert count > 150 and errors and set(backend.reasons) == {None}
    assert len(backend.forward) == refcompiler.counters()["graphs"] <= 4


def test_no_way_is_taken_twice_or_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backward of all runs once; calls of leaves without hooks have one function."""
    ran: list[tuple[int, ...]] = []
    call = refcompiler.compile(_trunk, backend="aot_eager", fullgraph=True)
    real = ways.Compiled.backward

    def backward(ctx: Any, *given: Any) -> Any:
        tangents = given[0] if ways.BOXED else given
        ran.append(tuple(n for n, t in enumerate(tangents) if t is not None))
        return real(ctx, *given)

    monkeypatch.setattr(ways.Compiled, "backward", staticmethod(backward))
    name = "apply_boxed" if ways.BOXED else "apply"
    monkeypatch.setattr(ways.Compiled._backward_cls, name, backward)
    for kinds, names in (("lll", {"CompiledBackward"}), ("clc", {"ResultsBackward"})):
        for order in ORDERS[:4]:
            leaves, arguments = _given(kinds)
            results = call(*arguments)
            assert {t.grad_fn.name() for t in results} == names
            ran.clear()
            for n in order:
                ends = results if n is None else results[n : n + 1]
                torch.autograd.backward([_weighted(t) for t in ends], retain_graph=True)
            assert ran == [(0, 1, 2) if n is None else (n,) for n in order]
    refcompiler.reset()


def test_gradients_of_certain_inputs_and_gradients_with_a_graph() -> None:
    call = refcompiler.compile(_trunk, backend="aot_eager", fullgraph=True)
    count = 0
    for end in range(3):
        sides = []
        for each in (call, _trunk):
            leaves, arguments = _given("clc")
            result = _weighted(each(*arguments)[end])
            wanted = [*leaves, *arguments]
            found = torch.autograd.grad(
                result, wanted, retain_graph=True, allow_unused=True, create_graph=True
            )
            sides.append([*found])
            again = sum((g * g).sum() for g in found if g is not None)
            sides[-1] += torch.autograd.grad(again, wanted, allow_unused=True)
        for mine, eager in zip(*sides, strict=True):
            count += 1
            assert (mine is None) == (eager is None)
            if eager is not None:
                torch.testing.assert_close(mine, eager)
    assert count == 3 * 12


def test_a_result_whose_gradient_comes_later_has_a_run_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What another thread has computed of it comes after the inputs that others lead to."""
    late: list[int] = []
    real = ways._Unfreed
    monkeypatch.setattr(ways, "_Unfreed", lambda *given: late.append(given[1]) or real(*given))
    call = refcompiler.compile(_trunk, backend="aot_eager", fullgraph=True)
    for retain in (False, True):
        sides = []
        for each in (call, _trunk):
            leaves, arguments = _given("ccc")
            results = each(*arguments)
            ends: list[Any] = [_weighted(results[0]), _weighted(results[1])]

            def other(result: Any = results[2], ends: list[Any] = ends) -> None:
                ends.append(_weighted(result))

            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            sum(ends).backward(retain_graph=retain)
            sides.append([t.grad for t in leaves])
        assert len(sides[0]) == 3 and late.pop() and not late
        for mine, eager in zip(*sides, strict=True):
            torch.testing.assert_close(mine, eager)


def test_what_a_call_keeps_goes_with_its_results() -> None:
    call = refcompiler.compile(_trunk, backend="aot_eager", fullgraph=True)
    for order in ((), (0,), (1, 2), (None,)):
        leaves, arguments = _given("ccc")
        call(*arguments)[1].backward()  # compiles
        leaves, arguments = _given("ccc")
        gc.collect()
        gc.disable()
        try:
            results = call(*arguments)
            for n in order:
                ends = results if n is None else results[n : n + 1]
                torch.autograd.backward([_weighted(t) for t in ends], retain_graph=True)
            kept = [weakref.ref(t) for t in (*results, *arguments)]
            assert all(reference() is not None for reference in kept)
            ends = ()
            del results, arguments
            assert [reference() for reference in kept] == [None] * 6
        finally:
            gc.enable()


def _saves(x: Any, y: Any, s: Any) -> Any:
    return (x * x).sum(), (y * y.exp()).sum(), (x * s).sin()


@pytest.mark.skipif(
    not hasattr(torch._C._autograd.SavedTensor, "unpack"), reason="this torch unpacks all or none"
)
def test_what_another_result_has_saved_may_be_written_to() -> None:
    """A backward is an error where it needs what was written to, and then alone."""
    call = refcompiler.compile(_saves, backend="aot_eager", fullgraph=True)
    errors = count = 0
    for kinds, written in itertools.product(("lll", "ccc"), range(3)):
        for order in ((0, 1), (1, 0), (2,), (0, 2), (2, 1), (1, 2)):
            sides = []
            for each in (call, _saves):
                _, arguments = _given(kinds)
                results = each(*arguments)
                with torch.no_grad():
                    arguments[written].add_(1)
                found: list[Any] = []
                for n in order:
                    end = _weighted(results[n])
                    try:
                        found += torch.autograd.grad(end, arguments, allow_unused=True)
                    except RuntimeError as error:
                        found.append(str(error)[:50])
                sides.append(found)
            for mine, eager in zip(*sides, strict=True):
                count += 1
                errors += isinstance(eager, str)
                same = torch.equal if isinstance(eager, torch.Tensor) else operator.eq
                assert same(mine, eager), (written, order)
    assert count > 120 and errors > 20


def test_hooks_hear_nothing_of_second_derivatives_that_do_not_reach_them() -> None:
    def program(x: Any, y: Any, s: Any) -> Any:
        return x * y, s.sum()

    call = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    sides = []
    for each in (call, program):
        leaves, arguments = _given("ccc")
        told: list[Any] = []
        for n, t in enumerate(arguments):
            t.register_hook(lambda g, n=n, told=told: told.append((n, g.detach().clone())) or g * 2)
        first, last = each(*arguments)
        found = torch.autograd.grad(_weighted(first * first) + last, leaves, create_graph=True)
        (found[0].sum() + found[2].exp().sum()).backward()
        told.sort(key=lambda pair: pair[0])
        sides.append([*[t.grad for t in leaves], *itertools.chain(*told)])
    assert _same(*sides) == 3 + 2 * 5


def test_a_backward_for_some_inputs_frees_nothing_that_others_need() -> None:
    def program(u: torch.Tensor, v: torch.Tensor) -> Any:
        v.add_(1)
        v.clamp_(max=3)
        return v * v, u * v, u.exp()

    def run(call: Callable[..., Any]) -> list[Any]:
        torch.manual_seed(0)
        x, y = (torch.randn(4).requires_grad_() for _ in range(2))
        p, q = x * 1, y * 1
        results = [*call(p, q), q]
        ones = [torch.ones(4)] * 4
        torch.autograd.backward(results, ones, retain_graph=True)
        torch.autograd.backward(results, ones, inputs=[x])
        results[0].sum().backward()
        assert x.grad is not None and y.grad is not None
        return [x.grad, y.grad]

    call = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        assert all(map(torch.equal, run(program), run(call)))
