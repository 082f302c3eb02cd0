"""``scan``, ``map``, ``cond`` and ``while_loop`` as graphs within a graph.

Each is compared with a loop written by hand: torch's own run through torch.compile in eager.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.map import map as over
from torch._higher_order_ops.scan import generic_scan

import refcompiler
from refcompiler.aot import joint_trace
from tests.cpu.aot.checks import fails_without
from tests.cpu.aot.programs import Compiler


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    refcompiler.reset()


def T(*size: int, grad: bool = True) -> torch.Tensor:
    return torch.randn(*size).requires_grad_(grad)


def recurrent(xs: Any, h: Any, w: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = torch.tanh(h @ w + x)
        return h, h * 2

    return scan(step, h, xs)


def recurrent_by_hand(xs: Any, h: Any, w: Any) -> Any:
    found = []
    for x in xs:
        h = torch.tanh(h @ w + x)
        found.append(h * 2)
    return h, torch.stack(found)


def backwards_with_a_count(xs: Any, h: Any, w: Any) -> Any:
    """Goes from the last to the first, carries an integer, and an end that nobody reads."""

    def step(carried: Any, x: Any) -> Any:
        count, h = carried["count"], carried["h"]
        h = h * w.sum() + x["a"].sin().sum() * x["b"]
        return {"count": count + 1, "h": h}, (h.cos(), count * 2)

    start = {"count": torch.tensor(3), "h": h}
    ends, (found, counts) = scan(step, start, {"a": xs, "b": xs[:, 0]}, reverse=True)
    return ends["count"], found, counts


def backwards_with_a_count_by_hand(xs: Any, h: Any, w: Any) -> Any:
    found, counts = [], []
    for n, x in enumerate(xs.flip(0)):
        h = h * w.sum() + x.sin().sum() * x[0]
        found.insert(0, h.cos())
        counts.insert(0, 6 + 2 * n)
    return torch.tensor(3 + len(xs)), torch.stack(found), torch.tensor(counts)


def of_a_map(xs: Any, h: Any, w: Any) -> Any:
    found = over(lambda x, w: {"a": (x @ w).relu(), "b": x.sum() > 0}, xs, w)
    return found["a"], found["b"]


def of_a_map_by_hand(xs: Any, h: Any, w: Any) -> Any:
    return (xs @ w).relu(), xs.sum((1, 2)) > 0


PROGRAMS = [
    (recurrent, recurrent_by_hand),
    (backwards_with_a_count, backwards_with_a_count_by_hand),
    (of_a_map, of_a_map_by_hand),
]


@pytest.mark.parametrize(("program", "by_hand"), PROGRAMS)
def test_loops_over_a_dimension(program: Callable[..., Any], by_hand: Callable[..., Any]) -> None:
    """Torch's own ``scan`` takes no integers where there are gradients, and tells of writes."""
    backend, compared = Compiler(), 0
    compiled = refcompiler.compile(program, backend=backend)
    for n, grad in ((4, True), (6, True), (4, False), (2, True)):
        leaves = [T(n, 2, 3).double(), T(2, 3).double(), T(3, 3).double()]
        leaves = [t.detach().requires_grad_(grad) for t in leaves]
        ours, theirs = compiled(*leaves), by_hand(*leaves)
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
            assert a.requires_grad == b.requires_grad and a.stride() == b.stride()
            compared += 1
        if grad:
            gradients = []
            for outputs in (ours, theirs):
                total = sum(t.sin().sum() for t in outputs if t.requires_grad)
                gradients.append(torch.autograd.grad(total, leaves, allow_unused=True))
            for a, b in zip(*gradients, strict=True):
                assert (a is None) == (b is None)
                torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
                compared += 1
    assert set(backend.reasons) == {None}
    assert compared == 4 * len(ours) + 3 * 3
    assert len(backend.forward) == 2 and len(backend.inference) == 1


def _drawing(x: Any, w: Any) -> Any:
    def step(c: Any, row: Any) -> Any:
        kept = F.dropout(c, 0.5) + F.rrelu(row, training=True) * torch.bernoulli(row.sigmoid())
        return kept * torch.rand(4), F.alpha_dropout(c * row, 0.3, True) + torch.randint(0, 9, (4,))

    return scan(step, w.clone(), x)


