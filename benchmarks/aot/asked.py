"""Gradients of a deep chain by some of its leaves alone: forward, and ``torch.autograd.grad``.

Eager computes what leads there and nothing else; a backward that was compiled for all of them has
the products of every weight in it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

import refcompiler
from benchmarks.harness import Row, compare, one_thread

LAYERS, WIDTH, ROWS = 5, 512, 256
ROUNDS = 21
#: What is asked for, by place: the input is before the parameters.
ASKED = {"the input": [0], "the last bias": [-1], "all leaves": [*range(1 + 2 * LAYERS)]}


def rows() -> list[Row]:
    warnings.simplefilter("ignore")
    with one_thread():
        return list(_rows())


def _rows() -> Iterator[Row]:
    torch.manual_seed(0)
    layers = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])
    x = torch.randn(ROWS, WIDTH, requires_grad=True)
    leaves = [x, *layers.parameters()]
    calls = {name: refcompiler.compile(layers, backend=name) for name in ("fastpath", "aot_eager")}
    against = {"eager": layers, "inductor": torch.compile(layers)}
    for what, places in ASKED.items():
        wanted = [leaves[n] for n in places]
        ways = {name: _way(call, x, wanted) for name, call in (calls | against).items()}
        for mine, theirs in (
            ("fastpath", "eager"),
            ("fastpath", "inductor"),
            ("aot_eager", "eager"),
        ):
            for a, b in zip(ways[mine](), ways[theirs](), strict=True):
                assert (a - b).norm() <= 1e-5 * b.norm()
            yield compare(
                f"gradient of {LAYERS} linear layers by {what}: {mine}",
                ways[mine],
                ways[theirs],
                against=theirs,
                rounds=ROUNDS,
                clock=time.thread_time,
            )


def _way(
    call: Callable[..., torch.Tensor], x: torch.Tensor, wanted: Sequence[torch.Tensor]
) -> Callable[[], Any]:
    return lambda: torch.autograd.grad(call(x).sum(), wanted)
