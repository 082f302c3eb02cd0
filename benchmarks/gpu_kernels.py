"""The memory-bound kernels of :mod:`benchmarks.gpu` in several processes, one after the other:
inductor's times of some of them differ from one process to the next by half, ours by little.

A row has the median of each side over the runs, and of the runs' ratios, with the least and the
greatest of these in brackets.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace

import torch

from benchmarks.gpu import kernel_rows
from benchmarks.harness import Row

RUNS = 3


def rows() -> list[Row]:
    if not torch.cuda.is_available():
        raise SystemExit("the section gpu_kernels needs a CUDA device: leave it out, or use one")
    return [over_runs(each) for each in zip(*[one_run() for _ in range(RUNS)], strict=True)]


def over_runs(found: Sequence[Row]) -> Row:
    ratios = [row.ratio for row in found]
    return replace(
        found[0],
        ours=statistics.median(row.ours for row in found),
        theirs=statistics.median(row.theirs for row in found),
        ratio=statistics.median(ratios),
        low=min(ratios),
        high=max(ratios),
        rounds=len(found),
        note="; ".join(f"{row.ratio:.3f}" for row in found),
    )


def one_run() -> list[Row]:
    """What a process of its own measures."""
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu_kernels"], stdout=subprocess.PIPE, check=True
    )
    return [Row(**each) for each in json.loads(ran.stdout.splitlines()[-1])]


if __name__ == "__main__":
    torch.manual_seed(0)
    print(json.dumps([asdict(row) for row in kernel_rows()]))
