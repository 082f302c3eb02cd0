"""Hooks, and gradients asked for again, beside eager."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.graph import register_multi_grad_hook
from torch.utils.checkpoint import checkpoint

import refcompiler
from refcompiler.aot import aot_autograd
from refcompiler.aot.order import popped
from refcompiler.runtime.counters import counters, reasons
from tests.cpu.aot.programs import Compiler


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    refcompiler.reset()


def _both(program: Callable[..., Any], scenario: Callable[..., list[Any]]) -> int:
    """``scenario(call, n)`` twice with eager and compiled, tensor by tensor; the comparisons."""
    backend = Compiler(separate_reads=True)
    call = refcompiler.compile(program, backend=backend, fullgraph=True)
    count = 0
    for n in range(2):
        wanted, found = scenario(program, n), scenario(call, n)
        assert len(wanted) == len(found)
        for expected, got in zip(wanted, found, strict=True):
            count += 1
            assert (expected is None) == (got is None)
            if isinstance(expected, torch.Tensor):
                torch.testing.assert_close(got, expected, rtol=0, atol=0)
            else:
                assert got == expected
    assert backend.reasons == [None] * len(backend.reasons) and len(backend.forward) >= 1
    return count


def _leaf(n: int) -> torch.Tensor:
    return (torch.arange(4.0) + n).requires_grad_()


@pytest.mark.parametrize("inner", [False, True])
def test_second_derivatives_beside_what_has_no_gradient(inner: bool) -> None:
    def program(x: Any, w: Any) -> Any:
        return x.sin() * w.detach()

    def scenario(call: Callable[..., Any], n: int) -> list[Any]:
        x = _leaf(n)
        w = torch.nn.Parameter(x.detach() + 2)
        given = w * 1 if inner else w
        (first,) = torch.autograd.grad(call(x, given).sum(), x, create_graph=True)
        first.square().sum().backward()
        return [first.detach(), x.grad, w.grad]

    assert _both(program, scenario) == 6


def test_second_derivatives_of_negatives_and_conjugates() -> None:
    def program(x: Any, w: Any) -> Any:
        return x.sin() * w

    def scenario(call: Callable[..., Any], n: int) -> list[Any]:
        x, w = _leaf(n), _leaf(2)
        negative = torch.complex(x, w).conj().imag
        assert negative.is_neg()
        (first,) = torch.autograd.grad(call(x, negative).sum(), x, create_graph=True)
        first.square().sum().backward()
        return [first.detach(), x.grad, w.grad]

    assert _both(program, scenario) == 6


@pytest.mark.parametrize("scale", [1, 2])  # eager saves the factor
def test_a_second_backward_of_what_has_saved_nothing(scale: int) -> None:
    def program(x: Any, w: Any) -> Any:
        y = (x if scale == 1 else x * scale) + w
        return y, y.view(2, 2)

    def scenario(call: Callable[..., Any], n: int) -> list[Any]:
        x, w = _leaf(n), _leaf(2)
        errors = 0
        for result in call(x, w):
            for _ in range(2):
                try:
                    result.sin().sum().backward()
                except RuntimeError:
                    errors += 1
        return [*((x.grad, w.grad) if scale == 1 else ()), errors]

    assert _both(program, scenario) == (6 if scale == 1 else 2)


def test_a_hook_on_a_view_that_is_written_to() -> None:
    def program(part: Any, w: Any) -> Any:
        part.mul_(w)
        return part.sin()

    def scenario(call: Callable[..., Any], n: int) -> list[Any]:
        x, w = _leaf(n), _leaf(2)
        seen: list[Any] = []
        base = x * 1
        part = base.view(4)
        for t in (part, base) if n else (part,):
            t.register_hook(lambda g: seen.append(g.clone()) or g * 3)
        result = call(part, w)
        (result.sum() + base.sum()).backward()
        return [*seen, x.grad, w.grad]

    assert _both(program, scenario) > 4


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_view_that_is_written_to_and_keeps_its_gradient() -> None:
    def program(part: Any, w: Any) -> Any:
        turned = part.view(2, 2)
        turned.mul_(w)
        return turned

    def scenario(call: Callable[..., Any], n: int) -> list[Any]:
        x, w = _leaf(n), torch.full((), 2.0, requires_grad=True)
        part = (x * 1).view(4)
        part.retain_grad()
        call(part, w).sum().backward()
        return [part.grad, x.grad, w.grad]

    assert _both(program, scenario) == 6


def test_a_hook_on_a_view_that_is_written_to_without_gradients() -> None:
    def program(part: Any) -> Any:
        older = part * 2
        with torch.no_grad():
            part.mul_(3)
        return (older * part.sin(),)

    def scenario(call: Callable[..., Any], n: int) -> list[Any]:
        x = _leaf(n)
        seen: list[Any] = []
        base = x * 1
        part = base[n:]
        part.register_hook(lambda g: seen.append(g.clone()) or g * 3)
        (result,) = call(part)
        (result.sum() + base.sum()).backward()
        return [len(seen), *seen, x.grad]

    assert _both(program, scenario) > 2


def test_a_hook_on_a_view_that_is_written_to_where_nothing_has_gradients() -> None:
    """It is compiled: what is asked of the view later goes past the hook in any case."""
    runs: list[int] = []

    def compiler(graph: Any, inputs: Any) -> Any:
        return lambda *given: runs.append(1) or graph.forward(*given)

    def program(part: Any) -> Any:
        part.add_(1)
        return part * 2

    call = refcompiler.compile(program, backend=aot_autograd(fw_compiler=compiler))
    seen: list[Any] = []
    for each in (program, call):
        x = _leaf(0)
        part = (x * 1).view(4)
        part.register_hook(lambda g: g * 3)
        with torch.no_grad():
            result = each(part)
        (part * result).sum().backward()
        seen.append((x.grad, result, part.detach()))
    assert all(map(torch.equal, *seen)) and runs == [1]


@pytest.mark.parametrize("hidden", [torch.detach, lambda base: base.data, lambda base: base])
def test_a_hook_on_the_base_of_a_written_input(hidden: Callable[..., Any]) -> None:
    """Gradients of a base go through its hooks: it is compiled where no write comes between."""
    runs: list[int] = []

    def compiler(graph: Any, inputs: Any) -> Any:
        return lambda *given: runs.append(1) or graph.forward(*given)

    def program(other: Any, base: Any) -> Any:
        with torch.no_grad():
            other.add_(1)
        return base * base + 1, other * 2

    call = refcompiler.compile(program, backend=aot_autograd(fw_compiler=compiler))
    for n in range(2):
        seen: list[Any] = []
        for each in (program, call):
            x, told = _leaf(n), []
            base = x * 1
            base.register_hook(lambda g, told=told: told.append(g.clone()) or g * 3)
            other = hidden(base)
            results = each(other, base)
            results[0].sum().backward()
            seen.append([x.grad, base.detach(), *results, *told])
        assert len(seen[0]) == len(seen[1]) == 5
        assert all(map(torch.equal, *seen)) and len(runs) == 2 * (n + 1)  # and the backward


def test_hooks_on_inner_results() -> None:
    def program(x: Any, w: Any) -> Any:
        y = x * w
        return y, y.sin(), x.cos()

    def scenario(call: Callable[..., Any], n: int) -> list[Any]:
        x, w = _leaf(n), _leaf(2)
        seen: list[Any] = []
        for ends in ((0,), (1,), (0, 1), (1, 2), (2,)):
            y, z, other = results = call(x, w)
            for factor in (2, 3):
                y.register_hook(lambda g, factor=factor: seen.append(g.clone()) or g * factor)
            y.register_hook(seen.append).remove()
            end = sum(results[at].exp().sum() for at in ends)
            del results, y, z, other
            end.backward()
        y, z, _ = call(x, w)
        y.retain_grad()
        for end in (y + z, z, y):
            end.sum().backward(retain_graph=True)
            seen.append(y.grad.clone())
        return [*seen, x.grad, w.grad]

    assert _both(program, scenario) == 2 * (8 + 3 + 2)


def _doubling(found: list[Any]) -> Callable[[Any], Any]:
    def hook(gradient: Any) -> Any:
        found.append(gradient)
        return None if gradient is None else gradient * 2

    return hook


def test_hooks_on_views_of_inner_results_and_on_written_inputs() -> None:
    def program(x: Any, w: Any) -> Any:
        y = (x + w).view(2, 2)
        x.mul_(3)
        return y, y.sin(), x.cos()

    def scenario(call: Callable[..., Any], n: int) -> list[Any]:
        found: list[Any] = []
        for name in ("retain_grad", "register_hook"):
            for place in range(2):
                leaf, w = _leaf(n), _leaf(2)
                x = leaf * 1
                y, z, other = call(x, w)
                hook = [_doubling(found)]
                getattr((y, x)[place], name)(*hook[: name != "retain_grad"])
                for end in (z, other):
                    end.sum().backward(retain_graph=True)
                    found += [(y, x)[place].grad if name == "retain_grad" else None, leaf.grad]
                found.append(w.grad)
        return found

    assert _both(program, scenario) == 2 * (4 * 5 + 2)


def test_hooks_on_one_of_several_results_are_called_with_gradients() -> None:
    def program(x: Any, w: Any) -> Any:
        return x.sin(), w.exp(), x * w

    def scenario(call: Callable[..., Any], n: int) -> list[Any]:
        x, w = _leaf(n), _leaf(2)
        seen: list[Any] = []
        results = call(x, w)
        for at, t in enumerate(results):
            t.register_hook(lambda g, at=at: seen.append(at) or (g if g is None else g * (at + 2)))
            t.register_hook(seen.append)
        results[0].sum().backward()
        (results[1] * 2 + results[2]).sum().backward()
        return [len(seen), x.grad, w.grad]

    assert _both(program, scenario) == 6


def test_expanded_gradients_of_some_results_with_a_hook_on_the_way() -> None:
    def program(x: Any, w: Any) -> Any:
        y = x * w
        return y, y.exp(), (y * w).sin(), x.cos()

    call = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    for ends in ((1,), (1, 3), (0, 2), (1, 2, 3)):
        sides = []
        for each in (call, program):
            x, w = _leaf(1), _leaf(2)
            results = each(x, w)
            seen: list[Any] = []
            results[0].register_hook(_doubling(seen))
            torch.autograd.backward([results[n].sum() for n in ends])
            sides.append([*seen, x.grad, w.grad])
        assert len(sides[0]) == len(sides[1]) == 3
        for mine, eager in zip(*sides, strict=True):
            torch.testing.assert_close(mine, eager, rtol=1e-6, atol=0)
    assert refcompiler.counters()["graphs"] == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "fastpath"])
def test_a_checkpoint_around_a_compiled_module(backend: str) -> None:
    """What it computes again ends when all is there: its hook raises in the middle of the call."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Dropout(0.3))
    call = refcompiler.compile(module, backend=backend, fullgraph=True)
    sides = []
    for each in (call, module):
        for n in range(2):
            torch.manual_seed(n)
            x = torch.randn(3 + n, 4, requires_grad=True)
            y = checkpoint(each, x, use_reentrant=False)
            y.square().sum().backward()
            weight = module[0].weight
            sides.append([y.detach(), x.grad, weight.grad, torch.get_rng_state()])
            weight.grad = None
    assert counters()["graphs"] == 2 and len(sides) == 4
    for found, wanted in zip(sides[:2], sides[2:], strict=True):
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_a_checkpoint_gives_back_what_is_saved_once_for_all_stages() -> None:
    def program(x: Any, w: Any) -> Any:
        y = (x * w).sin()
        return y, (y * w).tanh()

    def scenario(call: Callable[..., Any], n: int) -> list[Any]:
        x, w = _leaf(n), _leaf(2)
        first, second = checkpoint(lambda *given: call(*given), x, w, use_reentrant=False)
        told: list[Any] = []
        first.register_hook(lambda g: told.append(g.clone()))
        (first * second).sum().backward(retain_graph=True)
        (first + second).sum().backward()
        return [*told, x.grad, w.grad]

    assert _both(program, scenario) == 8


