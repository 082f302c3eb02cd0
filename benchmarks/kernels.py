"""Generated CPU kernels against ``torch.compile`` with inductor: speed, and the first compile.

    python benchmarks/kernels.py [--only NAME ...] [--rounds N] [--compile] [--write]

Both run in one process, turn by turn, so that a busy machine hits both; figures are ratios of
medians (below 1 is faster than inductor). ``--compile`` measures the first compile of a small
model, each in a fresh process with empty caches. ``--write`` writes docs/benchmark-kernels.md.
"""

from __future__ import annotations

import argparse
import gc
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

Case = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]
ROOT = pathlib.Path(__file__).resolve().parent.parent


def cases() -> dict[str, Case]:
    """Every case works on about a million elements, except where its name says otherwise."""
    torch.manual_seed(0)
    n = 1 << 20
    a, b, c = (torch.randn(n) for _ in range(3))
    rows = torch.randn(1024, 1024)
    other = torch.randn(1024, 1024)
    weight, bias = torch.randn(1024), torch.randn(1024)
    small = torch.randn(64, 64), torch.randn(64, 64)
    half = rows.to(torch.bfloat16)
    return {
        "mul-add-relu": (lambda x, y, z: torch.relu(x * y + z), (a, b, c)),
        "gelu-tanh chain": (lambda x, y: F.gelu(x * y, approximate="tanh") + x, (a, b)),
        "gelu-erf chain": (lambda x, y: F.gelu(x + y) * y, (a, b)),
        "silu-mul": (lambda x, y: F.silu(x) * y, (a, b)),
        "sigmoid-tanh": (lambda x, y: torch.sigmoid(x) * torch.tanh(y), (a, b)),
        "sin-cos": (lambda x: torch.sin(x) + torch.cos(x), (a,)),
        "broadcast bias gelu": (lambda x, y: F.gelu(x + y), (rows, bias)),
        "softmax 1024x1024": (lambda x: torch.softmax(x, -1), (rows,)),
        "log_softmax 1024x1024": (lambda x: torch.log_softmax(x, -1), (rows,)),
        "layer_norm 1024x1024": (
            lambda x, w, b: F.layer_norm(x, (1024,), w, b),
            (rows, weight, bias),
        ),
        "add layer_norm gelu": (
            lambda x, y, w, b: F.gelu(F.layer_norm(x + y, (1024,), w, b)),
            (rows, other, weight, bias),
        ),
        "rms_norm 1024x1024": (
            lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w,
            (rows, weight),
        ),
        "rms_norm bfloat16": (
            lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w,
            (half, weight.to(torch.bfloat16)),
        ),
        "row sum": (lambda x: x.sum(-1), (rows,)),
        "row max": (lambda x: x.amax(-1), (rows,)),
        "row variance": (lambda x: x.var(-1), (rows,)),
        "column sum": (lambda x: x.sum(0), (rows,)),
        "column mean of squares": (lambda x: (x * x).mean(0), (rows,)),
        "sum of everything": (lambda x: (x * x).sum(), (a,)),
        "x + y.t()": (lambda x, y: x + y.t(), (rows, other)),
        "int64 chain": (
            lambda x, y: (x * y + 7) & 255,
            (torch.randint(0, 1000, (n,)), torch.randint(0, 1000, (n,))),
        ),
        "where and compare": (lambda x, y: torch.where(x > y, x, y * 0.5), (a, b)),
        "64x64 mul-add-relu": (lambda x, y: torch.relu(x * y + x), small),
    }


def compile_directly(function: Callable[..., Any], inputs: tuple[torch.Tensor, ...]) -> Any:
    """The callable that the backend makes of the traced function, without a front end."""
    import fastpath

    return fastpath.compile_graph(torch.fx.symbolic_trace(function), list(inputs))


