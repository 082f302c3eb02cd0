"""What bits depend on besides values: how tensors lie, and their flags."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import refcompiler
from refcompiler.aot import aot_autograd, joint_trace


def test_products_are_chosen_by_flags_where_gradients_are_off() -> None:
    """A product of what does not lie in order is one of matrices, or several, by the flag."""
    known: set[str] = set()

    class Products(TorchDispatchMode):
        def __torch_dispatch__(self, target: Any, types: Any, args: Any = (), kwargs: Any = None):
            known.add(target.name().removeprefix("aten::"))
            return target(*args, **(kwargs or {}))

    chosen = []
    for flag in (True, False):
        weight, bias = torch.randn(7, 33, requires_grad=flag), torch.randn(7)
        x = torch.randn(2, 30, 33).transpose(0, 1)
        linear = torch.nn.functional.linear
        with torch.no_grad(), Products():
            expected = linear(x, weight, bias)
        graphs: list[Any] = []
        backend = aot_autograd(fw_compiler=lambda gm, _, to=graphs: to.append(gm) or gm.forward)
        with torch.no_grad():
            assert torch.equal(
                refcompiler.compile(linear, backend=backend)(x, weight, bias), expected
            )
        (graph,) = graphs
        made = {
            n.target.name().removeprefix("aten::") for n in graph.graph.nodes if n.op[:4] == "call"
        }
        chosen.append(made & {"mm", "bmm"})
        assert chosen[-1] == known & {"mm", "bmm"}
        known.clear()
        refcompiler.reset()
    assert chosen[0] != chosen[1]


def test_what_is_written_to_keeps_its_gaps() -> None:
    """The functions after a write are given memory that lies as in eager, on which bits depend."""
    found: list[Any] = []

    class Functions(TorchDispatchMode):
        def __torch_dispatch__(self, target: Any, types: Any, args: Any = (), kwargs: Any = None):
            name = target.name().removeprefix("aten::").split(".")[0].rstrip("_")
            if name in ("sigmoid", "exp", "tanh", "sigmoid_backward", "tanh_backward"):
                found.append((name, [t.stride() for t in args if isinstance(t, torch.Tensor)]))
            return target(*args, **(kwargs or {}))

    def running(graph: Any, _: Any) -> Any:
        def run(*given: Any) -> Any:
            with Functions():
                return graph.forward(*given)

        return run

    def parts(x: torch.Tensor) -> Any:
        first, second = torch.unsafe_chunk(x * 1, 2, 1)
        first.add_(second).sigmoid_()
        return first.tanh() * second

    def given(x: torch.Tensor) -> Any:
        x.add_(1)
        return x.exp() + x.sigmoid_()

    backend = aot_autograd(fw_compiler=running, keeps_gaps=True)
    for program, flag in itertools.product((parts, given), (False, True)):
        seen = []
        for each in (program, refcompiler.compile(program, backend=backend)):
            torch.manual_seed(0)
            base = torch.randn(3, 64, requires_grad=flag)
            with Functions() if each is program else contextlib.nullcontext():
                result = each((base * 1)[:, :24])
                if flag:
                    result.sum().backward()
            seen.append((sorted(found), result.tolist(), base.grad))
            found.clear()
        (there, expected, gradient), (here, values, own) = seen
        assert there == here and len(here) >= 2 and values == expected
        assert gradient is own or torch.equal(gradient, own)
    assert refcompiler.counters()["uncompiled"] == 0


def test_gradients_of_reflections_lie_as_where_nothing_is_traced(monkeypatch: Any) -> None:
    """By columns, as what they are of: a trace joins columns, whose result lies by rows."""

    def reflected(a: torch.Tensor, tau: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return torch.ormqr(a, tau, other).sum() + torch.linalg.householder_product(a, tau).sum()

    def strides(function: Any) -> list[tuple[int, ...]]:
        torch.manual_seed(0)
        refcompiler.reset()
        given = [torch.randn(2, 5).t(), torch.randn(2), torch.randn(5, 2)]
        given = [t.requires_grad_() for t in given]
        found = torch.autograd.grad(function(*given), given)
        return [t.stride() for t in found]

    compiled = refcompiler.compile(reflected, backend="aot_eager")
    assert strides(compiled) == strides(reflected)
    assert strides(reflected)[0] == (1, 5) and refcompiler.counters()["uncompiled"] == 0
    monkeypatch.setattr(joint_trace, "lay_out_gradients", lambda outputs: [])
    assert strides(compiled) != strides(reflected)


@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients_of_one_extreme_lie_in_order(dynamic: bool) -> None:
    """However what they are of lies; a trace makes them of a mask, which lies as that does."""

    def program(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
        return a.max() * b.min() + c.median() * d.nanmedian()

    compiled = refcompiler.compile(program, backend="aot_eager", dynamic=dynamic)
    for rows in (3, 5):
        given = [torch.randn(rows, n, 2).movedim(n % 3, 0).requires_grad_() for n in (4, 5, 7, 8)]
        ours, eager = (torch.autograd.grad(f(*given), given) for f in (compiled, program))
        for found, expected in zip(ours, eager, strict=True):
            assert torch.equal(found, expected) and found.stride() == expected.stride()
            assert expected.is_contiguous()
    assert not all(t.is_contiguous() for t in given)


def test_the_inverse_of_a_fourier_transform_checks_its_windows_in_the_graph() -> None:
    window = torch.hann_window(16)

    def program(x: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
        spectrum = torch.stft(x, 16, 4, window=torch.hann_window(16), return_complex=True)
        return torch.istft(spectrum * 0.5, 16, 4, window=window, length=x.shape[-1])

    seen = []
    for each in (program, refcompiler.compile(program, backend="aot_eager", fullgraph=True)):
        torch.manual_seed(0)
        x = torch.randn(2, 80, requires_grad=True)
        y = each(x, window)
        y.square().sum().backward()
        seen.append((y.tolist(), x.grad.tolist()))
        with pytest.raises(RuntimeError, match="window overlap add min: 1"):
            each(x, window * 0)
    assert seen[0] == seen[1] and refcompiler.counters()["uncompiled"] == 0


def test_a_leaf_is_not_written_to_though_nothing_changes(capfd: Any) -> None:
    """One program serves leaves and others; the error is eager's, and nothing is printed."""

    def program(x: torch.Tensor) -> torch.Tensor:
        x.t_().t_()
        return x + 1

    compiled = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    raised = []
    for make in (
        lambda x: x * 1,
        lambda x: x,
        lambda x: x[:],
        lambda x: (x * 1)[:],
        torch.Tensor.detach,
    ):
        seen = []
        for each in (program, compiled):
            x = make(torch.ones(2, 3, requires_grad=True))
            try:
                seen.append((each(x).tolist(), x._version))
            except RuntimeError as error:
                seen.append(str(error))
        assert seen[0] == seen[1]
        raised.append(isinstance(seen[0], str))
    assert raised == [False, True, True, False, False]
    assert refcompiler.counters()["uncompiled"] == 0 and not "".join(capfd.readouterr())


