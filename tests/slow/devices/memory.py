"""Programs of sizes at and beside blocks and vectors, for a checker of memory accesses.

``python -m tests.slow.devices memory`` starts itself under ``compute-sanitizer``, with an allocator
of its own (nvcc compiles it): each tensor is an allocation for itself, rounded to a vector, so that
what lies behind it belongs to nobody. Values are compared as well.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

import refcompiler
from tests.slow.devices.compare import difference, exact_products, run
from tests.slow.devices.pool import Found, Watched, lost

ALLOCATOR = """#include <cuda_runtime.h>
#include <sys/types.h>
extern "C" {
void *take(ssize_t size, int device, cudaStream_t stream) {
    void *p = 0; cudaMalloc(&p, (size + 15) / 16 * 16); return p; }
void give(void *p, ssize_t size, int device, cudaStream_t stream) { cudaFree(p); }
}
"""
INSIDE = "REFCOMPILER_TEST_ALLOCATOR"  # set where the checker runs: the allocator's library
SIZES = ((7, 13), (33, 1000), (64, 1001), (5, 4099), (130, 70), (3, 50257), (17, 2048), (1031, 67))
PRODUCTS = ((16, 256, 1024), (3, 1000, 4096), (129, 768, 50257), (704, 768, 5001), (17, 130, 1025))
IMAGES = ((2, 3, 17, 19), (1, 8, 32, 33), (3, 5, 7, 7))
ROWS: dict[str, Callable[..., Any]] = {
    "softmax": lambda x: torch.softmax(x, -1),
    "norm": lambda x: F.layer_norm(x, x.shape[-1:]) + x,
    "gelu, dropout": lambda x: F.dropout(F.gelu(x), 0.3),
    "columns": lambda x: (x.sum(0), x.float().var(0), x.mT.contiguous(), x.amax(0)),
    "rows": lambda x: (x.sum(-1), x.float().var(-1), x.float().logsumexp(-1), x.argmax(-1)),
    "an offset": lambda x: torch.softmax(x[1:, 3:], -1).t() + 1,
    "scans": lambda x: (x.float().cumsum(-1), x.float().cumsum(0)),
    "pieces": lambda x: (torch.cat([x, x * 2], -1), F.pad(x, (1, 2, 3, 4)), torch.stack([x, x], 1)),
    "flat": lambda x: x.flatten()[1:] * 2 + x.flatten()[:-1],
    "draws": lambda x: (torch.rand_like(x.float()), torch.randint_like(x.float(), 0, 9)),
}
PAIRS: dict[str, Callable[..., Any]] = {
    "head": lambda x, w: x @ w.t(),
    "gelu of a product": lambda x, w: F.gelu(x @ w.t(), approximate="tanh"),
    "turned": lambda x, w: F.silu(x @ w.t().contiguous()),
}
POOLS: dict[str, Callable[..., Any]] = {
    "pools": lambda x: (F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, 3)),
    "resized": lambda x: (F.interpolate(x, scale_factor=2), x.flip(-1), x.roll(2, -1)),
    "image norms": lambda x: (F.instance_norm(x), F.group_norm(x, 1)),
}


def programs() -> Iterator[tuple[str, Callable[..., Any], Callable[[str], list[torch.Tensor]]]]:
    """Name, function, and what makes its inputs on a device."""
    for dtype in (torch.bfloat16, torch.float32, torch.float16):
        for size in SIZES:
            for name, function in ROWS.items():
                yield f"{name} {dtype} {size}", function, _normal(dtype, size)
    for m, k, n in PRODUCTS:
        for name, function in PAIRS.items():
            yield f"{name} {m, k, n}", function, _normal(torch.bfloat16, (m, k), (n, k))
    for size in IMAGES:
        for name, function in POOLS.items():
            yield f"{name} {size}", function, _normal(torch.float32, size)


def _normal(dtype: torch.dtype, *sizes: tuple[int, ...]) -> Callable[[str], list[torch.Tensor]]:
    return lambda device: [torch.randn(size, device=device, dtype=dtype) for size in sizes]


def cases() -> list[str]:
    return [name for name, _, _ in programs()]


def check(name: str, device: str) -> Sequence[Found]:
    function, make = next((f, make) for known, f, make in programs() if known == name)
    exact_products()
    torch.manual_seed(1)
    inputs = make(device)
    found = []
    for gradients in (False, True):
        way = "with gradients" if gradients else "forward"
        given = [t.clone().requires_grad_(gradients) for t in inputs]
        try:
            refcompiler.reset()
            watched = Watched("fastpath")
            eager = run(function, given, {}, gradients)
            got = run(refcompiler.compile(function, backend=watched.backend), given, {}, gradients)
            bad, elements = difference(got, eager)
            made = Found(name, way, bad, elements=elements)
            found.append(watched.described(made))
            if device != "cpu":
                torch.cuda.synchronize()
        except Exception as error:
            found.append(lost(name, way, error))
    return found


def own_allocator() -> None:
    """Inside of the checker: allocate by what :data:`INSIDE` names."""
    if path := os.environ.get(INSIDE):
        allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "take", "give")
        torch.cuda.memory.change_current_allocator(allocator)


def under_checker(arguments: Sequence[str]) -> int | None:
    """Run ``python -m tests.slow.devices`` with these under the checker; its exit code, which is
    not 0 for an access outside, or None where it runs already. Raises SystemExit without one."""
    if INSIDE in os.environ:
        return None
    missing = [tool for tool in ("compute-sanitizer", "nvcc") if shutil.which(tool) is None]
    if missing:
        raise SystemExit(f"the battery of memory needs {' and '.join(missing)} on the PATH")
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "allocator.cu", Path(folder) / "allocator.so"
        source.write_text(ALLOCATOR)
        build = ["nvcc", "-shared", "-Xcompiler", "-fPIC", "-o", str(library), str(source)]
        subprocess.run(build, check=True)
        command = ["compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "9"]
        command += [sys.executable, "-m", "tests.slow.devices", *arguments]
        return subprocess.run(
            command, env={**os.environ, INSIDE: str(library)}, check=False
        ).returncode
