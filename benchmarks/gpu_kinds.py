"""Kernels of many kinds on a CUDA device, against inductor: what few workloads do not show.

Each is one function of tensors of some 100 MB; times and ``share`` are those of
:mod:`benchmarks.gpu`. A kind that is slower than inductor's is the next to look at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F

import refcompiler
from benchmarks.gpu import FEW, HALF, bandwidth, kernel_row, numbers, summed, turned_in_pairs
from benchmarks.harness import Row

Function = Callable[..., Any]
Kind = tuple[str, Function, Callable[[], list[Any]]]
SINGLE = torch.float32


def rows() -> list[Row]:
    if not torch.cuda.is_available():
        raise SystemExit("the section gpu_kinds needs a CUDA device: leave it out, or use one")
    torch.manual_seed(0)
    copied = bandwidth()
    found = []
    for name, function, inputs in kinds():
        torch._dynamo.reset()
        refcompiler.reset()
        found.append(kernel_row(name, (function, inputs(), FEW), copied))
        torch.cuda.empty_cache()
    return [replace(summed(found, f"{len(found)} kinds"), goal=None), *found]


def kinds() -> Iterator[Kind]:
    for part in (over_rows, over_columns, over_all, images, draws, gathers, losses, layouts):
        yield from part()
    yield from pointwise()
    yield from steps()


def matrix(dtype: torch.dtype = HALF) -> Callable[[], list[Any]]:
    return lambda: [numbers(16384, 4096, dtype=dtype)]


def two(*shape: int) -> Callable[[], list[Any]]:
    return lambda: [numbers(*shape), numbers(*shape)]


def scaled(x: Any, most: float) -> Any:
    return x.float() / (x.float().abs().amax(-1, True) / most)


def over_rows() -> Iterator[Kind]:
    both: dict[str, Function] = {
        "sum": lambda x: x.sum(-1),
        "mean": lambda x: x.mean(-1),
        "amax": lambda x: x.amax(-1),
        "argmax": lambda x: x.argmax(-1),
        "max": lambda x: tuple(x.max(-1)),
        "prod": lambda x: x.prod(-1),
        "std": lambda x: x.std(-1),
        "norm": lambda x: x.norm(dim=-1),
        "norm of order 1": lambda x: x.norm(1, dim=-1),
        "norm of order 3": lambda x: x.norm(3, dim=-1),
        "any": lambda x: (x > 3).any(-1),
        "count": lambda x: (x > 0).sum(-1),
        "logsumexp": lambda x: x.logsumexp(-1),
        "var_mean": lambda x: torch.var_mean(x, -1),
        "amin, amax": lambda x: (x.amin(-1), x.amax(-1)),
        "cumsum": lambda x: x.cumsum(-1),
        "cumprod": lambda x: x.cumprod(-1),
        "cummax": lambda x: tuple(x.cummax(-1)),
        "softmin": lambda x: F.softmin(x, -1),
        "log_softmax in float32": lambda x: F.log_softmax(x.float(), -1),
        "normalize": lambda x: F.normalize(x, dim=-1),
    }
    for name, function in both.items():
        yield f"rows: {name}, bf16", function, matrix()
        yield f"rows: {name}, f32", function, matrix(SINGLE)
    alone: dict[str, Function] = {
        "to float8_e4m3fn": lambda x: scaled(x, 448).to(torch.float8_e4m3fn),
        "to int8": lambda x: scaled(x, 127).round().clamp(-128, 127).to(torch.int8),
        "flip": lambda x: x.flip(-1),
        "roll": lambda x: x.roll(3, -1),
        "sums of eight": lambda x: x.view(-1, 8).sum(-1),
        "every other one": lambda x: x[:, ::2] * 2,
        "entropy": lambda x: -(torch.softmax(x, -1) * torch.log_softmax(x, -1)).sum(-1),
    }
    for name, function in alone.items():
        yield f"rows: {name}, bf16", function, matrix()


def over_columns() -> Iterator[Kind]:
    columns: dict[str, Function] = {
        "sum": lambda x: x.sum(0),
        "amax": lambda x: x.amax(0),
        "argmax": lambda x: x.argmax(0),
        "max": lambda x: tuple(x.max(0)),
        "softmax": lambda x: torch.softmax(x, 0),
        "std": lambda x: x.std(0),
        "logsumexp": lambda x: x.logsumexp(0),
        "norm": lambda x: x.norm(dim=0),
        "cumsum": lambda x: x.cumsum(0),
        "normalize": lambda x: F.normalize(x, dim=0),
        "center": lambda x: x - x.mean(0),
        "any": lambda x: (x > 3).any(0),
    }
    for name, function in columns.items():
        yield f"columns: {name}", function, matrix()
    between: dict[str, Function] = {
        "sum": lambda x: x.sum(1),
        "softmax": lambda x: torch.softmax(x, 1),
        "mean, scaled": lambda x: x.mean(1, True) * x,
        "amax": lambda x: x.amax(1),
        "std": lambda x: x.std(1),
    }
    for name, function in between.items():
        yield f"between 64x512x2048: {name}", function, lambda: [numbers(64, 512, 2048)]


def over_all() -> Iterator[Kind]:
    found: dict[str, Function] = {
        "mean": lambda x: x.float().mean(),
        "norm": lambda x: x.norm(),
        "amax": lambda x: x.abs().max(),
        "var": lambda x: x.float().var(),
        "mse": lambda x: F.mse_loss(x, x * 2),
        "any": lambda x: torch.isnan(x).any(),
        "argmax": lambda x: x.argmax(),
    }
    for name, function in found.items():
        yield f"all: {name}", function, matrix()


def pictures(last: bool = False, weights: int = 0) -> Callable[[], list[Any]]:
    order = torch.channels_last if last else torch.contiguous_format

    def made() -> list[Any]:
        found = numbers(64, 256, 56, 56).contiguous(memory_format=order)
        return [found, *(numbers(256) for _ in range(weights))]

    return made


def images() -> Iterator[Kind]:
    norms: dict[str, Function] = {
        "group norm": lambda x, w, b: F.group_norm(x, 32, w, b),
        "batch norm": lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
        "batch norm, relu": lambda x, w, b: F.relu(F.batch_norm(x, None, None, w, b, True)),
    }
    for name, function in norms.items():
        for last in (False, True):
            ending = ", channels last" if last else ""
            yield f"images: {name}{ending}", function, pictures(last, 2)
    yield (
        "images: layer norm of channels, channels last",
        lambda x, w, b: F.layer_norm(x.permute(0, 2, 3, 1), (256,), w, b).permute(0, 3, 1, 2),
        pictures(True, 2),
    )
    both: dict[str, Function] = {
        "max_pool 3, 2": lambda x: F.max_pool2d(x, 3, 2, 1),
        "avg_pool 3, 1": lambda x: F.avg_pool2d(x, 3, 1, 1),
        "upsample": lambda x: F.interpolate(x, scale_factor=2.0),
        "upsample, bilinear": lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
    }
    for name, function in both.items():
        for last in (False, True):
            yield f"images: {name}{', channels last' if last else ''}", function, pictures(last)
    alone: dict[str, Function] = {
        "instance norm": lambda x: F.instance_norm(x),
        "max_pool 2, 2": lambda x: F.max_pool2d(x, 2),
        "avg_pool 2, 2": lambda x: F.avg_pool2d(x, 2),
        "global average": lambda x: F.adaptive_avg_pool2d(x, 1),
        "to channels last": lambda x: x.permute(0, 2, 3, 1).contiguous(),
        "pad": lambda x: F.pad(x, (1, 1, 1, 1)),
        "pad, reflect": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
        "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
        "pixel_unshuffle": lambda x: F.pixel_unshuffle(x, 2),
        "squeeze, excite": lambda x: x * x.mean((2, 3), True).sigmoid(),
        "flip": lambda x: x.flip(-1),
        "unfold": lambda x: F.unfold(x[:8], 3),
        "dropout2d": lambda x: F.dropout2d(x, 0.1),
    }
    for name, function in alone.items():
        yield f"images: {name}", function, pictures()


def draws() -> Iterator[Kind]:
    found: dict[str, Function] = {
        "uniform_": lambda x: torch.empty_like(x).uniform_(-1, 1),
        "rand": lambda x: torch.rand_like(x),
        "bernoulli": lambda x: torch.bernoulli(x, 0.3),
        "dropout": lambda x: F.dropout(x, 0.1),
        "normal_": lambda x: torch.empty_like(x).normal_(),
        "randn": lambda x: torch.randn_like(x),
        "noise": lambda x: x + torch.randn_like(x) * 0.1,
        "gumbel": lambda x: x - torch.log(-torch.log(torch.rand_like(x) + 1e-9)),
        "exponential_": lambda x: torch.empty_like(x).exponential_(),
        "randint": lambda x: torch.randint_like(x, 0, 100),
    }
    for name, function in found.items():
        for dtype in (SINGLE, HALF):
            short = "f32" if dtype is SINGLE else "bf16"
            yield f"draws: {name}, {short}", function, lambda d=dtype: [numbers(1 << 26, dtype=d)]
    yield "draws: uniform_ of a matrix, bf16", found["uniform_"], matrix()


def words(count: int = 131072, below: int = 50257) -> Any:
    return torch.randint(below, (count,), device="cuda")


def gathers() -> Iterator[Kind]:
    table = 50257, 1024
    yield "embedding", lambda i, t: F.embedding(i, t), lambda: [words(), numbers(*table)]
    yield (
        "embedding, position, layer norm",
        lambda i, t, p, w: F.layer_norm(F.embedding(i, t) + p, (1024,), w),
        lambda: [words(), numbers(*table), numbers(131072, 1024), numbers(1024)],
    )
    for dtype in (SINGLE, HALF):
        yield (
            f"index_add, {'f32' if dtype is SINGLE else 'bf16'}",
            lambda a, i, b: a.index_add(0, i, b),
            lambda d=dtype: [numbers(*table, dtype=d), words(), numbers(131072, 1024, dtype=d)],
        )
    yield (
        "index_put, accumulated",
        lambda a, i, b: a.index_put((i,), b, True),
        lambda: [numbers(*table, dtype=SINGLE), words(), numbers(131072, 1024, dtype=SINGLE)],
    )
    places = lambda n, *shape: torch.randint(n, shape, device="cuda")  # noqa: E731
    yield (
        "scatter_add along rows",
        lambda a, i, b: a.scatter_add(1, i, b),
        lambda: [
            numbers(16384, 1024, dtype=SINGLE),
            places(1024, 16384, 2048),
            numbers(16384, 2048, dtype=SINGLE),
        ],
    )
    yield (
        "gather along rows",
        lambda a, i: a.gather(1, i),
        lambda: [numbers(16384, 4096), places(4096, 16384, 4096)],
    )
    order = lambda n: torch.randperm(n, device="cuda")  # noqa: E731
    yield "rows in another order", lambda a, i: a[i], lambda: [numbers(16384, 4096), order(16384)]
    yield "columns in another order", lambda a, i: a[:, i], lambda: [*matrix()(), order(4096)]
    yield "one_hot", lambda i: F.one_hot(i, 1000), lambda: [words(65536, 1000)]
    yield (
        "masked_fill of columns",
        lambda x, m: x.masked_fill(m, 0.0),
        lambda: [*matrix()(), torch.rand(4096, device="cuda") > 0.5],
    )


def causal(x: Any) -> Any:
    ahead = torch.ones(x.shape[-2:], device=x.device, dtype=torch.bool).triu(1)
    return torch.softmax(x.masked_fill(ahead, -math.inf), -1)


def sloped(x: Any, slopes: Any) -> Any:
    places = torch.arange(x.shape[-1], device=x.device)
    return torch.softmax(x + slopes[:, None, None] * (places[None, :] - places[:, None]), -1)


def losses() -> Iterator[Kind]:
    scores = lambda d: lambda: [numbers(8192, 32000, dtype=d), words(8192, 32000)]  # noqa: E731
    smooth = lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1)  # noqa: E731
    yield "causal softmax", causal, lambda: [numbers(64, 1024, 1024)]
    yield "softmax with slopes", sloped, lambda: [numbers(4, 16, 1024, 1024), numbers(16)]
    yield "cross entropy, f32", lambda x, t: F.cross_entropy(x, t), scores(SINGLE)
    yield "cross entropy, smoothed", smooth, scores(HALF)
    found: dict[str, Function] = {
        "binary cross entropy": lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()),
        "divergence": lambda x, y: F.kl_div(F.log_softmax(x, -1), F.softmax(y, -1)),
        "smooth_l1": lambda x, y: F.smooth_l1_loss(x, y),
        "cosine similarity": lambda x, y: F.cosine_similarity(x, y, -1),
    }
    for name, function in found.items():
        yield name, function, two(16384, 4096)
    yield (
        "distances of pairs",
        lambda a, b: ((a[:, None] - b[None]) ** 2).sum(-1),
        lambda: [numbers(1024, 64, dtype=SINGLE), numbers(1024, 64, dtype=SINGLE)],
    )


def gated(x: Any) -> Any:
    one, other = x.chunk(2, -1)
    return F.silu(one) * other


def layouts() -> Iterator[Kind]:
    single = lambda *shape: lambda: [numbers(*shape)]  # noqa: E731
    square = lambda: [numbers(8192, 8192, dtype=SINGLE)]  # noqa: E731
    yield "transpose, f32", lambda x: x.t().contiguous(), square
    heads = lambda x: x.view(8, 2048, 32, 128).transpose(1, 2).contiguous()  # noqa: E731
    yield "heads apart", heads, single(8, 2048, 4096)
    yield (
        "heads together, bias",
        lambda x, b: x.transpose(1, 2).reshape(8, 2048, 4096) + b,
        lambda: [numbers(8, 32, 2048, 128), numbers(4096)],
    )
    between = lambda x: F.gelu(x.transpose(1, 2).contiguous())  # noqa: E731
    yield "middle dimensions in turn, gelu", between, single(64, 128, 64, 128)
    back = lambda x: x.permute(3, 2, 1, 0).contiguous()  # noqa: E731
    yield "dimensions backwards", back, single(64, 64, 128, 128)
    yield "x + x.t()", lambda x: x + x.t(), single(8192, 8192)
    yield "stack, last", lambda x, y: torch.stack([x, y], -1), two(8192, 4096)
    yield "cat, first", lambda x, y: torch.cat([x, y * 2], 0), two(8192, 4096)
    yield "gated halves", gated, single(8192, 8192)
    yield (
        "interleaved rotary",
        turned_in_pairs,
        lambda: [numbers(16, 32, 1024, 128), numbers(1024, 64), numbers(1024, 64)],
    )
    spread = lambda x: x[:, :, None].expand(8, 8, 4, 2048, 128).reshape(8, 32, 2048, 128)  # noqa: E731
    yield "keys repeated", spread, single(8, 8, 2048, 128)
    yield "tril", lambda x: x.tril(), single(8192, 8192)
    yield "outer", lambda a, b: a[:, None] * b[None], two(8192)


def pointwise() -> Iterator[Kind]:
    for dtype in (torch.float16, torch.float64, torch.int32, torch.int64, torch.uint8):
        short = str(dtype).removeprefix("torch.")
        given = lambda d=dtype: [(numbers(1 << 25, dtype=SINGLE) * 50).abs().to(d)]  # noqa: E731
        yield f"x * 3 + 7, {short}", lambda x: x * 3 + 7, given
        if dtype.is_floating_point:
            yield f"tanh, exp, {short}", lambda x: torch.tanh(x) + torch.exp(-x), given
        else:
            yield f"quotients, {short}", lambda x: (x // 7) + (x % 5), given
            yield f"sum, {short}", lambda x: x.sum(), given
    bounds = lambda x: torch.tensor([-1.0, 0.0, 1.0], device=x.device)  # noqa: E731
    found: dict[str, Function] = {
        "pow": lambda x: x.abs() ** 1.7,
        "atan2": lambda x: torch.atan2(x, x + 1),
        "erfinv": lambda x: torch.erfinv(x * 0.1),
        "lgamma": lambda x: torch.lgamma(x),
        "digamma": lambda x: torch.digamma(x),
        "log1p": lambda x: torch.log1p(x.abs()),
        "mish": lambda x: F.mish(x),
        "softplus": lambda x: F.softplus(x),
        "selu": lambda x: F.selu(x),
        "asin": lambda x: torch.asin(x * 0.1),
        "sinh": lambda x: torch.sinh(x),
        "fmod": lambda x: torch.fmod(x, 0.7),
        "remainder": lambda x: torch.remainder(x, 0.7),
        "rsqrt": lambda x: torch.rsqrt(x.abs()),
        "hypot": lambda x: torch.hypot(x, x + 1),
        "logaddexp": lambda x: torch.logaddexp(x, x * 2),
        "i0": lambda x: torch.special.i0(x),
        "round to two digits": lambda x: torch.round(x, decimals=2),
        "where": lambda x: torch.where(x > 0, x, x.exp() - 1),
        "complex": lambda x: (torch.view_as_complex(x.view(-1, 2)) * (1 + 2j)).abs(),
        "bucketize": lambda x: torch.bucketize(x, bounds(x)),
        "nan_to_num": lambda x: torch.nan_to_num(x),
    }
    for name, function in found.items():
        yield f"{name}, f32", function, lambda: [numbers(1 << 25, dtype=SINGLE)]


def clipped(*gradients: Any) -> list[Any]:
    norm = torch.sqrt(sum((g.float() ** 2).sum() for g in gradients))
    return [g * torch.clamp(1 / (norm + 1e-6), max=1) for g in gradients]


def averaged(*both: Any) -> list[Any]:
    half = len(both) // 2
    return [a * 0.99 + b * 0.01 for a, b in zip(both[:half], both[half:])]


def steps() -> Iterator[Kind]:
    flat = lambda: [numbers(1 << 26, dtype=SINGLE) for _ in range(3)]  # noqa: E731
    pieces = lambda n: lambda: [numbers(1 << 20) for _ in range(n)]  # noqa: E731

    def sgd(p: Any, g: Any, m: Any) -> tuple[Any, Any]:
        moved = m * 0.9 + g
        return p - 0.1 * moved, moved

    def lion(p: Any, g: Any, m: Any) -> tuple[Any, Any]:
        return p - 0.1 * torch.sign(m * 0.9 + g * 0.1), m * 0.99 + g * 0.01

    def quantised(x: Any, w: Any) -> Any:
        wide = x.float()
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, True) + 1e-6) * w
        return scaled(normed, 448).to(torch.float8_e4m3fn)

    yield "SGD with momentum", sgd, flat
    yield "Lion", lion, flat
    yield "clipped gradients, 32 of 1M", clipped, pieces(32)
    yield "moving averages, 32 of 1M", averaged, pieces(64)
    yield "rms_norm to float8_e4m3fn", quantised, lambda: [numbers(16384, 4096), numbers(4096)]
