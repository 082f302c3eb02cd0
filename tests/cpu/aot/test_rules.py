"""Each rule of ``specs/ahead.py``: kept, and broken once where the code that keeps it is out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import refcompiler
from refcompiler.aot import backend, joint_trace, observation, wrapper
from refcompiler.aot import program as programs_of
from refcompiler.aot.partition import default_partition, min_cut_partition
from specs.ahead import AHEAD
from tests.cpu.aot import (
    test_alone,
    test_calls,
    test_higher_order,
    test_loops,
    test_memory,
    test_memory_rules,
    test_ports,
    test_reads,
    test_refusals,
    test_repeats,
    test_symbols,
    test_view_chains,
    test_writes,
)
from tests.cpu.aot.programs import Make, compare

PARTITIONS = [default_partition, min_cut_partition]


def T(*size: int, grad: bool = True, dtype: Any = None) -> torch.Tensor:
    return torch.randn(*size, dtype=dtype).requires_grad_(grad)


@dataclass
class Case:
    program: Callable[..., Any]
    make: Make
    into: Callable[..., Sequence[Any]]
    without: Callable[[pytest.MonkeyPatch], None]
    traced: bool  # by torch.fx: the front end returns no tensor twice


CASES: dict[str, Case] = {}


def case(
    rule: str,
    make: Make,
    into: Callable[..., Sequence[Any]] = lambda *leaves: leaves,
    *,
    without: Callable[[pytest.MonkeyPatch], None],
    traced: bool = False,
) -> Callable[[Callable], Callable]:
    def add(program: Callable) -> Callable:
        assert rule in AHEAD
        CASES[rule] = Case(program, make, into, without, traced)
        return program

    return add


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    refcompiler.reset()


def _no_epilogue(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(wrapper.Wrapper, "_write", lambda *_: None)


def _no_views(patch: pytest.MonkeyPatch) -> None:
    """Outputs that share memory are tensors of their own."""

    def group(self: Any, places: Sequence[int]) -> list[Any]:
        return [observation.Value(self._slot(n, False, self.flat[n])) for n in places]

    patch.setattr(observation._Observer, "_group", group)


def _copies(patch: pytest.MonkeyPatch) -> None:
    def view(self: Any, name: str, base: str, *_: Any) -> None:
        self.lines.append(f"{name} = {base}.clone()")

    patch.setattr(wrapper.Wrapper, "_view", view)


def _no_draws(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("refcompiler.aot.partition.split.stays", lambda node: False)


@case("written input", lambda: [T(4, 8), T(4, 8, grad=False)], without=_no_epilogue)
def _written(x: Any, b: Any) -> Any:
    b.add_(x.detach())
    return x * b


def _as_untracked(patch: pytest.MonkeyPatch) -> None:
    real = wrapper.Wrapper._write

    def write(self: Any, given: Any, value: Any) -> None:
        real(self, observation.Write(given.place, False, given.requires_grad), value)

    patch.setattr(wrapper.Wrapper, "_write", write)


@case(
    "tracked write",
    lambda: [T(4, 8), T(4, 8)],
    lambda x, w: (x.clone(), w),
    without=_as_untracked,
)
def _tracked(x: Any, w: Any) -> Any:
    x.mul_(w)
    return x.sin(), x


def _as_tracked(patch: pytest.MonkeyPatch) -> None:
    real = wrapper.Wrapper._write

    def write(self: Any, given: Any, value: Any) -> None:
        real(self, observation.Write(given.place, True, given.requires_grad), value)

    patch.setattr(wrapper.Wrapper, "_write", write)


@case("untracked write", lambda: [T(4, 8), T(4, 8)], without=_as_tracked)
def _untracked(x: Any, w: Any) -> Any:
    y = (x * 2).sum()
    with torch.no_grad():
        w.add_(x)
    return y


@case(
    "statistics",
    lambda: [T(3, 6, 5), torch.zeros(6), torch.ones(6)],
    without=lambda patch: patch.setattr(torch, "_functionalize_has_data_mutation", lambda t: False),
)
def _statistics(x: Any, mean: Any, var: Any) -> Any:
    return F.batch_norm(x, mean, var, training=True)


def _all_counted(patch: pytest.MonkeyPatch) -> None:
    real = wrapper.Wrapper._write

    def write(self: Any, given: Any, value: Any) -> None:
        real(self, replace(given, counted=value is not None), value)

    patch.setattr(wrapper.Wrapper, "_write", write)


@case(
    "version of an input",
    lambda: [T(3, 4), torch.zeros(4), torch.ones(4), T(4, grad=False), T(4)],
    without=_all_counted,
)
def _version(x: Any, mean: Any, var: Any, b: Any, w: Any) -> Any:
    saved = F.batch_norm(x, mean, var)
    b.unsqueeze_(0).squeeze_(0)
    y = w.sin()
    w.data.mul_(2)
    return saved.sin(), F.batch_norm(x, mean, var, training=True), y + b


@case("metadata of an input", lambda: [T(4, 8, grad=False)], without=_no_epilogue)
def _metadata(x: Any) -> Any:
    x.t_()
    return x + 1


@case(
    "version of a result",
    lambda: [T(4, 8)],
    without=lambda patch: patch.setattr(observation.Observation, "versions", lambda *_: {}),
)
def _written_results(x: Any) -> Any:
    y = x * 2
    y[0].mul_(3)
    view = y[1:]
    view.add_(1)
    made = torch.ones(3), torch.full((2,), 3), torch.zeros(4).uniform_()  # by writes below
    return y, y.exp(), (y * y).sum(), view.sin(), F.elu(x * 1, inplace=True), *made


@case(
    "input given other memory",
    lambda: [T(4, grad=False), T(4, grad=False), T(4), T(8, grad=False)],
    lambda x, y, w, z: (x, y, w, z[2:6]),
    without=lambda patch: patch.setattr(wrapper.Wrapper, "_move", lambda *_: None),
    traced=True,
)
def _given(x: Any, y: Any, w: Any, z: Any) -> Any:
    old, made = x.view(2, 2), z * 2
    x.set_(made)
    y.set_(z[1:3])
    z.add_(1)
    return made, x, old, x[1:], y * 1, w * x, made.sum()


@case("view of an input", lambda: [T(4, 8)], without=_copies)
def _view_of_input(x: Any) -> Any:
    return x.t(), x[1:].detach(), x.view(2, 16)[1], x.sum()


@case(
    "same object",
    lambda: [T(4, 8)],
    without=lambda patch: patch.setattr(
        wrapper.Wrapper, "_output", lambda self, n, output, *_: "r0.view_as(r0)"
    ),
    traced=True,
)
def _same(x: Any) -> Any:
    y = x * 2
    return y, y


@case("views of one result", lambda: [T(4, 8)], without=_no_views)
def _views(x: Any) -> Any:
    y = x.sin()
    return y[0], y[1:], y.detach()


@case("overlapping result", lambda: [T(4, 8)], without=_no_views)
def _expanded(x: Any) -> Any:
    return x.sum(0).expand(3, 8)


@case(
    "strides of outputs",
    lambda: [T(4, 8), T(4, 8, grad=False)],
    without=lambda patch: patch.setattr(
        joint_trace._Tracer, "_laid_out", lambda self, t, layout: t
    ),
)
def _strides(x: Any, b: Any) -> Any:
    made = torch.zeros(4, 4).t()
    torch.mm(b, b.t(), out=made)
    return x * 2, made


def _all_differentiable(patch: pytest.MonkeyPatch) -> None:
    real = programs_of.Program.__post_init__

    def without_constants(program: Any) -> None:
        real(program)
        program.constant = ()

    patch.setattr(programs_of.Program, "__post_init__", without_constants)


@case(
    "gradient flags",
    lambda: [T(4, 8), T(4, 8, grad=False)],
    without=_all_differentiable,
)
def _flags(x: Any, b: Any) -> Any:
    return x.sin(), b.cos(), (x > 0).long(), x.argmax(1)


@case(
    "missing gradient",
    lambda: [T(4, 8), T(4, 8)],
    without=lambda patch: patch.setattr(programs_of, "without", _zeros),
)
def _missing(x: Any, w: Any) -> Any:
    return x.sin(), w * float("inf"), x.chunk(2, 1)[0] * w[:, :4]


def _zeros(graph: Any, missing: Any) -> Any:
    """The backward with zeros for what is missing."""
    for node in graph.graph.find_nodes(op="placeholder"):
        if node.target in missing:
            value = node.meta["val"]
            with graph.graph.inserting_after(node):
                zeros = graph.graph.call_function(torch.zeros, (tuple(value.shape),))
            node.replace_all_uses_with(zeros)
    graph.recompile()
    return graph, True


def _zeros_for_none(patch: pytest.MonkeyPatch) -> None:
    real = joint_trace._Tracer._backward

    def backward(self: Any, found: Any, primals: Any, given: Any) -> Any:
        gradients, begun = real(self, found, primals, given)
        pairs = zip(gradients, primals, strict=True)
        return [torch.zeros_like(t) if g is None else g for g, t in pairs], begun

    patch.setattr(joint_trace._Tracer, "_backward", backward)


@case("unused input", lambda: [T(4, 8), T(4, 8)], without=_zeros_for_none)
def _unused(x: Any, w: Any) -> Any:
    return x.sin(), w.detach() * 2


def _training(patch: pytest.MonkeyPatch) -> None:
    """Whether anything requires a gradient is not asked."""
    patch.setattr(observation.Observation, "requires_grad", True)
    patch.setattr(backend, "requires_grad", lambda t: True)


@case("gradients off", lambda: [T(4, 8, grad=False)], without=_training)
def _inference(x: Any) -> Any:
    x.mul_(2)
    return x[0], x + 1


@case("order of draws", lambda: [T(4, 8)], without=_no_draws)
def _order(x: Any) -> Any:
    torch.rand(3)  # is not used
    return F.dropout(x, 0.5) * F.dropout(x, 0.3), torch.randn(2)


@case(
    "checkpoint",
    lambda: [T(4, 8), T(8, 8)],
    without=lambda patch: patch.setattr(joint_trace, "REGIONS", {}),
)
def _checkpointed(x: Any, w: Any) -> Any:
    return checkpoint(lambda a: F.dropout((a @ w).relu(), 0.5).sin(), x, use_reentrant=False).cos()


class _Tripled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad * 3 * x


def _forward_alone(patch: pytest.MonkeyPatch) -> None:
    """A custom function is what its forward computes, and has that's gradient."""
    real = joint_trace.Runner.call_function

    def call(self: Any, target: Any, args: Any, kwargs: Any) -> Any:
        if getattr(target, "__name__", "") == "_Tripled":
            return args[0](*args[2:])
        return real(self, target, args, kwargs)

    patch.setattr(joint_trace.Runner, "call_function", call)


