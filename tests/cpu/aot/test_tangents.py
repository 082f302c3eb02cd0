"""Gradients of results that lie otherwise than the results, beside eager, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import refcompiler
from tests.cpu.aot.programs import Compiler


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    refcompiler.reset()


def _norm(x: Any, w: Any) -> Any:
    return F.batch_norm(x, None, None, w, w, training=True)


def _factors(x: Any, w: Any) -> Any:
    return torch.linalg.qr(x[:7] * w)[0]


def _two(x: Any, w: Any) -> Any:
    y = x.softmax(-1) * w
    return y, (y @ y.t()).logsumexp(0)


LOSSES: list[Callable[[Any], Any]] = [
    lambda t: t.sum() * 0.1,
    lambda t: (t.mean(0) * torch.arange(float(t.shape[-1]))).sum(),
    lambda t: (t.t() @ torch.linspace(-1, 1, len(t))).sum(),
    lambda t: (t * t.detach()).sum(),
]


@pytest.mark.parametrize("program", [_norm, _factors, _two])
def test_tangents_as_they_come(program: Callable[..., Any]) -> None:
    known = Compiler(separate_reads=True, tangents_as_given=True)
    call = refcompiler.compile(program, backend=known, fullgraph=True)
    count = 0
    for n, loss in enumerate(LOSSES + LOSSES):
        found = []
        for each in (program, call):
            torch.manual_seed(n)
            x, w = torch.randn(33, 7, requires_grad=True), torch.randn(7, requires_grad=True)
            results = each(x, w)
            results = results if isinstance(results, tuple) else (results,)
            sum(
                loss(t if t.dim() > 1 else t[None]) for t in results[n // 4 :] or results
            ).backward()
            found.append((x.grad, w.grad))
        for expected, got in zip(*found, strict=True):
            assert torch.equal(expected, got) and expected.stride() == got.stride()
            count += 1
    assert count == 16 and known.reasons == [None]
    assert 2 <= len(known.backward) <= 9  # one for each way to lie


@pytest.mark.parametrize("program", [_norm, _factors, _two])
def test_tangents_as_they_come_where_sizes_are_symbols(program: Callable[..., Any]) -> None:
    """Their strides are symbols too: a backward for each way to lie, whatever the sizes are."""
    known = Compiler(separate_reads=True, tangents_as_given=True)
    call = refcompiler.compile(program, backend=known, fullgraph=True, dynamic=True)
    ways = []
    for size in (33, 21, 40):
        for n, loss in enumerate(LOSSES):
            found = []
            for each in (program, call):
                torch.manual_seed(n)
                x, w = torch.randn(size, 7, requires_grad=True), torch.randn(7, requires_grad=True)
                results = each(x, w)
                results = results if isinstance(results, tuple) else (results,)
                sum(loss(t if t.dim() > 1 else t[None]) for t in results).backward()
                found.append((x.grad, w.grad))
            for expected, got in zip(*found, strict=True):
                assert torch.equal(expected, got) and expected.stride() == got.stride()
        ways.append(len(known.backward))
    assert known.reasons == [None] and len(known.forward) == 1
    assert ways[0] == ways[1] == ways[2] > 2


def test_tangents_of_written_inputs_as_they_come() -> None:
    def program(u: Any, w: Any) -> Any:
        u.mul_(w)
        return u.sin()

    call = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    for only in (False, True):
        found = []
        for each in (program, call):
            torch.manual_seed(1)
            x, w = torch.randn(33, 7, requires_grad=True), torch.randn(7, requires_grad=True)
            u = x * 1
            y = each(u, w)
            tangent = torch.randn(7, 33).t()
            results, tangents = ([u], [tangent]) if only else ([y, u], [tangent, tangent])
            torch.autograd.backward(results, tangents)
            found.append((x.grad, w.grad))
        assert all(map(torch.equal, *found))


@pytest.mark.parametrize("bits", [torch.Tensor.conj, torch.Tensor._neg_view, torch.Tensor.clone])
def test_tangents_with_bits_lie_as_they_come(bits: Callable[[Any], Any]) -> None:
    call = refcompiler.compile(torch.fft.ifft, backend="aot_eager", fullgraph=True)
    drawn = torch.randn(3, 4, 5, 2, dtype=torch.double)
    for given in (drawn, drawn.permute(2, 1, 0, 3).contiguous().permute(2, 1, 0, 3)):
        found = []
        for each in (torch.fft.ifft, call):
            x = torch.ones(3, 4, 5, dtype=torch.double, requires_grad=True)
            tangent = bits(torch.view_as_complex(given))
            found += torch.autograd.grad(each(x), x, tangent)
        assert torch.equal(*found) and found[0].stride() == found[1].stride()


def test_ways_to_lie_are_bounded() -> None:
    known = Compiler(tangents_as_given=True)
    call = refcompiler.compile(_norm, backend=known, fullgraph=True)
    w = torch.randn(7, requires_grad=True)
    for n in range(24):
        x = torch.randn(33, 7, requires_grad=True)
        tangent = torch.randn(33, 8 + n)[:, :7]
        for each in (_norm, call):
            each(x, w).backward(tangent)
            if each is _norm:
                wanted, x.grad = x.grad, None
        torch.testing.assert_close(x.grad, wanted)
    assert len(known.backward) == 17  # and one for what is laid out


class _Choosing(torch.autograd.Function):
    """Its backward reads what it saved where one of its results has no gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, n: float) -> Any:
        ctx.save_for_backward(x)
        ctx.n = n
        ctx.set_materialize_grads(False)
        return x * n, x.sin()

    @staticmethod
    def backward(ctx: Any, a: Any, b: Any) -> Any:
        (x,) = ctx.saved_tensors
        if a is not None and b is not None:
            return a - b, None
        return a * ctx.n + x if b is None else b * x.exp(), None