def measure(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median seconds a call, the contestants taking turns."""
    repeats = {}
    for name, run in runs.items():
        run()
        run()
        start = time.perf_counter()
        run()
        repeats[name] = max(1, min(200, int(0.002 / (time.perf_counter() - start + 1e-9))))
    times: dict[str, list[float]] = {name: [] for name in runs}
    gc.disable()
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                run()
            times[name].append((time.perf_counter() - start) / repeats[name])
    gc.enable()
    return {name: statistics.median(t) for name, t in times.items()}


def kernel_table(only: list[str], rounds: int) -> list[tuple[str, float, float, float, float]]:
    """Rows of name, microseconds of inductor, fastpath under torch.compile, fastpath called
    directly, and the largest difference between the two results."""
    import fastpath

    table = []
    for name, (function, inputs) in cases().items():
        if only and name not in only:
            continue
        torch._dynamo.reset()
        with torch.no_grad():
            inductor = torch.compile(function)
            ours = torch.compile(function, backend=fastpath.backend)
            direct = compile_directly(function, inputs)
            difference = (inductor(*inputs).double() - ours(*inputs).double()).abs().max().item()
            runs = {
                "inductor": lambda: inductor(*inputs),
                "ours": lambda: ours(*inputs),
                "direct": lambda: direct(*inputs),
            }
            t = {k: v * 1e6 for k, v in measure(runs, rounds).items()}
        table.append((name, t["inductor"], t["ours"], t["direct"], difference))
        print(
            f"{name:26s} inductor {t['inductor']:9.1f} us   fastpath {t['ours']:9.1f} us "
            f"({t['ours'] / t['inductor']:.2f})   called directly {t['direct']:9.1f} us "
            f"({t['direct'] / t['inductor']:.2f})   difference {difference:.1e}",
            flush=True,
        )
    return table


_FIRST = """
import sys, time, torch
import torch.nn as nn
model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 10)).eval()
x = torch.randn(32, 64)
backend = sys.argv[1]
if backend == "fastpath":
    sys.path.insert(0, sys.argv[2])
    from fastpath import backend
with torch.no_grad():
    start = time.perf_counter()
    torch.compile(model, backend=backend)(x)
    print(time.perf_counter() - start)
"""


def first_compile() -> dict[str, float]:
    """Seconds of the first call of a small model in a fresh process with empty caches."""
    found = {}
    for name in ("inductor", "fastpath"):
        with tempfile.TemporaryDirectory() as cache:
            environment = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=cache, TRITON_CACHE_DIR=cache)
            done = subprocess.run(
                [sys.executable, "-c", _FIRST, name, str(ROOT)],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
        found[name] = float(done.stdout.split()[-1])
        print(f"first compile with {name}: {found[name]:.2f} s", flush=True)
    return found


def write(table: list[tuple[str, float, float, float, float]], first: dict[str, float]) -> None:
    lines = [
        "# Generated CPU kernels against inductor",
        "",
        f"torch {torch.__version__}, {torch.get_num_threads()} threads; medians, interleaved in one"
        " process; written by `python benchmarks/kernels.py --compile --write`. Ratios below 1 are"
        " faster than inductor.",
        "",
        "| case | inductor, us | fastpath in torch.compile, us | ratio | called directly, us |"
        " ratio |",
        "|---|---|---|---|---|---|",
    ]
    for name, inductor, ours, direct, _ in table:
        lines.append(
            f"| {name} | {inductor:.1f} | {ours:.1f} | {ours / inductor:.2f} | {direct:.1f} |"
            f" {direct / inductor:.2f} |"
        )
    if first:
        ratio = first["fastpath"] / first["inductor"]
        lines += [
            "",
            f"First compile of a small MLP, cold, in a fresh process: inductor"
            f" {first['inductor']:.1f} s, fastpath {first['fastpath']:.1f} s (ratio {ratio:.2f}).",
        ]
    (ROOT / "docs" / "benchmark-kernels.md").write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], help="names of cases")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--compile", action="store_true", help="measure the first compile too")
    parser.add_argument("--write", action="store_true", help="write docs/benchmark-kernels.md")
    options = parser.parse_args()
    unknown = set(options.only) - set(cases())
    if unknown:
        parser.error(f"no case {sorted(unknown)[0]!r}; there are: {', '.join(cases())}")
    table = kernel_table(options.only, options.rounds)
    first = first_compile() if options.compile else {}
    if options.write:
        write(table, first)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
