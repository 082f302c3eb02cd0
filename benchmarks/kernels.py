"""Kernels: compiled functions of about a million elements, where a call is mostly its kernel.

    python -m benchmarks.kernels [--only NAME ...] [--rounds N] [--direct] [--serial]

prints chosen cases; ``--direct`` leaves out the front end's entry on our side, to see the kernel
and its wrapper alone; ``--serial`` takes one thread, and the processor time of that thread, which
a busy machine does not disturb much.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Collection
from typing import Any

import torch
import torch.nn.functional as F

import fastpath
import refcompiler
from benchmarks.harness import Row, compare, one_thread, table

GOAL = 0.8  # for pointwise chains and reductions along rows
Case = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]

# Cases that the goal is not about: other layouts, whole-tensor reductions, small inputs.
WITHOUT_GOAL = frozenset(
    {"column sum", "column mean of squares", "sum of everything", "x + y.t()", "64x64 mul-add-relu"}
)


def cases() -> dict[str, Case]:
    """Every case works on about a million elements, except where its name says otherwise."""
    torch.manual_seed(0)
    n = 1 << 20
    a, b, c = (torch.randn(n) for _ in range(3))
    square = torch.randn(1024, 1024)
    other = torch.randn(1024, 1024)
    weight, bias = torch.randn(1024), torch.randn(1024)
    small = torch.randn(64, 64), torch.randn(64, 64)
    half = square.to(torch.bfloat16)
    return {
        "mul-add-relu": (lambda x, y, z: torch.relu(x * y + z), (a, b, c)),
        "gelu-tanh chain": (lambda x, y: F.gelu(x * y, approximate="tanh") + x, (a, b)),
        "gelu-erf chain": (lambda x, y: F.gelu(x + y) * y, (a, b)),
        "silu-mul": (lambda x, y: F.silu(x) * y, (a, b)),
        "sigmoid-tanh": (lambda x, y: torch.sigmoid(x) * torch.tanh(y), (a, b)),
        "sin-cos": (lambda x: torch.sin(x) + torch.cos(x), (a,)),
        "broadcast bias gelu": (lambda x, y: F.gelu(x + y), (square, bias)),
        "softmax 1024x1024": (lambda x: torch.softmax(x, -1), (square,)),
        "log_softmax 1024x1024": (lambda x: torch.log_softmax(x, -1), (square,)),
        "layer_norm 1024x1024": (
            lambda x, w, b: F.layer_norm(x, (1024,), w, b),
            (square, weight, bias),
        ),
        "add layer_norm gelu": (
            lambda x, y, w, b: F.gelu(F.layer_norm(x + y, (1024,), w, b)),
            (square, other, weight, bias),
        ),
        "rms_norm 1024x1024": (
            lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w,
            (square, weight),
        ),
        "rms_norm bfloat16": (
            lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w,
            (half, weight.to(torch.bfloat16)),
        ),
        "row sum": (lambda x: x.sum(-1), (square,)),
        "row max": (lambda x: x.amax(-1), (square,)),
        "row variance": (lambda x: x.var(-1), (square,)),
        "column sum": (lambda x: x.sum(0), (square,)),
        "column mean of squares": (lambda x: (x * x).mean(0), (square,)),
        "sum of everything": (lambda x: (x * x).sum(), (a,)),
        "x + y.t()": (lambda x, y: x + y.t(), (square, other)),
        "int64 chain": (
            lambda x, y: (x * y + 7) & 255,
            (torch.randint(0, 1000, (n,)), torch.randint(0, 1000, (n,))),
        ),
        "where and compare": (lambda x, y: torch.where(x > y, x, y * 0.5), (a, b)),
        "64x64 mul-add-relu": (lambda x, y: torch.relu(x * y + x), small),
    }


def compile_directly(function: Callable[..., Any], inputs: tuple[torch.Tensor, ...]) -> Any:
    """The callable that the backend makes of the traced function, without a front end."""
    return fastpath.compile_graph(torch.fx.symbolic_trace(function), list(inputs))


def rows(
    only: Collection[str] = (), *, rounds: int = 31, direct: bool = False, serial: bool = False
) -> list[Row]:
    """One row a case, for inference: ours is `refcompiler.compile` or, if ``direct``, the backend's
    callable itself. Raises ``AssertionError`` when a result is not eager's."""
    clock = time.thread_time if serial else time.perf_counter
    with torch.no_grad(), one_thread() if serial else contextlib.nullcontext():
        return [
            kernel_row(name, *case, rounds=rounds, direct=direct, clock=clock)
            for name, case in cases().items()
            if not only or name in only
        ]


def kernel_row(
    name: str,
    function: Callable[..., Any],
    inputs: tuple[torch.Tensor, ...],
    *,
    rounds: int,
    direct: bool,
    clock: Callable[[], float],
) -> Row:
    refcompiler.reset()
    torch.compiler.reset()
    theirs = torch.compile(function)
    ours = compile_directly(function, inputs) if direct else refcompiler.compile(function)
    found = ours(*inputs)
    (result,) = found if isinstance(found, list | tuple) else (found,)
    tolerance = 2e-2 if result.dtype is torch.bfloat16 else 1e-4
    torch.testing.assert_close(result, function(*inputs), rtol=tolerance, atol=tolerance)
    return compare(
        name,
        lambda: ours(*inputs),
        lambda: theirs(*inputs),
        against="`torch.compile`",
        goal=None if name in WITHOUT_GOAL else GOAL,
        rounds=rounds,
        clock=clock,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="names of cases")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--direct", action="store_true", help="without our front end's entry")
    parser.add_argument("--serial", action="store_true", help="one thread, by its processor time")
    options = parser.parse_args()
    known = cases()
    if unknown := set(options.only) - set(known):
        parser.error(f"no case {min(unknown)!r}; there are: {', '.join(known)}")
    chosen = rows(options.only, rounds=options.rounds, direct=options.direct, serial=options.serial)
    print(table(chosen))


if __name__ == "__main__":
    main()
