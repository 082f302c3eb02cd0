"""Kernels with positions that are data, with scans and windows, in Triton's interpreter.

``python triton_positions.py`` (with ``TRITON_INTERPRET=1``) prints how many kernels ran and how
many elements were compared with eager's, the same of places that 32 bits do not hold, and of
programs that take their sizes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F

from fastpath.gpu.tiling import tiling
from fastpath.schedule import slabs
from tests.cpu.fastpath.triton_kernels import agree, execute, interpreted, small_blocks

aten = torch.ops.aten


def in_turns(x: torch.Tensor, c: torch.Tensor) -> list[torch.Tensor]:
    one, other = x[:, ::2], x[:, 1::2]
    turned = torch.stack([one * c - other, one + other * c], -1)
    return [torch.stack([x, x * 2], -1), turned.flatten(1)]


def four_in_turns(b: torch.Tensor) -> list[torch.Tensor]:
    x, y, w, h = b.unbind(-1)
    return [
        torch.stack([x - w, y - h, x + w, y + h], -1),
        torch.stack([h, x * 2, torch.zeros_like(x), y], -1) + b,
        torch.cat([b[..., ::2], b[..., 1:2], b[..., 3:] > 0], -1),
    ]


def pairs_in_turns(b: torch.Tensor) -> list[torch.Tensor]:
    one, other = b[..., ::2], b[..., 1::2]
    return [torch.stack([one - other, one + other], -1).flatten(-2), torch.stack([b, b > 0], -1)]


def cases() -> dict[str, tuple[Callable[..., Any], list[torch.Tensor]]]:
    generator = torch.Generator().manual_seed(0)

    def integers(below: int, *shape: int) -> torch.Tensor:
        return torch.randint(below, shape, generator=generator)

    x, image = (torch.randn(s, generator=generator) for s in ((5, 37), (2, 3, 7, 8)))
    wide = torch.randn(2, 9, 40, generator=generator)
    last = torch.randn(2, 32, 3, 5, generator=generator).to(memory_format=torch.channels_last)
    target = integers(37, 5)
    target[2] = -100
    return {
        "embedding": (lambda w, i: F.embedding(i, w) * 2, [x, integers(5, 3, 7)]),
        "gather": (
            lambda x, g: [torch.gather(x, 1, g), x[:, g[0]], x[g[0] % 5, g[0] - 37]],
            [x, integers(37, 5, 9)],
        ),
        "guarded": (lambda x, i: torch.cat([x[i], x]) + 1, [x, integers(5, 3)]),
        "scatter": (
            lambda x, i: [x.scatter(1, i, 2.0), x.scatter_add(1, i, x)],
            [x, integers(37, 5, 2)],
        ),
        "many writes": (
            lambda x, i, d, s: [
                x.index_add(1, i, x[:, :20].exp()),
                x.new_zeros(7, 40).index_add(0, d, s, alpha=3) * 2,
                x.scatter_add(1, i.expand(3, 20), x[:3, :20]),
                aten.index_put(x.round().long(), [i[:12] % 5, i[:12]], i[:12], True),
            ],
            [x, integers(37, 20), integers(7, 13), torch.randn(13, 40, generator=generator)],
        ),
        "writes without order": (
            lambda x, p: [
                x.scatter(1, p.expand(4, 12), 2.0),
                x.index_copy(1, p, x[:, :12]),
                aten.index_put(x, [None, p.reshape(3, 4)], x[:, :12].reshape(5, 3, 4) + 1),
                x.masked_fill(x > 0, 0).index_fill(1, p - 37, 1.5),
            ],
            [x, torch.randperm(37, generator=generator)[:12]],
        ),
        "in turns of four": (four_in_turns, [torch.randn(7, 5, 4, generator=generator)]),
        "in turns of four, halves": (four_in_turns, [integers(9, 11, 4).to(torch.float16)]),
        "in turns of four, integers": (four_in_turns, [integers(9, 3, 7, 4) - 4]),
        "in turns, halves": (in_turns, [x[:, :36].half().round(), x[:, :18].half()]),
        "pairs in turns": (pairs_in_turns, [integers(9, 3, 7, 4).to(torch.uint8)]),
        "in turns, a row": (
            lambda x: [torch.stack([x, x > 0], -1), torch.stack([x[0] * 2, x[0]], -1).exp()],
            [x[:1, :1]],
        ),
        "borders": (
            lambda x: [
                *(F.pad(x, (2, 3, 1, 6), mode=mode) for mode in ("reflect", "replicate")),
                F.pad(x[:, 0], (3, 4), mode="reflect") * torch.arange(15),
                torch.where(torch.arange(8) * 3 - 9 > torch.arange(7)[:, None], x, -1.0),
            ],
            [image],
        ),
        "cross entropy": (lambda x, t: F.cross_entropy(x, t), [x, target]),
        "extrema": (lambda x: [x.argmax(1), x.argmax(0), x.argmin(), *x.max(1)], [x]),
        "scans": (
            lambda x: [x.cumsum(1) * 2, x.cumsum(0), *x.cummax(1), *x.cummin(0), x.cumprod(1)],
            [x],
        ),
        "other scans": (
            lambda x: [(x > 0).cumsum(1), (x > 0).cummax(1)[0], x.cumsum(1).amax(1)],
            [x],
        ),
        "patches": (  # a program for each row of them
            lambda x: [F.unfold(x, 3), F.unfold(x, 2, dilation=2, padding=1, stride=(1, 2))],
            [torch.randn(1, 1, 22, 52, generator=generator)],
        ),
        "windows": (
            lambda x: [
                *aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1]),
                F.avg_pool2d(x, 3, 2, 1),
                F.unfold(x, 2),
            ],
            [image],
        ),
        "images": (
            lambda x: [
                F.interpolate(x, size=(5, 11)),
                F.interpolate(x, scale_factor=2, mode="bilinear"),
                F.pad(x, (1, 2, 3, 1), mode="reflect"),
            ],
            [image],
        ),
        # Channels are the neighbours: several groups' rows lie in the same lines of memory, and
        # neighbours read from one place, which is computed.
        "channels": (
            lambda x: [
                F.group_norm(x, 8),
                F.group_norm(x, 8).contiguous() + 1,
                F.interpolate(x, scale_factor=2, mode="bilinear"),
            ],
            [last],
        ),
        # Every other element, or fourth: parts of words, the last of which ends behind the tensor.
        "apart": (
            lambda x: [
                *(F.pixel_unshuffle(x, 2), x[..., ::2] * 2, x[..., 1::4] + x[..., 3::4]),
                *(x[..., 1::2].amax(-1), x[..., ::4].sum(-1), F.max_pool2d(x, 2)),
                *(x.flatten()[1::2].clone(), x.flatten()[2::4].neg()),
            ],
            [torch.randn(1, 3, 14, 20, generator=generator)],
        ),
        "apart, integers": (
            lambda a, b, c, d: [t[:, n::step] + n for t in (a, b, c, d) for n, step in STEPS],
            [
                torch.randint(-99, 99, (7, 37), generator=generator).to(dtype)
                for dtype in (torch.int8, torch.int16, torch.int32, torch.int64)
            ],
        ),
        "in turns": (
            in_turns,
            [x[:, :36].contiguous(), x[0, :18].clone()],
        ),
        "between": (
            lambda x: [torch.softmax(x, 1), x.mean(1, True) * x, torch.softmax(x[0], 0)],
            [wide],
        ),
        "slabs": (  # columns of a table that are read for all words before others are
            lambda w, i, h: [F.embedding(i, w) * 2, w[i[0] // 2] + 1, F.embedding(i, h)],
            [
                torch.randn(6, 192, generator=generator),
                integers(6, 3, 7),
                torch.randn(20, 256, generator=generator).half(),
            ],
        ),
    }


BOTH = ("slabs",)  # cases that meet both plans
STEPS = ((0, 2), (1, 2), (0, 4), (3, 4))


def main() -> None:
    from tests.cpu.fastpath import triton_far, triton_sizes

    np.seterr(all="ignore")
    ran = compared = 0
    for place, (name, (function, inputs)) in enumerate(cases().items()):
        exact = function(*[x.double() if x.is_floating_point() else x for x in inputs])
        eager = function(*inputs)
        if isinstance(eager, torch.Tensor):
            eager, exact = [eager], [exact]
        # The interpreter takes its time; what each kind of kernel shares meets both plans.
        for plan in (tiling, small_blocks)[0 if name in BOTH else place % 2 :][
            : 1 + (name in BOTH)
        ]:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                least = 0 if name == "slabs" else slabs.LEAST
                with mock.patch.object(slabs, "LEAST", least):
                    got, kernels = execute(function, inputs, interpreted, plan)
            ran += kernels
            for a, b, c in zip(got, eager, exact, strict=True):
                if not agree(a, b, c):
                    raise AssertionError(f"{name}: {a} is not {b}")
                compared += a.numel()
    print(ran, compared, *triton_far.check(), *triton_sizes.check("normed", "picked"))


if __name__ == "__main__":
    main()