def _first_again() -> int:
    """How often torch runs the first step besides: once in 2.11, for its results' sizes."""
    calls: list[int] = []
    generic_scan(lambda c, x: (calls.append(0) or c, x), [torch.zeros(1)], [torch.zeros(2, 1)])
    return len(calls) - 2


def _drawing_by_hand(x: Any, w: Any) -> Any:
    if len(x) > 1 and _first_again():
        _drawing_by_hand(x[:1], w)
    carried, found = w, []
    for row in x:
        kept = F.dropout(carried, 0.5)
        kept = kept + F.rrelu(row, training=True) * torch.bernoulli(row.sigmoid())
        kept = kept * torch.rand(4)
        found.append(F.alpha_dropout(carried * row, 0.3, True) + torch.randint(0, 9, (4,)))
        carried = kept
    return carried, torch.stack(found)


def _drawing_over(x: Any, w: Any) -> Any:
    return over(lambda row: (F.dropout(row, 0.5) * w, torch.randperm(4)), x)


def _drawing_over_by_hand(x: Any, w: Any) -> Any:
    found = [(F.dropout(row, 0.5) * w, torch.randperm(4)) for row in x]
    return tuple(map(torch.stack, zip(*found, strict=True)))


@pytest.mark.parametrize(
    ("program", "by_hand"),
    [(_drawing, _drawing_by_hand), (_drawing_over, _drawing_over_by_hand)],
)
def test_loops_whose_steps_draw(program: Callable[..., Any], by_hand: Callable[..., Any]) -> None:
    """The backward has the numbers of the forward, and draws none."""
    compared = 0
    for grad in (False, True):
        backend = Compiler()
        compiled = refcompiler.compile(program, backend=backend)
        for seed in range(2):
            found = []
            for function in (compiled, by_hand):
                torch.manual_seed(seed)
                leaves = [T(3, 4, grad=grad), T(4, grad=grad)]
                outputs = function(*leaves)
                found.append([*outputs, torch.get_rng_state()])
                if grad:
                    total = sum(t.sin().sum() for t in outputs if t.requires_grad)
                    found[-1] += torch.autograd.grad(total, leaves)
                    found[-1].append(torch.get_rng_state())
            for a, b in zip(*found, strict=True):
                torch.testing.assert_close(a, b)
                compared += 1
        assert backend.reasons == [None]
    assert compared == 2 * 3 + 2 * 6


def test_loops_with_a_branch_that_draws_run_as_they_are() -> None:
    def program(x: Any) -> Any:
        def step(row: Any) -> Any:
            return torch.cond(row.sum() > 0, lambda r: F.dropout(r, 0.5), lambda r: r * 2, (row,))

        return over(step, x)

    backend = Compiler()
    y = refcompiler.compile(program, backend=backend)(torch.ones(3, 4, requires_grad=True))
    assert y.requires_grad
    assert backend.reasons == [
        "gradients of a loop with a branch or loop that draws random numbers"
    ]


