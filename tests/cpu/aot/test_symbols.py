"""One program for all sizes: symbols in forward, backward, partition and wrapper."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import refcompiler
from refcompiler.aot import aot_autograd, later
from refcompiler.aot import backend as aot
from refcompiler.aot.missing import without
from refcompiler.aot.numbers import ARITHMETIC
from refcompiler.aot.partition import default_partition, min_cut_partition
from refcompiler.shapes import ShapeEnv
from tests.cpu.aot.checks import fails_without
from tests.cpu.aot.programs import Compiler, compare

PARTITIONS = [default_partition, min_cut_partition]
SIZES = ((6, 5), (3, 7), (4, 4), (9, 3))


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    refcompiler.reset()


def _views(x: Any, w: Any) -> Any:
    y = x.sin()
    return y.t(), y[1:], y.view(-1), y.sum(0).expand(3, x.shape[1]), w.view(-1)[2:]


def _sizes(x: Any, w: Any) -> Any:
    n, m = x.shape
    return (x * n + w.sum() / m).softmax(-1).reshape(-1)[: n // 2 + 1], x.mean(), n * m


def _expanded(x: Any, w: Any) -> Any:
    return (x.sum(1, keepdim=True) * torch.ones_like(w)).cumsum(0), x.sum().expand(x.shape[0])


def _written(x: Any, w: Any) -> Any:
    y = x * 2
    y[:, 1:].add_(w[:, 1:])
    with torch.no_grad():
        w.add_(1)
    return y


def _padded(x: Any, w: Any) -> Any:
    return F.pad(x[None], (1, 1), mode="circular"), torch.cat([x, w, x]), x @ w.t()


def _drawn(x: Any, w: Any) -> Any:
    return F.dropout(x, 0.5) * torch.rand(x.shape[0], 1), F.layer_norm(w, w.shape[1:])


def _transposed(x: Any, w: Any) -> Any:
    x.t_()
    return x + 1, w


PROGRAMS: list[Callable] = [_views, _sizes, _expanded, _written, _padded, _drawn]


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_one_program_for_all_sizes(program: Callable, partition: Callable) -> None:
    def make(n: int, m: int) -> Callable:
        return lambda: [torch.randn(n, m).requires_grad_() for _ in range(2)]

    first, *others = [make(*size) for size in SIZES]
    backend, seen = compare(program, first, partition, others=others)
    assert backend.reasons == [None] and len(backend.forward) == 1
    assert seen.count > 80
    assert refcompiler.counters()["captures"] == 1


@pytest.mark.parametrize("program", [_sizes, _transposed])
def test_inference(program: Callable) -> None:
    """A graph that changes an input's sizes in place is compiled by size."""
    makes = [lambda n=n, m=m: [torch.randn(n, m), torch.randn(n, m)] for n, m in SIZES]
    backend, _ = compare(program, makes[0], others=makes[1:])
    assert backend.reasons == [None] and not backend.forward
    assert len(backend.inference) == (1 if program is _sizes else len(SIZES))


def test_each_number_is_what_its_node_computes() -> None:
    """Also the parts of a sum: nodes of one number are merged."""

    def program(x: Any, w: Any) -> Any:
        return F.pad(x, (w.shape[1], 3)).sin().reshape(-1)[: x.shape[0] + w.shape[1] + 3] * 1

    makes = [
        lambda n=n, m=m: [torch.randn(n, m).requires_grad_(), torch.randn(m, n + 1)]
        for n, m in SIZES
    ]
    backend, _ = compare(program, makes[0], others=makes[1:])
    (graph,) = backend.forward
    assert _numbers_checked(graph) >= 2


