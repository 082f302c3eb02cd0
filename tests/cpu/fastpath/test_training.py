"""Training through generated kernels: gradients, draws, saved tensors, tangents of every kind."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import fastpath
import refcompiler
from fastpath.report import Report


def graphs(function: Any) -> tuple[Any, list[Report]]:
    """The function compiled by this project's front end, and a report for each graph to come."""
    reports: list[Report] = []

    def backend(gm: torch.fx.GraphModule, examples: Any) -> Any:
        run = fastpath.compile_graph(gm, examples)
        reports.append(run.report)
        return run

    refcompiler.reset()
    return refcompiler.compile(function, backend=backend), reports


def same_gradients(
    function: Callable[..., Any],
    inputs: Sequence[torch.Tensor],
    tangents: Callable[[], Sequence[torch.Tensor | None]],
) -> list[Report]:
    """Compare values and gradients with eager's, one compiled program under the given tangents."""
    leaves = [x for x in inputs if x.requires_grad]
    compiled, reports = graphs(function)
    found = []
    for run in (function, compiled):
        torch.manual_seed(3)
        outputs = run(*inputs)
        pairs = [(o, t) for o, t in zip(outputs, tangents(), strict=True) if t is not None]
        results, given = zip(*pairs, strict=True)
        gradients = torch.autograd.grad(results, leaves, given, allow_unused=True)
        found.append(([*outputs, *gradients], torch.get_rng_state()))
    (expected, state), (ours, our_state) = found
    assert torch.equal(state, our_state) and len(expected) > len(leaves)
    for a, b in zip(ours, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b)
    for report in reports:
        assert all(part.fallback is None for part in (report, *report.backwards)), report
    assert reports and all(report.backwards for report in reports)
    return reports


def test_a_network_with_dropout_and_norms() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Dropout(0.3), nn.Linear(32, 8)
    )
    other = copy.deepcopy(net)
    compiled, reports = graphs(other)
    x, labels = torch.randn(4, 16), torch.tensor([1, 2, 3, 4])
    optimisers = [torch.optim.SGD(m.parameters(), 0.1, momentum=0.9) for m in (net, other)]
    for _ in range(3):
        losses = []
        for model, optimiser in ((net, optimisers[0]), (compiled, optimisers[1])):
            torch.manual_seed(1)
            optimiser.zero_grad()
            loss = F.cross_entropy(model(x), labels)
            loss.backward()
            optimiser.step()
            losses.append(loss.detach())
        torch.testing.assert_close(*losses)
    for p, q in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q)
    (report,) = reports
    (backward,) = report.backwards
    assert report.kernels >= 2 and backward.kernels >= 2
    # Draws, and products where the library is ahead, are ATen's, and nothing else is.
    left, calls = dict(backward.aten_calls), dict(report.aten_calls)
    assert left.pop("aten.mm.default", 0) + backward.products == 3 and not left
    assert calls.pop("aten.addmm.default", 0) + report.products == 2
    assert set(calls) == {"aten.bernoulli.p", "aten.empty_like.default"}


