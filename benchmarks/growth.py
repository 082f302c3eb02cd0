"""Capture of one model with more and more layers: how its time grows."""

from __future__ import annotations

import statistics
import warnings
from dataclasses import replace

from benchmarks.families import first_call, forked, observed, prepare
from benchmarks.family_models import GROWING, calls
from benchmarks.harness import Row, one_thread, quartiles

LAYERS = (4, 12, 48)
ROUNDS = 5
#: Of the time of a further layer, many layers over few.
GOAL = 1.3


def rows() -> list[Row]:
    """For each model the time of a further layer between 12 and 48, over that between 4 and 12."""
    warnings.simplefilter("ignore")
    with one_thread():
        prepare()
        return [growth(name) for name in GROWING]


def growth(name: str) -> Row:
    taken: dict[int, list[float]] = {layers: [] for layers in LAYERS}
    models = {layers: next(calls(name, layers)) for layers in LAYERS}
    expected = {layers: observed(model, inputs) for layers, (_, model, inputs) in models.items()}
    for _ in range(ROUNDS):
        for layers, (_, model, inputs) in models.items():
            capture = forked(
                lambda m=model, i=inputs, e=expected[layers]: first_call("ours", m, i, e)
            )
            if capture.graphs != 1 or capture.difference:
                raise RuntimeError(f"{name}, {layers} layers: {capture}")
            taken[layers].append(capture.seconds)
    few, some, many = (statistics.median(taken[layers]) for layers in LAYERS)
    steps = [
        ((c - b) / (LAYERS[2] - LAYERS[1]), (b - a) / (LAYERS[1] - LAYERS[0]))
        for a, b, c in zip(*taken.values(), strict=True)
    ]
    low, high = quartiles(sorted(late / early for late, early in steps))
    late = (many - some) / (LAYERS[2] - LAYERS[1])
    early = (some - few) / (LAYERS[1] - LAYERS[0])
    against = f"a further layer, {LAYERS[0]} to {LAYERS[1]}"
    row = Row(name, late, early, late / early, low, high, ROUNDS, against, GOAL)
    totals = ", ".join(
        f"{statistics.median(taken[layers]) * 1e3:.0f} ms of {layers}" for layers in LAYERS
    )
    return replace(row, note=totals)