def test_numbers_of_zeros_for_a_missing_gradient_are_what_their_nodes_compute() -> None:
    def program(x: Any, w: Any) -> Any:
        keys = (x @ w).unflatten(-1, (1, 5)).transpose(1, 2).contiguous()
        return keys, x[:, None] @ keys.transpose(2, 3)

    backend = Compiler()
    call = refcompiler.compile(program, backend=backend, dynamic=True)
    x, w = torch.randn(3, 4, 5, requires_grad=True), torch.randn(5, 5)
    sum(y.sum() for y in call(x, w)).backward()
    (graph,) = backend.backward
    names = [str(node.target) for node in graph.graph.find_nodes(op="placeholder")]
    found, _ = without(graph, [name for name in names if name.startswith("tangents")][:1])
    assert found.graph.find_nodes(op="call_function", target=torch.ops.aten.fill.Scalar)
    assert _numbers_checked(found) > _numbers_checked(graph)


def _numbers_checked(graph: torch.fx.GraphModule) -> int:
    checked = 0
    for node in graph.graph.nodes:
        if node.target in ARITHMETIC:
            operands = torch.fx.map_arg(node.args, lambda n: n.meta["val"])
            assert node.target(*operands).node.expr == node.meta["val"].node.expr
            checked += 1
    return checked


def test_sizes_are_saved_as_numbers() -> None:
    """The backward of a sum needs the input's size, and not the input."""
    backend = Compiler()
    call = refcompiler.compile(lambda x: (x * 2).sum(1), backend=backend, dynamic=True)
    for n, m in SIZES:
        x = torch.randn(n, m, requires_grad=True)
        (found,) = torch.autograd.grad(call(x).sum(), x)
        assert torch.equal(found, torch.full((n, m), 2.0))
    (graph,) = backend.backward
    values = [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]
    kinds = [type(value) is torch.SymInt for value in values]
    assert kinds == [True, True, False]


def _transformer(layers: int, width: int) -> torch.nn.Module:
    layer = torch.nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.1, batch_first=True)
    return torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def test_parts_without_gradients() -> None:
    """What of a function of several results has no gradient is zeros, or what its rule makes of it.

    A derivative that asks which are there is eager's, bit for bit.
    """

    def program(x: Any, w: Any) -> Any:
        first, second = x.sin().split(2, 1)[:2]
        return first * w[:, :2], second.cos()

    makes = [lambda n=n: [torch.randn(n, 6).requires_grad_() for _ in range(2)] for n in (3, 5, 4)]
    backend, _ = compare(program, makes[0], others=makes[1:])
    assert backend.reasons == [None] and len(backend.backward) == 2

    def asks(x: Any, w: Any, b: Any) -> Any:
        return torch.native_group_norm(x, w, b, 3, 6, 5, 2, 1e-5)

    compare(asks, lambda: [torch.randn(*n).requires_grad_() for n in ((3, 6, 5), (6,), (6,))])

    makes = [lambda n=n: [torch.randn(n, n + 1).requires_grad_()] for n in (3, 5, 4)]
    compare(lambda x: torch.lu_unpack(*torch.linalg.lu_factor(x)), makes[0], others=makes[1:])

    def terms(x: Any, w: Any) -> Any:
        """The sum of two gradients lies as the first, and one of them alone as itself."""
        hidden = x.sin()
        return hidden.t().contiguous() * 2, (hidden.t() @ w).cos()

    compare(terms, lambda: [torch.randn(4, 4).requires_grad_() for _ in range(2)])


@pytest.mark.parametrize("dynamic", [None, True])
def test_training_steps_over_lengths(dynamic: bool | None) -> None:
    """Ten batches of other sizes take two compilations (one that knows none yet) or one."""
    torch.manual_seed(0)
    model = _transformer(2, 8)
    backend = Compiler()
    call = refcompiler.compile(model, backend=backend, dynamic=dynamic, fullgraph=True)
    compared = 0
    for n in range(10):
        x = torch.randn(2 + n * 3 % 7, 3 + n * 5 % 11, 8)
        found = []
        for function in (call, model):
            model.zero_grad()
            torch.manual_seed(n)
            loss = function(x).square().mean()
            loss.backward()
            found.append([loss.detach(), *[p.grad for p in model.parameters()]])
        for ours, theirs in zip(*found, strict=True):
            assert torch.equal(ours, theirs)
            compared += 1
    assert compared == 10 * 25
    assert backend.reasons == [None] * (1 if dynamic else 2)
    assert len(backend.forward) == len(backend.backward) == len(backend.reasons)


