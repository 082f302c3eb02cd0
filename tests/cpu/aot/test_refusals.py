"""Graphs with operators that have no derivative are compiled, and raise what eager raises."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import fastpath
import refcompiler
from refcompiler.aot import function

KEPT = {"no derivative"}


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    refcompiler.reset()


def _beside(x: Any, y: Any) -> Any:
    return x // 2 + x.cos(), x.sin() * y


def _in_place(x: Any, y: Any) -> Any:
    z = x * 3
    z //= y
    return z + x, y.sin()


def _of_a_view(x: Any, y: Any) -> Any:
    z = x * 1
    z[:2].floor_divide_(2)
    return z, z * y


def _by_some_operands(x: Any, y: Any) -> Any:
    return torch.igamma(x, y), x * y


def _several(x: Any, y: Any) -> Any:
    return torch.histogram(x, 3)[0] * y.sum(), torch.heaviside(x, y) + torch.special.zeta(x + 2, y)


def _one_of_the_other(x: Any, y: Any) -> Any:
    a = x // 2
    return a, a * y


def _in_a_region(x: Any, y: Any) -> Any:
    return checkpoint(lambda t: t // 2 + t.sin(), x, use_reentrant=False), x * y


def _alone(x: Any, y: Any) -> Any:
    return (x // y,)


PROGRAMS = [
    *(_beside, _in_place, _of_a_view, _by_some_operands, _several),
    *(_one_of_the_other, _in_a_region, _alone),
]
ASKED: dict[str, Callable[..., Sequence[Any]]] = {
    "all leaves": lambda loss, leaves, given: loss.backward() or [t.grad for t in leaves],
    "one leaf": lambda loss, leaves, given: loss.backward(inputs=leaves[:1]) or [leaves[0].grad],
    "the first": lambda loss, leaves, given: torch.autograd.grad(loss, given[:1]),
    "the second": lambda loss, leaves, given: torch.autograd.grad(loss, given[1:]),
}


def _outcome(call: Callable[..., Any], is_leaf: bool, ends: Sequence[int], how: str) -> Any:
    torch.manual_seed(1)
    leaves = [(torch.rand(4) + 0.2).requires_grad_() for _ in range(2)]
    given = leaves if is_leaf else [t * 1.5 for t in leaves]
    results = call(*given)
    assert all(t.requires_grad for t in results)
    loss = sum(results[n].sin().sum() for n in ends if n < len(results))
    try:
        return ASKED[how](loss, leaves, given)
    except RuntimeError as error:
        return type(error), str(error)


def _compare(program: Callable[..., Any], backend: str) -> tuple[int, int]:
    """Outcomes compared, and which of them are errors."""
    call = refcompiler.compile(program, backend=backend, fullgraph=True)
    count = errors = 0
    ways = itertools.product((True, False), ((0,), (1,), (0, 1)), ASKED)
    for is_leaf, ends, how in ways:
        if len(ends) == 1 and ends[0] and program is _alone:
            continue
        found, wanted = (_outcome(each, is_leaf, ends, how) for each in (call, program))
        assert type(found) is type(wanted), (is_leaf, ends, how, found, wanted)
        if isinstance(wanted, tuple) and isinstance(wanted[0], type):
            assert found == wanted
            errors += 1
        else:
            torch.testing.assert_close(found, wanted)
        count += 1
    assert refcompiler.counters()["uncompiled"] == 0
    return count, errors


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("backend", ["aot_eager", "fastpath"])
def test_the_error_is_eagers(program: Callable[..., Any], backend: str) -> None:
    count, errors = _compare(program, backend)
    assert count == (16 if program is _alone else 24)
    assert errors == count if program is _alone else 0 < errors < count
    if backend == "fastpath":
        assert fastpath.last_report().fallback is None


def test_without_the_check_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function, "check", lambda *_: None)
    with pytest.raises(AssertionError):
        _compare(_beside, "aot_eager")


@pytest.mark.parametrize("first", ["older", "newer"])
@pytest.mark.parametrize("keeps", [False, True])
def test_a_second_backward_finds_freed_what_ran_before_the_error(first: str, keeps: bool) -> None:
    def program(x: Any) -> Any:
        if first == "older":
            return torch.heaviside(x, x * 2).sum() + x.exp().sum()
        return x.exp().sum() + torch.special.zeta(x.abs() + 2, 2.0).sum()

    refcompiler.reset()
    call = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    sides = []
    for each in (call, program):
        x = torch.linspace(-1, 1, 4, requires_grad=True)
        loss = each(x * 1)
        said = []
        for n in range(3):
            with pytest.raises((RuntimeError, NotImplementedError)) as error:
                torch.autograd.grad(loss, x, retain_graph=keeps and n == 0)
            said.append((error.type, str(error.value)))
        sides.append(said)
    assert sides[0] == sides[1]
    assert refcompiler.counters()["uncompiled"] == 0