def test_numbers_from_outside() -> None:
    """Of the program's, which are others in each call, in branches and loops."""

    def chosen(x: Any, k: Any) -> Any:
        return torch.cond(x.sum() > k, lambda x: x.sin() * k, lambda x: x - k, (x,))

    def looped(x: Any, k: Any) -> Any:
        body = lambda n, y: (n + 1, y * 2 + k)  # noqa: E731
        return while_loop(lambda n, y: n < k, body, (torch.tensor(0), x.clone()))[1]

    def scanned(x: Any, k: Any) -> Any:
        return scan(lambda c, x: (c * k + x, c.sin()), x[0].clone(), x)[1]

    def looped_by_hand(x: Any, k: Any) -> Any:
        y, n = x, 0
        while n < k:
            y, n = y * 2 + k, n + 1
        return y

    def scanned_by_hand(x: Any, k: Any) -> Any:
        carried, found = x[0], []
        for row in x:
            found.append(carried.sin())
            carried = carried * k + row
        return torch.stack(found)

    pairs: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
        (chosen, lambda x, k: x.sin() * k if x.sum() > k else x - k),
        (looped, looped_by_hand),
        (scanned, scanned_by_hand),
    ]
    for (function, by_hand), numbers in itertools.product(pairs, ((2, 3, 5), (0.5, 1.25, 2.75))):
        backend, count = Compiler(), 0
        compiled = refcompiler.compile(function, backend=backend)
        for k in numbers:
            x = torch.ones(3, 2, requires_grad=True) * 0.75
            ours, theirs = compiled(x, k), by_hand(x, k)
            torch.testing.assert_close(ours, theirs)
            assert ours.requires_grad == theirs.requires_grad
            if theirs.requires_grad:
                gradients = [torch.autograd.grad(y.sum(), x) for y in (ours, theirs)]
                torch.testing.assert_close(*gradients)
            count += 1
        assert count == 3 and backend.reasons == [None, None], function


def test_gradients_under_autocast_are_computed_in_its_precision() -> None:
    """What a backward computes again has the casts that the forward had."""
    w, v = T(3, 3), T(3, 3)

    def chosen(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: (x @ w).float(), lambda x: (x @ v).float(), (x,))

    def chosen_by_hand(x: Any) -> Any:
        return (x @ (w if x.sum() > 0 else v)).float()

    def scanned(x: Any) -> Any:
        return scan(lambda h, row: ((row @ w).float() + h, h * 2), torch.zeros(3), x)[0]

    def scanned_by_hand(x: Any) -> Any:
        return sum([(row @ w).float() for row in x], torch.zeros(3))

    compared = 0
    for function, by_hand in ((chosen, chosen_by_hand), (scanned, scanned_by_hand)):
        backend, found = Compiler(), []
        for each in (refcompiler.compile(function, backend=backend), by_hand):
            torch.manual_seed(0)
            x = torch.randn(1, 3, requires_grad=True)  # more steps are added up in single precision
            with torch.autocast("cpu", torch.bfloat16):
                y = each(x)
            found.append([y, *torch.autograd.grad(y.sin().sum(), (x, w, v), allow_unused=True)])
        assert backend.reasons == [None]
        for a, b in zip(*found, strict=True):
            if b is not None:
                torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
                compared += 1
    assert compared == 6


def test_gradients_of_complex_results() -> None:
    """Complex numbers have gradients as those of floating point have."""

    def chosen(x: Any) -> Any:
        return torch.cond(x.real.sum() > 0, lambda x: x * 1j, lambda x: x * x, (x,))

    def chosen_by_hand(x: Any) -> Any:
        return x * 1j if x.real.sum() > 0 else x * x

    def mapped(x: Any) -> Any:
        return over(lambda row: row * row.abs(), x)

    compared = 0
    for function, by_hand in ((chosen, chosen_by_hand), (mapped, lambda x: x * x.abs())):
        backend = Compiler()
        compiled = refcompiler.compile(function, backend=backend)
        for sign in (1, -1):
            found = []
            for each in (compiled, by_hand):
                x = torch.complex(torch.tensor([[1.0, 2.0]]) * sign, torch.ones(1, 2))
                y = each(x.requires_grad_())
                found.append([y, *torch.autograd.grad(y.abs().sum(), x)])
            torch.testing.assert_close(*found)
            assert found[0][0].requires_grad
            compared += 1
        assert backend.reasons == [None]
    assert compared == 4


def _steps_are_compiled() -> None:
    test_loops_over_a_dimension(recurrent, recurrent_by_hand)


#: By rule: what fails without what keeps it, and how to do without.
KEPT: dict[str, tuple[Callable[[], None], Callable[[pytest.MonkeyPatch], None]]] = {
    "steps over a dimension": (
        _steps_are_compiled,
        lambda patch: patch.setattr(joint_trace, "REGIONS", {}),
    ),
}


@pytest.mark.parametrize("rule", KEPT)
def test_without_what_keeps_it(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fails_without(*KEPT[rule], monkeypatch)