def test_what_compilers_decide_is_guarded() -> None:
    """A compiler of forwards decides in time for a guard; of backwards, for its own program."""
    asked: list[str] = []

    def forward(graph: Any, inputs: Any) -> Any:
        size = next(value for value in inputs if type(value) is torch.SymInt)
        asked.append(f"forward {bool(size > 4)}")
        return graph.forward

    def backward(graph: Any, inputs: Any) -> Any:
        size = next(value for value in inputs if type(value) is torch.SymInt)
        asked.append(f"backward {bool(size % 2 == 0)}")
        return lambda *given: [None if g is None else g * 100 for g in graph(*given)]

    backend = aot_autograd(fw_compiler=forward, bw_compiler=backward)
    call = refcompiler.compile(lambda x: x.sum(0).sin(), backend=backend, dynamic=True)
    factors = []
    for n in (6, 8, 7, 3):
        x = torch.randn(n, 3, requires_grad=True)
        (found,) = torch.autograd.grad(call(x).sum(), x)
        (wanted,) = torch.autograd.grad(x.sum(0).sin().sum(), x)
        factors.append(round(float((found / wanted).mean())))
    assert asked == ["forward True", "backward True", "forward False", "backward False"]
    assert factors == [100, 100, 1, 100]  # 7 is odd: its backward runs as it is


def test_a_compiler_that_takes_no_symbols() -> None:
    graphs: list[Any] = []

    def compiler(graph: Any, inputs: Any) -> Any:
        assert not any(type(value) is torch.SymInt for value in inputs)
        graphs.append(graph)
        return graph.forward

    compiler.takes_symbols = False  # type: ignore[attr-defined]
    backend = aot_autograd(fw_compiler=compiler)
    call = refcompiler.compile(lambda x: x * 2 + x.shape[0], backend=backend, dynamic=True)
    for n in (3, 5, 3):
        x = torch.randn(n, 2)
        assert torch.equal(call(x), x * 2 + n)
    assert len(graphs) == 2 and refcompiler.counters()["captures"] == 1


def _tracked_later(x: Any, y: Any) -> Any:
    before = x * 3
    x[1:].mul_(y[1:])
    return before, x * y


def _detached(x: Any, y: Any) -> Any:
    before = x * 2
    x.detach_()
    return before, x * y


@pytest.mark.parametrize(("program", "made"), [(_tracked_later, False), (_detached, True)])
def test_an_input_requires_gradients_as_it_comes(program: Callable, made: bool) -> None:
    """Not as capture leaves what stands for it, which the graph has written to or detached."""
    compiled = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    compared = 0
    for rows in (3, 4, 5):
        sides = []
        for call in (compiled, program):
            torch.manual_seed(rows)
            y = torch.randn(rows, 2).requires_grad_()
            x = (y * 2 if made else y.detach() * 2).clone()
            results = (*call(x, y), x)
            ends = [t for t in results if t.requires_grad]
            torch.autograd.backward(ends, [torch.ones_like(t) for t in ends])
            flags = [(t.requires_grad, t.is_leaf, t.tolist()) for t in results]
            assert y.grad is not None
            sides.append((flags, y.grad.tolist()))
        assert sides[0] == sides[1]
        compared += len(sides[0][0])
    assert compared == 9 and refcompiler.counters()["graphs"] == 2


def test_overlapping_inputs_are_compiled_by_size() -> None:
    def write(a: Any, b: Any) -> Any:
        a.add_(1)
        return a * b

    backend = Compiler()
    call = refcompiler.compile(write, backend=backend, dynamic=True)
    for n in (4, 6):
        x, y = torch.randn(n), torch.randn(n)
        other = x.clone()
        assert torch.equal(call(x, y), write(other, y)) and torch.equal(x, other)
        base = torch.randn(2 * n)
        other = base.clone()
        assert torch.equal(call(base[:n], base[2 : n + 2]), write(other[:n], other[2 : n + 2]))
        assert torch.equal(base, other)
    assert set(backend.reasons) == {None}