@pytest.mark.parametrize("also", [False, True])
def test_a_hook_of_the_graph_comes_before_those_of_a_result(also: bool) -> None:
    """They see what it makes of the gradient: of a graph whose result has one, none is compiled."""

    def program(x: Any, y: Any) -> Any:
        made = x * y
        inner = made.exp()
        (inner if also else made).register_hook(lambda g: g * 3)
        return inner.sum(), made

    compiled = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    compared = 0
    for n in range(3):
        sides = []
        for call in (compiled, program):
            x, seen = _leaf(n), []
            loss, made = call(x / 4, torch.arange(4.0) / 2)
            if n == 1:
                made.register_hook(lambda g, seen=seen: seen.append(g.tolist()) or g * 2)
            if n == 2:
                made.retain_grad()
            (loss + made.sum()).backward()
            assert x.grad is not None
            kept = made.grad.tolist() if n == 2 else None  # of no leaf else
            sides.append((x.grad.tolist(), seen, kept))
        assert sides[0] == sides[1]
        compared += sum(each not in (None, []) for each in sides[0])
    assert compared == 5 and counters()["graphs"] == 1
    assert bool(reasons("uncompiled")) is not also


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_reentrant_checkpoint_wants_a_backward_to_all_leaves(backend: str) -> None:
    def program(x: Any, w: Any) -> Any:
        inside = checkpoint(lambda a: (a * w).sin(), x, use_reentrant=True)
        return inside.sum(), (x * w).cos().sum()

    def scenario(call: Callable[..., Any], n: int) -> list[Any]:
        found: list[Any] = []
        for way in range(5):
            x, w = _leaf(n), _leaf(2)
            inside, outside = call(x, w)
            try:
                if way == 0:
                    found += torch.autograd.grad(outside, [x])
                elif way == 1:
                    found += torch.autograd.grad(inside, [x])
                elif way == 2:
                    inside.backward(inputs=[x])
                else:
                    (inside + outside).backward(create_graph=way == 4)
                found += [x.grad, w.grad, w.grad is not None and w.grad.requires_grad]
                if found[-1]:  # by what is outside of the checkpoint
                    found += torch.autograd.grad(w.grad.sum(), [x, w])
            except RuntimeError as error:
                found.append(str(error))
        return found

    call = refcompiler.compile(program, backend=backend, fullgraph=True)
    for n in range(2):
        wanted, found = scenario(program, n), scenario(call, n)
        assert sum(isinstance(each, str) for each in wanted) == 2
        for expected, got in zip(wanted, found, strict=True):
            if isinstance(expected, torch.Tensor):
                torch.testing.assert_close(got, expected, rtol=0, atol=0)
            else:
                assert got == expected
    assert counters()["graphs"] == 1 and not counters()["uncompiled"]


