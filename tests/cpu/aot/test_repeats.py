"""Gradients of ``while_loop``, and second derivatives of branches and loops, beside Python's own.

Torch's own gradients of a ``while_loop`` lack what goes through a value that is carried and asks
for none to begin with, and its second derivatives lack what goes through an operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.map import map as over
from torch.utils.checkpoint import checkpoint

import fastpath
import refcompiler
from refcompiler.aot import joint_trace
from refcompiler.aot.partition import default_partition, min_cut_partition
from refcompiler.aot.regions import unrolled
from tests.cpu.aot.checks import fails_without
from tests.cpu.aot.programs import Compiler


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    refcompiler.reset()


def _counted(x: Any, w: Any, steps: Any) -> Any:
    def body(n: Any, y: Any) -> Any:
        return n + 1, (y * w).sin()

    return while_loop(lambda n, y: n < steps, body, (torch.tensor(0), x))[1] * x


def _counted_by_hand(x: Any, w: Any, steps: Any) -> Any:
    y = x
    for _ in range(int(steps)):
        y = (y * w).sin()
    return y * x


def _carries_more(x: Any, w: Any, steps: Any) -> Any:
    """What asks for no gradient in the beginning, what nobody reads, an integer, a mask."""

    def body(state: Any, y: Any, n: Any, seen: Any) -> Any:
        return (state * w).tanh() + y.sum(0), y * 1.5, n + 1, seen | (y > 1)

    start = torch.zeros(4, dtype=x.dtype), x, torch.tensor(0), torch.zeros(3, 4) > 1
    found = while_loop(lambda state, y, n, seen: n < steps, body, start)
    return found[0], found[2], found[3]


def _carries_more_by_hand(x: Any, w: Any, steps: Any) -> Any:
    state, y, seen = torch.zeros(4, dtype=x.dtype), x, torch.zeros(3, 4) > 1
    for _ in range(int(steps)):
        state, y, seen = (state * w).tanh() + y.sum(0), y * 1.5, seen | (y > 1)
    return state, steps, seen


def _branches_and_loops_inside(x: Any, w: Any, steps: Any) -> Any:
    def body(n: Any, y: Any) -> Any:
        inner = while_loop(lambda m, z: m < n, lambda m, z: (m + 1, z * w), (n * 0, y.clone()))[1]
        return n + 1, torch.cond(inner.sum() > 0, lambda t: t.sin(), lambda t: t - w, (inner,))

    return while_loop(lambda n, y: n < steps, body, (torch.tensor(0), x))[1]


def _branches_and_loops_inside_by_hand(x: Any, w: Any, steps: Any) -> Any:
    y = x
    for n in range(int(steps)):
        for _ in range(n):
            y = y * w
        y = y.sin() if y.sum() > 0 else y - w
    return y


WHILE = [
    (_counted, _counted_by_hand),
    (_carries_more, _carries_more_by_hand),
    (_branches_and_loops_inside, _branches_and_loops_inside_by_hand),
]


def _leaves() -> list[torch.Tensor]:
    return [torch.randn(*s).double().requires_grad_() for s in ((3, 4), (4,))]


def _steps(function: Callable[..., Any], steps: int, twice: bool = False) -> list[Any]:
    torch.manual_seed(steps)
    leaves = _leaves()
    found = function(*leaves, torch.tensor(steps))
    found = list(found) if isinstance(found, tuple) else [found]
    total = sum(t.square().sum() for t in found if t.requires_grad)
    gradients = torch.autograd.grad(total, leaves, create_graph=twice, allow_unused=True)
    if twice:
        again = sum(g.square().sum() for g in gradients)
        found += torch.autograd.grad(again, leaves, allow_unused=True)
    return [*found, *gradients]


def _compare(ours: list[Any], theirs: list[Any]) -> int:
    for a, b in zip(ours, theirs, strict=True):
        if b is None:  # by hand, where no step ran
            assert a is None or not a.any()
            continue
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
        assert a.requires_grad == b.requires_grad
    return len(theirs)


@pytest.mark.parametrize(("program", "by_hand"), WHILE)
def test_gradients_of_a_while_loop(
    program: Callable[..., Any], by_hand: Callable[..., Any]
) -> None:
    partition = min_cut_partition if program is _carries_more else default_partition
    compared, backend = 0, Compiler(partition_fn=partition)
    compiled = refcompiler.compile(program, backend=backend, fullgraph=True)
    for steps in (4, 1, 2 if program is _carries_more else 0):
        compared += _compare(_steps(compiled, steps), _steps(by_hand, steps))
    assert backend.reasons == [None] and len(backend.backward) == 1
    assert compared >= 9


def test_the_number_of_steps_is_the_runs() -> None:
    def program(x: Any, w: Any) -> Any:
        return while_loop(lambda y: y.abs().sum() < 99, lambda y: (y * w.abs() + 1,), (x,))[0]

    def by_hand(x: Any, w: Any) -> Any:
        while x.abs().sum() < 99:
            x = x * w.abs() + 1
        return x

    backend, compared = Compiler(), 0
    compiled = refcompiler.compile(program, backend=backend, dynamic=True)
    for rows, seed in ((3, 0), (3, 1), (5, 2), (2, 3)):
        found = []
        for function in (compiled, by_hand):
            torch.manual_seed(seed)
            leaves = [torch.randn(*s).double().requires_grad_() for s in ((rows, 4), (4,))]
            y = function(*leaves)
            found.append([y, *torch.autograd.grad(y.sin().sum(), leaves)])
        compared += _compare(*found)
    assert compared == 12 and backend.reasons == [None]


def test_fastpath_has_these_gradients_too() -> None:
    """Its graphs take no sizes that data tell: they run as ATen graphs, and it says so."""
    compiled = refcompiler.compile(_carries_more, backend="fastpath")
    assert _compare(_steps(compiled, 3), _steps(_carries_more_by_hand, 3)) == 5
    assert "steps are kept" in str(fastpath.last_report().fallback)


# ---- second derivatives -----------------------------------------------------------------------


def _scanned(x: Any, w: Any, steps: Any) -> Any:
    return scan(lambda c, row: ((c * w + row).sin(), c * row), x[0].clone(), x)


def _scanned_by_hand(x: Any, w: Any, steps: Any) -> Any:
    carried, found = x[0], []
    for row in x:
        found.append(carried * row)
        carried = (carried * w + row).sin()
    return carried, torch.stack(found)


def _mapped(x: Any, w: Any, steps: Any) -> Any:
    def step(row: Any) -> Any:
        return torch.cond(row.sum() > 0, lambda r: r.exp() * w, lambda r: r.sin() * w * w, (row,))

    return over(step, x)


def _mapped_by_hand(x: Any, w: Any, steps: Any) -> Any:
    return torch.stack([r.exp() * w if r.sum() > 0 else r.sin() * w * w for r in x])


def _in_a_checkpoint(x: Any, w: Any, steps: Any) -> Any:
    return checkpoint(lambda a: _scanned(a, w, 0)[1], x, use_reentrant=False).cos()


def _in_a_checkpoint_by_hand(x: Any, w: Any, steps: Any) -> Any:
    return _scanned_by_hand(x, w, 0)[1].cos()


class _Tripled(torch.autograd.Function):
    """A custom backward with a branch in the forward."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return torch.cond(x.sum() > 0, lambda t: t * 3, lambda t: t * 4, (x,))

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * x.cos()


