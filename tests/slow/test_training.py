"""A sample of the training curves: python -m tests.slow.batteries.training runs all of them."""

from __future__ import annotations

import torch

from tests.slow.batteries.noise import judge, measure
from tests.slow.batteries.recipes import MORE, PLAIN, RECIPES, Curve
from tests.slow.batteries.training import FAMILIES, calls, run


def test_curves_are_eagers_bits() -> None:
    results = run(FAMILIES[::3], "aot_eager", steps=20)
    trained = [r for r in results if not r.refused]
    assert len({r.family for r in trained}) >= 25
    assert len(trained) >= 25 * len(PLAIN)
    assert not [r for r in trained if not r.good]
    graphs = sum(r.graphs for r in trained)
    assert sum(len(r.uncompiled) for r in trained) <= 0.05 * graphs


def test_generated_code_is_within_eagers_noise() -> None:
    results = run(["Bert", "T5", "cnn"], "fastpath", steps=20)
    assert len([r for r in results if r.good]) == 3 * len(PLAIN)


def test_other_recipes() -> None:
    for backend in ("aot_eager", "fastpath"):
        results = run(["GPT2"], backend, steps=8, recipes=tuple(MORE))
        assert [r for r in results if r.good]
        assert not [r for r in results if r.difference]


def test_a_wrong_curve_is_seen() -> None:
    _, model, inputs = next(iter(calls("mlp")))
    recipe = RECIPES["SGD"]
    allowed = measure(model.train(), inputs, recipe, 6)
    assert not judge(allowed.plain, allowed).difference
    for place in range(6):
        losses = list(allowed.plain.losses)
        losses[place] = losses[place] * (1 + 1e-4)
        assert judge(Curve(losses, allowed.plain.end), allowed).difference
    drawn = [*allowed.plain.end[:-1], torch.Generator().manual_seed(7).get_state()]
    assert "generator" in judge(Curve(allowed.plain.losses, drawn), allowed).difference
    end = [t * 1.001 if t is not None and t.is_floating_point() else t for t in allowed.plain.end]
    assert "tensor 0" in judge(Curve(allowed.plain.losses, end), allowed).difference
