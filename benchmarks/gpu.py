"""Compiled functions and models on a CUDA device, against inductor in one process.

Times are of calls in a row up to the end of their work on the device. ``share`` is what a kernel
reads and writes, at least, as a share of what a copy of 2 GB moves in the same time.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import fastpath
import refcompiler
from benchmarks.harness import Row, calls_to_fill, compare, table, time_of

Work = tuple[Callable[..., Any], list[Any], float | None]
HALF = torch.bfloat16
FEW = 1.02  # the ratio that no kernel should exceed
TUNED = "max-autotune-no-cudagraphs"  # in benchmarks/gpu_more.py
#: The memory-bound workloads that the goal of their mean speaks of; the others were added.
NAMED = (
    "gelu chain 8192^2 bf16",
    "sin + cos 64M f32",
    "softmax 16384x4096 bf16",
    "softmax f32 of 4096x50257 bf16",
    "layer_norm 16384x4096 bf16",
    "residual rms_norm 16384x4096 bf16",
    "cross entropy 8192x50257 bf16",
    "column sum 16384x4096 bf16",
    "x + 2*y.t() 8192^2 f32",
    "relu, dropout, add 8192^2 bf16",
    "AdamW 64M f32",
)
#: Kinds of kernels that were not among the workloads before a sweep of 197 found them wanting, or
#: not measured: their mean is shown with and without them.
ADDED = (
    "cumulative sum of rows 16384x4096 f32",
    "softmax between 64x512x2048 bf16",
    "rows to float8_e4m3fn 16384x4096 bf16",
    "embedding 131072 of 50257x1024 bf16",
    "interleaved rotary 16x32x1024x128 bf16",
    "group norm 64x256x56x56 bf16",
    "x + noise 64M f32",
)
SUFFIX = {None: "", "reduce-overhead": ", device graphs", TUNED: ", measured products"}


def clock() -> float:
    torch.cuda.synchronize()
    return time.perf_counter()


def rows() -> list[Row]:
    if not torch.cuda.is_available():
        raise SystemExit("the section gpu needs a CUDA device: leave it out, or run it on one")
    torch.manual_seed(0)
    found = kernel_rows()
    multiplied = [product_row(*product, None) for product in products()]
    modelled = [model_row(name, *work) for name, work in models()]
    recorded = [model_row(name, *work, mode="reduce-overhead") for name, work in models()]
    small = entered()
    return [*found, *multiplied, *modelled, small, *recorded]


def kernel_rows() -> list[Row]:
    """Of the memory-bound kernels, their means first."""
    copied = bandwidth()
    found = [kernel_row(name, work, copied) for name, work in kernels()]
    whole = summed(found, "all kernels")
    former = [row for row in found if row.name not in ADDED]
    before = summed(former, f"the {len(former)} of before")
    named = summed([row for row in found if row.name in NAMED], f"the {len(NAMED)} of the goal")
    return [whole, before, named, *found]


def summed(rows: list[Row], what: str) -> Row:
    """The geometric mean of the ratios of ``rows``."""
    ratios = [row.ratio for row in rows]
    return replace(
        rows[0],
        name=f"{what} (geometric mean; best and worst)",
        ours=sum(row.ours for row in rows),
        theirs=sum(row.theirs for row in rows),
        ratio=math.exp(statistics.fmean(math.log(ratio) for ratio in ratios)),
        low=min(ratios),
        high=max(ratios),
        goal=0.65,
        note="",
    )


def bandwidth() -> float:
    """Bytes per second that a copy reads and writes."""
    source = torch.empty(1 << 31, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    number = calls_to_fill(lambda: target.copy_(source), 0.1, clock)
    return 2 * source.numel() / time_of(lambda: target.copy_(source), number, clock)


def numbers(*shape: int, dtype: torch.dtype = HALF) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=dtype)


def adamw(p: Any, g: Any, m: Any, v: Any) -> tuple[Any, Any, Any]:
    m = m * 0.9 + g * 0.1
    v = v * 0.999 + g * g * 0.001
    step = (v / 0.02).sqrt() + 1e-8
    return p * (1 - 1e-5) - 0.01 * m / step, m, v


def rms_norm(x: Any, y: Any, w: Any) -> Any:
    both = (x + y).float()
    return (both * torch.rsqrt(both.pow(2).mean(-1, True) + 1e-6) * w).to(HALF)


def rotary(x: Any, cos: Any, sin: Any) -> Any:
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], -1)
    return x * cos + turned * sin


def kernels() -> Iterator[tuple[str, Work]]:
    """Name, function, inputs and goal; made one after the other, since they are large."""
    square = numbers(8192, 8192)
    yield "gelu chain 8192^2 bf16", (lambda x: F.gelu(x * 2 + 1) * x, [square], FEW)
    yield "relu, dropout, add 8192^2 bf16", (dropped, [square, numbers(8192, 8192)], 0.5)
    yield "silu-mul 8192^2 bf16", (lambda x, y: F.silu(x) * y, [square, numbers(8192, 8192)], FEW)
    yield "to f32 and back 8192^2", (lambda x: (x.float() * 1.7).to(HALF), [square], FEW)
    yield "transposed copy 8192^2 bf16", (lambda x: x.t().contiguous(), [square], FEW)
    single = numbers(8192, 8192, dtype=torch.float32)
    yield "x + 2*y.t() 8192^2 f32", (lambda x, y: x + 2 * y.t(), [single, single.clone()], FEW)
    del square, single
    flat = numbers(64 << 20, dtype=torch.float32)
    yield "sin + cos 64M f32", (lambda x: x.sin() + x.cos(), [flat], FEW)
    yield "sum of 64M f32", (lambda x: x.sum(), [flat], FEW)
    yield "rand 64M f32", (lambda x: torch.rand_like(x), [flat], 0.5)
    yield "AdamW 64M f32", (adamw, [flat, flat.clone(), flat.clone(), flat.abs()], FEW)
    yield "x + noise 64M f32", (lambda x: x + torch.randn_like(x), [flat], 0.5)
    del flat
    odd = numbers((1 << 26) - 1)
    yield "gelu of 2^26 - 1 bf16", (lambda x: F.gelu(x), [odd], FEW)
    rows = numbers(16384, 4096)
    weight, bias = numbers(4096), numbers(4096)
    yield "softmax 16384x4096 bf16", (lambda x: torch.softmax(x, -1), [rows], FEW)
    yield "log_softmax 16384x4096 bf16", (lambda x: torch.log_softmax(x, -1), [rows], FEW)
    norm = (lambda x, w, b: F.layer_norm(x, (4096,), w, b), [rows, weight, bias], FEW)
    yield "layer_norm 16384x4096 bf16", norm
    yield "residual rms_norm 16384x4096 bf16", (rms_norm, [rows, rows.clone(), weight], FEW)
    yield "bias, relu 16384x4096 bf16", (lambda x, b: torch.relu(x + b), [rows, bias], FEW)
    yield "variance of rows 16384x4096 bf16", (lambda x: x.float().var(-1), [rows], FEW)
    yield "column sum 16384x4096 bf16", (lambda x: x.sum(0), [rows], FEW)
    yield "column mean, variance 16384x4096 bf16", (moments, [rows], FEW)
    yield "rows to float8_e4m3fn 16384x4096 bf16", (quantised, [rows], FEW)
    rows = rows.float()
    yield "cumulative sum of rows 16384x4096 f32", (lambda x: x.cumsum(-1), [rows], FEW)
    del rows
    tall = numbers(131072, 4096)
    yield "column sum 131072x4096 bf16", (lambda x: x.sum(0), [tall], FEW)
    del tall
    words = numbers(8192, 50257)
    targets = torch.randint(50257, (8192,), device="cuda")
    yield "cross entropy 8192x50257 bf16", (F.cross_entropy, [words, targets], FEW)
    words = words[:4096].clone()
    yield "softmax f32 of 4096x50257 bf16", (lambda x: torch.softmax(x.float(), -1), [words], FEW)
    narrow = numbers(1 << 18, 256)
    yield "softmax 262144x256 bf16", (lambda x: torch.softmax(x, -1), [narrow], FEW)
    yield "softmax 65536x1000 bf16", (lambda x: torch.softmax(x, -1), [numbers(1 << 16, 1000)], FEW)
    heads = numbers(16, 32, 1024, 128)
    angles = numbers(1024, 128)
    yield "rotary embedding 16x32x1024x128 bf16", (rotary, [heads, angles, angles.clone()], FEW)
    half = angles[:, :64].contiguous()
    turns = (turned_in_pairs, [heads, half, half.clone()], FEW)
    yield "interleaved rotary 16x32x1024x128 bf16", turns
    del heads
    ids = torch.randint(50257, (131072,), device="cuda")
    vectors = numbers(50257, 1024)
    yield (
        "embedding 131072 of 50257x1024 bf16",
        (lambda i, t: F.embedding(i, t), [ids, vectors], FEW),
    )
    between = numbers(64, 512, 2048)
    yield "softmax between 64x512x2048 bf16", (lambda x: torch.softmax(x, 1), [between], FEW)
    images, scale = numbers(64, 256, 56, 56), numbers(256)
    grouped = (lambda x, w, b: F.group_norm(x, 32, w, b), [images, scale, scale.clone()], FEW)
    yield "group norm 64x256x56x56 bf16", grouped


def dropped(x: Any, y: Any) -> Any:
    return F.dropout(torch.relu(x), 0.1) + y


def quantised(x: Any) -> tuple[Any, Any]:
    wide = x.float()
    scale = wide.abs().amax(-1, True) / 448
    return (wide / scale).to(torch.float8_e4m3fn), scale


def turned_in_pairs(x: Any, cos: Any, sin: Any) -> Any:
    one, other = x[..., ::2], x[..., 1::2]
    return torch.stack([one * cos - other * sin, one * sin + other * cos], -1).flatten(-2)


def moments(x: Any) -> tuple[Any, Any]:
    wide = x.float()
    return wide.mean(0), wide.var(0)


class Layer(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = (
            self.mix(self.first(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        y = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.second(x)), approximate="tanh"))


class Decoder(nn.Module):
    """GPT-2's shape: 12 layers of 768, with a head of 50257 words."""

    def __init__(self, layers: int = 12, width: int = 768, words: int = 50257):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(1024, width)
        self.layers = nn.ModuleList(Layer(width, width // 64) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.words(ids) + self.places(places)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def models() -> Iterator[tuple[str, tuple[Any, list[Any], bool]]]:
    layers = [part for _ in range(8) for part in (nn.Linear(1024, 1024), nn.GELU())]
    mlp = nn.Sequential(*layers).cuda().to(HALF)
    yield "MLP 8x1024, batch 16, inference", (mlp, [numbers(16, 1024)], False)
    decoder = Decoder().cuda().to(HALF)
    ids = torch.randint(50257, (8, 512), device="cuda")
    yield "GPT-2 12 layers, 8x512, inference", (decoder, [ids], False)
    yield "GPT-2 12 layers, 8x512, training step", (decoder, [ids], True)


def kernel_row(name: str, work: Work, copied: float) -> Row:
    function, inputs, goal = work
    ours, theirs = both(function)
    with torch.no_grad():
        row = compared(name, ours, theirs, lambda f: f(*inputs), goal, 0.02)
        result = function(*inputs)
    results = result if isinstance(result, (tuple, list)) else (result,)
    moved = sum(t.numel() * t.element_size() for t in (*inputs, *results))
    report = fastpath.last_report()
    kernels = report.kernels if report is not None else 0
    calls = sum(report.aten_calls.values()) if report is not None else 0
    shares = f"share {moved / row.ours / copied:.2f}, theirs {moved / row.theirs / copied:.2f}"
    return shown(replace(row, note=f"{shares}; {kernels} kernels, {calls} ATen calls"))


def products() -> Iterator[tuple[str, Callable[..., Any], list[Any]]]:
    """Matrix products with elementwise work on what they give."""
    yield "gelu of a product 4096^3 bf16", lambda a, b: F.gelu(a @ b), [numbers(4096, 4096)] * 2
    wide = [numbers(4096, 768), numbers(3072, 768), numbers(3072)]
    yield "linear 4096x768x3072, gelu", lambda x, w, b: F.gelu(F.linear(x, w, b)), wide
    deep = [numbers(4096, 3072), numbers(768, 3072), numbers(768), numbers(4096, 768)]
    yield "linear 4096x3072x768, residual", lambda x, w, b, y: F.linear(x, w, b) + y, deep
    few = [numbers(16, 4096), numbers(4096, 4096)]
    yield "silu of a product 16x4096x4096", lambda x, w: F.silu(x @ w), few


def convolutions() -> Iterator[tuple[str, Callable[..., Any], list[Any]]]:
    """Convolutions of images with their channels last, with elementwise work on what they give."""
    for batch, channels, size, window in ((32, 64, 56, 3), (32, 128, 28, 3), (32, 64, 56, 1)):
        out = channels if window > 1 else 4 * channels
        given = [numbers(batch, channels, size, size), numbers(out, channels, window, window)]
        given += [numbers(batch, out, size, size)]
        inputs = [t.contiguous(memory_format=torch.channels_last) for t in given]

        def layer(x: Any, w: Any, y: Any, b: Any, padding: int = window // 2) -> Any:
            return F.relu(F.conv2d(x, w, b, padding=padding) + y)

        name = (
            f"convolution {batch}x{channels}x{size}^2 to {out}, {window}x{window}, residual, relu"
        )
        yield name, layer, [*inputs, numbers(out)]


def product_row(
    name: str, function: Callable[..., Any], inputs: list[Any], mode: str | None
) -> Row:
    ours, theirs = both(function, mode)
    with torch.no_grad():
        return shown(compared(name + SUFFIX[mode], ours, theirs, lambda f: f(*inputs), 1.0, 0.02))


def entered() -> Row:
    """A function of so little work that its launches are all, as device graphs."""
    ours, theirs = both(lambda x, y: F.gelu(x * y + 1), "reduce-overhead")
    inputs = [torch.randn(64, 64, device="cuda") for _ in range(2)]

    def run(compiled: Callable[..., Any]) -> None:
        torch.compiler.cudagraph_mark_step_begin()
        compiled(*inputs)

    return shown(compared("entering a small graph, device graphs", ours, theirs, run, 0.2, 0.05))


def model_row(
    name: str, model: nn.Module, inputs: list[Any], training: bool, mode: str | None = None
) -> Row:
    ours, theirs = both(model, mode)

    def run(compiled: Callable[..., Any]) -> None:
        if not training:
            with torch.no_grad():
                compiled(*inputs)
            return
        out = compiled(*inputs)
        F.cross_entropy(out.flatten(0, 1).float(), inputs[0].flatten()).backward()
        model.zero_grad(set_to_none=True)

    return shown(compared(name + SUFFIX[mode], ours, theirs, run, 0.9, 0.05))


def compared(
    name: str,
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    run: Callable[[Callable[..., Any]], Any],
    goal: float | None,
    sample: float,
) -> Row:
    """``run`` of either function, in turns; ``sample``: seconds of each measurement, about."""
    return compare(
        name,
        lambda: run(ours),
        lambda: run(theirs),
        against="inductor",
        goal=goal,
        rounds=9,
        sample=sample,
        clock=clock,
    )


def both(
    function: Callable[..., Any], mode: str | None = None
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    refcompiler.reset()
    torch.compiler.reset()
    ours = refcompiler.compile(function, backend="fastpath", fullgraph=True, mode=mode)
    return ours, torch.compile(function, dynamic=False, mode=mode)


def shown(row: Row) -> Row:
    """Print its line of the table at once: the whole takes minutes."""
    print(table([row]).splitlines()[-1], flush=True)
    return row