def two(w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return w * w, w.sin()


TANGENTS: dict[str, Callable[[], torch.Tensor]] = {
    "expanded": lambda: torch.ones(()).expand(4, 5),
    "transposed": lambda: torch.arange(20.0).view(5, 4).t(),
    "negative": lambda: torch._neg_view(torch.arange(20.0).view(4, 5)),
    "without memory": lambda: torch._efficientzerotensor((4, 5)),
}


@pytest.mark.parametrize("name", TANGENTS)
def test_tangents_of_every_kind(name: str) -> None:
    w = torch.randn(4, 5, requires_grad=True)
    same_gradients(two, [w], lambda: (TANGENTS[name](), torch.ones(4, 5)))


def test_outputs_without_gradients_have_a_backward_of_their_own() -> None:
    w = torch.randn(4, 5, requires_grad=True)
    (report,) = same_gradients(two, [w], lambda: (None, torch.ones(4, 5)))
    assert report.backwards[0].nodes < 4


def test_hooks_may_lay_out_saved_tensors_otherwise() -> None:
    x, w = torch.randn(5, 4), torch.randn(4, 3, requires_grad=True)

    def program(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return ((x @ w).t().sin() * 2,)

    def contiguous(t: torch.Tensor) -> torch.Tensor:
        return torch.empty(t.shape).copy_(t)

    t = torch.randn(3, 5)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, contiguous):
        same_gradients(program, [x, w], lambda: (t,))


def test_checkpointed_dropout_has_one_mask() -> None:
    w = torch.randn(6, 6, requires_grad=True)

    def program(w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inner = checkpoint(lambda w: F.dropout(w * 2, 0.5).sin(), w, use_reentrant=False)
        return inner + torch.rand_like(w), F.dropout(w, 0.5)

    same_gradients(program, [w], lambda: (torch.ones(6, 6), torch.ones(6, 6)))


def test_conjugate_and_negative_results_of_aten() -> None:
    z = torch.randn(5, dtype=torch.complex64, requires_grad=True)

    def program(z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return z.conj().imag * 2 + 1, (z.conj() * z).imag.sin()

    same_gradients(program, [z], lambda: (torch.ones(5), torch.ones(5)))


@pytest.mark.parametrize("backend", ["aot_eager", "fastpath"])
def test_a_recurrent_layer_keeps_what_its_backward_needs(backend: str) -> None:
    refcompiler.reset()
    layer, x = nn.LSTM(4, 5, num_layers=2), torch.randn(3, 2, 4)
    found = []
    for run in (layer, refcompiler.compile(layer, backend=backend)):
        layer.zero_grad()
        out, (hidden, cell) = run(x)
        (out.sum() + hidden.square().sum() + cell.sin().sum()).backward()
        found.append([out, *(p.grad for p in layer.parameters())])
    torch.testing.assert_close(*found)
    assert len(found[0]) == 9


@pytest.mark.parametrize("order", [0, 1, 2, 3, 7, float("inf"), float("-inf")])
def test_norms(order: float) -> None:
    x = torch.randn(5, 37)
    x[1, 2], x[2, 3], x[3] = float("nan"), float("inf"), 0.0

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.linalg.vector_norm(x, order, 1),
            torch.linalg.vector_norm(x, order, dtype=torch.float64),
            torch.linalg.vector_norm(x.bfloat16(), order, 0, keepdim=True),
        )

    compiled, reports = graphs(program)
    for a, b in zip(compiled(x), program(x), strict=True):
        torch.testing.assert_close(a, b, equal_nan=True)
    assert reports[0].fallback is None and not reports[0].aten_calls
    made = fastpath.compile_graph(torch.fx.symbolic_trace(program), [x])
    terms = re.findall(r"m\.pow_f\d\d\(m\.abs", "".join(made.kernel_sources))
    assert not terms  # the roots are powers


def test_a_backward_without_steps_is_compiled() -> None:
    x, y = torch.rand(3, requires_grad=True), torch.rand(3, requires_grad=True)

    def program(x: Any, y: Any) -> tuple[torch.Tensor, ...]:
        return torch.linalg.vector_norm(x, 0, keepdim=True), torch.linalg.vector_norm(y, 0)

    results, reports = graphs(program)
    sum(t.sum() for t in results(x, y)).backward()
    assert x.grad is None and y.grad is None  # as in eager
    assert [r.fallback for r in (reports[0], *reports[0].backwards)] == [None, None]


@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients_of_layer_norm_lie_in_order(dynamic: bool) -> None:
    """Of one row of a batch, too, and however the gradient of its result lies."""

    def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, weight.shape, weight, weight).permute(2, 0, 1).contiguous().sin()

    function = refcompiler.compile(program, dynamic=dynamic)
    for shape, steps in (((1, 2, 3), (6, 3, 1)), ((1, 2, 3), (24, 2, 8)), ((2, 5, 3), (15, 1, 5))):
        x = torch.randn(99).as_strided(shape, steps).requires_grad_()
        weight = torch.randn(3, shape[1]).t().requires_grad_()
        ours, eager = (
            torch.autograd.grad(f(x, weight).sum(), (x, weight)) for f in (function, program)
        )
        for found, expected in zip(ours, eager, strict=True):
            torch.testing.assert_close(found, expected)
            assert found.is_contiguous() and expected.is_contiguous()
    assert refcompiler.counters()["uncompiled"] == 0


def test_norms_of_what_needs_no_gradient() -> None:
    """What a rule gives there, eager's operator does not, and so nothing says how it lies."""
    x, weight = torch.randn(6, 4), torch.randn(4, requires_grad=True)

    def program(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        batch = F.batch_norm(x, None, None, w, w, training=True)
        return batch, F.layer_norm(x, (4,), w, w), F.group_norm(x, 2, w, w)

    reports = same_gradients(program, [x, weight], lambda: [torch.ones(6, 4).cumsum(1)] * 3)
    assert [report.fallback for report in (reports[0], *reports[0].backwards)] == [None, None]


def test_instance_norm_and_its_gradients_are_kernels() -> None:
    x, w, b = (torch.randn(s, requires_grad=True) for s in ((3, 4, 5, 6), (4,), (4,)))

    def program(x: Any, w: Any, b: Any) -> tuple[torch.Tensor, ...]:
        return F.instance_norm(x), F.instance_norm(x * 2, weight=w, bias=b, eps=1e-2)

    reports = same_gradients(program, [x, w, b], lambda: [torch.ones(3, 4, 5, 6).cumsum(1)] * 2)
    for report in (reports[0], *reports[0].backwards):
        assert not report.aten_calls, report


def test_a_scratch_row_is_laid_out_as_loops_go_through_it() -> None:
    x = torch.randn(2, 8, 6, 5).contiguous(memory_format=torch.channels_last)
    run: Any = fastpath.compile_graph(
        torch.fx.symbolic_trace(lambda x: F.group_norm(x.sigmoid(), 2)), [x]
    )
    torch.testing.assert_close(run(x), F.group_norm(x.sigmoid(), 2))
    (source,) = run.kernel_sources
    (row,) = re.findall(r"p(\d+) = scratch_float32_120", source)
    places = re.findall(rf"store_float32_{row}\(p{row}, \((.*?)\),", source)
    assert places and not any("* 30" in place for place in places)


def test_a_backward_empties_the_list_that_it_is_given() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    from fastpath.compiler import _compiled
    from fastpath.options import DEFAULT

    x, y = torch.randn(7), torch.randn(7)
    graph = make_fx(lambda x, y: (x @ y, torch.sin(x) * 2), tracing_mode="fake")(x, y)
    call: Any = _compiled(graph, Report(), DEFAULT, boxed=True)
    given = [x, y]
    first, second = call(given)
    assert given == []
    torch.testing.assert_close((first, second), (x @ y, x.sin() * 2))
    assert "del in1" in call.source
