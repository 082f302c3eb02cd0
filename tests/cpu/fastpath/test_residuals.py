"""Residuals that the vendor's products add: which sums are found, values, and what is asked for."""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fastpath
import refcompiler
from fastpath import compiler, residuals
from fastpath.device import Device
from fastpath.gpu import tuning, vendor
from fastpath.gpu.lt import Algorithm, Layout, Problem
from fastpath.ir.lower import Lowering
from fastpath.ir.program import Call
from fastpath.residuals import fuse_residuals, problem_of, product_and_residual
from fastpath.target import GPU
from refcompiler.cache import store
from tests.cpu.fastpath.test_activations import graph_of, numbers

HALF = torch.bfloat16
PRODUCTS = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default}


def linear(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return y + F.linear(x, w, b)


def norm(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:])


def sums(x: torch.Tensor, w: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
    return (x @ w.t() + x @ w) + x @ w.t()


GIVEN = [numbers(4, 64, 256), numbers(256, 256), numbers(256), numbers(4, 64, 256)]


@pytest.mark.parametrize(
    "function, inputs, count",
    [
        (linear, GIVEN, 1),
        (lambda x, w, b, y: F.linear(x, w) + y, [numbers(256, 256)] * 4, 1),
        (lambda *given: norm(z := linear(*given)) + z, GIVEN, 1),
        (lambda *given: linear(*given) @ given[1], GIVEN, 1),
        (sums, GIVEN, 2),
        (lambda *given: norm(linear(*given)), GIVEN, 0),
        (lambda x, w, b, y: (z := F.linear(x, w, b)) + y + torch.relu(z), GIVEN, 0),
        (lambda x, w, b, y: torch.add(F.linear(x, w, b), y, alpha=2), GIVEN, 0),
        (lambda x, w, b, y: F.linear(x, w, b) + y[0, 0], GIVEN, 0),
        (lambda x, w, b, y: F.linear(x, w, b) + y.mT.contiguous().mT, GIVEN, 0),
        (lambda x, w, b, y: F.linear(x, w, b) + y.float(), GIVEN, 0),
        (lambda x, w, b, y: F.linear(x, w, b) + 1, GIVEN, 0),
        (linear, [x.float() for x in GIVEN], 0),
        (linear, [numbers(2, 8, 64), numbers(64, 64), numbers(64), numbers(2, 8, 64)], 0),
    ],
    ids="rows matrix read product sums norm kept scaled row laid wider one float32 small".split(),
)
def test_sums_of_products_that_are_stored(
    function: Callable[..., torch.Tensor], inputs: list[torch.Tensor], count: int
) -> None:
    graph = graph_of(function, inputs)
    refused = graph_of(function, inputs)
    assert fuse_residuals(refused, lambda problem: False) == 0
    served: list[Problem] = []
    assert fuse_residuals(graph, lambda problem: not served.append(problem)) == count
    graph.graph.lint()
    targets = [node.target for node in graph.graph.nodes]
    assert targets.count(product_and_residual) == count == len(served)
    assert all(problem.residual and problem.dtype == "bfloat16" for problem in served)
    assert not any(n.target in PRODUCTS and not n.users for n in graph.graph.nodes)
    graph.recompile()
    (found,) = graph(*inputs)
    eager = function(*inputs)
    assert (found.dtype, found.stride()) == (eager.dtype, eager.stride()) and found._base is None
    torch.testing.assert_close(found, eager, rtol=0.02, atol=0.1)


def test_what_the_caller_does_not_see_may_be_a_view() -> None:
    """What a forward keeps for its backward: a view is made by a shorter way."""
    for returned, view in ((1, torch.ops.aten.view), (2, torch.ops.aten._unsafe_view)):
        graph = graph_of(linear, GIVEN)
        (output,) = graph.graph.find_nodes(op="output")
        output.args = ((output.args[0][0].args[0], output.args[0][0]),)
        assert fuse_residuals(graph, lambda problem: True, returned=returned) == 1
        assert output.args[0][1].target is view.default


def test_products_of_ours_keep_their_residuals() -> None:
    graph = graph_of(linear, GIVEN)
    name = next(n.name for n in graph.graph.nodes if n.target is torch.ops.aten.addmm.default)
    assert fuse_residuals(graph, lambda problem: True, {name}) == 0


# -- what the library is told ----------------------------------------------------------------------


def as_the_library(problem: Problem, *given: torch.Tensor | None) -> torch.Tensor:
    """The library's answer: all it knows are addresses, and columns that lie side by side."""
    left, right, bias, residual = given
    assert left is not None and right is not None
    layouts = problem.layouts()
    assert layouts is not None
    first, second, out = layouts

    def matrix(t: torch.Tensor, layout: Layout) -> torch.Tensor:
        lies = (layout.rows, layout.columns), (1, layout.step)
        found = torch.as_strided(t, *lies)
        return found.t() if layout.turned else found

    total = matrix(right, first).double() @ matrix(left, second).double()
    if bias is not None:  # one for each row of its result
        total = total + bias.double()[:, None]
    if residual is not None:
        total = total + matrix(residual, out).double()
    result = torch.empty(problem.m * problem.n, dtype=torch.float64)
    torch.as_strided(result, (out.rows, out.columns), (1, out.step)).copy_(total)
    return result.view(problem.m, problem.n)


SIDES: dict[str, Callable[[int, int], torch.Tensor]] = {
    "rows": lambda m, n: numbers(m, n),
    "columns": lambda m, n: numbers(n, m).t(),
    "wider rows": lambda m, n: numbers(m, n + 8)[:, :n],
    "wider columns": lambda m, n: numbers(n + 3, m + 8).t()[:m, :n],
}


@pytest.mark.parametrize("adds", ["", "bias", "residual", "bias residual"])
def test_layouts(adds: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residuals, "WORTH", 1)
    m, n, k = 24, 40, 32
    count = 0
    for one, other in itertools.product(SIDES.values(), repeat=2):
        left, right = one(m, k), other(k, n)
        bias = numbers(n) if "bias" in adds else None
        residual = numbers(m, n) if "residual" in adds else None
        problem = problem_of(left, right, bias, residual, numbers(m, n))
        assert problem is not None
        assert problem.epilogue == (4 if bias is not None else 1)
        found = as_the_library(problem, left, right, bias, residual)
        exact = left.double() @ right.double()
        exact = exact if bias is None else exact + bias
        exact = exact if residual is None else exact + residual
        torch.testing.assert_close(found, exact)
        count += 1
    assert count == 16


@pytest.mark.parametrize(
    "left, right, bias, residual",
    [
        (numbers(256, 512)[:, ::2], numbers(256, 256), None, None),
        (numbers(1, 256).expand(256, 256), numbers(256, 256), None, None),
        (numbers(256, 256), numbers(256, 256).double(), None, None),
        (numbers(256, 256), numbers(256, 256), numbers(512)[::2], None),
        (numbers(256, 256), numbers(256, 256), numbers(1), None),
        (numbers(256, 256), numbers(256, 256), None, numbers(256)),
        (numbers(256, 256), numbers(256, 256), None, numbers(256, 256).t()),
        (numbers(8, 1 << 14), numbers(1 << 14, 256), None, None),
    ],
    ids="gaps expanded dtypes strided one row laid few".split(),
)
def test_what_is_not_the_librarys(left: Any, right: Any, bias: Any, residual: Any) -> None:
    out = torch.empty(left.shape[0], right.shape[1], dtype=HALF)
    assert problem_of(left, right, bias, residual, out) is None


def calls_of(
    function: Callable[..., torch.Tensor], inputs: Sequence[torch.Tensor], fuse: bool = False
) -> list[Call]:
    graph = graph_of(function, inputs)
    if fuse:
        assert fuse_residuals(graph, lambda problem: True)
    return [step for step in Lowering(graph).run().steps if isinstance(step, Call)]


MATRICES = [numbers(256, 256), numbers(256, 256), numbers(256), numbers(256, 256)]


@pytest.mark.parametrize(
    "function, fuse, has",
    [
        (lambda x, w, b, y: x @ w.t(), False, "11"),
        (lambda x, w, b, y: torch.addmm(b, x, w.t()), False, "111"),
        (lambda x, w, b, y: torch.addmm(y, x, w.t()), False, "1101"),
        (lambda x, w, b, y: torch._addmm_activation(b, x, w, use_gelu=True), False, "111"),
        (linear, True, "1111"),
        (lambda x, w, b, y: x @ w + y, True, "1101"),
        (lambda x, w, b, y: torch.addmm(b, x, w, beta=2), False, ""),
        (lambda x, w, b, y: torch._addmm_activation(b, x, w), False, ""),
        (lambda x, w, b, y: torch.mv(w, b), False, ""),
    ],
)
def test_operands(function: Callable[..., torch.Tensor], fuse: bool, has: str) -> None:
    (call,) = calls_of(function, MATRICES, fuse)
    found = vendor.operands_of(call)
    assert "".join("01"[t is not None] for t in found or ()).rstrip("0") == has


# -- algorithms ------------------------------------------------------------------------------------

PROBLEM = Problem("bfloat16", 1024, 1024, 1024, (1024, 1), (1024, 1), bias=True)
THREE = [Algorithm((n,) * 8, n) for n in range(3)]


def test_the_first_algorithm_is_kept_unless_another_one_is_faster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    times: dict[int, float] = {}
    measured: list[int] = []

    def timed(calls: dict[int, Any], like: list[torch.Tensor], *_: Any, **__: Any) -> Any:
        assert [tuple(t.shape) for t in like] == [(1024, 1024), (1024, 1024), (1024,), (1024, 1024)]
        measured.append(len(calls))
        return times

    kept = store.Store(tmp_path, 1 << 20)
    monkeypatch.setattr(tuning, "timed", timed)
    monkeypatch.setattr(vendor.lt, "launch", lambda *_: None)
    monkeypatch.setattr(vendor.lt, "version", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a device")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(store, "current", lambda: None)
    for seconds, best in (((3.0, 2.95, 4.0), 0), ((3.0, 2.0, 1.0), 2)):
        monkeypatch.setattr(vendor, "_known", {})
        times.update(enumerate(seconds))
        assert vendor.chosen(PROBLEM, THREE, 0) == THREE[best]
    monkeypatch.setattr(store, "current", lambda: kept)
    for _ in range(2):  # another process
        monkeypatch.setattr(vendor, "_known", {})
        assert [vendor.chosen(PROBLEM, THREE, 0) for _ in range(2)] == [THREE[2]] * 2
    assert measured == [3, *(3, 2) * 2]  # what seems to be faster is measured once more
    monkeypatch.setattr(vendor, "_known", {})
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    assert vendor.chosen(PROBLEM, THREE, 0) == THREE[0]
    small = Problem("bfloat16", 256, 256, 256, (256, 1), (256, 1))
    assert vendor.chosen(small, THREE, 0) == THREE[0] and len(measured) == 5


# -- programs --------------------------------------------------------------------------------------


class WithoutKernels(Device):
    """A device of the GPU's target, whose kernels compute nothing."""

    def __init__(self) -> None:
        self.device, self.target = torch.device("cpu"), GPU

    is_cpu = property(lambda self: False)  # type: ignore[assignment]

    def loaded(self, names: Any) -> dict[str, Any]:
        return {}

    def entered(self, call: Callable[..., Any]) -> Callable[..., Any]:
        return call


def at(address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor:
    """What lies there, as the library sees it."""
    elements = 1 + sum((n - 1) * step for n, step in zip(shape, strides))
    memory = (ctypes.c_char * (2 * elements)).from_address(address)
    return torch.as_strided(torch.frombuffer(memory, dtype=HALF), shape, strides)


def test_a_program_asks_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses of inputs, views and results are right, and results live on in what reads them."""
    asked: list[tuple[bool, bool, bool]] = []

    def launch(problem: Problem, device: int) -> Callable[..., None]:
        m, n, k = problem.m, problem.n, problem.k

        def run(left: int, right: int, bias: int, residual: int, result: int) -> None:
            asked.append((bias != 0, residual != 0, problem.gelu))
            given = at(left, (m, k), problem.left), at(right, (k, n), problem.right)
            row = at(bias, (n,), (1,)) if problem.bias else None
            other = at(residual, (m, n), (n, 1)) if problem.residual else None
            found = as_the_library(problem, *given, row, other)
            found = F.gelu(found, approximate="tanh") if problem.gelu else found
            at(result, (m, n), (n, 1)).copy_(found)

        return run

    def layer(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = y + F.linear(F.gelu(F.linear(x, w, b), approximate="tanh"), w.t(), b)
        return z[1, 8:40] @ w[:, :32] + x[3, 16:48, 16:] @ z[2, :32, :32]

    monkeypatch.setattr(compiler, "device_of", lambda graph: WithoutKernels())
    monkeypatch.setattr(residuals, "WORTH", 0)
    monkeypatch.setattr(vendor, "_launch", launch)
    refcompiler.reset()
    compiled = refcompiler.compile(layer, fullgraph=True)
    for begin in (0, 8):
        shapes = (4, 64, 48), (48, 48), (48,), (4, 64, 48)
        flat = [numbers(math.prod(shape) + begin) * 0.3 for shape in shapes]
        inputs = [t[begin:].view(shape) for t, shape in zip(flat, shapes)]
        asked.clear()
        got, eager = compiled(*inputs), layer(*inputs)
        # bias, residual and gelu of each
        assert asked[:2] == [(True, False, True), (True, True, False)]
        assert asked[2:] == [(False, False, False), (False, True, False)]
        torch.testing.assert_close(got, eager, rtol=0.05, atol=0.1)
    report = fastpath.last_report()
    assert report is not None and report.fallback is None
    assert (report.direct, report.kernels) == (4, 0)
