"""Functions of torch's that a program replaces, and goes on calling: ``F.relu = mine(F.relu)``."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.overrides
from torch.nn.functional import gelu

import refcompiler
from refcompiler.capture.replaced import is_replaced

CALLED: list[str] = []
ATTENTION = torch.nn.MultiheadAttention(2, 1)


def mine(function: Any) -> Any:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        CALLED.append(function.__name__)
        return function(*args, **kwargs) + 1

    return wrapper


def program(x: torch.Tensor) -> list[torch.Tensor]:
    return [
        F.relu(x), torch.sigmoid(x), x.tanh(), x.sum(), F.linear(x, x), gelu(x), F.softmax(x, -1),
        torch.einsum("ij,kj->ik", x, x), F.scaled_dot_product_attention(x, x, x), x.split(1)[0],
        torch.cat([x, x]), torch.nn.ReLU()(x), torch.stack([x]), F.layer_norm(x, (2,)),
        torch.nn.Dropout(0.0)(x), ATTENTION(x, x, x, need_weights=False)[0],
    ]  # fmt: skip


PLACES = [
    (F, "relu"), (torch, "sigmoid"), (torch.Tensor, "tanh"), (torch.Tensor, "sum"), (F, "linear"),
    (F, "gelu"), (F, "softmax"), (torch, "einsum"), (F, "scaled_dot_product_attention"),
    (torch, "cat"), (torch, "stack"), (F, "layer_norm"), (F, "dropout"),
]  # fmt: skip


def history(call: Any, place: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """As it is, replaced, and as it was."""
    CALLED.clear()
    x = torch.linspace(-1, 1, 4).view(2, 2)
    found = [call(x)]
    with monkeypatch.context() as patch:
        patch.setattr(place, name, mine(getattr(place, name)))
        found.append(call(x))
    found.append(call(x))
    return [[t.tolist() for t in each] for each in found], list(CALLED)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(("place", "name"), PLACES, ids=lambda value: str(value))
def test_what_stood_there_runs(
    place: Any, name: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = history(program, place, name, monkeypatch)
    assert history(refcompiler.compile(program, backend=backend), place, name, monkeypatch) == (
        expected
    )
    assert name == "gelu" or expected[1]


def test_torch_itself_replaces_nothing() -> None:
    known = torch.overrides.get_overridable_functions().values()
    functions = [function for each in known for function in each]
    assert not [function for function in functions if is_replaced(function)]
    assert len(functions) > 1000


def operators(x: torch.Tensor) -> list[torch.Tensor]:
    y = x.clone()
    y += 1
    y[0] = 2
    found = [x * 2, x - 1, 1 - x, x / 3, 3 / x, x**2, 2**x, -x, x @ x, x == 1, x < 1, abs(x)]
    return [*found, y[0], y]


OPERATORS = "mul sub rsub truediv rtruediv pow rpow neg matmul eq lt iadd abs"


@pytest.mark.parametrize("name", OPERATORS.split())
def test_operators_are_guarded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"__{name}__"
    compiled = refcompiler.compile(operators, backend="eager")
    found, called = history(compiled, torch.Tensor, name, monkeypatch)
    assert called and found == history(operators, torch.Tensor, name, monkeypatch)[0]
    assert found[1] != found[0] == found[2]