class _Materialised(torch.autograd.Function):
    """Of zeros its backward does not make zeros."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, n: float) -> Any:
        ctx.save_for_backward(x)
        return x * 2, x.sin()

    @staticmethod
    def backward(ctx: Any, a: Any, b: Any) -> Any:
        (x,) = ctx.saved_tensors
        return a + b.exp() * x, None


@pytest.mark.parametrize("function", [_Choosing, _Materialised])
@pytest.mark.parametrize("inner", [False, True])
def test_custom_functions_ask_which_gradients_there_are(function: Any, inner: bool) -> None:
    """It is a program, of which another trace reads what the forward has not saved."""

    def program(x: Any, w: Any) -> Any:
        return function.apply(F.dropout(x * w, 0.3), 2.0)

    known = Compiler()
    call = refcompiler.compile(program, backend=known, fullgraph=True)
    compared = 0
    for seed, (some, graph) in enumerate([([0], 0), ([1], 0), ([0, 1], 0), ([0], 1), ([1], 1)]):
        sides = []
        for each in (call, program):
            torch.manual_seed(seed)
            x, w = [torch.randn(4, requires_grad=True) for _ in range(2)]
            results = each(x * 2 if inner else x, w)
            loss = sum(results[n].square().sum() for n in some)
            found = torch.autograd.grad(loss, (x, w), create_graph=bool(graph))
            if graph:
                total = sum(g.square().sum() for g in found)
                found = [*found, *torch.autograd.grad(total, (x, w))]
            sides.append([*[t.detach() for t in found], torch.get_rng_state()])
        for got, expected in zip(*sides, strict=True):
            torch.testing.assert_close(got, expected)
            assert graph or torch.equal(got, expected), some
            compared += 1
    assert compared == 19 and known.reasons == [None]


def test_a_custom_function_whose_backward_cannot_run_so_again_says_it() -> None:
    def program(x: Any, w: Any) -> Any:
        return _Choosing.apply(x + w, 2.0)

    call = refcompiler.compile(program, backend=Compiler(), fullgraph=True)
    x, w = [torch.randn(4, requires_grad=True) for _ in range(2)]
    first, _ = call(x, w)
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match=r"gradients of some of its results alone"):
        first.sum().backward()