def _in_a_function(x: Any, w: Any, steps: Any) -> Any:
    return _Tripled.apply(x * w).sin()


class _TripledByHand(_Tripled):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * 3 if x.sum() > 0 else x * 4


def _in_a_function_by_hand(x: Any, w: Any, steps: Any) -> Any:
    return _TripledByHand.apply(x * w).sin()


TWICE = [
    (_counted, _counted_by_hand),
    (_branches_and_loops_inside, _branches_and_loops_inside_by_hand),
    (_scanned, _scanned_by_hand),
    (_mapped, _mapped_by_hand),
    (_in_a_checkpoint, _in_a_checkpoint_by_hand),
    (_in_a_function, _in_a_function_by_hand),
]


@pytest.mark.parametrize(("program", "by_hand"), TWICE)
def test_second_derivatives(program: Callable[..., Any], by_hand: Callable[..., Any]) -> None:
    compiled = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    compared = _compare(_steps(compiled, 3, True), _steps(by_hand, 3, True))
    compared += _compare(_steps(compiled, 3, True), _steps(by_hand, 3, True))
    assert compared >= 10


def test_second_derivatives_that_cannot_run_again_are_refused() -> None:
    """Nothing is missing in them without a word."""
    generator = torch.Generator()

    def program(x: Any, w: Any, steps: Any) -> Any:
        noise = torch.rand(4, generator=generator)
        return _scanned(x * noise, w, 0)[1], _counted(x * noise, w, steps), _mapped(x * noise, w, 0)

    refused = 0
    for n in range(3):
        compiled = refcompiler.compile(lambda *args, n=n: program(*args)[n], backend="aot_eager")
        with pytest.raises(RuntimeError, match="no second derivative here"):
            _steps(compiled, 2, True)
        refused += 1
    assert refused == 3


def _gradients_are_compiled() -> None:
    test_gradients_of_a_while_loop(*WHILE[0])


def _runs_twice() -> None:
    test_second_derivatives(_scanned, _scanned_by_hand)


#: By rule: what fails without what keeps it, and how to do without.
KEPT: dict[str, tuple[Callable[[], None], Callable[[pytest.MonkeyPatch], None]]] = {
    "steps that are kept": (
        _gradients_are_compiled,
        lambda patch: patch.setattr(joint_trace, "REGIONS", {}),
    ),
    "loops of the second run": (
        _runs_twice,
        lambda patch: patch.setattr(unrolled, "_INSTEAD", {}),
    ),
}


@pytest.mark.parametrize("rule", KEPT)
def test_without_what_keeps_it(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fails_without(*KEPT[rule], monkeypatch)
