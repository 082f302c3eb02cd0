"""Second derivatives that come to results of a compiled call, of which its gradients are."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from refcompiler.aot.joined import Joined
from tests.cpu.aot.test_backward import compiled


def exponential(x: Any, w: Any) -> Any:
    return ((x * w).exp(),)


def in_place(x: Any, w: Any) -> Any:
    return ((x @ w).tanh_(),)


def one_of_another(x: Any, w: Any) -> Any:
    y = (x * w).exp()
    return y, y * w


def several(x: Any, w: Any) -> Any:
    y = torch.sigmoid(x)
    return y, (y @ w).softmax(1), x.sum()


def a_chain(x: Any, w: Any) -> Any:
    a = x.exp()
    b = (a * w).tanh()
    return a, b, b.softmax(0) * a


def apart(x: Any, w: Any) -> Any:
    return (x * x + 1).sqrt(), w.exp()


def views(x: Any, w: Any) -> Any:
    a, b = (x @ w).tanh().chunk(2)
    return a, b, a * b


def a_view_of_an_input(x: Any, w: Any) -> Any:
    v = x.t()
    return v, (v * v) @ w, w.exp()


def numbered(x: Any, w: Any) -> Any:
    v, _ = (x * w).tanh().sort()
    return v, v * x


PROGRAMS = [
    *(exponential, in_place, one_of_another, several, a_chain, apart),
    *(views, a_view_of_an_input, numbered),
]


def _seen(
    call: Callable[..., Any], of: tuple[int, ...], inner: bool, hook: str, way: str, both: bool
) -> tuple[list[Any], list[Any]]:
    """What a caller sees of second derivatives by results and inputs; what hooks were given."""
    torch.manual_seed(3)
    leaves = [torch.randn(4, 4, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    given = [leaves[0] * 1.5, leaves[1].sin()] if inner else leaves
    results = call(*given)
    told: list[Any] = []

    def hooked(number: int) -> Callable[..., Any]:
        def hook_(gradient: Any) -> Any:
            if gradient is not None:
                told.append((number, gradient.detach().clone()))
            return None if hook == "looks" or gradient is None else gradient * 1.25

        return hook_

    def put() -> None:
        for n, t in enumerate(results):
            t.register_hook(hooked(n))

    if hook != "none" and not hook.endswith("later"):
        put()
    chosen = [results[n] for n in of if n < len(results)]
    loss = sum((t * t * (n + 1)).sum() for n, t in enumerate(chosen))
    first = torch.autograd.grad(loss, given, create_graph=True, allow_unused=True)
    first = [t for t in first if t is not None]
    if hook.endswith("later"):
        put()
    penalty = sum(t.square().sum() for t in first)
    total = penalty + sum(t.sin().sum() for t in results) if both else penalty
    wanted = [*leaves, *given, *results]
    found: list[Any] = [*first]
    if way == "third":
        second = torch.autograd.grad(total, wanted, create_graph=True, allow_unused=True)
        last = sum(t.square().sum() for t in second if t is not None and t.requires_grad)
        found += [*second, *torch.autograd.grad(last, wanted, allow_unused=True)]
    elif way == "kept":
        for t in results:
            t.retain_grad()
        total.backward()
        found += [t.grad for t in (*leaves, *results)]
    else:
        options = {"allow_unused": True, "retain_graph": True}
        found += torch.autograd.grad(total, wanted, **options)
        count = len(told)
        for t in results:  # and each by itself, of the gradients alone
            found += torch.autograd.grad(penalty, [t], **options)
        del told[count:]  # of the others, which one function has made
    return [t if t is None else t.detach() for t in found], told


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_what_comes_to_results_is_eagers(program: Any) -> None:
    call, backend = compiled(program)
    compared = there = 0
    hooks = ("none", "looks", "scales", "scales later")
    parts = ((0,), (1,), (0, 1, 2))
    for case in itertools.product(parts, (False, True), hooks, ("asked", "kept", "third"), (0, 1)):
        if case[0] == (1,) and program in (exponential, in_place):
            continue
        (found, told), (wanted, heard) = _seen(call, *case), _seen(program, *case)
        assert len(found) == len(wanted) and len(told) == len(heard), case
        for got, expected in zip(found, wanted, strict=True):
            assert (got is None) == (expected is None), case
            if got is not None:
                torch.testing.assert_close(got, expected)
                there += 1
            compared += 1
        order = [sorted(each, key=lambda e: (e[0], float(e[1].sum()))) for each in (told, heard)]
        for (n, got), (m, expected) in zip(*order, strict=True):
            assert n == m, case
            torch.testing.assert_close(got, expected)
    assert compared >= 500 and there > compared / 2 and backend.reasons == [None]


KEPT = {"second derivative by a result"}


def test_without_ports_what_comes_to_results_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Joined, "named", lambda *_: {})
    with pytest.raises(AssertionError):
        test_what_comes_to_results_is_eagers(exponential)
