"""Everyday programs on the CPU against inductor: what people write, and few benchmarks have.

Each is one function of tensors of some 0.1 to 10 MB, processor time of one thread in turns; its
results are compared with eager's first. A kind that is slower than inductor's is the next to look
at. The section takes some ten minutes, most of it in the C++ compiler, and runs when it is named.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F

import fastpath
from benchmarks.cpu.measure import AGAINST, both, whole
from benchmarks.harness import Row, compare, one_thread

Kind = tuple[str, Callable[..., Any], list[Any]]
ROUNDS = 11
TOLERANCE = {torch.bfloat16: 3e-2}


def rows() -> list[Row]:
    torch.manual_seed(0)
    found = []
    with one_thread(), torch.no_grad():
        for name, function, inputs in kinds():
            row = _row(name, function, inputs)
            print(f"{row.name}: {row.ratio:.2f} {row.note}", flush=True)
            found.append(row)
    mean = whole(f"{len(found)} kinds (geometric mean; best and worst)", found, 1.0)
    return [replace(mean, goal=None), *found]


def _row(name: str, function: Callable[..., Any], inputs: list[Any]) -> Row:
    ours, theirs = both(function)
    tolerance = TOLERANCE.get(inputs[0].dtype, 2e-4)
    given = [[t.clone() for t in inputs] for _ in range(2)]
    torch.testing.assert_close(
        ours(*given[0]), function(*given[1]), rtol=tolerance, atol=tolerance, equal_nan=True
    )
    torch.testing.assert_close(*given, rtol=tolerance, atol=tolerance)  # what they have written
    report = fastpath.last_report()
    assert report is not None
    row = compare(
        name,
        lambda: ours(*inputs),
        lambda: theirs(*inputs),
        against=AGAINST,
        rounds=ROUNDS,
        clock=time.thread_time,
    )
    calls = sum(report.aten_calls.values())
    note = f"{report.kernels} kernels, {calls} ATen calls" if not report.fallback else "uncompiled"
    return replace(row, note=note)


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def integers(below: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, below, shape)


def kinds() -> Iterator[Kind]:
    for part in (attention, losses, graphs, images, sequences, small, writes, functions):
        yield from part()


def attention() -> Iterator[Kind]:
    def grouped(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    def masked(q: Any, k: Any, v: Any, bias: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)

    def by_hand(q: Any, k: Any, v: Any) -> Any:
        scores = (q @ k.transpose(-1, -2)) * 0.125
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        return scores.masked_fill(~seen, float("-inf")).softmax(-1) @ v

    def relative(scores: Any, table: Any) -> Any:
        i = torch.arange(256)
        return scores + table[:, (i[:, None] - i[None]).clamp(-32, 32) + 32]

    def slopes(scores: Any, slope: Any) -> Any:
        i = torch.arange(512)
        return (scores + slope[:, None, None] * (i[None] - i[:, None]).abs()).softmax(-1)

    heads = [numbers(2, 8, 128, 64) for _ in range(3)]
    yield "attention, grouped queries", grouped, [heads[0], *(t[:, :2].clone() for t in heads[1:])]
    yield "attention with a bias", masked, [*heads, numbers(2, 1, 128, 128)]
    yield "attention by hand, causal", by_hand, heads
    yield "relative positions", relative, [numbers(8, 256, 256), numbers(8, 65)]
    yield "slopes and softmax", slopes, [numbers(8, 512, 512), numbers(8)]

    def projected(x: Any, w: Any, q: Any, k: Any, v: Any) -> Any:
        h = x * torch.rsqrt(x.pow(2).mean(-1, True) + 1e-5) * w
        return h @ q, h @ k, h @ v

    def experts(x: Any, gate: Any, up: Any, down: Any) -> Any:
        value, place = (x @ gate).softmax(-1).topk(2, -1)
        out = torch.zeros_like(x)
        for e in range(4):
            weight = torch.where(place == e, value, 0.0).sum(-1, True)
            out = out + weight * (F.silu(x @ up[e]) @ down[e])
        return out

    def gated(x: Any, a: Any, b: Any, c: Any) -> Any:
        return (F.silu(x @ a) * (x @ b)) @ c

    weights = [numbers(512, n) for n in (512, 128, 128)]
    yield "rms_norm and projections", projected, [numbers(1, 64, 512), numbers(512), *weights]
    mixed = [numbers(64, 128), numbers(128, 4), numbers(4, 128, 256), numbers(4, 256, 128)]
    yield "mixture of experts", experts, [t * 0.1 for t in mixed]
    gates = [numbers(64, 256), numbers(256, 512), numbers(256, 512), numbers(512, 256)]
    yield "gated feed-forward", gated, [t * 0.1 for t in gates]


def losses() -> Iterator[Kind]:
    def focal(x: Any, t: Any) -> Any:
        p = F.binary_cross_entropy_with_logits(x, t, reduction="none")
        return ((1 - torch.exp(-p)) ** 2 * p).mean()

    def contrastive(a: Any, b: Any) -> Any:
        scores = F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).t() / 0.07
        return F.cross_entropy(scores, torch.arange(len(scores)))

    def divergence(a: Any, b: Any) -> Any:
        return F.kl_div(a.log_softmax(-1), b.softmax(-1), reduction="batchmean")

    def robust(x: Any, y: Any) -> Any:
        return F.smooth_l1_loss(x, y) + F.mse_loss(x, y) + (x - y).abs().max()

    def smooth(x: Any, t: Any) -> Any:
        return F.cross_entropy(x, t, label_smoothing=0.1)

    yield "focal loss", focal, [numbers(100, 1000), torch.rand(100, 1000)]
    yield "smoothed cross entropy", smooth, [numbers(256, 1000), integers(1000, 256)]
    yield "divergence", divergence, [numbers(256, 1000), numbers(256, 1000)]
    yield "contrastive loss", contrastive, [numbers(256, 128), numbers(256, 128)]
    yield "robust losses", robust, [numbers(500, 200), numbers(500, 200)]
    yield (
        "logsigmoid, softplus",
        lambda x: (F.logsigmoid(x).sum(), F.softplus(x).mean()),
        [numbers(500, 500)],
    )


def graphs() -> Iterator[Kind]:
    def convolved(x: Any, source: Any, target: Any, w: Any) -> Any:
        h = x @ w
        return torch.zeros_like(h).index_add(0, target, h[source]).relu()

    def attended(x: Any, source: Any, target: Any, a: Any) -> Any:
        e = F.leaky_relu((x[source] * a).sum(-1))
        most = torch.full((x.shape[0],), -1e9).scatter_reduce(0, target, e, "amax")
        weight = torch.exp(e - most[target])
        total = torch.zeros(x.shape[0]).index_add(0, target, weight)
        return torch.zeros_like(x).index_add(
            0, target, x[source] * (weight / total[target])[:, None]
        )

    def means(x: Any, i: Any) -> Any:
        count = torch.zeros(500).scatter_add(0, i, torch.ones(len(i)))
        total = torch.zeros(500, x.shape[1]).scatter_add(0, i[:, None].expand_as(x), x)
        return total / count.clamp(min=1)[:, None]

    def distances(a: Any, b: Any) -> Any:
        return ((a[:, None] - b[None]) ** 2).sum(-1).sqrt()

    edges = [integers(2000, 20000), integers(2000, 20000)]
    yield "graph convolution", convolved, [numbers(2000, 64), *edges, numbers(64, 64)]
    few = [t[:10000] for t in edges]
    yield "graph attention", attended, [numbers(2000, 32), *few, numbers(32)]
    yield "means by index", means, [numbers(10000, 16), integers(500, 10000)]
    yield "distances of points", distances, [numbers(200, 32), numbers(300, 32)]
    yield "counts", lambda x: torch.bincount(x, minlength=100), [integers(100, 10000)]


def images() -> Iterator[Kind]:
    def patches(x: Any) -> Any:
        cut = x.unfold(2, 16, 16).unfold(3, 16, 16)
        return cut.permute(0, 2, 3, 1, 4, 5).reshape(x.shape[0], -1, 768)

    def windows(x: Any) -> Any:
        b, h, w, c = x.shape
        cut = x.view(b, h // 8, 8, w // 8, 8, c).permute(0, 1, 3, 2, 4, 5)
        return cut.reshape(-1, 64, c).contiguous()

    def overlap(b: Any) -> Any:
        area = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
        low = torch.max(b[:, None, :2], b[None, :, :2])
        high = torch.min(b[:, None, 2:], b[None, :, 2:])
        common = (high - low).clamp(min=0).prod(-1)
        return common / (area[:, None] + area[None] - common)

    def normalised(x: Any, m: Any, v: Any, w: Any, b: Any) -> Any:
        return F.relu(F.batch_norm(x, m, v, w, b, True))

    def standard(x: Any) -> Any:
        return (x - x.mean((0, 2, 3), True)) / (x.std((0, 2, 3), keepdim=True) + 1e-5)

    yield "patches", patches, [numbers(4, 3, 224, 224)]
    yield "windows", windows, [numbers(2, 56, 56, 96)]
    yield "shifted windows", lambda x: torch.roll(x, (-4, -4), (1, 2)), [numbers(2, 56, 56, 96)]
    yield "pixel_shuffle", lambda x: F.pixel_shuffle(x, 2) * 2, [numbers(4, 64, 32, 32)]
    yield "overlap of boxes", overlap, [torch.rand(500, 4)]
    yield "instance norm", lambda x: F.instance_norm(x), [numbers(4, 32, 64, 64)]
    norm = [torch.zeros(64), torch.ones(64), numbers(64), numbers(64)]
    yield "batch norm in training", normalised, [numbers(16, 64, 28, 28), *norm]
    yield "standardised images", standard, [numbers(16, 3, 64, 64)]
    yield (
        "convolution by channel",
        lambda x, w: F.conv2d(x, w, padding=1, groups=64),
        [*(numbers(2, 64, 56, 56), numbers(64, 1, 3, 3))],
    )
    yield (
        "transposed convolution",
        lambda x, w: F.conv_transpose2d(x, w, stride=2),
        [*(numbers(2, 32, 16, 16), numbers(32, 16, 2, 2))],
    )
    yield (
        "samples by a grid",
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        [*(numbers(2, 16, 32, 32), torch.rand(2, 32, 32, 2) * 2 - 1)],
    )
    yield (
        "bicubic",
        lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
        [numbers(2, 3, 64, 64)],
    )
    yield "max_pool 3, 1", lambda x: F.max_pool2d(x, 3, 1, 1), [numbers(8, 16, 9, 9)]
    yield (
        "mixed up",
        lambda x, p: 0.3 * x + 0.7 * x[p],
        [numbers(32, 3, 64, 64), torch.randperm(32)],
    )
    yield (
        "cut out",
        lambda x, m: torch.where(m[:, None], x, 0.5),
        [*(numbers(16, 3, 64, 64), torch.rand(16, 64, 64) > 0.5)],
    )


def sequences() -> Iterator[Kind]:
    def positions(p: Any) -> Any:
        z = p[..., None] * (2 ** torch.arange(10) * 3.14159)
        return torch.cat([z.sin(), z.cos()], -1).flatten(-2)

    def rendered(density: Any, colour: Any, step: Any) -> Any:
        a = 1 - torch.exp(-F.relu(density) * step)
        clear = torch.cat([torch.ones_like(a[:, :1]), 1 - a + 1e-10], 1)
        return ((a * torch.cumprod(clear, 1)[:, :-1])[..., None] * colour).sum(1)

    def advantages(reward: Any, value: Any, going: Any) -> Any:
        found, last = [], torch.zeros(reward.shape[1])
        for t in range(31, -1, -1):
            off = reward[t] + 0.99 * value[t + 1] * going[t] - value[t]
            last = off + 0.95 * 0.99 * going[t] * last
            found.append(last)
        return torch.stack(found)

    def cell(x: Any, h: Any, c: Any, w: Any, u: Any, b: Any) -> Any:
        i, f, o, z = (x @ w + h @ u + b).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * z.tanh()
        return o.sigmoid() * c.tanh(), c

    def selective(x: Any, a: Any) -> Any:
        h, found = torch.zeros(x.shape[0], x.shape[2]), []
        for t in range(16):
            h = h * a[:, t] + x[:, t]
            found.append(h)
        return torch.stack(found, 1)

    yield "positions as waves", positions, [numbers(4096, 3)]
    yield (
        "rendered volumes",
        rendered,
        [*(numbers(1024, 64), numbers(1024, 64, 3), torch.rand(1024, 64))],
    )
    yield "advantages", advantages, [numbers(32, 64), numbers(33, 64), torch.ones(32, 64)]
    state = [numbers(16, 128), numbers(16, 128), numbers(16, 128)]
    yield "LSTM cell", cell, [*state, numbers(128, 512), numbers(128, 512), numbers(512)]
    yield "selective scan", selective, [numbers(8, 16, 256), torch.rand(8, 16, 256)]
    yield (
        "running means",
        lambda x: x.cumsum(1) / torch.arange(1, 257)[:, None],
        [numbers(8, 256, 64)],
    )
    yield (
        "convolution in time",
        lambda x, w, b: F.gelu(F.conv1d(x, w, b, padding=2)),
        [*(numbers(4, 64, 200), numbers(64, 64, 5), numbers(64))],
    )
    yield (
        "mean of embeddings",
        lambda i, w: F.embedding_bag(i, w, mode="mean"),
        [*(integers(1000, 64, 20), numbers(1000, 64))],
    )
    yield (
        "masked mean",
        lambda x, m: (x * m[..., None]).sum(1) / m.sum(1, keepdim=True),
        [*(numbers(16, 128, 64), torch.ones(16, 128))],
    )


def small() -> Iterator[Kind]:
    def clipped(a: Any, b: Any) -> Any:
        norm = (a.pow(2).sum() + b.pow(2).sum()).sqrt()
        factor = (1 / (norm + 1e-6)).clamp(max=1)
        return a * factor, b * factor

    def to_bytes(x: Any) -> Any:
        scale = x.abs().amax(-1, True) / 127
        return (x / scale).round().clamp(-127, 127).to(torch.int8).float() * scale

    def average(p: Any, q: Any) -> Any:
        p.mul_(0.99).add_(q, alpha=0.01)
        return p.sum()

    yield "rows to int8 and back", to_bytes, [numbers(256, 1024)]
    yield (
        "fake_quantize",
        lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127),
        [numbers(256, 1024)],
    )
    yield "clipped gradients", clipped, [numbers(512, 512), numbers(512)]
    yield "moving average", average, [numbers(512, 512), numbers(512, 512)]
    yield "topk", lambda x: tuple(x.topk(5, -1)), [numbers(256, 1000)]
    yield "sort", lambda x: x.sort(-1)[0] * 2, [numbers(256, 1000)]
    yield "median", lambda x: x.median(-1)[0], [numbers(256, 101)]
    yield "argmax, amax", lambda x: (x.argmax(-1), x.amax(-1)), [numbers(256, 1000)]
    yield "any, all", lambda x: ((x > 3).any(-1), (x > -3).all(-1)), [numbers(256, 1000)]
    yield (
        "one_hot, product",
        lambda t, w: F.one_hot(t, 100).float() @ w,
        [*(integers(100, 1000), numbers(100, 8))],
    )
    yield "outer, tril", lambda a, b: torch.outer(a, b).tril(), [numbers(500), numbers(500)]
    yield "two triangles", lambda x: x.tril(-1) + x.triu(1) * 2, [numbers(500, 500)]
    yield "every other column", lambda x: x[:, ::2] + x[:, 1::2], [numbers(512, 512)]
    yield "spectrum", lambda x: torch.fft.rfft(x).abs(), [numbers(64, 1024)]
    low = [numbers(64, 512).bfloat16(), numbers(512, 512).bfloat16()]
    yield "product, norm, bf16", lambda x, w: F.layer_norm((x @ w).float(), (512,)).bfloat16(), low


def writes() -> Iterator[Kind]:
    """By position: caches of keys and values, buffers, sums."""

    def cached(cache: Any, new: Any, place: Any) -> Any:
        cache.index_copy_(2, place, new)
        return cache[:, :, :4].sum()

    def put(cache: Any, new: Any, place: Any) -> Any:
        cache[:, :, place] = new
        return cache.select(2, 0) * 2

    def copied(cache: Any, new: Any, place: Any) -> Any:
        return cache.index_copy(2, place, new)

    def replayed(buffer: Any, place: Any, new: Any) -> Any:
        buffer.index_put_((place,), new)
        return new.mean()

    def decoded(q: Any, k: Any, v: Any, new: Any, place: Any) -> Any:
        k.index_copy_(2, place, new)
        v.index_copy_(2, place, new * 2)
        return F.scaled_dot_product_attention(q, k, v)

    cache, place = numbers(2, 8, 1024, 64), torch.tensor([17])
    yield "index_copy_ into a cache", cached, [cache, numbers(2, 8, 1, 64), place]
    yield "a cache written by a position", put, [cache, numbers(2, 8, 1, 64), place]
    yield "index_copy of a cache", copied, [cache, numbers(2, 8, 1, 64), place]
    yield (
        "index_put_ into a buffer",
        replayed,
        [*(numbers(10000, 32), torch.randperm(10000)[:256], numbers(256, 32))],
    )
    query = [numbers(1, 8, 1, 64), numbers(1, 8, 1024, 64), numbers(1, 8, 1024, 64)]
    yield "one token decoded", decoded, [*query, numbers(1, 8, 1, 64), place]
    yield (
        "index_add",
        lambda a, i, b: a.index_add(0, i, b),
        [*(numbers(1000, 64), integers(1000, 5000), numbers(5000, 64))],
    )
    yield (
        "scatter_add along rows",
        lambda a, i, b: a.scatter_add(1, i, b),
        [*(numbers(256, 256), integers(256, 256, 512), numbers(256, 512))],
    )
    yield (
        "scatter of a number",
        lambda a, i: a.scatter(1, i, 1.0),
        [*(numbers(256, 1000), integers(1000, 256, 20))],
    )


def functions() -> Iterator[Kind]:
    """Of single elements, which a kernel computes for as long as memory takes, or longer."""
    x, y = numbers(256, 1024), torch.rand(256, 1024) + 0.1
    unary: dict[str, Callable[..., Any]] = {
        "tanh": torch.tanh,
        "sigmoid": torch.sigmoid,
        "erf": torch.erf,
        "log1p of exp": lambda x: torch.log1p(torch.exp(x)),
        "mish": F.mish,
        "atan": torch.atan,
        "i0": torch.special.i0,
        "lgamma, negative too": torch.lgamma,
        "erfinv": lambda x: torch.erfinv(torch.tanh(x)),
        "tan": torch.tan,
        "cube": lambda x: x**3,
    }
    for name, function in unary.items():
        yield name, function, [x]
    yield "pow", torch.pow, [y, x]
    yield "atan2", torch.atan2, [x, y]
    yield "fmod", torch.fmod, [x, y]
    whole = [integers(1000, 256, 1024) - 500, integers(50, 256, 1024) + 1]
    yield "int64 remainder", torch.remainder, whole
    yield "int64 fmod", torch.fmod, whole