@case("custom function", lambda: [T(4, 8)], without=_forward_alone)
def _custom(x: Any) -> Any:
    return _Tripled.apply(x * 2) + 1


def _all_apart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(backend, "disjoint", lambda *_: lambda *_: True)
    patch.setattr(wrapper, "beside", lambda *_: False)


@case(
    "inputs that share memory",
    lambda: [T(8)],
    lambda x: ((x := x.clone())[:6], x[2:]),
    without=_all_apart,
)
def _overlapping(a: Any, b: Any) -> Any:
    a.add_(b * 2)
    return a * b, a[1:]


@case(
    "conjugate bit",
    lambda: [T(4, dtype=torch.complex64), T(4, dtype=torch.complex64)],
    lambda x, y: (x.conj(), y.conj().imag),
    without=lambda patch: patch.setattr(wrapper.Wrapper, "_taken", lambda self, n: self.values[n]),
)
def _conjugate(x: Any, y: Any) -> Any:
    return x * 2, (x * 3).conj(), y + 1


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("rule", CASES)
def test_rule(rule: str, partition: Callable) -> None:
    _kept(rule, partition)


def _kept(rule: str, partition: Callable) -> None:
    found = CASES[rule]
    compiler, seen = compare(found.program, found.make, partition, found.into, found.traced)
    assert compiler.reasons == [None]
    assert seen.count > 20
    if rule == "gradients off":
        assert len(compiler.inference) == 1 and not compiler.forward
    else:
        wanted = rule != "metadata of an input"
        wanted += rule == "inputs that share memory"  # those apart are another program
        assert len(compiler.forward) == wanted


@pytest.mark.parametrize("rule", CASES)
def test_without_what_keeps_it(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    CASES[rule].without(monkeypatch)
    with pytest.raises((AssertionError, RuntimeError)):
        _kept(rule, default_partition)


def test_every_rule_has_a_test() -> None:
    elsewhere = test_higher_order.KEPT.keys() | test_memory.KEPT | test_symbols.KEPT.keys()
    elsewhere |= test_reads.KEPT | test_writes.KEPT | test_loops.KEPT.keys()
    elsewhere |= test_view_chains.KEPT | test_alone.KEPT | test_ports.KEPT
    elsewhere |= test_refusals.KEPT
    elsewhere |= test_repeats.KEPT.keys()
    elsewhere |= test_calls.check.keys() | test_memory_rules.check.keys()
    assert CASES.keys() | elsewhere == set(AHEAD.names())