def _turned(u: torch.Tensor, v: torch.Tensor) -> Any:
    u.swapaxes_(0, 0)
    return u + v, u.t()


def _longer(u: torch.Tensor, v: torch.Tensor) -> Any:
    w = u.unsqueeze_(0)
    w.t_()
    return w, w * v


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("program", [_turned, _longer])
def test_sizes_of_what_overlaps_itself_change(program: Callable[..., Any], grad: bool) -> None:
    """No element is written to, so the graph is compiled."""

    def run(call: Callable[..., Any]) -> list[Any]:
        torch.manual_seed(0)
        x = torch.randn(4, requires_grad=grad)
        u = (x[:1] * 1).expand(4)
        results = [*call(u, x * 2), u]
        found = [[t.tolist(), t.stride(), t.requires_grad, t._version] for t in results]
        if grad:
            torch.autograd.backward(results, [torch.ones_like(t) for t in results])
            assert x.grad is not None
            found.append(x.grad.tolist())
        return found

    call = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        assert run(call) == run(program)
    assert refcompiler.counters()["uncompiled"] == 0


BRANCHES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "products": (lambda p, q: p * q, lambda p, q: p.sin() + q),
    "read by none": (lambda p, q: p * 2, lambda p, q: p.exp()),
    "sums": (lambda p, q: p.sum(0, keepdim=True).exp() + q, lambda p, q: p.sum(0) * 2 + q),
}


@pytest.mark.parametrize("branches", BRANCHES.values(), ids=[*BRANCHES])
def test_gradients_of_branches_lie_as_they_are_computed(branches: Any) -> None:
    """And what no branch reads has none."""

    def program(x: Any, w: Any, first: Any) -> Any:
        return torch.cond(first, *branches, (x, w)) * 1

    def run(call: Callable[..., Any], tangent: torch.Tensor, first: bool) -> list[Any]:
        x, w = [torch.linspace(1, n, 12).view(3, 4).requires_grad_() for n in (2, 3)]
        result = call(x, w, torch.tensor(first))
        found = torch.autograd.grad(result, (x, w), tangent, allow_unused=True)
        return [g if g is None else (g.tolist(), g.stride()) for g in found]

    call = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    ones = torch.ones(3, 4)
    for tangent in (ones, ones.t().contiguous().view(4, 3).t(), torch.ones(()).expand(3, 4)):
        for first in (True, False):
            assert run(call, tangent, first) == run(program, tangent, first)
    assert refcompiler.counters()["uncompiled"] == 0
