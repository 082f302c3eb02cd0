"""Kernels beyond those of :mod:`benchmarks.kernels`: gathers, scans, losses, norms, optimizers."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from benchmarks import kernels
from benchmarks.kernels import Case


def adamw(
    p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    m = m * 0.9 + g * 0.1
    v = v * 0.999 + g * g * 0.001
    return p * 0.9999 - 1e-3 * (m / 0.271) / ((v / 0.003).sqrt() + 1e-8), m, v


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def more() -> dict[str, Case]:
    """About a million elements each."""
    torch.manual_seed(0)
    n = 1024
    square, other, weight = torch.randn(n, n), torch.randn(n, n), torch.randn(n)
    image, channel = torch.randn(8, 64, 48, 48), torch.randn(64)
    table, ids = torch.randn(4096, 256), torch.randint(0, 4096, (4096,))
    labels, half = torch.randint(0, n, (n,)), square.to(torch.bfloat16)
    heads = torch.randn(4, 8, 512, 64)
    angle = torch.randn(512, 64)
    parameters = (*(torch.randn(1 << 20) for _ in range(3)), torch.rand(1 << 20))
    gate = torch.randn(512, 4096)
    mask = torch.rand(n, n) > 0.3
    return {
        "embedding and add": (lambda t, i, p: t[i] + p, (table, ids, torch.randn(256))),
        "cross entropy": (lambda x, y: F.cross_entropy(x, y), (square, labels)),
        "AdamW step": (adamw, parameters),
        "batch_norm, inference": (
            lambda x, m, v, w: torch.relu(F.batch_norm(x, m, v.abs(), w, w)),
            (image, channel, channel, channel),
        ),
        "group_norm silu": (lambda x, w: F.silu(F.group_norm(x, 8, w, w)), (image, channel)),
        "rotary embedding": (rotated, (heads, angle.cos(), angle.sin())),
        "gated silu": (lambda x: F.silu(x[:, :2048]) * x[:, 2048:], (gate,)),
        "masked softmax": (
            lambda x, m: torch.softmax(torch.where(m, x * 0.125, float("-inf")), -1),
            (square, mask),
        ),
        "softmax bfloat16": (lambda x: torch.softmax(x, -1), (half,)),
        "argmax of rows": (lambda x: x.argmax(-1), (square,)),
        "cumsum of rows": (lambda x: x.cumsum(-1), (square,)),
        "cummax of columns": (lambda x: x.cummax(0)[0], (square,)),
        "rows by position": (lambda x, i: x[i] * 2, (square, labels)),
        "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1), (image,)),
        "avg_pool2d and relu": (lambda x: torch.relu(F.avg_pool2d(x, 3, 1, 1)), (image,)),
        "nearest neighbours": (lambda x: F.interpolate(x[:2], scale_factor=2) + 1, (image,)),
        "average of images": (lambda x: x.mean((2, 3)), (image,)),
        "cat and relu": (lambda x, y: torch.relu(torch.cat((x, y), 1)), (square, other)),
        "pad and scale": (lambda x: F.pad(x, (1, 1, 1, 1)) * 2, (image,)),
        "mean squared error": (lambda x, y: F.mse_loss(x, y), (square, other)),
        "l2 normalised rows": (lambda x: F.normalize(x, dim=-1), (square,)),
        "gather along rows": (
            lambda x, i: x.gather(1, i) * 2,
            (square, torch.randint(0, n, (n, n))),
        ),
        "permuted heads": (
            lambda x: (x.transpose(1, 2) * 2).reshape(4, 512, 512) + 1,
            (heads,),
        ),
        "scale and shift": (lambda x, w: x * w + w, (square, weight)),
    }


def cases() -> dict[str, Case]:
    return kernels.cases() | more()


def large() -> dict[str, Case]:
    """What little is computed in, of tensors that no cache holds."""
    torch.manual_seed(0)
    n = 4096
    square, other, weight = torch.randn(n, n), torch.randn(n, n), torch.randn(n)
    image, channel = torch.randn(32, 128, 64, 64), torch.randn(128)
    table, ids = torch.randn(1 << 16, 256), torch.randint(0, 1 << 16, (1 << 16,))
    return {
        "mul-add-relu": (lambda x, y: torch.relu(x * y + x), (square, other)),
        "silu-mul": (lambda x, y: F.silu(x) * y, (square, other)),
        "gated silu": (lambda x: F.silu(x[:, :2048]) * x[:, 2048:], (square,)),
        "scale and shift": (lambda x, w: x * w + w, (square, weight)),
        "batch_norm, inference": (
            lambda x, m, v, w: torch.relu(F.batch_norm(x, m, v.abs(), w, w)),
            (image, channel, channel, channel),
        ),
        "cat and relu": (lambda x, y: torch.relu(torch.cat((x, y), 1)), (square, other)),
        "pad and scale": (lambda x: F.pad(x, (1, 1, 1, 1)) * 2, (image,)),
        "permuted heads": (
            lambda x: (x.transpose(1, 2) * 2).reshape(16, 1024, 1024) + 1,
            (torch.randn(16, 16, 1024, 64),),
        ),
        "l2 normalised rows": (lambda x: F.normalize(x, dim=-1), (square,)),
        "row sum": (lambda x: x.sum(-1), (square,)),
        "column sum": (lambda x: x.sum(0), (square,)),
        "x + y.t()": (lambda x, y: x + y.t(), (square, other)),
        "embedding and add": (lambda t, i, p: t[i] + p, (table, ids, torch.randn(256))),
    }
