"""Operators whose stand-ins promise what they do not give: the graph runs as it is, and says so."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch

import fastpath
import refcompiler
from fastpath import agreement


@torch.library.custom_op("refcompiler_tests::turned", mutates_args=())
def turned(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous().t() * 2


turned.register_fake(torch.empty_like)


@torch.library.custom_op("refcompiler_tests::narrowed", mutates_args=())
def narrowed(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).to(torch.float64)


narrowed.register_fake(torch.empty_like)


@torch.library.custom_op("refcompiler_tests::gradient", mutates_args=())
def gradient(x: torch.Tensor) -> torch.Tensor:
    return x * 2


gradient.register_fake(torch.empty_like)
gradient.register_autograd(lambda ctx, grad: turned(grad))


@torch.library.custom_op("refcompiler_tests::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous().t() * 2


doubled.register_fake(torch.empty_like)
doubled.register_autograd(lambda ctx, grad: grad * 2)


@pytest.mark.parametrize(
    ("operator", "what"),
    [
        (turned, r"strides of \(1, 4\), not \(5, 1\)"),
        (narrowed, "torch.float64, not torch.float32"),
    ],
)
def test_a_wrong_stand_in_is_noticed_in_the_first_call(operator: Any, what: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return operator(x + 1) * 3 + x.cos()

    compiled, x = refcompiler.compile(f), torch.randn(4, 5)
    with pytest.warns(UserWarning, match=what):
        torch.testing.assert_close(compiled(x), f(x))
    x = torch.randn(4, 5)
    torch.testing.assert_close(compiled(x), f(x))
    assert "stand-in" in fastpath.last_report().fallback


def test_it_is_noticed_in_a_backward_too() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return gradient(x.sin()).cos()

    compiled = refcompiler.compile(f)
    for n in range(3):
        x = torch.randn(4, 5, requires_grad=True)
        (expected,) = torch.autograd.grad(f(x).sum(), x)
        result = compiled(x).sum()
        if n:
            (found,) = torch.autograd.grad(result, x)
        else:
            with pytest.warns(UserWarning, match="strides"):
                (found,) = torch.autograd.grad(result, x)
        torch.testing.assert_close(found, expected)
    report = fastpath.last_report()
    assert report.fallback is None and "stand-in" in report.backwards[0].fallback


def test_what_the_forward_that_runs_instead_keeps_is_read_as_it_lies() -> None:
    compiled = refcompiler.compile(lambda x: doubled(x).sin(), fullgraph=True)
    for _ in range(2):
        x = torch.randn(4, 5, requires_grad=True)
        with contextlib.suppress(UserWarning):
            (found,) = torch.autograd.grad(compiled(x).sum(), x)
        torch.testing.assert_close(found, 2 * (2 * x).cos())


def test_the_graph_that_runs_instead_draws_what_eager_draws() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return turned(torch.nn.functional.dropout(x, 0.5)) * torch.randn(5)

    compiled, x = refcompiler.compile(f), torch.randn(4, 5)
    for n in range(2):
        torch.manual_seed(n)
        expected, after = f(x), torch.get_rng_state()
        torch.manual_seed(n)
        with contextlib.nullcontext() if n else pytest.warns(UserWarning, match="strides"):
            torch.testing.assert_close(compiled(x), expected)
        assert torch.equal(torch.get_rng_state(), after)


def test_later_calls_ask_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(agreement, "broken", lambda t, promise: asked.append(promise[0]))
    compiled = refcompiler.compile(lambda x: x.sort(0).values.relu() + 1)
    x = torch.randn(4, 4)
    for _ in range(3):
        compiled(x)
        assert asked and set(asked) == {"aten.sort.default"} and len(asked) <= 2
    assert fastpath.last_report().fallback is None