# ---- sizes that depend on data ------------------------------------------------------------------


def _masked(x: Any, w: Any) -> Any:
    return x[x > 0] * 2, w


def _counted(x: Any, w: Any) -> Any:
    where = x.nonzero()
    y = w[where[:, 0]] * x[x != 0].unsqueeze(1)
    return y.sum(0), y, where.shape[0]


def _filled(x: Any, w: Any) -> Any:
    y = x.clone()
    y[y > 0] = 3.0
    return y * x, w.sum()


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("program", [_masked, _counted, _filled])
def test_sizes_that_depend_on_data(program: Callable, fixed: bool) -> None:
    """Also in a graph whose inputs all have fixed sizes (a backend's own ``torch.fx`` graph)."""

    def make(n: int) -> Callable:
        return lambda: [torch.randn(n).relu().requires_grad_(), torch.randn(n, 3).requires_grad_()]

    others = [] if fixed else [make(n) for n in (4, 9)]
    backend, _ = compare(program, make(6), others=others)
    assert backend.reasons == [None] and len(backend.forward) == 1
    assert refcompiler.counters()["captures"] == 1


def test_what_is_assumed_of_such_sizes_is_checked() -> None:
    def program(x: Any) -> Any:
        n = (x > 0).sum().item()
        torch._check(n >= 0)
        torch._check(n <= 12, lambda: "too many")
        return torch.zeros(n) + x[x > 0]

    backend = Compiler()
    call = refcompiler.compile(program, backend=backend, dynamic=True, fullgraph=True)
    for size in (6, 3):
        x = (torch.arange(size * 2.0) - 3).requires_grad_()
        found, wanted = call(x), program(x)
        assert torch.equal(found, wanted)
        gradients = [torch.autograd.grad(t.sum(), x)[0] for t in (found, wanted)]
        assert torch.equal(*gradients)
    assert backend.reasons == [None] and refcompiler.counters()["captures"] == 1
    with pytest.raises(RuntimeError, match="too many"):
        call(torch.ones(20, requires_grad=True))


# ---- rules, and what breaks without what keeps them -------------------------------------------


KEPT: dict[str, tuple[Callable[[], None], Callable[[pytest.MonkeyPatch], None]]] = {
    "zeros for a missing gradient": (
        test_parts_without_gradients,
        lambda patch: patch.setattr(later, "backward_like", lambda *_: None),
    ),
    "sizes that change": (
        lambda: test_one_program_for_all_sizes(_sizes, default_partition),
        lambda patch: patch.setattr(aot, "with_symbols", lambda graph, examples: list(examples)),
    ),
    "sizes from data": (
        lambda: test_sizes_that_depend_on_data(_counted, True),
        lambda patch: patch.setattr(ShapeEnv, "repeating", lambda *_: contextlib.nullcontext()),
    ),
}