class _Tied(nn.Module):
    """Readers of several leaves, of one for the second time, and of what another graph has made."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.begin, self.last = nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 10)
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.second.weight = self.first.weight

    def forward(self, x: Any) -> Any:
        h = self.norm(self.begin(x))
        torch._assert(h.sum().item() != 0, "a break")
        g = self.first(h).relu()
        return self.last(g * self.second(g) + h)


def _plain_leaves(x: Any, a: Any, b: Any, c: Any) -> Any:
    h = (x @ a).sin() @ b
    return (h @ a) + (h @ c), (h @ c).sum()


def _arrivals(call: Any, leaves: Mapping[str, Any], inputs: Sequence[Any]) -> list[str]:
    told: list[str] = []
    handles = []
    for name, t in leaves.items():
        kind = t.register_hook if len(name) == 1 else t.register_post_accumulate_grad_hook
        handles.append(kind(lambda _, name=name: told.append(name)))
    several = [*leaves.values()][::3]
    handles.append(register_multi_grad_hook(several, lambda _: told.append("several")))
    results = call(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    sum(t.square().mean() for t in results).backward()
    for handle in handles:
        handle.remove()
    return told


@pytest.mark.parametrize("backend", ["aot_eager", "aot_eager_decomp_partition"])
def test_hooks_on_leaves_are_called_in_eagers_order(backend: str) -> None:
    torch.manual_seed(0)
    net = _Tied()
    names, leaves = "abc", torch.randn(3, 4, 4).unbind()
    plain = {name: t.clone().requires_grad_() for name, t in zip(names, leaves, strict=True)}
    count = 0
    for program, ends, inputs in (
        (net, dict(net.named_parameters()), [torch.randn(4, 8)]),
        (_plain_leaves, plain, [torch.randn(4, 4), *plain.values()]),
    ):
        call = refcompiler.compile(program, backend=backend)
        for _ in range(2):
            ours, eager = _arrivals(call, ends, inputs), _arrivals(program, ends, inputs)
            assert ours == eager != [*ends]
            count += len(eager)
    assert count > 25 and refcompiler.counters()["uncompiled"] == 0


def test_the_engines_heap() -> None:
    """By which the order of inputs is chosen, beside the engine itself."""
    draw = random.Random(0)
    for count in (*range(1, 30), 99):
        first = [draw.random() < 0.7 for _ in range(count)]
        leaves = [torch.zeros((), requires_grad=True) for _ in first]
        given = [t if is_leaf else t * 1 for t, is_leaf in zip(leaves, first, strict=True)]
        told = _told(given)
        assert [n for n in popped(first) if first[n]] == [n for n in told if first[n]]


def _told(given: Sequence[torch.Tensor]) -> list[int]:
    told: list[int] = []
    for n, t in enumerate(given):
        t.register_hook(lambda _, n=n: told.append(n))
    _Copies.apply(*given).backward()
    return told


class _Copies(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> Any:
        ctx.count = len(given)
        return given[0].clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return (gradient,) * ctx.count


def _results(x: Any, w: Any) -> Any:
    first, second = x.sin(), w.cos()
    third = (x * w).exp()
    return third.sum() * 2, first, second, x.tanh()


def _computed(x: Any, w: Any) -> Any:
    first = x * w
    second = first.sin()
    third = first.cos() + x
    return second.exp(), first, third * second, second, third


@pytest.mark.parametrize("leaves", [True, False])
@pytest.mark.parametrize("program", [_results, _computed])
def test_hooks_on_results_are_called_in_eagers_order(
    program: Callable[..., Any], leaves: bool
) -> None:
    """Of what was made last first, however they were registered, and some of them no longer."""

    def run(call: Callable[..., Any], order: Sequence[int]) -> list[Any]:
        x, w = _leaf(0), _leaf(1)
        results = call(*((x, w) if leaves else (x * 1, w * 1)))
        told: list[Any] = []
        for n in order:
            results[n].register_hook(lambda g, n=n: told.append((n, 2)) or g * 2)
            results[n].register_hook(lambda g: told.append(0)).remove()
            results[n].register_hook(lambda g, n=n: told.append((n, g.sum().item())))
        handle = results[order[0]].register_hook(lambda g: told.append(1))
        sum([t.sum() for t in results]).backward(retain_graph=True)
        handle.remove()
        results[order[1]].sum().backward()
        assert x.grad is not None and len(told) > 2 * len(results)
        return [*told, x.grad.tolist()]

    count = len(program(_leaf(0), _leaf(1)))
    call = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    for order in (range(count), [2, *range(2), *range(3, count)], range(count)[::-1]):
        assert run(call, order) == run(program, order)


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("before", [True, False])
def test_hooks_on_leaves_are_not_told_of_nothing(late: bool, before: bool) -> None:
    """Also those that were registered when the graph had run, and those behind the sum."""

    def scenario(call: Callable[..., Any], n: int) -> list[Any]:
        leaves = _leaf(n), _leaf(n + 1)
        told: list[Any] = []
        several: list[Any] = []

        def register() -> None:
            for at, leaf in enumerate(leaves):
                if before:
                    leaf.register_hook(lambda g, at=at: told.append((at, g is None)))
                leaf.register_post_accumulate_grad_hook(
                    lambda p, at=at: told.append((at, "sum", p.grad is None))
                )
            if before:
                register_multi_grad_hook(
                    leaves, lambda found: several.append([g is None for g in found])
                )

        if not late:
            register()
        results = call(*leaves)
        if late:
            register()
        for part in ([0], [1], [0, 1]):
            sum(results[at].sum() for at in part).backward(retain_graph=True)
            told.append(part)
        (results[0].sum() + leaves[1].sum()).backward()
        return [*told, *several, *[leaf.grad for leaf in leaves]]

    assert _both(lambda x, w: (x.sin(), w * 2), scenario) >= 22
