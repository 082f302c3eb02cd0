"""Simplified expressions, decisions and ranges against plain integers; ``fuzz`` runs more."""

from __future__ import annotations

import pytest
import sympy
import torch
import torch.nn.functional as F

import refcompiler
from tests.cpu.shapes import fuzz

#: Seeds that once failed: torch's ``FloorDiv`` and ``PythonMod`` of negative divisors (those of
#: negated operands among them), and its ``Min`` of a ``Max``.
ONCE_WRONG = (13, 161, 1320, 4449, 5018)


@pytest.mark.parametrize("block", range(4))
def test_random_arithmetic(block: int) -> None:
    compared = sum(fuzz.check(seed) for seed in range(30 * block, 30 * block + 30))
    assert compared > 5000


def test_padded_windows() -> None:
    compared = sum(fuzz.check(seed, fuzz.windows) for seed in range(60))
    assert compared > 5000


@pytest.mark.parametrize("seed", ONCE_WRONG)
def test_what_was_wrong_once(seed: int) -> None:
    assert fuzz.check(seed) > 50


def test_a_wrong_expression_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fuzz.BINARY, "-", lambda a, b: a - b if type(a) is int else a + b)
    with pytest.raises(fuzz.Wrong):
        for seed in range(40):
            fuzz.check(seed)


def test_quotients_of_nested_sizes_are_not_simplified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows: sizes rounded up to them, whose count is computed back by a float division."""

    def windows(x: torch.Tensor) -> torch.Tensor:
        b, h, w, c = x.shape
        x = F.pad(x, (0, 0, 0, (2 - w % 2) % 2, 0, (2 - h % 2) % 2))
        _, h, w, _ = x.shape
        cut = x.view(b, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, c)
        n = int(cut.shape[0] / (h * w / 2 / 2))
        back = cut.view(n, h // 2, w // 2, 2, 2, -1).permute(0, 1, 3, 2, 4, 5)
        return back.reshape(n, h, w, -1) + 1

    taken: list[tuple] = []
    real = sympy.simplify
    monkeypatch.setattr(sympy, "simplify", lambda *given: taken.append(given) or real(*given))
    graphs: list[torch.fx.GraphModule] = []
    call = refcompiler.compile(windows, backend=lambda g, i: graphs.append(g) or g, dynamic=True)
    for shape in ((2, 5, 4, 4), (3, 7, 4, 4)):
        x = torch.randn(shape)
        assert torch.equal(call(x), windows(x))
    assert graphs and not taken