@pytest.mark.parametrize("rule", KEPT)
def test_without_what_keeps_it(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fails_without(*KEPT[rule], monkeypatch)


def test_a_gradient_of_what_is_written_to_lies_as_that_where_strides_are_symbols() -> None:
    """Code that goes by strides reads it; the new values that a call returns lie otherwise."""

    def program(u: torch.Tensor) -> torch.Tensor:
        u.mul_(2)
        return u + 1

    call = refcompiler.compile(program, backend="fastpath", fullgraph=True)
    compared = 0
    for step in (1, 2, 3):  # the third is served by what was compiled for the second
        sides = []
        for each in (call, program):
            x = torch.arange(12.0).requires_grad_()
            u = (x * 1)[: 4 * step : step]
            ends = each(u), u
            weights = torch.tensor([0.5, -1.0, 3.0, 2.0])
            found = [torch.autograd.grad(t, x, weights, retain_graph=True)[0] for t in ends]
            sides.append([g.tolist() for g in found])
        assert sides[0] == sides[1]
        compared += len(sides[0])
    counts = refcompiler.counters()
    assert (compared, counts["captures"], counts["uncompiled"]) == (6, 2, 0)


@pytest.mark.parametrize("training, share", [(True, 0.0), (False, 0.5)])
def test_a_dropout_of_nothing_is_its_input(
    training: bool, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch before 2.13 composes it in Python while sizes are symbols, as a copy."""
    monkeypatch.setattr("refcompiler.shapes.composites._ASKED", True)

    def program(x: Any) -> Any:
        y = x * 1
        kept = F.dropout(y, share, training)
        y.add_(2)
        return kept, torch.dropout(y, p=share, train=training)

    call = refcompiler.compile(program, backend="aot_eager", dynamic=True)
    for size in SIZES[:2]:
        x = torch.randn(size)
        for found, want in zip(call(x), program(x), strict=True):
            assert torch.equal(found, want)
    assert not refcompiler.counters()["uncompiled"]


@pytest.mark.parametrize("turn", [lambda x: x.t(), lambda x: x.unsqueeze(0)])
def test_gradients_of_views_of_what_is_expanded(turn: Callable) -> None:
    """Its elements are one in memory, not to autograd, which knows a view by its steps alone."""
    call = refcompiler.compile(turn, backend="aot_eager", dynamic=True)
    for n in (4, 6):
        x = torch.randn(1, n).expand(n, n).detach().requires_grad_()
        tangent = torch.randn(turn(x).shape)
        found, wanted = (torch.autograd.grad(f(x), x, tangent)[0] for f in (call, turn))
        assert torch.equal(found, wanted) and found.stride() == wanted.stride()


@pytest.mark.parametrize(
    ("calls", "uncompiled"),
    [
        ([(3, 1), (4, 1), (5, 1)], [1, 2, 2]),  # it overlaps in all
        ([(3, 3), (4, 4), (5, 3), (2, 3), (6, 6)], [0, 0, 1, 1, 1]),  # it does in some
    ],
)
def test_what_overlaps_itself_by_sizes_that_are_symbols(
    calls: list[tuple[int, int]], uncompiled: list[int]
) -> None:
    """What eager writes to an element that two indices lead to depends on its kernel's order."""

    def program(x: torch.Tensor) -> torch.Tensor:
        x.neg_()
        return x + 1

    call = refcompiler.compile(program, backend="aot_eager")
    for (n, step), count in zip(calls, uncompiled, strict=True):
        memory = [torch.arange(20.0) for _ in range(2)]
        results = [
            f(t.as_strided((2, n), (step, 1))) for f, t in zip((call, program), memory, strict=True)
        ]
        assert torch.equal(*results) and torch.equal(*memory), (n, step)
        assert refcompiler.counters()["uncompiled"] == count, (n, step)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(),
        lambda x: x.mT[:1],
        lambda x: x.movedim(0, -1),
        lambda x: x.unbind()[1],
        lambda x: x.expand(2, *x.shape).transpose(0, 2),
        lambda x: x[1:].unsqueeze(0).swapaxes(0, 2),
    ],
)
def test_views_lead_back_by_their_own_operators(view: Any) -> None:
    """Gradients lie as theirs, not as those of ``as_strided``; one program serves all sizes."""
    call = refcompiler.compile(view, backend="aot_eager", dynamic=True)
    for n in (3, 4, 6):
        seen: list[Any] = []
        for function in (view, call):
            leaf = torch.arange(4.0 * n).view(4, n).clone().requires_grad_()
            result = function(leaf)
            given = torch.arange(1.0 * result.numel()).view(result.shape)
            (gradient,) = torch.autograd.grad(result, leaf, given)
            seen.append((gradient, result))
            assert result.shape == view(leaf).shape and result._base is leaf
        (expected, first), (found, second) = seen
        assert torch.equal(found, expected) and found.stride() == expected.stride()
        assert second.grad_fn.name() == first.grad_fn.name()
    counts = refcompiler.counters()
    assert (counts["graphs"], counts["uncompiled"]) == (1, 0)
